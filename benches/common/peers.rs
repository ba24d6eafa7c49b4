//! The measured agents, and the command with which each works on one task without questions.

use std::path::{Path, PathBuf};

use base::process::{Command, Stream};
use serde_json::json;
use testkit::model_server::ModelServer;

/// A measured agent.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name in the table.
    pub name: &'static str,
    program: PathBuf,
}

/// Returns g3 and the installed peers.
pub fn peers() -> Vec<Peer> {
    let g3 = std::env::var_os("BENCH_G3").map(PathBuf::from);
    let g3 = g3.expect("BENCH_G3 names the release binary; `./benches/run` sets it");
    let mut peers = vec![Peer { name: "g3", program: g3 }];
    let all = [
        ("codex", "BENCH_CODEX"),
        ("opencode", "BENCH_OPENCODE"),
        ("qwen-code", "BENCH_QWEN"),
        ("mini-swe-agent", "BENCH_MINI"),
    ];
    for (name, variable) in all {
        if let Some(program) = std::env::var_os(variable) {
            peers.push(Peer { name, program: program.into() });
        }
    }
    peers
}

impl Peer {
    /// Returns the command for `--version`, or its closest equivalent.
    pub fn version(&self, place: &Path) -> Command {
        let flag = if self.name == "mini-swe-agent" { "--help" } else { "--version" };
        self.job(place).arg(flag)
    }

    /// Returns the command for one task in a directory, with the scripted model.
    pub fn task(&self, server: &ModelServer, directory: &Path) -> Command {
        let job = self.job(directory);
        match self.name {
            "codex" => {
                let url = server.openai_url();
                job.args(["exec", "--skip-git-repo-check"])
                    .arg("--dangerously-bypass-approvals-and-sandbox")
                    .args(["-c", "model_provider=\"s\""])
                    .arg("-c")
                    .arg(format!(
                        "model_providers.s={{name=\"s\",base_url=\"{url}\",wire_api=\"responses\",env_key=\"BENCH_KEY\"}}"
                    ))
                    .args(["-m", "scripted", "Say hi."])
            }
            "opencode" => {
                let config = json!({
                    "provider": {"s": {
                        "npm": "@ai-sdk/openai-compatible",
                        "name": "s",
                        "options": {"baseURL": server.openai_url(), "apiKey": "none"},
                        "models": {"scripted": {"name": "scripted"}},
                    }},
                    "permission": {"bash": "allow", "edit": "allow"},
                    "autoupdate": false,
                    "share": "disabled",
                });
                let file = directory.join("opencode.json");
                std::fs::write(file, config.to_string()).expect("writable");
                job.args(["run", "-m", "s/scripted", "Say hi."])
            }
            "qwen-code" => job
                .env("OPENAI_BASE_URL", server.openai_url())
                .env("OPENAI_MODEL", "scripted")
                .args(["--yolo", "--auth-type", "openai", "-p", "Say hi."]),
            "mini-swe-agent" => job
                .env("OPENAI_API_BASE", server.openai_url())
                .args(["-y", "--exit-immediately", "-m", "openai/scripted", "-t", "Say hi."])
                .args(["-c", "mini.yaml", "-c", "agent.cost_limit=0"]),
            _ => {
                let config = directory.join("g3-config.toml");
                std::fs::write(&config, server.config_toml("openai")).expect("writable");
                job.arg("--config").arg(config).arg("Say hi.")
            }
        }
    }

    fn job(&self, directory: &Path) -> Command {
        let home = directory.join("home");
        std::fs::create_dir_all(&home).expect("writable");
        Command::new(&self.program, directory)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &home)
            .env("CODEX_HOME", &home)
            .env("BENCH_KEY", "none")
            .env("OPENAI_API_KEY", "none")
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
            .env("MSWEA_CONFIGURED", "true")
            .env("MSWEA_COST_TRACKING", "ignore_errors")
            .env("MSWEA_SILENT_STARTUP", "1")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdout(Stream::Null)
            .stderr(Stream::Null)
    }
}
