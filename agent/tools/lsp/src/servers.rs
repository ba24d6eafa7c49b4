//! The known language servers, the user's configuration of them, and the root in which a server
//! runs for a file.

use base::config::lsp::LspServerConfig;
use base::failure::{Failure, Result};
use base::process::find_program;
use base::secret::Secret;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// Default timeout in seconds of a start, and of each answer.
const TIMEOUT: u64 = 45;

/// A language server: how it is started, and which files it handles.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LanguageServer {
    /// Its name in the configuration.
    pub name: String,
    /// The protocol's id of its language.
    pub language: String,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Other programs for its files, with their arguments: used where the ones before are missing
    /// or do not start.
    pub others: Vec<Vec<String>>,
    /// Extensions or names of its files.
    pub extensions: Vec<String>,
    /// Extension or name -> the language id, where it differs.
    pub ids: BTreeMap<String, String>,
    /// Files that mark a root. A file of an earlier group takes precedence over all files of later
    /// ones.
    pub roots: Vec<Vec<String>>,
    /// The projects that a root may be a part of.
    pub outer: Option<ParentProjects>,
    /// Files that mark the project of another server, in a directory above.
    pub unless: Vec<String>,
    /// Whether it is disabled.
    pub off: bool,
    /// Where to get it.
    pub install: String,
    /// Environment variables of the program.
    #[serde(skip)]
    pub env: BTreeMap<String, Secret>,
    /// Timeout in seconds of its start, and of each answer.
    #[serde(skip)]
    pub seconds: Option<u64>,
}

/// Projects that contain other projects.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ParentProjects {
    /// The file that marks such a project.
    pub file: String,
    /// The line in that file.
    pub with: String,
}

static KNOWN: LazyLock<Vec<LanguageServer>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("servers.json"))
        .expect("the table is compiled in, and a test reads it")
});

/// Returns all servers, those of the user first.
pub(crate) fn languages(
    configured: &BTreeMap<String, LspServerConfig>,
) -> Result<Vec<LanguageServer>> {
    let mut all = Vec::new();
    for (name, server) in configured {
        let known = KNOWN.iter().find(|known| known.name == *name);
        let fresh = LanguageServer { name: name.clone(), ..LanguageServer::default() };
        let language = changed(known.cloned().unwrap_or(fresh), server);
        if let Some(fault) = language.fault() {
            return Err(Failure::usage(format!("invalid language server [lsp.{name}]"))
                .because(fault)
                .hint("command = \"PROGRAM\", extensions = [\".ending\"]"));
        }
        all.push(language);
    }
    all.extend(KNOWN.iter().filter(|known| !configured.contains_key(&known.name)).cloned());
    Ok(all)
}

fn changed(known: LanguageServer, configured: &LspServerConfig) -> LanguageServer {
    let is_other = configured.command.is_some();
    let language = configured.language.clone();
    LanguageServer {
        command: configured.command.clone().unwrap_or(known.command),
        others: if is_other { Vec::new() } else { known.others },
        // The arguments of one program are meaningless for another.
        args: configured.args.clone().unwrap_or(if is_other { Vec::new() } else { known.args }),
        ids: if language.is_some() { BTreeMap::new() } else { known.ids },
        language: language.unwrap_or(if known.language.is_empty() {
            known.name.clone()
        } else {
            known.language
        }),
        extensions: configured.extensions.clone().unwrap_or(known.extensions),
        outer: if configured.root_patterns.is_some() { None } else { known.outer },
        roots: configured.root_patterns.clone().map_or(known.roots, |one| vec![one]),
        off: configured.enabled.map_or(known.off, |on| !on),
        env: configured.env.clone(),
        seconds: configured.timeout_seconds,
        ..known
    }
}

