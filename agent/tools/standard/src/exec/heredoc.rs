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
static HEAD: LazyLock<Regex> = LazyLock::new(|| {
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
    let head = HEAD.captures(first.trim_end_matches('\r'))?;
    let named =
        |names: &[&str]| names.iter().find_map(|name| head.name(name)).map(|it| it.as_str());
    let mark = named(&["q0", "q1", "q2"])?;
    let tabs = &head["tabs"] == "-";
    let (body, last) = rest.rsplit_once('\n')?;
    let bare =
        |line: &str| if tabs { line.trim_start_matches('\t').to_owned() } else { line.to_owned() };
    // The marker on an earlier line would end the patch there, and commands would follow.
    let is_end = |line: &str| bare(line.trim_end_matches('\r')) == mark;
    if !is_end(last) || body.lines().any(is_end) {
        return None;
    }
    let patch: String = body.lines().map(|line| bare(line) + "\n").collect();
    Some(FoundPatch { directory: named(&["single", "double", "plain"]).map(str::to_owned), patch })
}

/// Returns the patch of a call, and the base of its paths.
pub(crate) fn order(call: &Invocation<'_>) -> Option<PatchRequest> {
    let found = find(call.text("command"))?;
    let from = match found.directory {
        Some(directory) => paths::resolve(&call.path, &directory).ok()?,
        None => call.path.clone(),
    };
    Some(PatchRequest { patch: found.patch, from, mode: PatchMode::Atomic, skip_missing: false })
}

/// Applies the patch. Reports it like a command.
pub(crate) fn run(
    call: &Invocation<'_>,
    order: &PatchRequest,
    show: OutputBudget,
) -> ProcessResult {
    let started = std::time::Instant::now();
    let gather = |name: &str, text: &str| {
        let mut stream = StreamCapture::new(show, &call.context.session_dir.join("tools"), name);
        stream.push(text.as_bytes());
        stream.finish()
    };
    let done = match order.from.is_dir() {
        true => patch::apply(call, order).map_err(|trouble| trouble.text),
        false => Err(format!("the directory {} does not exist", order.from.display())),
    };
    let (code, out, err) = match done {
        Ok(outcome) => (0, outcome.text + "\n", String::new()),
        Err(why) => (1, String::new(), why + "\n"),
    };
    ProcessResult {
        code,
        end: ProcessEnd::Exited,
        stdout: gather("stdout", &out),
        stderr: gather("stderr", &err),
        took: started.elapsed(),
        lingers: false,
        directory: None,
        denied: None,
        put_back: Vec::new(),
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
