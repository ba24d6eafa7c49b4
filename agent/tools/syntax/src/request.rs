//! Decodes and checks the arguments: compiles queries and resolves paths.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::language::{self, GRAMMARS};
use super::query::{self, CompiledQuery};
use gate::{Access, paths};
use tools::call::Invocation;
use tools::output::ToolError;

/// Maximum number of searches of a call.
const MAX_SEARCHES: usize = 20;
/// Maximum number of context lines.
const MAX_CONTEXT: u64 = 20;
/// Maximum number of threads of a call.
const MAX_THREADS: usize = 32;
/// Maximum number of collected matches of a search, regardless of the arguments.
const MAX_MATCHES: usize = 10_000;
/// The accepted keys of a search.
const KEYS: [&str; 5] = ["name", "query", "language", "paths", "context_lines"];

#[derive(Deserialize)]
struct Args {
    searches: Vec<Value>,
    max_concurrency: usize,
    max_matches_per_search: usize,
}

#[derive(Deserialize)]
struct RawSearch {
    name: Option<String>,
    query: String,
    language: String,
    paths: Option<Paths>,
    context_lines: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Paths {
    One(String),
    Many(Vec<String>),
}

/// A search.
pub(crate) struct SyntaxSearch {
    /// Its label.
    pub name: String,
    /// Its language as requested.
    pub language: String,
    /// The index of each grammar and its query.
    pub queries: Vec<(usize, CompiledQuery)>,
    /// The searched paths: absolute, with links resolved.
    pub roots: Vec<PathBuf>,
    /// Number of context lines.
    pub context: usize,
    /// Why it cannot run.
    pub error: Option<String>,
}

/// The request of a call.
pub(crate) struct SyntaxSearchRequest {
    /// The searches, in order.
    pub searches: Vec<SyntaxSearch>,
    /// Number of threads.
    pub threads: usize,
    /// Maximum number of matches reported per search.
    pub max_matches: usize,
    /// Notes about ignored arguments.
    pub notes: Vec<String>,
}

/// Decodes a call.
pub(crate) fn read(call: &Invocation<'_>) -> Result<SyntaxSearchRequest, ToolError> {
    let args: Args = call.decode()?;
    let mut notes = Vec::new();
    let mut searches = Vec::new();
    for (index, raw_search) in items(&args)?.iter().enumerate() {
        let (raw_search, context) = parse_search(index, raw_search, &mut notes)?;
        searches.push(search(call, index, raw_search, context));
    }
    let max_matches = args.max_matches_per_search.min(MAX_MATCHES);
    if max_matches < args.max_matches_per_search {
        notes.push(format!("`max_matches_per_search` is at most {MAX_MATCHES}"));
    }
    Ok(SyntaxSearchRequest {
        searches,
        threads: args.max_concurrency.min(MAX_THREADS),
        max_matches,
        notes,
    })
}

/// Returns what a call reads: the paths of its searches.
pub(crate) fn accesses(call: &Invocation<'_>) -> Vec<Access> {
    let search_roots = |raw: &Value| match serde_json::from_value::<RawSearch>(raw.clone()) {
        Ok(raw) => roots(call, raw.paths).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let args: Result<Args, ToolError> = call.decode();
    let searches = args.map(|args| args.searches).unwrap_or_default();
    let mut all_roots: Vec<PathBuf> = searches.iter().flat_map(search_roots).collect();
    all_roots.sort();
    all_roots.dedup();
    all_roots.into_iter().map(Access::Read).collect()
}

fn items(args: &Args) -> Result<&[Value], ToolError> {
    match args.searches.len() {
        0 => Err(ToolError::invalid("`searches` is empty")),
        n if n > MAX_SEARCHES => Err(ToolError::invalid(format!(
            "`searches` has {n} entries; {MAX_SEARCHES} is the most"
        ))),
        _ => Ok(&args.searches),
    }
}

/// Decodes one entry and its number of context lines.
fn parse_search(
    index: usize,
    raw: &Value,
    notes: &mut Vec<String>,
) -> Result<(RawSearch, usize), ToolError> {
    let invalid = |reason: String| ToolError::invalid(format!("searches[{index}]: {reason}"));
    let given_keys = raw.as_object().into_iter().flatten().map(|(key, _)| key);
    for key in given_keys.filter(|key| !KEYS.contains(&key.as_str())) {
        notes.push(format!("ignored unknown parameter `searches[{index}].{key}`"));
    }
    let raw: RawSearch = serde_json::from_value(raw.clone()).map_err(|e| invalid(e.to_string()))?;
    let lines = match &raw.context_lines {
        None | Some(Value::Null) => Some(0),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => {
            let whole_number = value.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
            value.as_u64().or_else(|| whole_number.map(|n| n as u64))
        }
    };
    let lines = lines.filter(|lines| *lines <= MAX_CONTEXT);
    let Some(lines) = lines.and_then(|lines| usize::try_from(lines).ok()) else {
        return Err(invalid(format!(
            "`context_lines` must be a whole number from 0 to {MAX_CONTEXT}"
        )));
    };
    Ok((raw, lines))
}

/// Compiles a search. An error affects only this search; the others still run.
fn search(call: &Invocation<'_>, index: usize, raw: RawSearch, context: usize) -> SyntaxSearch {
    let named = raw.name.filter(|name| !name.trim().is_empty());
    let mut search = SyntaxSearch {
        name: named.unwrap_or_else(|| format!("search {}", index + 1)),
        language: raw.language,
        queries: Vec::new(),
        roots: Vec::new(),
        context,
        error: None,
    };
    match compile_queries(&search.language, &raw.query) {
        Ok(queries) => search.queries = queries,
        Err(reason) => search.error = Some(reason),
    }
    match roots(call, raw.paths) {
        Ok(roots) => search.roots = roots,
        Err(reason) => search.error = search.error.or(Some(reason)),
    }
    let missing = search.roots.iter().find(|root| !root.exists());
    if let (None, Some(missing)) = (&search.error, missing) {
        search.error = Some(format!("the path {} does not exist", missing.display()));
    }
    search
}

/// Compiles the query for each grammar of the language. Files of a dialect whose grammar does not
/// support the query are not searched.
fn compile_queries(language: &str, source: &str) -> Result<Vec<(usize, CompiledQuery)>, String> {
    let mut queries = Vec::new();
    for (index, row) in language::grammars(language)?.into_iter().enumerate() {
        match query::compile(&(GRAMMARS[row].language)(), source) {
            Ok(compiled) => queries.push((row, compiled)),
            Err(reason) if index == 0 => return Err(format!("the query is wrong: {reason}")),
            Err(_) => {}
        }
    }
    Ok(queries)
}

fn roots(call: &Invocation<'_>, paths_value: Option<Paths>) -> Result<Vec<PathBuf>, String> {
    let paths_value = match paths_value {
        Some(Paths::One(path)) => vec![path],
        Some(Paths::Many(paths)) => paths,
        None => Vec::new(),
    };
    if paths_value.is_empty() {
        return Ok(vec![call.path.clone()]);
    }
    let resolved = paths_value.iter().map(|path| paths::resolve(&call.context.cwd, path));
    resolved.collect::<std::io::Result<_>>().map_err(|error| format!("`paths`: {error}"))
}