impl LanguageServer {
    /// Returns why the server is invalid, if it is.
    fn fault(&self) -> Option<&'static str> {
        let program = Path::new(&self.command);
        let is_name = program.components().count() == 1;
        if self.command.trim().is_empty() || self.extensions.is_empty() {
            Some("it is not a known server, so it needs `command` and `extensions`")
        } else if !is_name && !program.is_absolute() && !self.command.starts_with("~/") {
            Some("its `command` is neither a name nor an absolute path")
        } else if self.seconds == Some(0) {
            Some("its `timeout_seconds` is 0")
        } else {
            None
        }
    }

    /// Returns the language id of a file that this server handles.
    pub(crate) fn id_of(&self, file: &Path) -> Option<&str> {
        let ending = self.ending_of(file)?;
        Some(self.ids.get(ending).unwrap_or(&self.language))
    }

    fn ending_of(&self, file: &Path) -> Option<&str> {
        let name = file.file_name()?.to_str()?;
        let fits = |ending: &&String| match ending.strip_prefix('.') {
            Some(bare) => file.extension().is_some_and(|it| it.eq_ignore_ascii_case(bare)),
            None => name == *ending,
        };
        self.extensions.iter().find(fits).map(String::as_str)
    }

    /// Returns the timeout of its start, and of each answer.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.seconds.unwrap_or(TIMEOUT))
    }

    /// Returns its programs that are installed, each with its arguments.
    pub(crate) fn commands(&self) -> Vec<Vec<String>> {
        let own = std::iter::once(&self.command).chain(&self.args).cloned().collect();
        std::iter::once(own).chain(self.others.iter().cloned()).filter_map(installed).collect()
    }
}

/// Returns the command with the path of its program, if the program is installed.
fn installed(mut command: Vec<String>) -> Option<Vec<String>> {
    let program = command.first_mut()?;
    let home = base::user_dirs::home_dir().unwrap_or_default();
    let path = base::config::studio::expand_tilde(Path::new(program), &home);
    let path = match path.is_absolute() {
        true => path.is_file().then_some(path)?,
        // A relative entry of PATH would depend on the project.
        false => find_program(program.as_str()).filter(|path| path.is_absolute())?,
    };
    *program = path.to_str()?.to_owned();
    Some(command)
}

/// Returns the root in which a server runs for a file; `None` if the project is another server's.
pub(crate) fn of(file: &Path, language: &LanguageServer, tree: &Path) -> Option<PathBuf> {
    let above: Vec<&Path> = file.ancestors().skip(1).collect();
    let within: Vec<&Path> = match file.starts_with(tree) {
        true => above.into_iter().take_while(|dir| dir.starts_with(tree)).collect(),
        false => above.into_iter().take(1).collect(),
    };
    let nearest = |markers: &[String]| {
        within.iter().position(|dir| markers.iter().any(|marker| holds(dir, marker)))
    };
    if nearest(&language.unless).is_some() {
        return None;
    }
    let Some(root) = language.roots.iter().find_map(|group| nearest(group)) else {
        return within.last().map(|dir| (*dir).to_owned());
    };
    let is_outer = |dir: &&&Path| {
        let outer = language.outer.as_ref();
        outer.is_some_and(|outer| {
            let text = base::files::read_text(&dir.join(&outer.file)).unwrap_or_default();
            text.lines().any(|line| line.trim() == outer.with)
        })
    };
    let outer = within[root..].iter().find(is_outer);
    Some(outer.map_or(within[root], |dir| dir).to_owned())
}

