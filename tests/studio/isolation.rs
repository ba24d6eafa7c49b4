//! What a program in `studio __box` reaches besides files: servers of the user, and credentials of
//! tools that studio does not know. Each attack succeeds without the sandbox.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use base::process::{Command, OutputLimits, Running};
use testkit::env::until;

use crate::sandbox::Den;

/// Files in a home directory in which well-known programs keep credentials.
const CREDENTIALS: &[&str] = &[
    ".ssh/id_ed25519",
    ".ssh/config",
    ".gnupg/private-keys-v1.d/key",
    ".netrc",
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh/hosts.yml",
    ".config/glab-cli/config.yml",
    ".config/hub",
    ".config/tea/config.yml",
    ".config/jj/config.toml",
    ".aws/credentials",
    ".aws/sso/cache/token.json",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".boto",
    ".s3cfg",
    ".oci/config",
    ".aliyun/config.json",
    ".config/doctl/config.yaml",
    ".config/hcloud/cli.toml",
    ".config/scw/config.yaml",
    ".linode-cli",
    ".config/linode-cli",
    ".config/upcloud",
    ".vultr-cli.yaml",
    ".civo.json",
    ".fly/config.yml",
    ".railway/config.json",
    ".config/heroku/credentials",
    ".config/netlify/config.json",
    ".vercel/auth.json",
    ".local/share/com.vercel.cli/auth.json",
    ".config/.wrangler/config/default.toml",
    ".config/supabase/access-token",
    ".supabase/access-token",
    ".config/stripe/config.toml",
    ".config/ngrok/ngrok.yml",
    ".cloudflared/cert.pem",
    ".tailscale/state",
    ".docker/config.json",
    ".config/containers/auth.json",
    ".kube/config",
    ".config/helm/registry.json",
    ".terraform.d/credentials.tfrc.json",
    ".pulumi/credentials.json",
    ".vault-token",
    ".config/op/config",
    ".config/sops/age/keys.txt",
    ".config/rclone/rclone.conf",
    ".config/sentry/config",
    ".sentryclirc",
    ".config/configstore/firebase-tools.json",
    ".databrickscfg",
    ".snowflake/config.toml",
    ".dbt/profiles.yml",
    ".kaggle/kaggle.json",
    ".cache/huggingface/token",
    ".cargo/credentials.toml",
    ".pypirc",
    ".config/pypoetry/auth.toml",
    ".gem/credentials",
    ".bundle/config",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/hatch/credentials.json",
    ".pgpass",
    ".my.cnf",
    ".mongorc.js",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/github-copilot/apps.json",
    ".config/openai/key",
    ".config/io.datasette.llm/keys.json",
    ".aider.conf.yml",
    ".config/google-chrome/Default/Cookies",
    ".mozilla/firefox/p/logins.json",
    ".cache/keyring-1/control",
    ".local/share/keyrings/login.keyring",
    ".password-store/a.gpg",
    ".bash_history",
    ".bashrc",
    ".profile",
    ".config/fish/config.fish",
    ".env",
    "work/other/.env",
    "work/other/.git/config",
    "Documents/passwords.txt",
];

#[test]
fn credentials_of_other_programs_are_unreadable() {
    let mut den = Den::new();
    for path in CREDENTIALS {
        let file = den.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "canary\n").unwrap();
    }
    // The rules are made for what the home contains now.
    den.refresh();
    let attack: String = CREDENTIALS.iter().map(|path| format!("cat ~/'{path}'; ")).collect();
    let listing = "ls -a ~ ~/.config ~/.cache ~/work; ";
    let attack = format!("{attack}{listing}true");
    let confined = den.sh(&attack);
    let listed = &confined.exits(0).out;
    for hidden in ["canary", "keyring-1", "Documents", ".bashrc"] {
        assert!(!listed.contains(hidden), "{hidden} in {listed}");
    }
    let open = den.open().sh(&attack);
    assert_eq!(open.exits(0).out.matches("canary").count(), CREDENTIALS.len());
}

#[test]
fn toolchains_and_settings_in_the_home_are_readable() {
    let mut den = Den::new();
    let files = [".cargo/bin/tool", ".nvm/versions/node", ".local/bin/tool", ".gitconfig", "go/x"];
    for path in files {
        let file = den.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "[user]\n").unwrap();
    }
    den.refresh();
    let line: String = files.iter().map(|path| format!("cat ~/'{path}' && ")).collect();
    den.sh(&format!("{line} true")).ok();
}

/// A server of tmux that the user runs, on its default socket below `TMUX_TMPDIR`.
struct Tmux {
    socket: String,
}

impl Tmux {
    fn start(directory: &Path) -> Tmux {
        let socket = directory.join("default").display().to_string();
        let line = ["-S", &socket, "-f", "/dev/null", "new-session", "-d", "sleep 300"];
        let command = Command::new("tmux", "/").args(line).env_remove("TMUX");
        assert!(command.output(OutputLimits::seconds(60)).unwrap().status.success());
        Tmux { socket }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let command = Command::new("tmux", "/").args(["-S", &self.socket, "kill-server"]);
        let _ = command.output(OutputLimits::seconds(60));
    }
}

#[test]
fn a_tmux_server_of_the_user_runs_no_command_for_the_sandbox() {
    for parent in ["/tmp", "/var/tmp"] {
        let directory = tempfile::tempdir_in(parent).unwrap();
        let tmux = Tmux::start(directory.path());
        let den = Den::new();
        let marker = den.path("outside/marker");
        let attack = format!("tmux -S {} run-shell 'touch {}'", tmux.socket, marker.display());
        assert_ne!(den.sh(&attack).code, 0, "{parent}");
        assert!(!marker.exists(), "{parent}");
        let open = den.open();
        open.sh(&attack).ok();
        assert!(marker.exists(), "the control reached the server in {parent}");
    }
}

#[test]
fn a_session_bus_is_hidden_and_a_named_socket_is_open() {
    let directory = tempfile::tempdir_in("/run").ok();
    // Only root can create a directory there; others have theirs in `/tmp`.
    let directory = directory.unwrap_or_else(|| tempfile::tempdir_in("/tmp").unwrap());
    let socket = directory.path().join("bus");
    let address = format!("unix:path={}", socket.display());
    let start = ["--session", "--nofork", "--nopidfile", "--address", &address];
    let _bus: Running = Command::new("dbus-daemon", "/").args(start).spawn().unwrap();
    until("the bus to listen", || socket.exists().then_some(()));
    let attack = format!(
        "dbus-send --bus={address} --print-reply --dest=org.freedesktop.DBus / \
         org.freedesktop.DBus.ListNames"
    );
    let mut den = Den::new();
    assert_ne!(den.sh(&attack).code, 0);
    den.spec.rules.sockets.push(socket);
    den.sh(&attack).ok();
    den.spec.rules.sockets.clear();
    den.open().sh(&attack).ok();
}

#[test]
fn a_system_without_namespaces_is_named() {
    let mut den = Den::new();
    den.has_namespaces = false;
    let refused = den.sh("true");
    assert_ne!(refused.code, 0);
    refused.output_contains("no namespaces for this user").output_contains("best_effort");
    den.spec.best_effort = true;
    den.sh("echo x > inside && ! ipcmk -M 64").exits(0);
    den.sh("cat ../.ssh/id").exits(1).output_lacks("canary");
    assert_ne!(den.sh("prlimit --pid $PPID --nofile=64:64").code, 0);
}
