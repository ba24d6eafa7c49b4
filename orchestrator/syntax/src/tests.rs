//! The merge in all languages, what it refuses, and generated edits.

use proptest::prelude::*;

use super::*;

fn merged(path: &str, base: &str, ours: &str, theirs: &str) -> Option<String> {
    let merged = merge(Path::new(path), base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
    merged.map(|it| String::from_utf8(it).expect("it is UTF-8"))
}

/// Merges what both sides put in place of `@`: `@1` and `@2` if there are several places.
fn merged_at(path: &str, template: &str, ours: [&str; 2], theirs: [&str; 2]) -> Option<String> {
    let version = |[first, second]: [&str; 2]| template.replace("@1", first).replace("@2", second);
    merged(path, &version(["", ""]), &version(ours), &version(theirs))
}

/// Asserts that the merge has both additions, ours first.
fn has_both(path: &str, template: &str, ours: [&str; 2], theirs: [&str; 2]) {
    let expected = template
        .replace("@1", &format!("{}{}", ours[0], theirs[0]))
        .replace("@2", &format!("{}{}", ours[1], theirs[1]));
    let merged = merged_at(path, template, ours, theirs);
    assert_eq!(merged.as_deref(), Some(expected.as_str()), "{path}: {template}");
}

#[test]
fn both_additions_are_kept_in_every_language() {
    let rust = "//! A crate.\n\nuse std::fmt;\n@1\nmod a;\n\nfn first() {}\n@2";
    let ours = ["use std::io;\n", "\n/// Ours.\n#[inline]\nfn second() {\n    done();\n}\n"];
    has_both("a.rs", rust, ours, ["use std::env;\n", "\nfn third() {\n    done();\n}\n"]);
    has_both(
        "a.py",
        "import os\n@1\n\ndef first():\n    pass\n@2",
        ["import re\n", "\n\n@cached\ndef second():\n    return 1\n"],
        ["import sys\n", "\n\ndef third():\n    return 2\n"],
    );
    has_both(
        "a.py",
        "class A:\n    x = 1\n@1\n    def first(self):\n        pass\n@2",
        ["    y = 2\n", "\n    def second(self):\n        return 1\n"],
        ["    z = 3\n", "\n    def third(self):\n        return 1\n"],
    );
    for path in ["a.js", "a.ts", "a.tsx", "a.mjs"] {
        has_both(
            path,
            "import a from \"a\";\n@1\nexport function first() {}\n@2",
            ["import b from \"b\";\n", "\nexport function second() {\n  run();\n}\n"],
            ["import c from \"c\";\n", "\nconst third = () => {\n  run();\n};\n"],
        );
        has_both(
            path,
            "class A {\n  x = 1;\n@1\n  first() {}\n@2}\n",
            ["  y = 2;\n", "\n  second() {\n    run();\n  }\n"],
            ["  z = 3;\n", "\n  third() {\n    run();\n  }\n"],
        );
    }
    has_both(
        "a.go",
        "package a\n\nimport (\n\t\"fmt\"\n@1)\n\nfunc first() {\n}\n@2",
        ["\t\"io\"\n", "\nfunc (a *A) second() {\n\tdone()\n}\n"],
        ["\t\"os\"\n", "\nfunc (b *B) second() {\n\tdone()\n}\n"],
    );
    has_both(
        "A.java",
        "import java.io.File;\n@1\nclass A {\n    int x;\n@2}\n",
        ["import java.util.List;\n", "\n    int second() {\n        return 1;\n    }\n"],
        ["import java.util.Map;\n", "\n    int third() {\n        return 1;\n    }\n"],
    );
    for path in ["a.h", "a.c", "a.cpp"] {
        has_both(
            path,
            "#ifndef A_H\n#define A_H\n\n#include <a.h>\n@1\nint first(void);\n@2\n#endif\n",
            ["#include <b.h>\n", "int second(int x);\n"],
            ["#include <c.h>\n", "int third(int x);\n"],
        );
    }
    has_both(
        "a.hpp",
        "namespace a {\nclass A {\npublic:\n    int first();\n@1};\n@2}\n",
        ["    int second();\n", "\nint f() {\n    return 1;\n}\n"],
        ["    int third();\n", "\nint g() {\n    return 1;\n}\n"],
    );
    has_both(
        "a.kt",
        "import a.b\n@1\nclass A {\n    val x = 1\n@2}\n",
        ["import a.c\n", "\n    fun second(): Int {\n        return 1\n    }\n"],
        ["import a.d\n", "\n    fun third(): Int {\n        return 1\n    }\n"],
    );
}

#[test]
fn entries_of_lists_are_kept_with_their_commas() {
    let lines = |path: &str, open: &str, entries: [&str; 3], close: &str| {
        let [first, second, third] = entries;
        for end in ["", ","] {
            // Kotlin and Java allow a comma after the last entry as well.
            let list =
                |all: &[&str]| format!("{open}\n    {}{end}\n{close}\n", all.join(",\n    "));
            let result =
                merged(path, &list(&[first]), &list(&[first, second]), &list(&[first, third]));
            assert_eq!(result, Some(list(&[first, second, third])), "{path}: {open}");
            // At the start.
            let result =
                merged(path, &list(&[first]), &list(&[second, first]), &list(&[third, first]));
            assert_eq!(result, Some(list(&[second, third, first])), "{path}: {open}");
        }
    };
    lines("a.rs", "struct A {", ["x: u8", "pub y: Vec<u8>", "#[serde]\n    z: u8"], "}");
    lines("a.rs", "enum A {", ["X", "Y { a: u8 }", "/// Z.\n    Z(u8)"], "}");
    lines("a.rs", "use a::{", ["b", "c::d", "e as f"], "};");
    lines("a.rs", "const A: [u8; 2] = [", ["1", "2", "3"], "];");
    lines("a.rs", "fn f() {\n    match x {", ["1 => a()", "2 => b()", "3 | 4 => c()"], "}\n}");
    lines("a.rs", "fn f() -> A {\n    A {", ["a: 1", "b", "c: vec![]"], "}\n}");
    lines("a.py", "A = [", ["\"x\"", "\"y\"", "\"z\""], "]");
    lines("a.py", "A = {", ["\"x\": 1", "\"y\": [1, 2]", "\"z\": 3"], "}");
    lines("a.py", "from a import (", ["b", "c as d", "e"], ")");
    lines("a.py", "def f():\n    return dict(", ["b=1", "c=2", "e=3"], ")");
    lines("a.js", "module.exports = {", ["a: 1", "b", "c() {}"], "};");
    lines("a.ts", "const x: A[] = [", ["1", "{ a: 1 }", "f()"], "];");
    lines("a.ts", "import {", ["a", "b as c", "type D"], "} from \"x\";");
    lines("a.ts", "export enum A {", ["X", "Y = 2", "Z"], "}");
    lines("A.java", "enum A {", ["X", "Y(2)", "Z"], "}");
    lines("a.c", "enum a {", ["X", "Y = 2", "Z"], "};");
    lines("a.c", "static int a[] = {", ["1", "2", "3"], "};");
    lines("a.kt", "enum class A {", ["X", "Y", "Z"], "}");
    let go = |all: &str| format!("package a\n\nvar x = []int{{\n{all}}}\n");
    let result = merged("a.go", &go("\t1,\n"), &go("\t1,\n\t2,\n"), &go("\t1,\n\t3,\n"));
    assert_eq!(result, Some(go("\t1,\n\t2,\n\t3,\n")));
    for (path, text) in [
        ("a.rs", "use a::{b@};\n"),
        ("a.rs", "const A: &[u8] = &[1@];\n"),
        ("a.py", "from a import b@\n"),
        ("a.py", "__all__ = [\"b\"@]\n"),
        ("a.js", "import { a@ } from \"a\";\n"),
        ("a.js", "f({ a: 1@ });\n"),
        ("a.go", "package a\n\nvar x = []int{1@}\n"),
    ] {
        let with = |added: &str| text.replace('@', added);
        let result = merged(path, &with(""), &with(", y"), &with(", z"));
        assert_eq!(result, Some(with(", y, z")), "{path}: {text}");
    }
}

#[test]
fn a_list_that_was_empty_gets_both_additions() {
    let text = |inner: &str| format!("mod a {{{inner}}}\n");
    let result = merged("a.rs", &text(""), &text("\n    fn x() {}\n"), &text("\n    fn y() {}\n"));
    assert_eq!(result, Some(text("\n    fn x() {}\n    fn y() {}\n")));
}

#[test]
fn additions_at_the_top_get_the_blank_lines_of_their_sides() {
    let base = "fn main() {\n}\n";
    let ours = format!("use std::io;\n\n{base}");
    let theirs = format!("use std::env;\n\n{base}");
    let expected = format!("use std::io;\nuse std::env;\n\n{base}");
    assert_eq!(merged("a.rs", base, &ours, &theirs), Some(expected));
    let ours = format!("fn a() {{\n    x();\n}}\n\n{base}");
    let theirs = format!("fn b() {{\n    y();\n}}\n\n{base}");
    let expected = format!("fn a() {{\n    x();\n}}\n\nfn b() {{\n    y();\n}}\n\n{base}");
    assert_eq!(merged("a.rs", base, &ours, &theirs), Some(expected));
}

#[test]
fn imports_come_before_what_both_sides_add_after_them() {
    let base = "package a;\n";
    let ours = format!("{base}\nimport a.B;\n\nclass B2 {{\n}}\n");
    let theirs = format!("{base}\nimport a.C;\n\nclass C2 {{\n}}\n");
    let expected =
        format!("{base}\nimport a.B;\n\nimport a.C;\n\nclass B2 {{\n}}\n\nclass C2 {{\n}}\n");
    assert_eq!(merged("A.java", base, &ours, &theirs), Some(expected));
}

#[test]
fn one_side_may_change_what_is_beside_an_addition() {
    let base = "fn a() {\n    1\n}\n";
    let ours = "fn a() {\n    2\n}\n";
    let theirs = "fn a() {\n    1\n}\nfn b() {\n    3\n}\n";
    let expected = "fn a() {\n    2\n}\nfn b() {\n    3\n}\n";
    assert_eq!(merged("a.rs", base, ours, theirs).as_deref(), Some(expected));
    let [base, ours, theirs] = ["x: u8,", "x: u16,", "x: u8,\n    y: u8,"]
        .map(|fields| format!("struct A {{\n    {fields}\n}}\n"));
    let expected = "struct A {\n    x: u16,\n    y: u8,\n}\n";
    assert_eq!(merged("a.rs", &base, &ours, &theirs).as_deref(), Some(expected));
}

#[test]
fn identical_additions_are_kept_once() {
    let (base, line) = ("use std::a;\n", "use std::b;\n");
    let ours = format!("{base}{line}use std::c;\n");
    let theirs = format!("{base}{line}use std::d;\n");
    let expected = format!("{base}{line}use std::c;\nuse std::d;\n");
    assert_eq!(merged("a.rs", base, &ours, &theirs), Some(expected));
}

#[test]
fn windows_line_ends_are_kept() {
    let [base, ours, theirs, expected] =
        ["mod a;\n", "mod a;\nmod b;\n", "mod a;\nmod c;\n", "mod a;\nmod b;\nmod c;\n"]
            .map(|text| text.replace('\n', "\r\n"));
    assert_eq!(merged("a.rs", &base, &ours, &theirs), Some(expected));
    // Versions whose lines end differently are refused.
    assert_eq!(merged("a.rs", &base.replace("\r\n", "\n"), &ours, &theirs), None);
    assert_eq!(merged("a.rs", &base, &format!("{ours}mod d;\n"), &theirs), None);
}

#[test]
fn what_is_not_safe_is_refused() {
    let base = "fn a() {\n    one();\n}\n";
    let with = |more: &str| format!("{base}{more}");
    let refused = |path: &str, base: &str, ours: &str, theirs: &str| {
        assert_eq!(merged(path, base, ours, theirs), None, "{path}: {ours} {theirs}");
    };
    // The same name, at the same place and at another one.
    refused("a.rs", base, &with("\nfn b() {\n    1;\n}\n"), &with("\nfn b() {\n    2;\n}\n"));
    refused("a.rs", base, &with("\nstruct B;\n"), &with("\nenum B {}\n"));
    refused(
        "a.rs",
        base,
        &format!("fn b() {{}}\n\n{base}\nfn c() {{}}\n"),
        &with("\nfn b() {\n    2;\n}\n"),
    );
    // The same function changed by both, or changed and deleted.
    let ours = base.replace("one", "two") + "\nfn b() {}\n";
    refused("a.rs", base, &ours, &(base.replace("one", "three") + "\nfn c() {}\n"));
    refused("a.rs", base, &ours, "fn c() {}\n");
    // Statements: their order matters.
    let body = |more: &str| base.replace("one();\n", &format!("one();\n    {more}\n"));
    refused("a.rs", base, &body("two();"), &body("three();"));
    refused("a.py", "x()\n", "x()\ny()\n", "x()\nz()\n");
    refused(
        "a.py",
        "def f():\n    x()\n",
        "def f():\n    x()\n    y()\n",
        "def f():\n    x()\n    z()\n",
    );
    refused("a.js", "f(1);\n", "f(1);\ng(2);\n", "f(1);\nh(2);\n");
    refused(
        "a.js",
        "f({\n  a: 1,\n});\n",
        "f({\n  a: 1,\n  ...b,\n});\n",
        "f({\n  a: 1,\n  ...c,\n});\n",
    );
    // Arguments and parameters: their positions matter.
    refused("a.py", "f(1)\n", "f(1, 2)\n", "f(1, 3)\n");
    refused("a.rs", "fn a(x: u8) {}\n", "fn a(x: u8, y: u8) {}\n", "fn a(x: u8, z: u8) {}\n");
    refused("a.rs", "struct A(u8);\n", "struct A(u8, u16);\n", "struct A(u8, u32);\n");
    // Replaced, not added.
    refused("a.rs", "mod a;\n", "mod b;\nmod c;\n", "mod a;\nmod d;\n");
    // Syntax errors, languages that are not known, other encodings, large files.
    refused("a.rs", base, &with("\nfn b( {}\n"), &with("\nfn c() {}\n"));
    refused("a.rs", "fn a( {\n", "fn a( {\nmod b;\n", "fn a( {\nmod c;\n");
    refused("a.txt", base, &with("\nfn b() {}\n"), &with("\nfn c() {}\n"));
    refused("a.hs", "a = 1\n", "a = 1\nb = 2\n", "a = 1\nc = 2\n");
    let latin = |text: &str| [text.as_bytes(), b"// \xe9\n"].concat();
    let sides = [latin(base), latin(&with("\nfn b() {}\n")), latin(&with("\nfn c() {}\n"))];
    assert_eq!(merge(Path::new("a.rs"), &sides[0], &sides[1], &sides[2]), None);
    let long = format!("// {}\n{base}", "x".repeat(MAX_BYTES));
    let more = |name: &str| format!("{long}\nfn {name}() {{}}\n");
    refused("a.rs", &long, &more("b"), &more("c"));
}

/// The text of an entry in a language, by number.
fn item(path: &str, n: u8, body: u8) -> String {
    match path {
        "a.rs" => format!("fn f{n}() {{\n    run{n}_{body}();\n}}\n"),
        "a.py" => format!("def f{n}():\n    run{n}_{body}()\n"),
        "a.ts" => format!("export function f{n}() {{\n  run{n}_{body}();\n}}\n"),
        "a.go" => format!("func f{n}() {{\n\trun{n}_{body}()\n}}\n"),
        _ => format!("int f{n}() {{\n    return run{n}_{body}();\n}}\n"),
    }
}

/// What a side does: to each entry of the base, and before each.
#[derive(Clone, Debug)]
struct Edits {
    /// 0 to 5: kept; 6: changed; 7: deleted.
    fates: Vec<u8>,
    /// How many entries are added at each place.
    added: Vec<u8>,
}

fn edits(count: usize) -> impl Strategy<Value = Edits> {
    let fates = proptest::collection::vec(0_u8..8, count);
    let added = proptest::collection::vec(prop_oneof![3 => Just(0_u8), 2 => 1_u8..3], count + 1);
    (fates, added).prop_map(|(fates, added)| Edits { fates, added })
}

/// Returns the text of a side, and whether it only adds.
fn edited(path: &str, count: usize, edits: &Edits, first: u8) -> String {
    let mut texts = Vec::new();
    let mut next = first;
    let head = if path == "a.go" { vec!["package a\n".to_owned()] } else { Vec::new() };
    for n in 0..=count {
        for _ in 0..edits.added[n] {
            texts.push(item(path, next, 0));
            next += 1;
        }
        if n < count {
            match edits.fates[n] {
                7 => {}
                6 => texts.push(item(path, n as u8, first)),
                _ => texts.push(item(path, n as u8, 0)),
            }
        }
    }
    head.into_iter().chain(texts).collect::<Vec<_>>().join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn generated_edits_lose_no_line(
        (ours, theirs) in (edits(4), edits(4)),
        path in prop_oneof![Just("a.rs"), Just("a.py"), Just("a.ts"), Just("a.go"), Just("a.c")],
    ) {
        let none = Edits { fates: vec![0; 4], added: vec![0; 5] };
        let base = edited(path, 4, &none, 0);
        let (our_text, their_text) =
            (edited(path, 4, &ours, 100), edited(path, 4, &theirs, 200));
        let merged = merged(path, &base, &our_text, &their_text);
        let only_adds = |edits: &Edits| edits.fates.iter().all(|it| *it < 6);
        prop_assert!(merged.is_some() || !(only_adds(&ours) && only_adds(&theirs)));
        if let Some(merged) = merged {
            let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
            let (base, all) = (lines(&base), lines(&merged));
            for text in [&our_text, &their_text] {
                let added: Vec<String> =
                    lines(text).into_iter().filter(|line| !base.contains(line)).collect();
                prop_assert!(is_subsequence(&added, &all), "{added:?} {merged}");
            }
            let is_unchanged = |line: &&String| {
                line.contains("run") && [&our_text, &their_text].iter().all(|it| it.contains(*line))
            };
            let unchanged: Vec<String> = base.iter().filter(is_unchanged).cloned().collect();
            prop_assert!(is_subsequence(&unchanged, &all), "{unchanged:?} {merged}");
        }
    }

    #[test]
    fn texts_with_any_edits_are_merged_or_refused(
        edits in proptest::collection::vec((0_usize..3, 0_usize..80, 0_usize..8), 0..4),
    ) {
        let version = |name: &str| RICH.replace("    // @\n", &format!("    {name},\n"));
        let mut texts = [version("base"), version("base,\n    ours"), version("base,\n    theirs")];
        for (side, line, edit) in edits {
            let mut lines: Vec<&str> = texts[side].lines().collect();
            let line = line % lines.len();
            match edit {
                0 => drop(lines.remove(line)),
                1 => lines.insert(line, ""),
                2 => lines.insert(line, "    // A comment."),
                3 => lines.insert(line, lines[line]),
                4 => lines.insert(line, "    more,"),
                5 => lines[line] = lines[line].trim_end_matches(','),
                6 => lines.insert(line, "    /* a */ more, // b"),
                _ => lines.insert(line, "fn more() {}"),
            }
            texts[side] = lines.join("\n");
        }
        if let Some(merged) = merged("a.rs", &texts[0], &texts[1], &texts[2]) {
            for name in ["ours", "theirs"].iter().filter(|name| texts.iter().any(|it| it.contains(**name))) {
                prop_assert!(merged.contains(name), "{merged}");
            }
        }
    }
}

/// A file with lists of many kinds.
const RICH: &str = "//! A file.

use a::{
    b,
    // @
};

/// A type.
#[derive(Debug)]
struct A {
    x: u8, // First.

    /// Second.
    y: u8,
}

enum B {
    C,
    // @
}

const D: &[u8] = &[
    1, 2,
    // @
];

impl A {
    fn e(&self) -> Vec<u8> {
        match self.x {
            1 => F {
    // @
            },
            2 => [1, 2],
            _ => {}
        }
    }
}
";

#[test]
fn lists_in_entries_of_other_lists_are_merged() {
    let text = |inner: &str| {
        format!(
            "fn f() {{\n    match x {{\n        1 => [\n            1,\n{inner}        ],\n        \
             2 => b(),\n    }}\n}}\n"
        )
    };
    let line = |n: u8| format!("            {n},\n");
    let result = merged("a.rs", &text(""), &text(&line(2)), &text(&line(3)));
    assert_eq!(result, Some(text(&format!("{}{}", line(2), line(3)))));
    let text = |inner: &str| {
        format!("A = {{\n    \"a\": [\n        1,\n{inner}    ],\n    \"b\": 2,\n}}\n")
    };
    let line = |n: u8| format!("        {n},\n");
    let result = merged("a.py", &text(""), &text(&line(2)), &text(&line(3)));
    assert_eq!(result, Some(text(&format!("{}{}", line(2), line(3)))));
}

fn is_subsequence(part: &[String], all: &[String]) -> bool {
    let mut rest = all.iter();
    part.iter().all(|line| rest.any(|other| other == line))
}
