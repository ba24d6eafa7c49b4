//! `studio diff`: prints the changes of a session, including uncommitted ones.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::process::{Running, Stream, exit_code};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::review::SinceArg;
use crate::report::pager::{self, Pager};
use crate::report::patch::{self, PatchKind};
use crate::report::{self, table};
use studio_core::check_files::{self, CheckFile};
use studio_core::interrupt::Interrupt;
use studio_core::review::since;
use studio_core::seen;
use studio_core::session::last_shown;
use studio_core::session_changes;
use studio_core::session_view::SessionView;
use studio_git::landing_history;
use studio_git::patch::{Comparison, PatchForm, root_relative};

/// The exit code of a program whose output pipe was closed (128 + SIGPIPE).
const SIGPIPE_EXIT_CODE: i32 = 141;

/// The command line of `diff`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session (default: the only open one)
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// Limit the diff to these files and directories
    #[arg(last = true, value_name = "PATHS")]
    pub paths: Vec<OsString>,
    /// What is printed.
    #[command(flatten)]
    pub form: FormArgs,
    /// Compare with your last look, or with the state before the agent's last turn
    #[arg(long, value_enum, value_name = "WHEN")]
    pub since: Option<SinceArg>,
    /// When to use colours
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: ColorWhen,
    /// Do not start a pager
    #[arg(long)]
    pub no_pager: bool,
    /// Compare the files with git's difftool NAME, or with the configured one
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, conflicts_with = "json")]
    pub tool: Option<Option<String>>,
}

/// What is printed of a difference.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct FormArgs {
    /// Print one line per file
    #[arg(long)]
    pub stat: bool,
    /// Print only the names of the changed files
    #[arg(long)]
    pub name_only: bool,
    /// Show changed words instead of changed lines
    #[arg(long)]
    pub word_diff: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal
    Auto,
    /// Also into a pipe
    Always,
    /// Nowhere
    Never,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let view = context.find(args.id.as_deref(), |state| !state.is_over())?;
    let earlier =
        args.since.map(|since| since::resolve(&context, &view, since.state())).transpose()?;
    let mut changes = session_changes::load(&context, &view)?;
    if let Some(earlier) = earlier.flatten() {
        changes.comparison.from = earlier;
    }
    let prefix = prefix(&context, &view);
    let paths: Vec<OsString> =
        args.paths.iter().map(|path| root_relative(&prefix, path)).collect::<Result<_>>()?;
    let check_files =
        check_files::changed_in(&changes.comparison, &check_files::lines(&context, &view.record))?;
    for note in changes.notes.iter().chain(&check_files::sentence(&check_files)) {
        report::say(&format!("note: {note}"));
    }
    if let Some(name) = &args.tool {
        return run_difftool(&changes.comparison, &paths, name.as_deref());
    }
    if context.json {
        return print_json(&view, &changes.comparison, &paths, &check_files);
    }
    let code = print(&changes.comparison, args, &paths)?;
    seen::mark(&context.repository, &view);
    let FormArgs { stat, name_only, word_diff: _ } = args.form;
    if io::stdout().is_terminal() && paths.is_empty() && !stat && !name_only {
        last_shown::record(
            &context.repository,
            &view.record.id,
            &tree(&context, &changes.comparison),
        )?;
    }
    Ok(code)
}

/// Returns the tree with the work; the comparison names it, or a commit that has it.
fn tree(context: &CommandContext, comparison: &Comparison) -> String {
    landing_history::resolve(&context.repository, &comparison.to)
        .map_or_else(|_| comparison.to.clone(), |(_, tree)| tree)
}

/// Returns the current directory, relative to the repository or to the session's worktree.
fn prefix(context: &CommandContext, view: &SessionView) -> PathBuf {
    let Some(directory) = &context.directory else { return PathBuf::new() };
    let worktree = &view.record.session_repo.worktree;
    let roots = [Some(worktree.as_path()), context.repository.main_checkout.as_deref()];
    let relative = roots.into_iter().flatten().find_map(|root| directory.strip_prefix(root).ok());
    let linked_worktree = directory.ancestors().find(|dir| dir.join(".git").is_file());
    let relative =
        relative.or_else(|| linked_worktree.and_then(|root| directory.strip_prefix(root).ok()));
    relative.map(Path::to_owned).unwrap_or_default()
}

