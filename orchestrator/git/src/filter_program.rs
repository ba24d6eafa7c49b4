//! Runs the commands of a filter on the content of files: a process for each file, or a long-running
//! one. It gets the content on stdin and the path as text, in an empty directory: of the repository it
//! sees the objects and the addresses of its remotes, and no configuration, hook or file that could
//! name another program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use base::failure::OrFail;
use base::files::{read_bounded, step};
use base::git::filter_command;
use base::process::{Command, Output, OutputLimits};
use base::sync::lock;
use base::text::{printable_output, tail};

use crate::filter_process::{ConversionError, FilterProcess};
use crate::filters::{FilterSet, TrustedFilter};
use crate::object_quarantine::Quarantine;
use crate::session_repo::quote;
use crate::{lfs_objects, object_format};

/// Maximum size of what a command returns, in bytes.
pub(crate) const MAX_BYTES: usize = 1 << 30;
/// Maximum size of its stderr in a message, in bytes.
pub(crate) const MAX_ERROR_BYTES: usize = 1_500;
/// Maximum size of `.lfsconfig` in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Settings of a repository that Git LFS needs, and that name no program.
const LFS_SETTINGS: &str =
    r"^(lfs\.url|lfs\.pushurl|lfs\..*\.access|remote\..*\.(url|pushurl|lfsurl|lfspushurl))$";

/// From where to where content is converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From a file to its blob.
    Clean,
    /// From a blob to its file.
    Smudge,
}

/// The long-running processes of a set of filters, by name. They end when nothing holds a
/// [`KeepAlive`].
#[derive(Default)]
pub(crate) struct RunningFilters {
    holders: usize,
    processes: BTreeMap<String, Arc<Mutex<Option<FilterProcess>>>>,
}

/// Keeps the long-running processes of the filters until it is dropped: several conversions use the
/// same one.
pub(crate) struct KeepAlive {
    set: Arc<FilterSet>,
}

impl KeepAlive {
    pub(crate) fn new(set: &Arc<FilterSet>) -> KeepAlive {
        lock(&set.running).holders += 1;
        KeepAlive { set: Arc::clone(set) }
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        let ended = {
            let mut running = lock(&self.set.running);
            running.holders -= 1;
            match running.holders {
                0 => std::mem::take(&mut running.processes),
                _ => return,
            }
        };
        if ended.is_empty() {
            return;
        }
        let end_all = move || {
            for process in ended.into_values() {
                if let Some(process) = lock(&process).take() {
                    process.end();
                }
            }
        };
        let _ = unconfined(&self.set, end_all);
    }
}

/// Converts content; `None` if it stays as it is. The error names filter, file and command.
pub(crate) fn convert(
    set: &Arc<FilterSet>,
    filter: &TrustedFilter,
    direction: Direction,
    path: &Path,
    content: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    let failed = |reason: String| match filter.commands.required {
        true => Err(format!("filter `{}` failed on {}: {reason}", filter.name, path.display())),
        false => Ok(None),
    };
    let single = match direction {
        Direction::Clean => &filter.commands.clean,
        Direction::Smudge => &filter.commands.smudge,
    };
    // As in git, the other commands are not used beside a process.
    let (line, result) = match (&filter.commands.process, single) {
        (Some(line), _) => (line, run_process(set, filter, line, (direction, path), content)),
        (None, Some(line)) => (line, run(set, filter, &expand(line, path), content)),
        (None, None) => return failed(format!("it has no `{direction}` command")),
    };
    if direction == Direction::Smudge {
        step("filter.smudged");
    }
    match result {
        Ok(converted) => Ok(Some(converted)),
        Err(reason) => failed(format!("`{line}`: {reason}")),
    }
}

/// Runs a function on a thread that is not confined, whatever thread asks for it: children inherit the
/// rules of their thread.
fn unconfined<T: Send + 'static>(
    set: &FilterSet,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::channel();
    let job = move || drop(sender.send(work()));
    set.starter.send(Box::new(job)).map_err(|_| "it was not started")?;
    receiver.recv().map_err(|_| "it was not started".to_owned())
}

/// Converts content with the process of a filter, which is started if it does not run.
fn run_process(
    set: &Arc<FilterSet>,
    filter: &TrustedFilter,
    line: &str,
    (direction, path): (Direction, &Path),
    content: &[u8],
) -> Result<Vec<u8>, String> {
    let (own, line, content) = (Arc::clone(set), line.to_owned(), content.to_vec());
    let (name, timeout) = (filter.name.clone(), filter.commands.timeout());
    let path = path.to_owned();
    let job = move || {
        let _keep_alive = KeepAlive::new(&own);
        let shared = lock(&own.running).processes.entry(name).or_default().clone();
        let mut process = lock(&shared);
        let running = match &mut *process {
            Some(running) => running,
            empty => {
                let (command, scratch) = command(&own, &line).map_err(|it| it.sentence())?;
                empty.insert(FilterProcess::start(command, scratch, timeout)?)
            }
        };
        running.convert(direction, &path, &content, timeout).map_err(|error| match error {
            ConversionError::Refused(reason) => reason,
            ConversionError::Broken(reason) => {
                // The next file starts another one, as in git.
                *process = None;
                reason
            }
        })
    };
    unconfined(set, job)?
}

