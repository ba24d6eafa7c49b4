//! Tests of diagnostics after an edit.

use serde_json::json;

use crate::lsp_support::Toys;

const START: &str = "[tools.lsp]\ndiagnostics = \"start\"";

#[test]
fn every_edit_tool_reports_errors() {
    let edits = [
        ("write", json!({ "filePath": "a.toy", "content": "one\n𝄞 BAD two\n" })),
        ("edit", json!({ "filePath": "a.toy", "oldString": "two", "newString": "𝄞 BAD two" })),
        (
            "multiedit",
            json!({ "filePath": "a.toy", "edits": [
                { "oldString": "two", "newString": "𝄞 BAD two" } ] }),
        ),
        (
            "patch",
            json!({ "patch_text": "*** Begin Patch\n*** Update File: a.toy\n@@\n-two\n+𝄞 BAD two\n*** End Patch" }),
        ),
        ("str_replace", json!({ "file_path": "a.toy", "diff": "-two\n+𝄞 BAD two\n" })),
        ("edit_file", json!({ "path": "a.toy", "old_text": "two", "new_text": "𝄞 BAD two" })),
    ];
    let toys = Toys::new(&[], START);
    for (tool, args) in edits {
        // A separate file for each tool: a file that another call wrote would have to be read
        // first.
        let file = format!("{tool}.toy");
        toys.bench.write(&file, "one\ntwo\n");
        let args = args.to_string().replace("a.toy", &file);
        let said = toys.bench.call_text(tool, &args);
        let block = format!(
            "\n<diagnostics file=\"{file}\">\nERROR [2:3] BAD is not allowed on line 2\n\
             </diagnostics>"
        );
        assert!(said.works().contains(&block), "{tool}: {}", said.text);
        assert!(!said.text.contains("only a warning"), "{tool}");
        assert_eq!(said.metadata["diagnostics"][0]["column"], 3, "{tool}");
        assert_eq!(toys.bench.read(&file), "one\n𝄞 BAD two\n", "{tool}");
    }
}

#[test]
fn twenty_errors_and_the_number_of_others_are_reported() {
    let toys = Toys::new(&[], START);
    let write = |text: &str| {
        toys.bench.call("write", json!({ "filePath": "c.toy", "content": text })).works().to_owned()
    };
    let said = write(&"BAD\n".repeat(23));
    assert!(said.contains("ERROR [20:1]") && !said.contains("ERROR [21:1]"), "{said}");
    assert!(said.contains("... and 3 more\n</diagnostics>"), "{said}");
    assert!(!write("fine\n").contains("diagnostics"), "warnings are not told");
}

#[test]
fn pull_diagnostics_are_requested_if_supported() {
    let toys = Toys::new(&["--pull"], START);
    let args = json!({ "filePath": "c.toy", "content": "BAD\nBAD\n" });
    let said = toys.bench.call("write", args);
    assert_eq!(said.works().matches("ERROR [").count(), 2);
    assert!(toys.methods().contains(&"textDocument/diagnostic".to_owned()));
}

#[test]
fn an_edit_succeeds_even_if_a_server_does_not_answer() {
    for args in [
        ["--quiet"].as_slice(),
        &["--wait", "never"],
        &["--crash", "initialize"],
        &["--crash", "textDocument/didOpen"],
        &["--mute", "initialize"],
    ] {
        let toys = Toys::new(args, START);
        let said = toys.bench.call("write", json!({ "filePath": "c.toy", "content": "BAD\n" }));
        assert!(!said.works().contains("diagnostics"), "{args:?}: {}", said.text);
        assert_eq!(toys.bench.read("c.toy"), "BAD\n");
    }
}

#[test]
fn edits_start_no_server_unless_configured() {
    for lines in ["", "[tools.lsp]\ndiagnostics = \"off\""] {
        let toys = Toys::new(&[], lines);
        let said = toys.bench.call("write", json!({ "filePath": "c.toy", "content": "BAD\n" }));
        assert!(!said.works().contains("diagnostics"), "{lines}");
        assert!(toys.log().is_empty(), "{lines}");
    }
    // A failed edit sends no request either.
    let toys = Toys::new(&[], START);
    let args = json!({ "filePath": "a.toy", "oldString": "none", "newString": "x" });
    toys.bench.call("edit", args).fails("failed");
    assert!(toys.log().is_empty());
}
