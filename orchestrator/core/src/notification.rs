//! Notifications: a command of the user that is started once for each session that settles and for
//! each permission request that waits for an answer.

use std::path::PathBuf;

use base::config::Config;
use base::process::{Command, Stream};

use crate::session::record::SessionRecord;

/// Starts the command of `[studio] notify` for one session.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    command: Vec<String>,
    directory: PathBuf,
    id: String,
    task: String,
}

impl Notifier {
    /// Creates the notifier of a session. The command runs in `directory`.
    pub fn new(config: &Config, record: &SessionRecord, directory: PathBuf) -> Notifier {
        Notifier {
            command: config.studio.notify.clone(),
            directory,
            id: record.id.to_string(),
            task: record.task.clone(),
        }
    }

    /// Starts the command without waiting for it. The texts are in its environment only, since an
    /// agent can choose them.
    pub fn notify(&self, state: &str, reason: &str) {
        let Some((program, arguments)) = self.command.split_first() else { return };
        let filled =
            |argument: &String| argument.replace("{id}", &self.id).replace("{state}", state);
        let command = Command::new(program, &self.directory)
            .args(arguments.iter().map(filled))
            .env("STUDIO_ID", &self.id)
            .env("STUDIO_STATE", state)
            .env("STUDIO_REASON", plain(reason))
            .env("STUDIO_TASK", plain(&self.task))
            .stdin(Stream::Null)
            .stdout(Stream::Null)
            .stderr(Stream::Null);
        // A notification that cannot be sent does not affect the session.
        let _ = command.spawn_forget();
    }
}

/// Returns the start of a text, without control characters.
fn plain(text: &str) -> String {
    base::text::printable(base::text::head(text, 1000)).replace('\0', "")
}