/// Runs a command for one file.
fn run(
    set: &Arc<FilterSet>,
    filter: &TrustedFilter,
    line: &str,
    content: &[u8],
) -> Result<Vec<u8>, String> {
    let limits = OutputLimits { time: Some(filter.commands.timeout()), bytes: MAX_BYTES };
    let (own, line, content) = (Arc::clone(set), line.to_owned(), content.to_vec());
    let job = move || -> base::failure::Result<Output> {
        let (command, _scratch) = command(&own, &line)?;
        command.input(content).output(limits).or_fail(|| "cannot start sh")
    };
    let output = unconfined(set, job)?.map_err(|failure| failure.sentence())?;
    if output.timed_out {
        return Err(format!("timed out after {} s", filter.commands.timeout().as_secs()));
    }
    if !output.ok() {
        let stderr = output.error_text();
        let stderr = printable_output(tail(&stderr, MAX_ERROR_BYTES));
        return Err(format!("exit code {}: {}", output.code(), stderr.trim()));
    }
    if output.stdout.len() >= MAX_BYTES {
        return Err("its output is larger than 1 GiB".to_owned());
    }
    Ok(output.stdout)
}

/// Returns a command in a new directory with its git directory, which are removed on drop. It is
/// killed when this process ends first.
fn command(set: &FilterSet, line: &str) -> base::failure::Result<(Command, Quarantine)> {
    let config = config_for_filters(set)?;
    let scratch = Quarantine::with_config(&set.repository, config.as_bytes())?;
    let files = scratch.path().join("files");
    let prepare = || -> std::io::Result<()> {
        std::fs::create_dir(&files)?;
        let checkout = set.repository.main_checkout.as_ref();
        let named = checkout.map(|checkout| checkout.join(".lfsconfig"));
        match named.and_then(|file| read_bounded(&file, MAX_CONFIG_BYTES).ok()) {
            Some(text) => std::fs::write(files.join(".lfsconfig"), text),
            None => Ok(()),
        }
    };
    prepare().or_fail(|| "cannot make a directory for the filter")?;
    let command = filter_command(scratch.path(), &files, line).env("PATH", &set.search_path);
    Ok((command.kill_group_on_parent_death(), scratch))
}

/// Returns the configuration of the git directory that a filter sees.
fn config_for_filters(set: &FilterSet) -> base::failure::Result<String> {
    use std::fmt::Write as _;
    let fail = || "cannot read the configuration of the repository";
    let repo = set.repository.open()?;
    let config = repo.config().and_then(|mut config| config.snapshot()).or_fail(fail)?;
    let mut text = String::from(object_format::config(repo.object_format()));
    text.push_str("[core]\n\tbare = false\n");
    let storage = lfs_objects::storage(&set.repository);
    let _ = write!(text, "[lfs]\n\tstorage = {}\n", quote(&storage.to_string_lossy()));
    let mut entries = config.entries(Some(LFS_SETTINGS)).or_fail(fail)?;
    while let Some(entry) = entries.next() {
        let entry = entry.or_fail(fail)?;
        let (Ok(key), Ok(value)) = (entry.name(), entry.value()) else { continue };
        let Some((section, name)) = key.rsplit_once('.') else { continue };
        let section = match section.split_once('.') {
            Some((section, subsection)) => format!("{section} {}", quote(subsection)),
            None => section.to_owned(),
        };
        let _ = write!(text, "[{section}]\n\t{name} = {}\n", quote(value));
    }
    Ok(text)
}

/// Replaces `%f` in a line by the quoted path, and `%%` by `%`, as git does.
fn expand(line: &str, path: &Path) -> String {
    let mut expanded = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        rest = match after.as_bytes().first() {
            Some(b'f') => {
                let path = path.to_string_lossy();
                expanded.push_str(&format!("'{}'", path.replace('\'', "'\\''")));
                &after[1..]
            }
            Some(b'%') => {
                expanded.push('%');
                &after[1..]
            }
            Some(_) | None => {
                expanded.push('%');
                after
            }
        };
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_argument_whatever_it_contains() {
        let expanded = expand("f -- %f 100%% %x", Path::new("a'b $(touch m).bin"));
        assert_eq!(expanded, "f -- 'a'\\''b $(touch m).bin' 100% %x");
        assert_eq!(expand("%", Path::new("a")), "%");
    }
}
