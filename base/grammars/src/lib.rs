//! The grammars of programming languages: names, file extensions, parsers.
//!
//! Each grammar is an item of its own, so that a program links only those that it uses.

use std::path::Path;

use tree_sitter::Language;

/// A grammar and its files.
#[derive(Debug)]
pub struct Grammar {
    /// The name of the language.
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

impl Grammar {
    /// Creates a grammar without dialects.
    const fn new(
        name: &'static str,
        aliases: &'static [&'static str],
        extensions: &'static [&'static str],
        language: fn() -> Language,
    ) -> Grammar {
        Grammar { name, aliases, extensions, dialect: None, language }
    }

    /// Returns whether a file has this grammar, by its name.
    pub fn matches(&self, path: &Path) -> bool {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| {
            self.extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
        })
    }
}

/// Rust.
pub static RUST: Grammar =
    Grammar::new("rust", &["rs"], &["rs"], || tree_sitter_rust::LANGUAGE.into());

/// Python.
pub static PYTHON: Grammar =
    Grammar::new("python", &["py"], &["py", "pyi", "pyw"], || tree_sitter_python::LANGUAGE.into());

/// JavaScript, JSX included.
pub static JAVASCRIPT: Grammar =
    Grammar::new("javascript", &["js", "jsx"], &["js", "jsx", "mjs", "cjs"], || {
        tree_sitter_javascript::LANGUAGE.into()
    });

/// TypeScript.
pub static TYPESCRIPT: Grammar = Grammar {
    dialect: Some("tsx"),
    ..Grammar::new("typescript", &["ts"], &["ts", "mts", "cts"], || {
        tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into()
    })
};

/// TypeScript with JSX.
pub static TSX: Grammar =
    Grammar::new("tsx", &[], &["tsx"], || tree_sitter_typescript::LANGUAGE_TSX.into());

/// Go.
pub static GO: Grammar =
    Grammar::new("go", &["golang"], &["go"], || tree_sitter_go::LANGUAGE.into());

/// Java.
pub static JAVA: Grammar =
    Grammar::new("java", &[], &["java"], || tree_sitter_java::LANGUAGE.into());

/// C.
pub static C: Grammar = Grammar::new("c", &[], &["c", "h"], || tree_sitter_c::LANGUAGE.into());

/// C++.
pub static CPP: Grammar = Grammar::new(
    "cpp",
    &["c++", "cxx", "cc"],
    &["cpp", "cc", "cxx", "c++", "hpp", "hh", "hxx", "h++", "h", "ipp", "inl", "tpp"],
    || tree_sitter_cpp::LANGUAGE.into(),
);

/// Kotlin.
pub static KOTLIN: Grammar =
    Grammar::new("kotlin", &["kt"], &["kt", "kts"], || tree_sitter_kotlin_ng::LANGUAGE.into());

/// Haskell.
pub static HASKELL: Grammar =
    Grammar::new("haskell", &["hs"], &["hs"], || tree_sitter_haskell::LANGUAGE.into());

/// Scheme.
pub static SCHEME: Grammar =
    Grammar::new("scheme", &["scm"], &["scm", "ss", "sld", "sls", "sps"], || {
        tree_sitter_scheme::LANGUAGE.into()
    });

/// Racket.
pub static RACKET: Grammar =
    Grammar::new("racket", &["rkt"], &["rkt", "rktl"], || tree_sitter_racket::LANGUAGE.into());
