//! The searchable languages.

use grammars::Grammar;

/// All grammars. Elsewhere a grammar is identified by its index.
pub(crate) static GRAMMARS: [&Grammar; 13] = [
    &grammars::RUST,
    &grammars::PYTHON,
    &grammars::JAVASCRIPT,
    &grammars::TYPESCRIPT,
    &grammars::TSX,
    &grammars::GO,
    &grammars::JAVA,
    &grammars::C,
    &grammars::CPP,
    &grammars::KOTLIN,
    &grammars::HASKELL,
    &grammars::SCHEME,
    &grammars::RACKET,
];

/// Returns the indices of the grammars of a language. The error lists the known languages.
pub(crate) fn grammars(name: &str) -> Result<Vec<usize>, String> {
    let language_name = name.trim().to_ascii_lowercase();
    let is_language = |grammar: &&Grammar| {
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
