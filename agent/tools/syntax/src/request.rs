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
const SEARCHES: usize = 20;
/// Maximum number of context lines.
const CONTEXT: u64 = 20;
/// Maximum number of threads of a call.
const THREADS: usize = 32;
/// Maximum number of collected matches of a search, regardless of the arguments.
const MATCHES: usize = 10_000;
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
    pub most: usize,
    /// Notes about ignored arguments.
    pub notes: Vec<String>,
}

/// Decodes a call.
pub(crate) fn read(call: &Invocation<'_>) -> Result<SyntaxSearchRequest, ToolError> {
    let args: Args = call.decode()?;
    let mut notes = Vec::new();
    let mut searches = Vec::new();
    for (at, asked) in items(&args)?.iter().enumerate() {
        let (asked, context) = one(at, asked, &mut notes)?;
        searches.push(search(call, at, asked, context));
    }
    let most = args.max_matches_per_search.min(MATCHES);
    if most < args.max_matches_per_search {
        notes.push(format!("`max_matches_per_search` is at most {MATCHES}"));
    }
    Ok(SyntaxSearchRequest { searches, threads: args.max_concurrency.min(THREADS), most, notes })
}

/// Returns what a call reads: the paths of its searches.
pub(crate) fn reaches(call: &Invocation<'_>) -> Vec<Access> {
    let places = |asked: &Value| match serde_json::from_value::<RawSearch>(asked.clone()) {
        Ok(asked) => roots(call, asked.paths).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let args: Result<Args, ToolError> = call.decode();
    let searches = args.map(|args| args.searches).unwrap_or_default();
    let mut all: Vec<PathBuf> = searches.iter().flat_map(places).collect();
    all.sort();
    all.dedup();
    all.into_iter().map(Access::Read).collect()
}

fn items(args: &Args) -> Result<&[Value], ToolError> {
    match args.searches.len() {
        0 => Err(ToolError::invalid("`searches` is empty")),
        n if n > SEARCHES => {
            Err(ToolError::invalid(format!("`searches` has {n} entries; {SEARCHES} is the most")))
        }
        _ => Ok(&args.searches),
    }
}

/// Decodes one entry and its number of context lines.
fn one(at: usize, asked: &Value, notes: &mut Vec<String>) -> Result<(RawSearch, usize), ToolError> {
    let wrong = |why: String| ToolError::invalid(format!("searches[{at}]: {why}"));
    let keys = asked.as_object().into_iter().flatten().map(|(key, _)| key);
    for key in keys.filter(|key| !KEYS.contains(&key.as_str())) {
        notes.push(format!("ignored unknown parameter `searches[{at}].{key}`"));
    }
    let asked: RawSearch =
        serde_json::from_value(asked.clone()).map_err(|e| wrong(e.to_string()))?;
    let lines = match &asked.context_lines {
        None | Some(Value::Null) => Some(0),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => {
            let whole = other.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0);
            other.as_u64().or_else(|| whole.map(|n| n as u64))
        }
    };
    let lines = lines.filter(|lines| *lines <= CONTEXT);
    let Some(lines) = lines.and_then(|lines| usize::try_from(lines).ok()) else {
        return Err(wrong(format!("`context_lines` must be a whole number from 0 to {CONTEXT}")));
    };
    Ok((asked, lines))
}

/// Compiles a search. An error affects only this search; the others still run.
fn search(call: &Invocation<'_>, at: usize, asked: RawSearch, context: usize) -> SyntaxSearch {
    let named = asked.name.filter(|name| !name.trim().is_empty());
    let mut search = SyntaxSearch {
        name: named.unwrap_or_else(|| format!("search {}", at + 1)),
        language: asked.language,
        queries: Vec::new(),
        roots: Vec::new(),
        context,
        error: None,
    };
    match compiled(&search.language, &asked.query) {
        Ok(queries) => search.queries = queries,
        Err(why) => search.error = Some(why),
    }
    match roots(call, asked.paths) {
        Ok(roots) => search.roots = roots,
        Err(why) => search.error = search.error.or(Some(why)),
    }
    let gone = search.roots.iter().find(|root| !root.exists());
    if let (None, Some(gone)) = (&search.error, gone) {
        search.error = Some(format!("the path {} does not exist", gone.display()));
    }
    search
}

/// Compiles the query for each grammar of the language. Files of a dialect whose grammar does not
/// support the query are not searched.
fn compiled(language: &str, source: &str) -> Result<Vec<(usize, CompiledQuery)>, String> {
    let mut queries = Vec::new();
    for (nth, row) in language::grammars(language)?.into_iter().enumerate() {
        match query::compile(&(GRAMMARS[row].language)(), source) {
            Ok(compiled) => queries.push((row, compiled)),
            Err(why) if nth == 0 => return Err(format!("the query is wrong: {why}")),
            Err(_) => {}
        }
    }
    Ok(queries)
}

fn roots(call: &Invocation<'_>, asked: Option<Paths>) -> Result<Vec<PathBuf>, String> {
    let asked = match asked {
        Some(Paths::One(path)) => vec![path],
        Some(Paths::Many(paths)) => paths,
        None => Vec::new(),
    };
    if asked.is_empty() {
        return Ok(vec![call.path.clone()]);
    }
    let resolved = asked.iter().map(|path| paths::resolve(&call.context.cwd, path));
    resolved.collect::<std::io::Result<_>>().map_err(|why| format!("`paths`: {why}"))
}
