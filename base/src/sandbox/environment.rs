//! The environment of agents and tool processes: what programs need, without secrets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::home::has_user_in_address;
use crate::test_hooks::is_hook;

/// The receiver of an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildKind {
    /// An agent: it reads the configuration, so it gets `G3_…` as well.
    Agent,
    /// A process of a tool, a check or a setup command: no configuration.
    Tool,
}

/// Variables that are passed by name.
const NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "CLICOLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "CI",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "FTP_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "TMPDIR",
    "TMP",
    "TEMP",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "CC",
    "CXX",
    "AR",
    "LD",
    "CFLAGS",
    "CXXFLAGS",
    "CPPFLAGS",
    "LDFLAGS",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "VIRTUAL_ENV",
    "JAVA_HOME",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "GRADLE_USER_HOME",
    "ANDROID_HOME",
    "DOTNET_ROOT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_NOSYSTEM",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
];

/// Variables that are passed by prefix.
const PREFIXES: &[&str] = &[
    "LC_",
    "XDG_",
    "CARGO_",
    "RUST",
    "GO",
    "NODE_",
    "NPM_CONFIG_",
    "NVM_",
    "VOLTA_",
    "PNPM_",
    "PYTHON",
    "PYENV_",
    "PIP_",
    "UV_",
    "CONDA_",
    "POETRY_",
    "RBENV_",
    "GEM_",
    "BUNDLE_",
    "NIX_",
    "SDKMAN_",
    "ASDF_",
    "MISE_",
    "CMAKE_",
    "CUDA_",
    "G3_",
];

/// Variables that are withheld although their prefix is passed: the sockets of the user's session
/// services, and settings that apply only to the build that started this process.
const EXCLUDED: &[&str] = &[
    "XDG_RUNTIME_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_BUILD_BUILD_DIR",
    "CARGO_MAKEFLAGS",
];

/// Words that mark a variable's name as a secret.
const SECRET_WORDS: &[&str] = &[
    "KEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "AUTH",
    "COOKIE",
    "PRIVATE",
    "SESSION",
];

/// Prefixes of variables of services with API keys.
const SECRET_OWNERS: &[&str] = &[
    "ANTHROPIC_",
    "OPENAI_",
    "GEMINI_",
    "GOOGLE_",
    "DATABRICKS_",
    "AWS_",
    "AZURE_",
    "GITHUB_",
    "GITLAB_",
    "HF_",
    "HUGGINGFACE_",
    "CLAUDE_",
    "CODEX_",
    "MISTRAL_",
    "GROQ_",
    "OPENROUTER_",
];

/// Returns the variables for a child: what programs need, without secrets, plus the `extra` ones
/// (an agent's entry names its own API key). Names are compared case-insensitively, since
/// `http_proxy` is common.
pub fn child_env(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    extra: &[String],
    child: ChildKind,
) -> Vec<(OsString, OsString)> {
    let is_passed = |name: &OsString, value: &OsString| {
        let Some(name) = name.to_str() else { return false };
        extra.iter().any(|extra_name| extra_name == name)
            || is_needed(name, child) && !holds_password(name, &value.to_string_lossy())
    };
    variables.into_iter().filter(|(name, value)| is_passed(name, value)).collect()
}

fn is_needed(name: &str, child: ChildKind) -> bool {
    let upper = name.to_ascii_uppercase();
    if upper.starts_with("G3_") && !is_hook(&upper) && child == ChildKind::Tool {
        return false;
    }
    if is_secret(&upper) || EXCLUDED.contains(&upper.as_str()) {
        return false;
    }
    NAMES.contains(&upper.as_str()) || PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
}

/// Returns whether a variable contains a URL with a password. Those of proxies are needed and do
/// not count.
pub fn holds_password(name: &str, value: &str) -> bool {
    has_user_in_address(value) && !name.to_ascii_uppercase().ends_with("_PROXY")
}

/// Returns whether a variable's name marks a secret.
pub fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let mut words = upper.split(['_', '-', '.']);
    SECRET_OWNERS.iter().any(|owner| upper.starts_with(owner))
        || words.any(|word| {
            let word = word.trim_end_matches('S');
            SECRET_WORDS.iter().any(|secret| word == *secret || word.ends_with(secret))
        })
}

