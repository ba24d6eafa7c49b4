//! The base rules of every sandbox: the system is readable, and of the home directory what programs
//! need, except secrets; nothing is writable except stateless devices. The kernel's rules can only
//! allow, so a directory that contains a secret is opened entry by entry.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::sandbox::{SandboxRules, home_paths};

/// Secrets below the home directory: keys, logins of command-line tools, accounts of other agents,
/// browser profiles, password stores, wallets, messengers, shell histories.
const SECRETS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/g3",
    ".g3/oauth",
    ".local/state/g3",
    ".local/state/studio",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".oci",
    ".bluemix",
    ".docker",
    ".config/containers/auth.json",
    ".kube",
    ".config/helm",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/doctl",
    ".config/hcloud",
    ".config/heroku",
    ".config/netlify",
    ".config/stripe",
    ".config/configstore",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/age",
    ".fly",
    ".railway",
    ".wrangler",
    ".config/.wrangler",
    ".terraform.d",
    ".terraformrc",
    ".vault-token",
    ".databrickscfg",
    ".databricks",
    ".snowflake",
    ".pgpass",
    ".my.cnf",
    ".pypirc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".nuget/NuGet",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".m2/settings-security.xml",
    ".gradle/init.gradle",
    ".gradle/init.d",
    ".sbt/credentials",
    ".sbt/.credentials",
    ".ivy2/.credentials",
    ".bundle/config",
    ".config/mise/age.txt",
    ".cabal/config",
    ".hex/hex.config",
    ".pub-cache/credentials.json",
    ".config/go/telemetry",
    ".huggingface",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".qwen",
    ".local/share/opencode",
    ".config/goose",
    ".config/github-copilot",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".config/1Password",
    ".mozilla",
    ".thunderbird",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    "snap/firefox",
    "snap/chromium",
    ".var/app",
    ".config/Signal",
    ".config/Slack",
    ".config/discord",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".bash_history",
    ".zsh_history",
    ".zsh_sessions",
    ".sh_history",
    ".histfile",
    ".local/share/fish/fish_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".lesshst",
    ".viminfo",
];

/// Configuration files of tools, which contain a login for some users.
const POSSIBLE_SECRETS: &[&str] = &[
    ".npmrc",
    ".yarnrc.yml",
    ".yarnrc",
    ".cargo/config.toml",
    ".cargo/config",
    ".config/pip/pip.conf",
    ".pip/pip.conf",
    ".config/uv/uv.toml",
    ".gitconfig",
    ".config/git/config",
    ".curlrc",
    ".wgetrc",
];

/// Words that indicate a login in such a file.
const LOGIN_MARKERS: &[&str] =
    &["_authtoken", "_password", "_auth=", "_auth =", "token", "password"];

/// Paths that are never opened at the root: temporary directories (each sandbox has its own),
/// devices (listed below), and private data and sockets of services.
const CLOSED_DIRECTORIES: &[&str] = &["/tmp", "/var/tmp", "/dev", "/run", "/lost+found"];

/// What programs read in `/run`: the addresses of name servers, and programs of NixOS.
const RUNTIME_FILES: &[&str] = &[
    "/run/systemd/resolve/resolv.conf",
    "/run/systemd/resolve/stub-resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
    "/run/opengl-driver-32",
];

/// Files that only root can read; closed by name when running as root.
const ROOT_SECRETS: &[&str] = &["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private"];

/// System directories, which are not writable even if a working tree contains them.
const SYSTEM: &[&str] = &[
    "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/srv", "/sys", "/usr",
    "/var",
];

/// Devices that store nothing and reach only their own process.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];

/// Returns the rules for a home directory: the system is readable, and in the home what programs
/// need. `closed` names additional closed trees (a repository's sessions, for example); the caller
/// adds what a sandbox needs inside them.
pub fn home_rules(home: &Path, closed: &[PathBuf]) -> SandboxRules {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut excluded = secrets(&home, closed);
    let system = CLOSED_DIRECTORIES.iter().map(PathBuf::from);
    let mut read = Vec::new();
    // The home directory itself may be in a closed path, as those of tests are.
    excluded.extend(system.clone().filter(|closed| !home.starts_with(closed)));
    for path in home_paths::OPEN.iter().map(|path| home.join(path)) {
        collect_named(&path, &home, &excluded, &mut read);
    }
    for path in home_paths::from_environment(&home) {
        collect_named(&path, &home, &excluded, &mut read);
    }
    excluded.extend(system);
    // A home that contains the system is opened around its secrets.
    let private = Some(home).filter(|home| !Path::new("/usr").starts_with(home));
    excluded.extend(private.clone());
    collect_open(Path::new("/"), &excluded, &mut read);
    read.extend(RUNTIME_FILES.iter().map(PathBuf::from).filter(|path| path.exists()));
    let write = DEVICES.iter().map(PathBuf::from).collect();
    SandboxRules { read, write, private: private.into_iter().collect(), ..SandboxRules::default() }
}

