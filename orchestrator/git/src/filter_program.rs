//! Runs the command of a filter on the content of one file. It gets the content on stdin and `%f` as
//! its path, in an empty directory: of the repository it sees the objects and the addresses of its
//! remotes, and no configuration, hook or file that could name another program.

use std::path::Path;
use std::sync::{Arc, mpsc};

use base::failure::OrFail;
use base::files::read_bounded;
use base::git::filter_command;
use base::process::{Output, OutputLimits};
use base::text::{printable_output, tail};

use crate::filters::{FilterSet, TrustedFilter};
use crate::lfs_objects;
use crate::object_quarantine::Quarantine;
use crate::session_repo::quote;

/// Maximum size of what a command returns, in bytes.
const MAX_BYTES: usize = 1 << 30;
/// Maximum size of its stderr in a message, in bytes.
const MAX_ERROR_BYTES: usize = 1_500;
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

/// Converts content; `None` if it stays as it is. The error names filter, file and command.
pub(crate) fn convert(
    set: &Arc<FilterSet>,
    filter: &TrustedFilter,
    direction: Direction,
    path: &Path,
    content: &[u8],
) -> Result<Option<Vec<u8>>, String> {
    let (line, name) = match direction {
        Direction::Clean => (&filter.commands.clean, "clean"),
        Direction::Smudge => (&filter.commands.smudge, "smudge"),
    };
    let failed = |reason: String| match filter.commands.required {
        true => Err(format!("filter `{}` failed on {}: {reason}", filter.name, path.display())),
        false => Ok(None),
    };
    let Some(line) = line else { return failed(format!("it has no `{name}` command")) };
    match run(set, filter, &expand(line, path), content) {
        Ok(converted) => Ok(Some(converted)),
        Err(reason) => failed(format!("`{line}`: {reason}")),
    }
}

/// Runs a command from a thread that is not confined, whatever thread asks for it.
fn run(
    set: &Arc<FilterSet>,
    filter: &TrustedFilter,
    line: &str,
    content: &[u8],
) -> Result<Vec<u8>, String> {
    let limits = OutputLimits { time: Some(filter.commands.timeout()), bytes: MAX_BYTES };
    let (sender, receiver) = mpsc::channel();
    let (own, line, content) = (Arc::clone(set), line.to_owned(), content.to_vec());
    let job = move || {
        let _ = sender.send(run_in_scratch(&own, &line, content, limits));
    };
    set.starter.send(Box::new(job)).map_err(|_| "it was not started")?;
    let output = receiver.recv().map_err(|_| "it was not started")?;
    let output = output.map_err(|failure| failure.sentence())?;
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

/// Runs a command in a new directory with its git directory, which are removed afterwards.
fn run_in_scratch(
    set: &FilterSet,
    line: &str,
    content: Vec<u8>,
    limits: OutputLimits,
) -> base::failure::Result<Output> {
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
    let command = filter_command(scratch.path(), &files, line).input(content);
    let command = command.env("PATH", &set.search_path);
    command.output(limits).or_fail(|| "cannot start sh")
}

/// Returns the configuration of the git directory that a filter sees.
fn config_for_filters(set: &FilterSet) -> base::failure::Result<String> {
    use std::fmt::Write as _;
    let fail = || "cannot read the configuration of the repository";
    let repo = set.repository.open()?;
    let config = repo.config().and_then(|mut config| config.snapshot()).or_fail(fail)?;
    let mut text = String::from("[core]\n\tbare = false\n");
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