/// Returns the variables that point build tools to studio's caches, which sandboxes may write.
/// Creates the directories, and copies the configuration in the user's cargo home directory without
/// logins.
pub fn cache_env(cache: &Path, cargo_home: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let directories = [
        ("CARGO_HOME", "cargo"),
        ("npm_config_cache", "others/npm"),
        ("PIP_CACHE_DIR", "others/pip"),
        ("XDG_CACHE_HOME", "others/xdg"),
        ("GOMODCACHE", "others/go/mod"),
        ("GOCACHE", "others/go/build"),
    ];
    fs::create_dir_all(cache)?;
    let mut variables = Vec::new();
    for (name, directory) in directories {
        create_directories(cache, directory)?;
        variables.push((name.to_owned(), cache.join(directory)));
    }
    create_directories(cache, "cargo/bin")?;
    let read = |name: &str| fs::read_to_string(cargo_home.join(name)).ok();
    let configuration = read("config.toml").and_then(|text| without_logins_and_target(&text));
    for (name, text) in [("config.toml", configuration), ("env", read("env"))] {
        let copy = cache.join("cargo").join(name);
        // Programs in the sandbox may have put anything at the path of the copy.
        let is_file = copy.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
        let is_copied = |text: &String| {
            is_file && fs::read_to_string(&copy).is_ok_and(|copied| copied == *text)
        };
        if let Some(text) = text.filter(|text| !is_copied(text)) {
            // Without it, cargo has its defaults.
            let _ = crate::files::replace_cache(&copy, text.as_bytes());
        }
    }
    Ok(variables)
}

/// Returns cargo's configuration without logins, and without a directory for build output that all
/// repositories share, which a sandbox cannot write.
fn without_logins_and_target(text: &str) -> Option<String> {
    fn holds_login(value: &toml::Value) -> bool {
        value.as_str().is_some_and(|text| match text.split_once("://") {
            // Over HTTP, a name without a password may be a token.
            Some((scheme, rest)) if scheme.ends_with("http") || scheme.ends_with("https") => {
                rest.split('/').next().is_some_and(|host| host.contains('@'))
            }
            _ => has_user_in_address(text),
        })
    }
    fn is_login(key: &str, value: &toml::Value) -> bool {
        match key {
            "token" | "secret-key" => true,
            // Programs outside of the sandbox, whose arguments may be secret.
            "credential-alias" | "credential-provider" | "global-credential-providers" => true,
            "proxy" => value.as_str().is_some_and(|address| address.contains('@')),
            _ => false,
        }
    }
    fn remove_logins(table: &mut toml::Table) {
        table.retain(|key, value| !is_login(key, value) && !holds_login(value));
        for (_, value) in table.iter_mut() {
            match value {
                toml::Value::Table(table) => remove_logins(table),
                toml::Value::Array(values) => values.retain(|value| !holds_login(value)),
                _ => {}
            }
        }
    }
    let mut table: toml::Table = text.parse().ok()?;
    remove_logins(&mut table);
    if let Some(build) = table.get_mut("build").and_then(toml::Value::as_table_mut) {
        build.retain(|key, _| !matches!(key, "target-dir" | "build-dir"));
    }
    if let Some(variables) = table.get_mut("env").and_then(toml::Value::as_table_mut) {
        variables.retain(|name, _| !is_secret(name));
    }
    Some(table.to_string())
}

/// Creates directories below another one, without following links: programs in the sandbox may have
/// put some at these paths. They are deleted.
fn create_directories(root: &Path, path: &str) -> io::Result<()> {
    use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
    use rustix::io::Errno;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open(root, flags, Mode::empty())?;
    for name in path.split('/') {
        let create = || match mkdirat(&directory, name, Mode::from_raw_mode(0o777)) {
            Err(Errno::EXIST) => Ok(()),
            created => created,
        };
        create()?;
        let next = openat(&directory, name, flags, Mode::empty()).or_else(|error| match error {
            Errno::NOTDIR | Errno::LOOP => {
                unlinkat(&directory, name, AtFlags::empty())?;
                create()?;
                openat(&directory, name, flags, Mode::empty())
            }
            error => Err(error),
        })?;
        directory = next;
    }
    Ok(())
}