/// Returns the parts of a tree that may be writable without reaching a secret: all of it, or its
/// entries around the secrets. If the tree is or contains the home directory, the hidden files of
/// the home stay closed as well, because shells and other programs run them.
pub fn writable(tree: &Path, home: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let tree = tree.canonicalize().unwrap_or_else(|_| tree.to_owned());
    let mut excluded = secrets(&home, closed);
    // A closed path that contains the working tree does not close it. Neither does studio's data in
    // its git directory, which stays read-only (`git_dirs`): around it, nothing could be created in
    // the tree.
    let git = tree.join(".git");
    excluded.retain(|secret| !tree.starts_with(secret) && !secret.starts_with(&git));
    if home.starts_with(&tree) {
        let dotfiles = fs::read_dir(&home).into_iter().flatten().flatten();
        let dotfiles =
            dotfiles.filter(|entry| entry.file_name().to_string_lossy().starts_with('.'));
        excluded.extend(dotfiles.map(|entry| entry.path()));
        excluded.extend(CLOSED_DIRECTORIES.iter().chain(SYSTEM).map(PathBuf::from));
    }
    let mut write = Vec::new();
    collect_open(&tree, &excluded, &mut write);
    write
}

/// Returns the parts of a tree that are readable, which are all but its secrets; for a tree that the
/// user works in, such as the repository around a working directory.
pub fn readable(tree: &Path, home: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let home = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let mut read = Vec::new();
    collect_named(tree, &home, &secrets(&home, closed), &mut read);
    read
}

/// Opens a path that is named, and its target if it is a link. The home itself is not opened by
/// name, and neither is a directory above it.
fn collect_named(path: &Path, home: &Path, excluded: &[PathBuf], read: &mut Vec<PathBuf>) {
    let Some(target) = resolve_existing(path) else { return };
    if home.starts_with(&target) {
        return;
    }
    let mut opened = Vec::new();
    collect_open(&target, excluded, &mut opened);
    // Through the link, so that a private home shows the link as well.
    let through_link = opened.first().and_then(|first| first.strip_prefix(&target).ok());
    if let Some(rest) = through_link.filter(|_| target != path) {
        let is_target = rest.as_os_str().is_empty();
        read.push(if is_target { path.to_owned() } else { path.join(rest) });
    }
    read.append(&mut opened);
}

/// Returns all closed paths for a home directory.
fn secrets(home: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let mut excluded: Vec<PathBuf> = closed.to_vec();
    excluded.extend(SECRETS.iter().map(|secret| home.join(secret)));
    excluded
        .extend(["g3", "studio"].iter().filter_map(|name| crate::user_dirs::state_dir(name).ok()));
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    excluded.extend(config.filter(|path| path.is_absolute()).map(|path| path.join("g3")));
    for common in crate::known_repositories::list() {
        excluded.push(common.join("studio"));
        excluded.extend(Some(common.join("config")).filter(|config| holds_remote_login(config)));
    }
    excluded.extend(
        POSSIBLE_SECRETS.iter().map(|file| home.join(file)).filter(|file| holds_login(file)),
    );
    if rustix::process::geteuid().is_root() {
        excluded.extend(ROOT_SECRETS.iter().map(PathBuf::from));
    }
    // A secret may be a link to its real location.
    let resolved: Vec<PathBuf> =
        excluded.iter().filter_map(|path| resolve_existing(path)).collect();
    excluded.extend(resolved);
    excluded
}

/// Returns a path with its links resolved. Most of the paths asked for do not exist, which one system
/// call finds out.
fn resolve_existing(path: &Path) -> Option<PathBuf> {
    path.symlink_metadata().ok()?;
    path.canonicalize().ok()
}

/// Opens a tree around everything that is closed.
fn collect_open(tree: &Path, excluded: &[PathBuf], read: &mut Vec<PathBuf>) {
    if excluded.iter().any(|closed| tree.starts_with(closed)) {
        return;
    }
    collect_around(tree, &excluded.iter().map(PathBuf::as_path).collect(), read);
}

/// Opens a tree of which neither it nor a directory above it is closed, unless it is closed itself.
/// The closed paths are sorted, so that those in a tree follow it.
fn collect_around(path: &Path, excluded: &BTreeSet<&Path>, read: &mut Vec<PathBuf>) {
    match excluded.range(path..).next() {
        Some(closed) if *closed == path => return,
        Some(closed) if closed.starts_with(path) => {}
        _ => {
            read.push(path.to_owned());
            return;
        }
    }
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        // The kernel checks the target of a link, so links need no rules of their own.
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if !is_link && !looks_like_a_key(&entry.file_name().to_string_lossy()) {
            collect_around(&entry.path(), excluded, read);
        }
    }
}

/// Returns whether the path of a file, relative to its repository, looks like a secret.
pub fn looks_like_a_secret(path: &Path) -> bool {
    let words = ["secret", "credential", "password", "passwd", "private", "token"];
    path.iter().any(|part| {
        let name = part.to_string_lossy().to_ascii_lowercase();
        looks_like_a_key(&name)
            || words.iter().any(|word| name.contains(word))
            || [".netrc", ".npmrc", ".pypirc", ".pgpass"].contains(&name.as_str())
    })
}

