//! Notifications: the desktop or a command of the user, once for each session that settles and for
//! each permission request that waits for an answer. The terminal's bell is rung by the command
//! that shows the sessions.

use std::path::PathBuf;

use base::config::Config;
use base::config::studio::{NotificationChannel, NotifySetting};
use base::process::{Command, Stream};

use crate::session::record::SessionRecord;

/// Notifies the user about one session.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    setting: NotifySetting,
    directory: PathBuf,
    id: String,
    task: String,
}

impl Notifier {
    /// Creates the notifier of a session. The command runs in `directory`.
    pub fn new(config: &Config, record: &SessionRecord, directory: PathBuf) -> Notifier {
        Notifier {
            setting: config.studio.notify.clone(),
            directory,
            id: record.id.to_string(),
            task: record.task.clone(),
        }
    }

    /// Starts the command without waiting for it. The texts are in its environment only, since an
    /// agent can choose them.
    pub fn notify(&self, state: &str, reason: &str) {
        if self.setting.contains(NotificationChannel::Desktop) {
            self.notify_desktop(state, reason);
        }
        let Some((program, arguments)) = self.setting.command().split_first() else { return };
        let filled =
            |argument: &String| argument.replace("{id}", &self.id).replace("{state}", state);
        let command = Command::new(program, &self.directory)
            .args(arguments.iter().map(filled))
            .env("STUDIO_ID", &self.id)
            .env("STUDIO_STATE", state)
            .env("STUDIO_REASON", plain(reason))
            .env("STUDIO_TASK", plain(&self.task));
        send(command);
    }

    /// Shows a notification on the desktop.
    fn notify_desktop(&self, state: &str, reason: &str) {
        let summary = format!("{} is {state}", self.id);
        let reason = plain(reason);
        let text = if reason.trim().is_empty() { plain(&self.task) } else { reason };
        let (program, arguments) = desktop_command(&summary, &text, |program| {
            base::process::find_program(program).is_some()
        });
        send(Command::new(program, &self.directory).args(arguments));
    }
}

/// A notification that cannot be sent does not affect the session.
fn send(command: Command) {
    let command = command.stdin(Stream::Null).stdout(Stream::Null).stderr(Stream::Null);
    let _ = command.spawn_forget();
}

/// Returns the command line that shows a notification: on macOS `osascript`, elsewhere
/// `notify-send`, or `busctl` for the same D-Bus call.
fn desktop_command(
    summary: &str,
    text: &str,
    exists: impl Fn(&str) -> bool,
) -> (&'static str, Vec<String>) {
    if cfg!(target_os = "macos") {
        // The texts are arguments of the script, not a part of it.
        let script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run";
        let arguments = ["-e", script, summary, text];
        return ("osascript", arguments.map(str::to_owned).to_vec());
    }
    // Servers may interpret the text as markup.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if exists("notify-send") {
        let arguments = ["--app-name=studio", "--", summary, &text];
        return ("notify-send", arguments.map(str::to_owned).to_vec());
    }
    let service = "org.freedesktop.Notifications";
    let call =
        ["--user", "--", "call", service, "/org/freedesktop/Notifications", service, "Notify"];
    // Application, replaced id, icon, summary, body, no actions, no hints, default timeout.
    let values = ["susssasa{sv}i", "studio", "0", "", summary, &text, "0", "0", "-1"];
    ("busctl", call.iter().chain(&values).map(|word| (*word).to_owned()).collect())
}

/// Returns the start of a text, without control characters.
fn plain(text: &str) -> String {
    base::text::printable(base::text::head(text, 1000)).replace('\0', "")
}
