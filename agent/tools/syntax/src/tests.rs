//! Tests of threads, order, time limits and predicates.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::collector::{FileReport, SearchCollector};
use super::language::{GRAMMARS, grammars};
use super::query::{CompiledQuery, compile};
use super::request::{SyntaxSearch, SyntaxSearchRequest};
use super::searcher::{SearchTarget, SearchWorker, SkipReason, StopCondition, SyntaxMatch};
use super::{search, worklist};

fn rust(query: &str) -> Result<CompiledQuery, String> {
    compile(&(GRAMMARS[0].language)(), query)
}

fn wish(
    root: &std::path::Path,
    queries: &[&str],
    threads: usize,
    most: usize,
) -> SyntaxSearchRequest {
    let search = |query: &&str| SyntaxSearch {
        name: (*query).to_owned(),
        language: "rust".to_owned(),
        queries: vec![(0, rust(query).unwrap())],
        roots: vec![root.to_owned()],
        context: 0,
        error: None,
    };
    SyntaxSearchRequest {
        searches: queries.iter().map(search).collect(),
        threads,
        max_matches: most,
        notes: Vec::new(),
    }
}

fn files(count: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for n in 0..count {
        // The first files are the longest, so that threads finish out of order.
        let text = format!("fn f{n}() {{}}\n").repeat(1 + 40 * (count - n));
        std::fs::write(place.path().join(format!("f{n:03}.rs")), text).unwrap();
    }
    place
}

/// Returns the matches of each search as text.
fn found(tally: &SearchCollector) -> Vec<Vec<String>> {
    let told = |(path, one): &(std::path::PathBuf, SyntaxMatch)| {
        format!("{}:{} {}", path.display(), one.line, one.captures[0].text)
    };
    tally.totals.iter().map(|sum| sum.matches.iter().map(told).collect()).collect()
}

/// Returns the text of the first capture of each match.
fn texts(query: &str, text: &str) -> Vec<String> {
    let query = rust(query).unwrap();
    let cancel = CancellationToken::new();
    let until =
        StopCondition { deadline: Instant::now() + Duration::from_secs(60), cancel: &cancel };
    let mut bench = SearchWorker::default();
    let tree = bench.parse(0, text.as_bytes(), &until).unwrap();
    let aim = SearchTarget { query: &query, context: 0, max_matches: 100 };
    let found = bench.matches(&tree, text.as_bytes(), &aim, &until).unwrap();
    found.into_iter().map(|one| one.captures.into_iter().next().unwrap().text).collect()
}

#[test]
fn several_threads_work_concurrently() {
    let (inside, changed) = (Mutex::new(0), Condvar::new());
    let met = AtomicUsize::new(0);
    // Each thread waits until there are four, which fewer threads would never reach.
    worklist::run_all(
        &[(); 4],
        4,
        || (),
        |(), _, ()| {
            let mut count = inside.lock().unwrap();
            *count += 1;
            changed.notify_all();
            let long = Duration::from_secs(60);
            let (_held, waited) =
                changed.wait_timeout_while(count, long, |count| *count < 4).unwrap();
            met.fetch_add(usize::from(!waited.timed_out()), Ordering::Relaxed);
            true
        },
    );
    assert_eq!(met.into_inner(), 4);
}

#[test]
fn every_job_is_done_once_within_the_thread_limit() {
    let done = Mutex::new(Vec::new());
    let benches = AtomicUsize::new(0);
    let bench = || benches.fetch_add(1, Ordering::Relaxed);
    let work: Vec<usize> = (0..100).collect();
    worklist::run_all(&work, 3, bench, |_, at, job| {
        done.lock().unwrap().push((at, *job));
        true
    });
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    assert_eq!(done, work.iter().map(|n| (*n, *n)).collect::<Vec<_>>());
    assert_eq!(benches.into_inner(), 3);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let place = files(30);
    let queries = ["(function_item name: (identifier) @n)", "(block) @b"];
    let by = |threads, most| {
        found(&search(&wish(place.path(), &queries, threads, most), &CancellationToken::new()))
    };
    for most in [1, 700, 1500, 10_000] {
        let alone = by(1, most);
        assert!(alone[0].len() > 500 || alone[0].len() == most);
        assert_eq!(alone, by(8, most), "{most}");
    }
    let all = by(8, 10_000);
    assert_eq!(all[0].len(), (1..=30).map(|n| 1 + 40 * n).sum::<usize>().min(10_000));
}

#[test]
fn searches_of_one_language_share_one_parse_of_a_file() {
    let place = files(7);
    let queries = ["(function_item) @f", "(identifier) @i", "(block) @b"];
    let tally = search(&wish(place.path(), &queries, 4, 10_000), &CancellationToken::new());
    assert_eq!((tally.files, tally.parses), (7, 7));
    assert!(tally.totals.iter().all(|sum| sum.files == 7 && !sum.matches.is_empty()));
}

#[test]
fn a_cancelled_search_stops() {
    let place = files(20);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let tally = search(&wish(place.path(), &["(block) @b"], 2, 10), &cancel);
    assert_eq!(tally.totals[0].matches.len(), 0);
    let seen = AtomicUsize::new(0);
    worklist::run_all(
        &[(); 50],
        1,
        || (),
        |(), at, ()| {
            seen.fetch_add(1, Ordering::Relaxed);
            at < 9
        },
    );
    assert_eq!(seen.into_inner(), 10);
}

