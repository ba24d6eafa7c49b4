//! `studio man`: a man page for each command.

use base::process::{Command, OutputLimits};
use testkit::tmux::TmuxTerminal;

use crate::fixtures::{Scene, studio};

/// Returns the words of the command list in `--help`.
fn commands(scene: &Scene) -> Vec<String> {
    let help = scene.studio(["--help"]).exits(0).out.clone();
    let list = help.split_once("Commands:\n").expect("the list of commands").1;
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn every_command_has_a_page_with_its_options_and_examples() {
    let scene = Scene::new();
    let directory = scene.env.home().join("share/man1");
    scene.studio(["man", "--write", &directory.display().to_string()]).exits(0);
    let pages: Vec<String> = std::fs::read_dir(&directory)
        .expect("the directory was created")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    let commands = commands(&scene);
    assert!(commands.len() > 25, "{commands:?}");
    for command in commands.iter().filter(|command| *command != "help") {
        assert!(pages.contains(&format!("studio-{command}.1")), "{command}: {pages:?}");
    }
    for page in ["studio.1", "studio-config-show.1"] {
        assert!(pages.contains(&page.to_owned()), "{pages:?}");
    }
    let accept = scene.studio(["man", "accept"]).exits(0).out.clone();
    assert_eq!(accept, std::fs::read_to_string(directory.join("studio-accept.1")).unwrap());
    for part in [".SH SYNOPSIS", "studio accept [OPTIONS]", "\\-\\-dry\\-run", ".SH EXAMPLES"] {
        assert!(accept.contains(part), "{part}: {accept}");
    }
    scene.studio(["man", "frob"]).exits(2).output_contains("no such command: `studio frob`");
    let all = scene.studio(["man"]).exits(0).out.clone();
    assert!(all.contains("\\fBstudio\\-inbox\\fR(1)"), "{all}");
}

#[test]
fn pages_are_formatted_without_warnings_and_shown_on_a_terminal() {
    let scene = Scene::new();
    let directory = scene.env.home().join("man1");
    scene.studio(["man", "--write", &directory.display().to_string()]).exits(0);
    for entry in std::fs::read_dir(&directory).expect("it was created").flatten() {
        let formatted = Command::new("man", &directory)
            .args(["--warnings=w", "-l"])
            .arg(entry.path())
            .env("MANWIDTH", "80")
            .output(OutputLimits::seconds(30))
            .expect("man runs");
        let warnings = String::from_utf8_lossy(&formatted.stderr).into_owned();
        assert_eq!(warnings, "", "{}", entry.path().display());
    }
    let terminal =
        TmuxTerminal::start(&scene.env, scene.repo.path(), (80, 24), [studio(), "man", "discard"]);
    terminal.shows("studio manual");
    terminal.shows("studio discard [OPTIONS]");
    terminal.types("q");
}