/// Returns whether a name looks like a key file, in directories that are opened entry by entry.
fn looks_like_a_key(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let suffixes = [".pem", ".key", ".p12", ".pfx", ".kdbx", ".ppk", ".jks", ".keystore"];
    let prefixes = ["id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".env"];
    suffixes.iter().any(|suffix| name.ends_with(suffix))
        || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn holds_login(file: &Path) -> bool {
    let is_small = fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 20);
    if !is_small {
        return false;
    }
    let text = fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).to_lowercase());
    text.is_ok_and(|text| {
        LOGIN_MARKERS.iter().any(|login| text.contains(login)) || has_user_in_address(&text)
    })
}

/// Returns whether a repository's configuration contains a login: a remote's address with a user
/// (a token needs no password), or a header.
fn holds_remote_login(config: &Path) -> bool {
    let is_small = fs::metadata(config).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 20);
    let text = is_small.then(|| fs::read(config).ok()).flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&text).to_lowercase();
    let names_user = |rest: &str| {
        rest.split(['/', '"', '\n', ' ']).next().is_some_and(|host| host.contains('@'))
    };
    text.contains("extraheader")
        || ["http://", "https://"].iter().any(|scheme| text.split(scheme).skip(1).any(names_user))
}

/// Returns whether a text contains `https://user:password@host`.
pub(crate) fn has_user_in_address(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let host = rest.split(['/', '"', '\'', '\n', ' ']).next().unwrap_or_default();
        host.split_once('@').is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_opened_around_its_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        for name in [
            ".ssh",
            ".config/g3",
            ".g3/oauth",
            ".g3/models",
            ".config/nvim",
            "src",
            ".cargo/bin",
            ".tool/bin",
            "vault",
        ] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(home.join("vault"), home.join(".aws")).unwrap();
        fs::write(home.join(".npmrc"), "//r.example/:_authToken=x").unwrap();
        fs::write(home.join(".gitconfig"), "[user]\nname = a").unwrap();
        fs::write(home.join("server.pem"), "").unwrap();
        fs::write(home.join(".cargo/credentials.toml"), "token").unwrap();

        let closed = [home.join("src/repo/.git/studio")];
        fs::create_dir_all(&closed[0]).unwrap();
        fs::create_dir_all(home.join("src/repo/.git/objects")).unwrap();
        let rules = home_rules(&home, &closed);

        let opened = |path: &str| rules.read.iter().any(|tree| home.join(path).starts_with(tree));
        for open in [".g3/models", ".cargo/bin", ".gitconfig"] {
            assert!(opened(open), "{open} should be readable");
        }
        let repository = readable(&home.join("src/repo"), &home, &closed);
        assert!(repository.contains(&home.join("src/repo/.git/objects")), "{repository:?}");
        assert!(!repository.iter().any(|tree| closed[0].starts_with(tree)), "{repository:?}");
        assert!(readable(&home, &home, &closed).is_empty(), "a home is not a repository");
        for excluded in [
            ".config/nvim",
            "src",
            ".cargo/credentials.toml",
            ".tool/bin",
            ".g3/oauth/x.json",
            ".ssh/id",
            ".config/g3/config.toml",
            "vault/key",
            ".npmrc",
            "server.pem",
        ] {
            assert!(!opened(excluded), "{excluded} should be closed");
        }
        assert!(!opened("src/repo/.git/studio/sessions"), "closed by the caller");
        assert!(rules.read.iter().any(|tree| Path::new("/usr/bin").starts_with(tree)));
        assert!(!rules.read.iter().any(|tree| Path::new("/tmp/other").starts_with(tree)));
    }

    #[test]
    fn a_tree_is_opened_around_closed_paths_whose_names_begin_alike() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().canonicalize().unwrap();
        for name in ["a/b/secret", "a/c", "a-b/x", "a.c/x", "ab/x"] {
            fs::create_dir_all(tree.join(name)).unwrap();
        }
        let excluded = ["a/b/secret", "a-b", "missing/z"].map(|path| tree.join(path));
        let mut open = Vec::new();
        collect_open(&tree, &excluded, &mut open);
        open.sort_unstable();
        assert_eq!(open, ["a/c", "a.c", "ab"].map(|path| tree.join(path)));
        open.clear();
        collect_open(&tree.join("a-b/x"), &excluded, &mut open);
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn devices_and_temporary_directories_are_closed_for_any_home() {
        for home in ["/", "/root", "/nonexistent"] {
            let rules = home_rules(Path::new(home), &[]);
            for excluded in ["/tmp/x", "/dev/sda", "/run/secrets/key", "/var/tmp/x"] {
                let opened = rules.read.iter().any(|tree| Path::new(excluded).starts_with(tree));
                assert!(!opened, "{excluded} is open for the home {home}");
            }
            assert!(rules.read.iter().any(|tree| Path::new("/usr/bin").starts_with(tree)));
        }
    }

    #[test]
    fn a_login_in_a_url_is_detected() {
        assert!(has_user_in_address("index-url = https://u:p@pypi.example/simple"));
        assert!(!has_user_in_address("url = https://example.org/a@b:c"));
    }
}
