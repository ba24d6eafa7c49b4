//! Tests of syntax search.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{Stage, of_type};
use crate::tools_support::{Bench, Called};

const FUNCTIONS: &str = "(function_item name: (identifier) @name)";

fn search(bench: &Bench, searches: Value) -> Called {
    bench.call("code_search", json!({ "searches": searches }))
}

/// Searches for Rust functions.
fn functions(bench: &Bench, more: Value) -> Called {
    let mut asked = json!({ "name": "functions", "query": FUNCTIONS, "language": "rust" });
    asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    search(bench, json!([asked]))
}

/// Returns `file:line text` of the first capture of each match of a search.
fn matches(called: &Called, search: usize) -> Vec<String> {
    let matches = called.metadata["searches"][search]["matches"].as_array().unwrap();
    let told = |found: &Value| {
        let text = found["captures"][0]["text"].as_str().unwrap();
        format!("{}:{} {text}", found["file"].as_str().unwrap(), found["line"])
    };
    matches.iter().map(told).collect()
}

/// Language, file, content with one `yes` in it, and a query that finds it.
const LANGUAGES: [(&str, &str, &str, &str); 13] = [
    ("rust", "a.rs", "// fn no() {}\npub fn yes() {}\n", FUNCTIONS),
    (
        "python",
        "a.py",
        "'def no()'\nclass C:\n    async def yes(self): pass\n",
        "(function_definition name: (identifier) @n)",
    ),
    (
        "javascript",
        "a.jsx",
        "const no = <p>f()</p>;\nfunction yes() {}\n",
        "(function_declaration name: (identifier) @n)",
    ),
    (
        "typescript",
        "a.ts",
        "const no = <any>x;\ninterface yes { a: string }\n",
        "(interface_declaration name: (type_identifier) @n)",
    ),
    (
        "tsx",
        "b.tsx",
        "type P = {};\nfunction yes(p: P) { return <b>hi</b>; }\n",
        "((function_declaration name: (identifier) @n) (#eq? @n \"yes\"))",
    ),
    (
        "go",
        "a.go",
        "package p\n\nfunc (t T) yes() error { return nil }\n",
        "(method_declaration name: (field_identifier) @n)",
    ),
    (
        "java",
        "A.java",
        "class A {\n  // void no()\n  int yes() { return 1; }\n}\n",
        "(method_declaration name: (identifier) @n)",
    ),
    (
        "c",
        "a.c",
        "#define NO f()\nstatic int yes(void) { return 0; }\n",
        "(function_declarator declarator: (identifier) @n)",
    ),
    (
        "cpp",
        "a.hpp",
        "namespace n {\ntemplate <class T> struct yes {};\n}\n",
        "(struct_specifier name: (type_identifier) @n)",
    ),
    (
        "kotlin",
        "a.kt",
        "package p\n\nfun yes(x: Int): Int = x\n",
        "(function_declaration name: (identifier) @n)",
    ),
    ("haskell", "A.hs", "module A where\n\nyes x = x + 1\n", "(function name: (variable) @n)"),
    (
        "scheme",
        "a.scm",
        "; (define (no) 1)\n(define (yes x) x)\n",
        "((list . (symbol) @d . (list . (symbol) @n)) (#eq? @d \"define\"))",
    ),
    (
        "racket",
        "a.rkt",
        "#lang racket\n(define (yes x) x)\n",
        "((list . (symbol) @d . (list . (symbol) @n)) (#eq? @d \"define\"))",
    ),
];

#[test]
fn each_language_is_searched() {
    let bench = Bench::new("g3");
    for (_, file, content, _) in LANGUAGES {
        bench.write(file, content);
    }
    let asked = LANGUAGES.map(
        |(language, _, _, query)| json!({ "name": language, "language": language, "query": query }),
    );
    let called = search(&bench, json!(asked));
    called.works();
    for (at, (language, file, content, _)) in LANGUAGES.into_iter().enumerate() {
        let found = &called.metadata["searches"][at]["matches"];
        let line = 1 + content.lines().position(|line| line.contains("yes")).unwrap();
        let last = found[0]["captures"].as_array().unwrap().last().unwrap();
        assert_eq!(last["text"], "yes", "{language}: {called:?}");
        // In typescript, files with and without elements are one language.
        assert_eq!(found.as_array().unwrap().len(), 1, "{language}: {called:?}");
        assert_eq!((&found[0]["file"], &found[0]["line"]), (&json!(file), &json!(line)));
    }
    let both = json!([{ "name": "n", "language": "ts", "query": "(type_identifier) @n" }]);
    let both = matches(&search(&bench, both), 0);
    assert_eq!(both, ["a.ts:2 yes", "b.tsx:1 P", "b.tsx:2 P"]);
    assert_eq!(called.metadata["total_matches"], 13);
    // `a.hpp` is only C++, so there are 13 files, each searched for its language.
    assert_eq!(called.metadata["total_files_searched"], 13);
}

