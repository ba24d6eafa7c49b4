//! The searchable languages: names, file extensions, grammars.

use tree_sitter::Language;

/// A grammar and its files.
pub(crate) struct Grammar {
    /// The name used in searches.
    pub name: &'static str,
    /// Aliases of the name.
    pub aliases: &'static [&'static str],
    /// Extensions of its files, without the dot.
    pub extensions: &'static [&'static str],
    /// The name of another grammar whose files belong to the same language.
    pub dialect: Option<&'static str>,
    /// The grammar.
    pub language: fn() -> Language,
}

/// Creates a row of the table.
const fn grammar(
    name: &'static str,
    aliases: &'static [&'static str],
    extensions: &'static [&'static str],
    language: fn() -> Language,
) -> Grammar {
    Grammar { name, aliases, extensions, dialect: None, language }
}

/// All grammars. Elsewhere a grammar is identified by its index.
pub(crate) static GRAMMARS: [Grammar; 13] = [
    grammar("rust", &["rs"], &["rs"], || tree_sitter_rust::LANGUAGE.into()),
    grammar("python", &["py"], &["py", "pyi", "pyw"], || tree_sitter_python::LANGUAGE.into()),
    grammar("javascript", &["js", "jsx"], &["js", "jsx", "mjs", "cjs"], || {
        tree_sitter_javascript::LANGUAGE.into()
    }),
    Grammar {
        dialect: Some("tsx"),
        ..grammar("typescript", &["ts"], &["ts", "mts", "cts"], || {
            tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into()
        })
    },
    grammar("tsx", &[], &["tsx"], || tree_sitter_typescript::LANGUAGE_TSX.into()),
    grammar("go", &["golang"], &["go"], || tree_sitter_go::LANGUAGE.into()),
    grammar("java", &[], &["java"], || tree_sitter_java::LANGUAGE.into()),
    grammar("c", &[], &["c", "h"], || tree_sitter_c::LANGUAGE.into()),
    grammar(
        "cpp",
        &["c++", "cxx", "cc"],
        &["cpp", "cc", "cxx", "c++", "hpp", "hh", "hxx", "h++", "h", "ipp", "inl", "tpp"],
        || tree_sitter_cpp::LANGUAGE.into(),
    ),
    grammar("kotlin", &["kt"], &["kt", "kts"], || tree_sitter_kotlin_ng::LANGUAGE.into()),
    grammar("haskell", &["hs"], &["hs"], || tree_sitter_haskell::LANGUAGE.into()),
    grammar("scheme", &["scm"], &["scm", "ss", "sld", "sls", "sps"], || {
        tree_sitter_scheme::LANGUAGE.into()
    }),
    grammar("racket", &["rkt"], &["rkt", "rktl"], || tree_sitter_racket::LANGUAGE.into()),
];

/// Returns the indices of the grammars of a language. The error lists the known languages.
pub(crate) fn grammars(name: &str) -> Result<Vec<usize>, String> {
    let language_name = name.trim().to_ascii_lowercase();
    let is_language = |grammar: &Grammar| {
        grammar.name == language_name || grammar.aliases.contains(&language_name.as_str())
    };
    let Some(first) = GRAMMARS.iter().position(is_language) else {
        let names: Vec<&str> = GRAMMARS.iter().map(|grammar| grammar.name).collect();
        return Err(format!("unknown language `{name}`; known are: {}", names.join(", ")));
    };
    let dialect = GRAMMARS[first].dialect;
    let second = GRAMMARS.iter().position(|grammar| Some(grammar.name) == dialect);
    Ok(std::iter::once(first).chain(second).collect())
}

impl Grammar {
    /// Whether a file has this grammar, by its name.
    pub(crate) fn matches(&self, path: &std::path::Path) -> bool {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| {
            self.extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
        })
    }
}
