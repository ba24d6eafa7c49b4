//! `apply_patch <<'EOF'`: a patch given as a command line. It is applied here, under the gate's
//! rules for writes, and no program of that name is started.

use std::sync::LazyLock;

use regex::Regex;

use super::process::{ProcessEnd, ProcessResult};
use crate::edit::patch::{self, PatchMode, PatchRequest};
use gate::paths;
use tools::call::Invocation;
use tools::exec::output::{OutputBudget, StreamCapture};

/// The line before the patch: `cd DIR &&`, the name, and the end marker.
static HEADER: LazyLock<Regex> = LazyLock::new(|| {
    let directory = r#"(?:cd\s+(?:'(?<single>[^']+)'|"(?<double>[^"$`\\]+)"|(?<plain>[^\s'"$`\\;&|<>()*?]+))\s*&&\s*)?"#;
    let mark = r#"<<(?<tabs>-?)\s*(?:'(?<q1>\w+)'|"(?<q2>\w+)"|(?<q0>\w+))"#;
    let pattern = format!(r"^\s*{directory}(?:apply_patch|applypatch)\s+{mark}[ \t]*$");
    Regex::new(&pattern).expect("a constant; a test matches it")
});

/// A patch in a command line.
#[derive(Debug, PartialEq, Eq)]
struct FoundPatch {
    directory: Option<String>,
    patch: String,
}

/// Returns the patch if a command line consists of one.
fn find(line: &str) -> Option<FoundPatch> {
    let (first, rest) = line.trim_end().split_once('\n')?;
    let header = HEADER.captures(first.trim_end_matches('\r'))?;
    let capture_any =
        |names: &[&str]| names.iter().find_map(|name| header.name(name)).map(|it| it.as_str());
    let delimiter = capture_any(&["q0", "q1", "q2"])?;
    let strips_tabs = &header["tabs"] == "-";
    let (body, last) = rest.rsplit_once('\n')?;
    let without_tabs = |line: &str| {
        if strips_tabs { line.trim_start_matches('\t').to_owned() } else { line.to_owned() }
    };
    // The marker on an earlier line would end the patch there, and commands would follow.
    let is_end = |line: &str| without_tabs(line.trim_end_matches('\r')) == delimiter;
    if !is_end(last) || body.lines().any(is_end) {
        return None;
    }
    let patch: String = body.lines().map(|line| without_tabs(line) + "\n").collect();
    Some(FoundPatch {
        directory: capture_any(&["single", "double", "plain"]).map(str::to_owned),
        patch,
    })
}

/// Returns the patch of a call, and the base of its paths.
pub(crate) fn patch_request(call: &Invocation<'_>) -> Option<PatchRequest> {
    let found_patch = find(call.text("command"))?;
    let from = match found_patch.directory {
        Some(directory) => paths::resolve(&call.path, &directory).ok()?,
        None => call.path.clone(),
    };
    Some(PatchRequest {
        patch: found_patch.patch,
        from,
        mode: PatchMode::Atomic,
        skip_missing: false,
    })
}

/// Applies the patch. Reports it like a command.
pub(crate) fn run(
    call: &Invocation<'_>,
    request: &PatchRequest,
    budget: OutputBudget,
) -> ProcessResult {
    let started = std::time::Instant::now();
    let capture = |name: &str, text: &str| {
        let mut stream = StreamCapture::new(budget, &call.context.session_dir.join("tools"), name);
        stream.push(text.as_bytes());
        stream.finish()
    };
    let result = match request.from.is_dir() {
        true => patch::apply(call, request).map_err(|error| error.text),
        false => Err(format!("the directory {} does not exist", request.from.display())),
    };
    let (code, stdout, stderr) = match result {
        Ok(output) => (0, output.text + "\n", String::new()),
        Err(message) => (1, String::new(), message + "\n"),
    };
    ProcessResult {
        code,
        end: ProcessEnd::Exited,
        stdout: capture("stdout", &stdout),
        stderr: capture("stderr", &stderr),
        duration: started.elapsed(),
        holds_output: false,
        directory: None,
        denial: None,
        restored: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_command_line_is_recognized() {
        let patch = "*** Begin Patch\n*** Add File: a\n+$x `y`\n*** End Patch\n";
        for head in [
            "apply_patch <<'EOF'",
            "  apply_patch << \"EOF\"  ",
            "applypatch <<EOF",
            "apply_patch <<-EOF",
        ] {
            let found = find(&format!("{head}\n{patch}EOF\n")).expect(head);
            assert_eq!((found.directory, found.patch.as_str()), (None, patch), "{head}");
        }
        for (head, directory) in [
            ("cd src && apply_patch <<EOF", "src"),
            ("cd 'a b' && apply_patch <<EOF", "a b"),
            ("cd \"a b\"&& apply_patch <<EOF", "a b"),
        ] {
            let found = find(&format!("{head}\n{patch}EOF")).expect(head);
            assert_eq!(found.directory.as_deref(), Some(directory));
        }
        let tabs = find("apply_patch <<-EOF\n\t*** Begin Patch\n\tEOF").unwrap();
        assert_eq!(tabs.patch, "*** Begin Patch\n");
    }

    #[test]
    fn a_line_with_more_than_a_patch_goes_to_the_shell() {
        for line in [
            "apply_patch <<'EOF'\nx\nEOF\nrm -rf x",
            "apply_patch <<'EOF'\nx\nEOF\nrm x\nEOF",
            "apply_patch <<'EOF' && rm x\nx\nEOF",
            "apply_patch <<'EOF' > out\nx\nEOF",
            "rm x; apply_patch <<'EOF'\nx\nEOF",
            "cd $(rm x) && apply_patch <<'EOF'\nx\nEOF",
            "cd a || apply_patch <<'EOF'\nx\nEOF",
            "apply_patch <<'EOF'\nx",
            "apply_patch",
            "echo apply_patch <<'EOF'\nx\nEOF",
        ] {
            assert_eq!(find(line), None, "{line:?}");
        }
    }
}