#[test]
fn a_match_is_reported_with_its_captures_and_context() {
    let bench = Bench::new("g3");
    bench.write(
        "src/é.rs",
        "struct S;\r\n\r\nimpl S { /* ü */ fn one(\r\n    &self,\r\n) {} }\r\n// end",
    );
    let query = "(function_item name: (_) @name parameters: (_) @how)";
    let asked = |lines: Value| {
        let asked = json!({ "name": "methods", "query": query, "language": "rust", "context_lines": lines });
        search(&bench, json!([asked]))
    };
    assert_eq!(
        asked(json!("1")).works(),
        "## methods (rust): 1 match, 1 file searched\n\
         src/é.rs:3:21  @name one  @how ( … [+2 lines]\n    \
           2 | \n  \
         > 3 | impl S { /* ü */ fn one(\n  \
         > 4 |     &self,\n  \
         > 5 | ) {} }\n    \
           6 | // end"
    );
    let bare = asked(json!(null));
    assert_eq!(bare.text.lines().count(), 2);
    let found = &bare.metadata["searches"][0]["matches"][0];
    assert_eq!(found["captures"][1]["text"], "(\r\n    &self,\r\n)");
    assert_eq!((&found["column"], &found["context"]), (&json!(21), &Value::Null));
    assert_eq!(asked(json!(20)).text.lines().count(), 8);
    for bad in [json!(21), json!(-1), json!(1.5), json!("x")] {
        asked(bad)
            .says("searches[0]: `context_lines` must be a whole number from 0 to 20")
            .fails("validation");
    }
}

#[test]
fn ignored_hidden_binary_huge_and_outside_files_are_skipped() {
    let bench = Bench::new("g3");
    for (file, name) in [
        ("a.rs", "yes"),
        ("sub/deep/b.RS", "also"),
        ("target/c.rs", "no"),
        (".hidden/d.rs", "no"),
        ("note.md", "no"),
        ("script", "named"),
    ] {
        bench.write(file, format!("fn {name}() {{}}\n"));
    }
    bench.write(".gitignore", "target/\n");
    bench.write("bin.rs", "fn no() {}\0");
    bench.write("huge.rs", "fn no() {}\n".repeat(400_000));
    bench.write("latin.rs", b"// \xe9\nfn bytes() {}\n");
    let outside = bench.env.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("o.rs"), "fn no() {}\n").unwrap();
    symlink(&outside, bench.dir.join("link")).unwrap();
    symlink(outside.join("o.rs"), bench.dir.join("o.rs")).unwrap();
    symlink(&bench.dir, bench.dir.join("sub/loop")).unwrap();
    let all = functions(&bench, json!({}));
    assert_eq!(matches(&all, 0), ["a.rs:1 yes", "latin.rs:2 bytes", "sub/deep/b.RS:1 also"]);
    all.says("[note: passed over, binary: bin.rs]")
        .says("[note: passed over, larger than 4 MiB: huge.rs]");
    // Files named explicitly are searched regardless of their extension; each file once.
    let paths = json!(["script", bench.at("sub"), "sub/deep", "target"]);
    let named = functions(&bench, json!({ "paths": paths }));
    assert_eq!(matches(&named, 0), ["script:1 named", "sub/deep/b.RS:1 also", "target/c.rs:1 no"]);
    for path in [json!([outside]), json!(["link"]), json!("o.rs"), json!(["a.rs", "../outside"])] {
        functions(&bench, json!({ "paths": path })).says("outside").fails("denied");
    }
    functions(&bench, json!({ "paths": ["gone"] })).says("does not exist").fails("validation");
}

