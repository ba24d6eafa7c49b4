//! `g3 model …`: manages the model files on this machine.

mod pull;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::model_host::find::PROGRAM;
use base::process::{Command, Stream, find_program, sibling_program};
use clap::{Args, Subcommand};
use serde_json::json;

use base::model_host::catalogue::{self, DEFAULT, ENTRIES, InstalledModel};

/// Help about the cost of computing embeddings, measured with the default model.
const COSTS: &str = "\
With `embedder = \"local\"` in [memory], the model also computes the embeddings of memories:
60 MB more memory when in use, and about 80 ms of CPU time per token of a memory.";

/// `g3 model …`.
#[derive(Debug, Args)]
#[command(after_help = COSTS)]
pub(crate) struct ModelArgs {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// List the models in the catalogue and on this machine
    List(ListArgs),
    /// Download a model of the catalogue (resumes an interrupted download)
    Pull(PullArgs),
    /// Add a local model file (GGUF)
    Add(AddArgs),
    /// Serve a model in the foreground
    Serve(ServeArgs),
    /// Delete a model file
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct PullArgs {
    /// A name of the catalogue
    #[arg(default_value = DEFAULT)]
    name: String,
    /// Download the same file from another URL
    #[arg(long, value_name = "URL")]
    from: Option<String>,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// The model file
    file: PathBuf,
    /// Name of the model [default: the file name]
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// A name of `g3 model list`
    #[arg(default_value = DEFAULT)]
    name: String,
    /// Passed to g3-model: --context N, --parallel N, --threads N, --idle SECS
    #[arg(last = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// A name of `g3 model list`
    name: String,
}

/// Runs `g3 model …` and returns the exit code.
pub(crate) fn run(args: &ModelArgs) -> Result<u8> {
    match &args.command {
        ModelCommand::List(args) => list(args.json)?,
        ModelCommand::Pull(args) => pull(args)?,
        ModelCommand::Add(args) => add(args)?,
        ModelCommand::Serve(args) => return Err(serve(args)),
        ModelCommand::Remove(args) => remove(&args.name)?,
    }
    Ok(0)
}

fn list(as_json: bool) -> Result<()> {
    let installed = catalogue::installed()?;
    let others = installed.iter().filter(|installed| catalogue::entry(&installed.name).is_none());
    if as_json {
        let find_installed = |name: &str| installed.iter().find(|installed| installed.name == name);
        let known = ENTRIES.iter().map(|entry| {
            json!({
                "name": entry.name, "about": entry.about, "bytes": entry.bytes,
                "licence": entry.licence, "sha256": entry.sha256, "url": entry.url,
                "default": entry.name == DEFAULT, "path": find_installed(entry.name).map(|installed| &installed.path),
            })
        });
        let added = others.map(|installed| {
            json!({ "name": installed.name, "about": null, "bytes": installed.bytes, "licence": null,
                    "sha256": null, "url": null, "default": false, "path": installed.path })
        });
        let models: Vec<_> = known.chain(added).collect();
        return print(&format!("{:#}\n", json!({ "schema": 1, "models": models })));
    }
    let mut text = String::new();
    for entry in ENTRIES {
        let state = match installed.iter().find(|installed| installed.name == entry.name) {
            Some(installed) if installed.bytes == entry.bytes => "here".to_owned(),
            Some(installed) => format!("damaged ({})", size(installed.bytes)),
            None => format!("g3 model pull {}", entry.name),
        };
        let mark = if entry.name == DEFAULT { " (default)" } else { "" };
        text.push_str(&format!(
            "{}{mark}\n  {}; {}, {}\n  {state}\n",
            entry.name,
            entry.about,
            size(entry.bytes),
            entry.licence
        ));
    }
    for InstalledModel { name, path, bytes } in others {
        text.push_str(&format!("{name}\n  {}; {}\n  here\n", path.display(), size(*bytes)));
    }
    print(&text)
}

fn pull(args: &PullArgs) -> Result<()> {
    let entry = catalogue::entry(&args.name).ok_or_else(|| {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        Failure::usage(format!("no such model in the catalogue: `{}`", args.name))
            .hint(format!("one of these: {}", names.join(", ")))
            .hint("a local file: g3 model add FILE --name NAME")
    })?;
    let directory = create_dir(catalogue::directory()?)?;
    let target = directory.join(entry.file);
    let is_complete = fs::metadata(&target).is_ok_and(|meta| meta.len() == entry.bytes);
    if is_complete && pull::sha256(&target).is_ok_and(|hash| hash == entry.sha256) {
        return print(&format!("{} is already downloaded: {}\n", entry.name, target.display()));
    }
    let url = args.from.as_deref().unwrap_or(entry.url);
    let download =
        pull::Download { url, sha256: entry.sha256, bytes: entry.bytes, target: &target };
    base::runtime::current_thread()
        .or_fail(|| "cannot start the runtime")?
        .block_on(pull::fetch(&download))?;
    print(&format!("{} is ready: {}\n", entry.name, target.display()))
}

fn add(args: &AddArgs) -> Result<()> {
    let cannot = || format!("cannot add `{}`", args.file.display());
    let file = fs::canonicalize(&args.file).or_fail(cannot)?;
    let mut magic = [0; 4];
    let read =
        fs::File::open(&file).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic));
    if read.is_err() || &magic != b"GGUF" {
        return Err(Failure::usage(cannot()).because("not a model file (GGUF)"));
    }
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = args.name.clone().or(stem).unwrap_or_default();
    check_name(&name)?;
    let target = create_dir(catalogue::directory()?)?.join(format!("{name}.gguf"));
    if fs::symlink_metadata(&target).is_ok() {
        return Err(Failure::usage(format!("model `{name}` already exists"))
            .hint(format!("g3 model remove {name}"))
            .hint("or another name: --name NAME"));
    }
    // A link takes no space, and the file may stay on another disk.
    std::os::unix::fs::symlink(&file, &target).or_fail(cannot)?;
    print(&format!(
        "{name} is ready: {}\nUse it: g3 --provider embedded --model {name}\n",
        file.display()
    ))
}