/// Returns the trees of studio's caches that sandboxes may write. Each is a place of its own, so that
/// no program in a sandbox can put a link in its place.
pub fn cache_trees(cache: &Path) -> [PathBuf; 2] {
    ["cargo", "others"].map(|name| cache.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passing(names: &[&str], extra: &[&str], child: ChildKind) -> Vec<String> {
        let variables = names.iter().map(|name| (OsString::from(name), OsString::from("v")));
        let extra: Vec<String> = extra.iter().map(|name| (*name).to_owned()).collect();
        let passed = child_env(variables, &extra, child);
        passed.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn needed_variables_are_passed_and_secrets_are_not() {
        let all = [
            "PATH",
            "LC_ALL",
            "http_proxy",
            "CARGO_TERM_COLOR",
            "GOFLAGS",
            "G3_AGENT__MAX_TURNS",
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
        ];
        assert_eq!(passing(&all, &[], ChildKind::Agent), all);
        let secrets = [
            "ANTHROPIC_API_KEY",
            "OPENAI_BASE_URL",
            "AWS_PROFILE",
            "NPM_CONFIG__AUTHTOKEN",
            "CARGO_REGISTRIES_X_TOKEN",
            "PIP_PASSWORD",
            "DATABASE_URL",
            "SSH_AUTH_SOCK",
            "XDG_RUNTIME_DIR",
            "XDG_SESSION_ID",
            "G3_PROVIDERS__OPENAI__X__API_KEY",
            "GITHUB_TOKEN",
            "RUST_SECRETS",
            "GODADDY_KEY",
        ];
        assert_eq!(passing(&secrets, &[], ChildKind::Agent), Vec::<String>::new());
    }

    #[test]
    fn an_agent_gets_its_named_key_and_tools_get_no_configuration() {
        let all = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "G3_AGENT__MAX_TURNS", "G3_TEST_NOW"];
        let agent = ["ANTHROPIC_API_KEY", "G3_AGENT__MAX_TURNS", "G3_TEST_NOW"];
        assert_eq!(passing(&all, &["ANTHROPIC_API_KEY"], ChildKind::Agent), agent);
        let hooks: Vec<&str> = ["G3_TEST_NOW"].into_iter().filter(|name| is_hook(name)).collect();
        assert_eq!(passing(&all, &[], ChildKind::Tool), hooks);
    }

    #[test]
    fn caches_are_created_without_copies_of_a_login() {
        let dir = tempfile::tempdir().unwrap();
        let (users, cache) = (dir.path().join(".cargo"), dir.path().join("cache"));
        fs::create_dir(&users).unwrap();
        let user_config_file = users.join("config.toml");
        let copy = cache.join("cargo/config.toml");
        let variables = cache_env(&cache, &users).unwrap();
        assert!(variables.iter().all(|(_, path)| path.is_dir()) && !copy.exists());
        let text = r#"
            [build]
            jobs = 2
            target-dir = "/home/u/target"
            [registries.private-one]
            index = "sparse+https://example.com/index/"
            token = "hidden"
            credential-provider = ["program", "hidden"]
            [registries.other]
            index = "sparse+https://hidden@example.com/index/"
            [http]
            proxy = "me:hidden@example.com"
            [source.mirror]
            registry = "ssh://git@example.com/index"
            [credential-alias]
            one = ["program", "hidden"]
            [env]
            SERVICE_TOKEN = { value = "hidden", force = true }
            LEVEL = "3" # hidden
        "#;
        fs::write(&user_config_file, text).unwrap();
        cache_env(&cache, &users).unwrap();
        let copied = fs::read_to_string(&copy).unwrap();
        let table: toml::Table = copied.parse().unwrap();
        assert_eq!(table["registries"]["private-one"]["index"].as_str().unwrap().len(), 33);
        assert_eq!(table["build"]["jobs"].as_integer(), Some(2));
        assert_eq!(table["env"]["LEVEL"].as_str(), Some("3"));
        assert!(copied.contains("git@example.com"), "{copied}");
        assert!(!copied.contains("hidden") && !copied.contains("target-dir"), "{copied}");
        let trees = cache_trees(&cache);
        let is_in_a_tree = |path: &PathBuf| trees.iter().any(|tree| path.starts_with(tree));
        assert!(variables.iter().all(|(_, path)| is_in_a_tree(path)));

        // A link that a program in the sandbox made leads nowhere.
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::remove_dir_all(cache.join("others/go")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, cache.join("others/go")).unwrap();
        cache_env(&cache, &users).unwrap();
        assert!(fs::read_dir(&elsewhere).unwrap().next().is_none());
        assert!(cache.join("others/go/mod").is_dir());
    }
}