#[test]
fn a_file_that_takes_too_long_is_skipped() {
    let text = "fn f() { g(1); }\n".repeat(2000);
    let cancel = CancellationToken::new();
    let mut bench = SearchWorker::default();
    let late = StopCondition { deadline: Instant::now(), cancel: &cancel };
    assert_eq!(bench.parse(0, text.as_bytes(), &late).unwrap_err(), SkipReason::Slow);
    let soon =
        StopCondition { deadline: Instant::now() + Duration::from_secs(60), cancel: &cancel };
    let tree = bench.parse(0, text.as_bytes(), &soon).unwrap();
    assert!(!tree.root_node().has_error());
    let query = rust("(call_expression) @c").unwrap();
    let aim = SearchTarget { query: &query, context: 0, max_matches: usize::MAX };
    let given_up = bench.matches(&tree, text.as_bytes(), &aim, &late);
    assert_eq!(given_up.err(), Some(SkipReason::Slow));
    assert_eq!(bench.matches(&tree, text.as_bytes(), &aim, &soon).unwrap().len(), 2000);
}

#[test]
fn reports_are_counted_in_the_order_of_the_files() {
    let mut tally = SearchCollector::new(1, 10);
    let report = |name: &str| FileReport {
        path: name.into(),
        results: vec![(0, Err(SkipReason::Binary))],
        parses: 1,
    };
    tally.add(2, report("c"));
    tally.add(1, report("b"));
    assert_eq!(tally.files, 0, "the first has not reported yet");
    tally.add(0, report("a"));
    let notes = tally.notes(|path| path.display().to_string());
    assert_eq!((tally.files, notes), (3, vec!["passed over, binary: a, b, c".to_owned()]));
}

#[test]
fn predicates_on_any_and_on_all_nodes_are_evaluated() {
    let code = "enum A { One, Two }\nenum B { Two, Two }\nenum C { Three }\n";
    let of = |predicate: &str| {
        let variant = "(enum_variant name: (_) @v)";
        let variants =
            format!("(enum_variant_list \"{{\" . {variant} (\",\" {variant})* . \"}}\")");
        texts(&format!("((enum_item name: (_) @n body: {variants}) {predicate})"), code)
    };
    assert_eq!(of(""), ["A", "B", "C"]);
    assert_eq!(of(r#"(#eq? @v "Two")"#), ["B"]);
    assert_eq!(of(r#"(#not-eq? @v "Two")"#), ["C"]);
    assert_eq!(of(r#"(#any-eq? @v "Two")"#), ["A", "B"]);
    assert_eq!(of(r#"(#any-not-eq? @v "Two")"#), ["A", "C"]);
    assert_eq!(of(r#"(#match? @v "^T")"#), ["B", "C"]);
    assert_eq!(of(r#"(#not-match? @v "^T")"#), [""; 0]);
    assert_eq!(of(r#"(#any-match? @v "^T")"#), ["A", "B", "C"]);
    assert_eq!(of(r#"(#any-not-match? @v "^T")"#), ["A"]);
    assert_eq!(of(r#"(#any-of? @n "A" "C")"#), ["A", "C"]);
    assert_eq!(of(r#"(#not-any-of? @n "A" "C")"#), ["B"]);
    assert_eq!(of(r#"(#any-eq? @v @n)"#), [""; 0]);
    assert_eq!(of("(#set! \"a\" \"#b? any-eq?\") ; #c? any-eq?\n"), ["A", "B", "C"]);
    assert_eq!(
        texts(
            "(binary_expression left: (_) @a right: (_) @b (#any-eq? @a @b))",
            "const X: i32 = y + y + 1 + z;"
        ),
        ["y"]
    );
}

#[test]
fn a_query_error_shows_its_position() {
    let reason = |query: &str| rust(query).err().unwrap();
    assert_eq!(
        reason("(function_item\n  nam: (identifier) @n)"),
        "line 2, column 3: no field `nam` in this language; the nearest is `name`\n  \
         \u{20} nam: (identifier) @n)\n  \u{20} ^"
    );
    assert_eq!(
        reason("; é\n(block) @b (#eq? @c \"é\")"),
        "line 2, column 19: no capture is called `@c`\n  (block) @b (#eq? @c \"é\")\n  \
         \u{20}                 ^"
    );
    assert!(reason("(block").starts_with("line 1, column 7: the syntax is wrong here\n  (block\n"));
    assert!(
        reason("(block) @b (#lua-match? @b \"x\")").contains("`#lua-match?` is not known here")
    );
    assert!(reason("((block) @b (#is? @b local))").contains("`#is?` is not known here"));
    assert!(reason("((block) @b (#any-eq? @b))").contains("`#any-eq?` takes a capture"));
    assert!(reason("((block) @b (#any-match? @b \"(\"))").contains("no regular expression"));
    assert!(reason("((block) @b (#match? @b \"(\"))").contains("Invalid regex"));
    assert!(reason("((block) @b (#eq? @b))").contains("Expected 2"));
    assert!(reason("(block (string_content))").contains("never match"));
    assert!(reason("(block)").contains("captures nothing"));
    assert!(reason("").contains("captures nothing"));
}

#[test]
fn languages_are_found_by_all_their_names() {
    for (row, grammar) in GRAMMARS.iter().enumerate() {
        for name in grammar.aliases.iter().chain([&grammar.name]) {
            assert_eq!(grammars(&name.to_uppercase()).unwrap()[0], row, "{name}");
        }
        assert!(grammar.dialect.is_none_or(|dialect| grammars(dialect).is_ok()));
    }
    let unknown = grammars("perl").unwrap_err();
    assert!(GRAMMARS.iter().all(|known| unknown.contains(known.name)), "{unknown}");
}
