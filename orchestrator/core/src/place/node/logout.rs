//! Whether this host ends the processes of a user who logs out, as systemd can be told to.

use std::time::Duration;

use base::process::{Command, OutputLimits};

/// What logind is asked for, in this order: see `KillUserProcesses=` in logind.conf(5).
const PROPERTIES: [&str; 3] = ["KillUserProcesses", "KillExcludeUsers", "KillOnlyUsers"];
/// How long logind may take to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Returns whether the processes of this user end with the last connection; `false` if logind is not
/// there.
pub(super) fn ends_processes() -> bool {
    let user = std::env::var("LOGNAME").or_else(|_| std::env::var("USER")).unwrap_or_default();
    let object = ["org.freedesktop.login1", "/org/freedesktop/login1"];
    let command = Command::new("busctl", "/").arg("get-property").args(object);
    let command = command.arg("org.freedesktop.login1.Manager").args(PROPERTIES);
    let output = command.output(OutputLimits { time: Some(TIMEOUT), bytes: 1 << 20 });
    output.is_ok_and(|output| output.ok() && applies_to(&user, &output.text()))
}

/// Returns whether the answer says so for a user: lines as `b true` and `as 2 "root" "anna"`.
fn applies_to(user: &str, answer: &str) -> bool {
    let mut lines = answer.lines();
    let is_on = lines.next().is_some_and(|line| line.trim() == "b true");
    let quoted = format!("\"{user}\"");
    let mut names =
        || -> Vec<&str> { lines.next().unwrap_or_default().split_whitespace().skip(2).collect() };
    let (excluded, only) = (names(), names());
    if excluded.contains(&quoted.as_str()) || excluded.is_empty() && user == "root" {
        return false;
    }
    if only.is_empty() { is_on } else { only.contains(&quoted.as_str()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_logind_is_understood() {
        let ends = |user, answer| applies_to(user, answer);
        assert!(ends("anna", "b true\nas 1 \"root\"\nas 0\n"));
        assert!(!ends("anna", "b false\nas 1 \"root\"\nas 0\n"));
        assert!(!ends("anna", "b true\nas 2 \"root\" \"anna\"\nas 0\n"));
        assert!(!ends("root", "b true\nas 0\nas 0\n"));
        assert!(ends("anna", "b false\nas 1 \"root\"\nas 1 \"anna\"\n"));
        assert!(!ends("anna", "b true\nas 0\nas 1 \"berta\"\n"));
        assert!(!ends("anna", ""));
    }
}