/// Prints the diff: unmodified to a pipe, formatted on a terminal.
fn print(comparison: &Comparison, args: &Args, paths: &[OsString]) -> Result<u8> {
    let is_terminal = io::stdout().is_terminal();
    let colours = match args.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => is_terminal && report::wants_colours(),
    };
    let FormArgs { stat, name_only, word_diff } = args.form;
    if !is_terminal && !colours {
        let form = match (stat, name_only, word_diff) {
            (true, _, _) => PatchForm::Stat { width: table::width() },
            (_, true, _) => PatchForm::Names,
            (_, _, true) => PatchForm::Words,
            (false, false, false) => PatchForm::Applicable,
        };
        // git writes directly to stdout: unmodified, and without buffering in this process.
        let git = GitProcess::new(comparison, form, paths, Stream::Inherit)?;
        return git.finish();
    }
    let (form, kind) = match (stat, name_only, word_diff) {
        (true, _, _) => (PatchForm::Stat { width: table::width() }, PatchKind::Stat),
        (_, true, _) => (PatchForm::Names, PatchKind::Lines),
        (_, _, true) if colours => (PatchForm::WordsForPrograms, PatchKind::Words),
        (_, _, true) => (PatchForm::Words, PatchKind::Lines),
        (false, false, false) => (PatchForm::Readable, PatchKind::Patch),
    };
    let mut git = GitProcess::new(comparison, form, paths, Stream::Piped)?;
    let output = git.running.child.stdout.take();
    let output = output.ok_or("it has no stdout").or_fail(|| "cannot read git's output")?;
    let pager_command = (is_terminal && !args.no_pager)
        .then(|| pager::choose("diff", base::git::user_setting))
        .flatten();
    let result = match pager_command {
        Some(command) => {
            // As with git: the pager gets the terminal's keys and ends when the user quits it.
            let interrupt = Interrupt::listen()?;
            interrupt.run_ignoring(|| -> Result<io::Result<()>> {
                let mut pager = Pager::start(&command, Path::new("."))?;
                let result = patch::show(output, io::BufWriter::new(&mut pager), kind, colours);
                pager.wait()?;
                Ok(result)
            })?
        }
        None => patch::show(output, io::BufWriter::new(report::writer()), kind, colours),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::failed("cannot show the diff").because(error)),
        Ok(()) => git.finish(),
    }
}

/// A running git process and its stderr.
struct GitProcess {
    running: Running,
    stderr: std::fs::File,
}

impl GitProcess {
    fn new(
        comparison: &Comparison,
        form: PatchForm,
        paths: &[OsString],
        stdout: Stream,
    ) -> Result<GitProcess> {
        let stderr = tempfile::tempfile().or_fail(base::files::cannot_make_temporary)?;
        let stderr_writer = stderr.try_clone().or_fail(base::files::cannot_make_temporary)?;
        let command =
            comparison.git_command(form, paths)?.stdout(stdout).stderr(Stream::File(stderr_writer));
        let running = command.spawn().or_fail(|| "cannot start git")?;
        Ok(GitProcess { running, stderr })
    }

    fn finish(mut self) -> Result<u8> {
        use std::io::Seek;
        let status = self.running.wait_until(None).or_fail(|| "cannot wait for git")?;
        match status.map(exit_code) {
            Some(0 | SIGPIPE_EXIT_CODE) => Ok(0),
            code => {
                let mut text = String::new();
                let _ = self
                    .stderr
                    .rewind()
                    .and_then(|()| self.stderr.take(4096).read_to_string(&mut text));
                let code = code.unwrap_or_default();
                let failure = Failure::failed(format!("git failed with exit code {code}"));
                Err(if text.trim().is_empty() { failure } else { failure.because(text.trim()) })
            }
        }
    }
}

/// Prints `{"schema":1,"id":…,"base":…,"check_files":…,"patch":…}` as a stream.
fn print_json(
    view: &SessionView,
    comparison: &Comparison,
    paths: &[OsString],
    check_files: &[CheckFile],
) -> Result<u8> {
    let check_files = serde_json::to_string(check_files).or_fail(|| "cannot write to stdout")?;
    let mut git = GitProcess::new(comparison, PatchForm::Applicable, paths, Stream::Piped)?;
    let output = git.running.child.stdout.take();
    let output = output.ok_or("it has no stdout").or_fail(|| "cannot read git's output")?;
    let base = &comparison.from;
    let mut out = io::BufWriter::new(report::writer());
    let print = || -> io::Result<()> {
        write!(
            out,
            "{{\"schema\":1,\"id\":\"{}\",\"base\":\"{base}\",\"check_files\":{},\"patch\":\"",
            view.record.id,
            base::text::json_escaped(&check_files)
        )?;
        report::write_json_string(output, &mut out)?;
        writeln!(out, "\"}}")?;
        out.flush()
    };
    match print() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::failed("cannot write to stdout").because(error)),
        Ok(()) => git.finish(),
    }
}

/// Runs the user's difftool on the changed files, one after the other.
fn run_difftool(comparison: &Comparison, paths: &[OsString], name: Option<&str>) -> Result<u8> {
    let directory = tempfile::Builder::new().prefix("studio-diff-").tempdir();
    let directory = directory.or_fail(|| "cannot make a temporary directory")?;
    comparison.write_files(paths, directory.path())?;
    let mut command = base::git::outside_repositories(directory.path())
        .args(["difftool", "--no-index", "--no-prompt"])
        .in_parent_group()
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit);
    if let Some(name) = name {
        command = command.arg(format!("--tool={name}"));
    }
    let interrupt = Interrupt::listen()?;
    let mut running =
        command.args(["--", "base", "work"]).spawn().or_fail(|| "cannot start git")?;
    let status = interrupt.run_ignoring(|| running.wait_until(None));
    // Like `diff`, it exits with 1 if the files differ.
    match status.or_fail(|| "cannot wait for the tool")?.map(exit_code) {
        Some(0 | 1) => Ok(0),
        code => Err(Failure::failed("the difftool failed")
            .because(format!("`git difftool` ended with exit code {}", code.unwrap_or_default()))
            .hint("git difftool --tool-help    lists the tools")),
    }
}