#[test]
fn matches_do_not_depend_on_the_number_of_threads() {
    let bench = Bench::new("g3");
    for n in 0..60 {
        bench.write(&format!("d{}/f{n}.rs", n % 7), "fn f() {}\n".repeat(60 - n));
    }
    let by = |threads: u32, most: u32| {
        let asked = json!([
            { "name": "f", "query": FUNCTIONS, "language": "rust" },
            { "name": "b", "query": "(block) @b", "language": "rust" },
        ]);
        let args = json!({ "searches": asked, "max_concurrency": threads, "max_matches_per_search": most });
        bench.call("code_search", args)
    };
    for most in [1, 100, 10_000] {
        let (one, many) = (by(1, most), by(16, most));
        assert_eq!((one.works(), &one.metadata), (many.works(), &many.metadata));
    }
    by(4, 100).says("## f (rust): more than 100 matches, ").says(
        "[truncated: 100 of more than 100 matches are shown; use a narrower query or paths, or \
         raise max_matches_per_search]",
    );
    let all = by(4, 10_000);
    all.says("## f (rust): 1830 matches, 60 files searched")
        .says("3660 matches of 2 searches in 60 files");
}

#[test]
fn the_result_is_limited_and_says_what_is_missing() {
    let bench = Bench::new("g3");
    bench.write("a.rs", format!("fn f() {{ \"{}\" }}\n", "é".repeat(1500)).repeat(400));
    let query = "(function_item body: (_) @body)";
    let asked = json!({ "name": "b", "query": query, "language": "rust", "context_lines": 20 });
    let called =
        search(&bench, json!([asked, { "name": "n", "query": FUNCTIONS, "language": "rust" }]));
    assert!(called.works().len() < 70_000, "{}", called.text.len());
    called
        .says("characters more]")
        .says("of 400 matches are shown because the text would be too long; use a narrower query")
        .says("## n (rust): 400 matches");
    assert!(called.metadata["searches"][0]["matches"].as_array().unwrap().len() < 400);
    assert!(!called.text.contains("raise max_matches"), "it would show no more");
    assert_eq!(called.metadata["searches"][0]["match_count"], 400);
    assert_eq!(called.metadata["truncated"], true);
}

#[test]
fn an_invalid_search_is_reported_and_the_others_run() {
    let bench = Bench::new("g3");
    bench.write("a.rs", "fn f() {}\n");
    let some = search(
        &bench,
        json!([
            { "name": "wrong", "query": "(functoin_item) @f", "language": "rust" },
            { "name": "perl", "query": "(x) @x", "language": "perl" },
            { "name": "right", "query": FUNCTIONS, "language": "rs", "colour": 1 },
        ]),
    );
    some.says(
        "## wrong (rust): error: the query is wrong: line 1, column 2: no kind of node \
         `functoin_item` in this language; the nearest is `function_item`\n  \
         (functoin_item) @f\n   ^\n",
    )
    .says("## perl (perl): error: unknown language `perl`; known are: rust, python, javascript")
    .says("a.rs:1:4  @name f")
    .says("ignored unknown parameter `searches[2].colour`")
    .works();
    assert!(some.metadata["searches"][1]["error"].as_str().unwrap().contains("kotlin"));
    let bad = |asked: Value| search(&bench, asked).fails("validation").to_owned();
    let one = |query: &str| bad(json!([{ "name": "q", "query": query, "language": "rust" }]));
    assert!(one("(block) @b (#foo? @b \"x\")").contains("`#foo?` is not known here"));
    assert!(one("(block)").contains("captures nothing"));
    assert!(one("(block").contains("line 1, column 7: the syntax is wrong here"));
    assert!(bad(json!([])).contains("`searches` is empty"));
    assert!(
        bad(json!([{ "name": "q", "language": "rust" }]))
            .contains("searches[0]: missing field `query`")
    );
    let many = vec![json!({ "name": "q", "query": FUNCTIONS, "language": "rust" }); 21];
    assert!(bad(json!(many)).contains("20 is the most"));
    let none = search(
        &bench,
        json!([{ "name": "q", "query": "(loop_expression) @l", "language": "rust" }]),
    );
    assert_eq!(none.works(), "## q (rust): 0 matches, 1 file searched");
}

#[test]
fn an_agent_searches_by_syntax() {
    let args = json!({ "searches": [{ "name": "f", "query": FUNCTIONS, "language": "rust" }] });
    let stage = Stage::new(vec![
        ScriptedReply::call("code_search", args),
        ScriptedReply::says("There is one."),
    ]);
    stage.repo.write("src/lib.rs", "/// fn no() {}\npub fn found_it() {}\n");
    let ran = stage.g3(["--json", "Which functions are there?"]);
    let events: Vec<Value> =
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(of_type(&events, "tool_end")[0]["ok"], true);
    let told = stage.asked()[1].tool_results()[0].1.clone();
    assert!(told.contains("src/lib.rs:2:8  @name found_it"), "{told}");
    assert!(stage.asked()[0].tool_names().contains(&"code_search".to_owned()));
}
