//! A man page of a command, in roff.

use std::fmt::Write as _;
use std::io::Write as _;

use clap_mangen::Man;

/// Returns the file name of a command's page, e.g. `studio-run.1`.
pub(crate) fn file_name(command: &clap::Command) -> String {
    Man::new(command.clone()).get_filename()
}

/// Formats the page of a command.
pub(crate) fn page(command: &clap::Command) -> String {
    let mut roff = Vec::new();
    let man = Man::new(command.clone());
    // Writing to a vector does not fail.
    let _ = man
        .render_name_section(&mut roff)
        .and_then(|()| roff.write_all(synopsis(command).as_bytes()))
        .and_then(|()| man.render_description_section(&mut roff))
        .and_then(|()| man.render_options_section(&mut roff));
    let mut text = title(command);
    text.push_str(&String::from_utf8_lossy(&roff));
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        text.push_str(&subcommands(command));
    }
    if let Some(examples) = command.get_after_help() {
        text.push_str(&preformatted("EXAMPLES", &examples.to_string()));
    }
    text
}

/// Formats the header and the footer, without a date.
fn title(command: &clap::Command) -> String {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH \"{}\" 1 \"\" \"studio {version}\" \"studio manual\"\n", escaped(name))
}

/// Formats the usage, as `--help` shows it.
fn synopsis(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let lines = usage.strip_prefix("Usage: ").unwrap_or(&usage).lines();
    let lines: Vec<&str> = lines.map(str::trim).collect();
    format!(".SH SYNOPSIS\n.nf\n{}\n.fi\n", escaped(&lines.join("\n")))
}

/// Formats the section that refers to the pages of the subcommands.
fn subcommands(command: &clap::Command) -> String {
    let mut text = ".SH COMMANDS\n".to_owned();
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, ".TP\n\\fB{}\\fR(1)\n{}", escaped(name), escaped(&about));
    }
    text
}

/// Formats a section whose lines stay as they are, without a heading of its own.
fn preformatted(title: &str, text: &str) -> String {
    let lines = text.strip_prefix("Examples:\n").unwrap_or(text);
    format!(".SH {title}\n.nf\n{}\n.fi\n", escaped(lines))
}

/// Escapes text, so that roff prints it unchanged.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_roff_would_interpret_is_escaped() {
        assert_eq!(
            escaped(".so /etc/passwd\na\\b -c 'd'"),
            "\\&.so /etc/passwd\na\\eb \\-c \\(aqd\\(aq"
        );
    }
}