/// Checks a model name: it becomes a file name, so it must not lead to another directory.
fn check_name(name: &str) -> Result<()> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !name.is_empty() && !name.starts_with(['.', '-']) && name.chars().all(is_allowed) {
        return Ok(());
    }
    Err(Failure::usage(format!("invalid model name `{name}`"))
        .because("use letters, digits, `-`, `_` and `.`"))
}

fn serve(args: &ServeArgs) -> Failure {
    let path = match catalogue::find(&args.name) {
        Ok(path) => path,
        Err(failure) => return failure,
    };
    let Some(program) = sibling_program(PROGRAM).or_else(|| find_program(PROGRAM)) else {
        return Failure::usage(format!("`{PROGRAM}` is neither next to g3 nor in PATH"))
            .hint("cargo build --release -p model");
    };
    let command = Command::new(program, ".").arg("--model").arg(path).args(&args.options);
    let error =
        command.stdin(Stream::Inherit).stdout(Stream::Inherit).stderr(Stream::Inherit).exec();
    Failure::failed("cannot serve the model").because(error)
}

fn remove(name: &str) -> Result<()> {
    let installed = catalogue::installed()?;
    let Some(model) = installed.iter().find(|installed| installed.name == name) else {
        return Err(Failure::usage(format!("no such model on this machine: `{name}`"))
            .hint("g3 model list"));
    };
    let is_link = fs::symlink_metadata(&model.path).is_ok_and(|meta| meta.is_symlink());
    fs::remove_file(&model.path).or_fail(|| format!("cannot delete {}", model.path.display()))?;
    let mut partial = model.path.clone().into_os_string();
    partial.push(".checked");
    let _ = fs::remove_file(partial);
    if is_link {
        return print(&format!("removed {name}; the file that it linked to is kept\n"));
    }
    print(&format!("deleted {name}; freed {}\n", size(model.bytes)))
}

fn create_dir(directory: PathBuf) -> Result<PathBuf> {
    fs::create_dir_all(&directory).or_fail(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// Formats a number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // A reader that closes the pipe early is not an error.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e).or_fail(|| "cannot print"),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns whether stderr is a terminal.
fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