/// Returns whether a directory contains a file with this name, or with this extension (`*.sln`).
fn holds(dir: &Path, marker: &str) -> bool {
    let Some(ending) = marker.strip_prefix('*') else { return dir.join(marker).exists() };
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(std::result::Result::ok);
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_str().is_some_and(|name| name.ends_with(ending)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn texts<const N: usize>(all: [&str; N]) -> Option<Vec<String>> {
        Some(all.map(str::to_owned).to_vec())
    }

    #[test]
    fn every_row_of_the_table_is_complete() {
        let all = languages(&BTreeMap::new()).unwrap();
        assert!(all.len() >= 37, "{}", all.len());
        for row in &all {
            assert!(!row.language.is_empty() && !row.install.is_empty(), "{}", row.name);
            let mut known = row.ids.keys();
            assert!(known.all(|ending| row.extensions.contains(ending)), "{}", row.name);
            assert_eq!(all.iter().filter(|other| other.name == row.name).count(), 1);
        }
        let off: Vec<&str> =
            all.iter().filter(|row| row.off).map(|row| row.name.as_str()).collect();
        assert_eq!(off, ["deno"]);
    }

    #[test]
    fn a_file_has_the_language_id_of_its_extension() {
        let all = languages(&BTreeMap::new()).unwrap();
        let id = |file: &str| {
            let of = |row: &LanguageServer| row.id_of(Path::new(file)).map(str::to_owned);
            all.iter().filter(|row| !row.off).find_map(of)
        };
        assert_eq!(id("a/b.rs").as_deref(), Some("rust"));
        assert_eq!(id("a/b.TSX").as_deref(), Some("typescriptreact"));
        assert_eq!(id("x/Dockerfile").as_deref(), Some("dockerfile"));
        assert_eq!(id("go.mod").as_deref(), Some("go.mod"));
        assert_eq!(id("rs"), None);
    }

    #[test]
    fn configured_servers_come_first_and_new_ones_must_be_complete() {
        let rust = LspServerConfig { command: Some("ra".into()), ..LspServerConfig::default() };
        let deno = LspServerConfig { enabled: Some(true), ..LspServerConfig::default() };
        let toy = LspServerConfig {
            command: Some("toy".into()),
            extensions: texts([".toy"]),
            root_patterns: texts(["toy.mod"]),
            ..LspServerConfig::default()
        };
        let named = [("toy", toy), ("rust", rust), ("deno", deno)];
        let own = named.map(|(name, server)| (name.to_owned(), server)).into_iter().collect();
        let all = languages(&own).unwrap();
        let names: Vec<&str> = all[..3].iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["deno", "rust", "toy"]);
        assert!(!all[0].off && all[0].args == ["lsp"]);
        assert_eq!((all[1].command.as_str(), all[1].extensions.len()), ("ra", 1));
        assert_eq!((all[2].language.as_str(), all[2].roots.len()), ("toy", 1));
        let half = LspServerConfig { extensions: texts([".x"]), ..LspServerConfig::default() };
        let wrong = languages(&BTreeMap::from([("half".to_owned(), half)])).unwrap_err();
        assert!(wrong.sentence().contains("[lsp.half]"));
        let near =
            LspServerConfig { command: Some("./bin/x".into()), ..LspServerConfig::default() };
        let wrong = languages(&BTreeMap::from([("rust".to_owned(), near)])).unwrap_err();
        assert!(wrong.full_text().contains("absolute"), "{}", wrong.full_text());
    }

    /// Returns the root of a file for a server, in a tree with these files.
    fn root(files: &[(&str, &str)], server: &str, file: &str) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(dir.path().join("Cargo.toml"), "[workspace]").unwrap();
        for (name, text) in files {
            fs::create_dir_all(tree.join(name).parent().unwrap()).unwrap();
            fs::write(tree.join(name), text).unwrap();
        }
        let all = languages(&BTreeMap::new()).unwrap();
        let language = all.iter().find(|row| row.name == server).unwrap();
        let found = of(&tree.join(file), language, &tree)?;
        Some(found.strip_prefix(&tree).unwrap().to_string_lossy().into_owned())
    }

    #[test]
    fn the_root_is_the_nearest_marker_within_the_tree() {
        let cargo = ("w/a/Cargo.toml", "[package]");
        let workspace = ("w/Cargo.toml", "[package]\n[workspace]\nmembers = []");
        let of = |files: &[_], server, file| root(files, server, file).unwrap();
        assert_eq!(of(&[cargo, workspace], "rust", "w/a/src/x.rs"), "w");
        assert_eq!(of(&[cargo], "rust", "w/a/src/x.rs"), "w/a");
        assert_eq!(of(&[], "rust", "w/x.rs"), "", "the tree, and nothing above it");
        let go = [("go.work", ""), ("m/go.mod", "")];
        assert_eq!(of(&go, "go", "m/x.go"), "");
        assert_eq!(of(&go[1..], "go", "m/x.go"), "m");
        assert_eq!(of(&[("s/a.sln", ""), ("s/p/b.csproj", "")], "csharp", "s/p/x.cs"), "s");
        let lock = [("yarn.lock", ""), ("p/package.json", ""), ("d/deno.json", "")];
        assert_eq!(of(&lock, "typescript", "p/x.ts"), "");
        assert_eq!(root(&lock, "typescript", "d/x.ts"), None);
    }
}
