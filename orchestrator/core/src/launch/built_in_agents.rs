//! The agents that need no configuration: how each is started and installed, and what its sandbox
//! opens, so that the user's login works inside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::config::studio::{AgentOutput, AgentProtocol, AgentRow, expand_tilde};
use base::process::find_program;

/// An agent that is used if one of its programs is installed.
#[derive(Debug)]
pub struct BuiltInAgent {
    /// Its name for `--agent`.
    pub name: &'static str,
    /// The ways to start it, the preferred one first.
    pub programs: &'static [AgentProgram],
    /// Directories and files in the home directory that hold its configuration, login and state.
    write: &'static [&'static str],
    /// The variables that configure it; `NAME=VALUE` sets one.
    variables: &'static [&'static str],
    /// The files that contain a login.
    login_files: &'static [&'static str],
    /// The variables that contain a key.
    key_variables: &'static [&'static str],
    /// The hosts that it needs: its model services and its login.
    hosts: &'static [&'static str],
    /// The model services whose base URL variable it follows in every configuration, so that the
    /// keys stay outside of the sandbox.
    proxy_keys: &'static [&'static str],
}

/// A program that runs an agent.
#[derive(Debug)]
pub struct AgentProgram {
    /// The name of the program.
    pub name: &'static str,
    /// Its arguments.
    arguments: &'static [&'static str],
    /// The arguments that continue a conversation; none if it cannot continue one in a new process.
    resume: &'static [&'static str],
    /// The format of its output.
    output: AgentOutput,
    /// The arguments that set its model, with the protocol `command`: `{model}` is replaced.
    model: &'static [&'static str],
    /// What it speaks.
    pub protocol: AgentProtocol,
    /// How it is installed: a command, or where to look.
    pub install: &'static str,
}

/// A login of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// The key is in this variable.
    Variable(&'static str),
    /// The login is in this file; `~/` is the home directory.
    File(&'static str),
}

const fn acp(
    name: &'static str,
    arguments: &'static [&'static str],
    install: &'static str,
) -> AgentProgram {
    let (resume, model) = (&[] as &[&str], &[] as &[&str]);
    let (output, protocol) = (AgentOutput::Text, AgentProtocol::Acp);
    AgentProgram { name, arguments, resume, output, model, protocol, install }
}

const fn command(
    name: &'static str,
    arguments: &'static [&'static str],
    install: &'static str,
) -> AgentProgram {
    AgentProgram { protocol: AgentProtocol::Command, ..acp(name, arguments, install) }
}

/// All built-in agents besides g3, by name.
pub const BUILT_IN_AGENTS: &[BuiltInAgent] = &[
    BuiltInAgent {
        name: "aider",
        programs: &[AgentProgram {
            model: &["--model", "{model}"],
            ..command(
                "aider",
                &[
                    "--yes-always",
                    "--no-auto-commits",
                    "--no-dirty-commits",
                    "--no-gitignore",
                    "--no-check-update",
                    "--no-analytics",
                    "--no-show-release-notes",
                    "--no-show-model-warnings",
                    "--no-pretty",
                    "--no-stream",
                    "--no-fancy-input",
                    "--chat-history-file={state}/aider.chat.history.md",
                    "--input-history-file={state}/aider.input.history",
                    "--message={prompt}",
                ],
                "uv tool install --python 3.12 aider-chat",
            )
        }],
        write: &["~/.aider"],
        variables: &[
            "AIDER_MODEL",
            "AIDER_WEAK_MODEL",
            "AIDER_EDIT_FORMAT",
            "LITELLM_LOCAL_MODEL_COST_MAP",
            "OPENAI_API_BASE",
            "ANTHROPIC_BASE_URL",
        ],
        login_files: &["~/.aider.conf.yml"],
        key_variables: &[
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GEMINI_API_KEY",
            "DEEPSEEK_API_KEY",
            "OPENROUTER_API_KEY",
        ],
        hosts: &[
            "api.anthropic.com",
            "api.openai.com",
            "generativelanguage.googleapis.com",
            "api.deepseek.com",
            "openrouter.ai",
            "raw.githubusercontent.com",
        ],
        proxy_keys: &["anthropic", "openai"],
    },
    BuiltInAgent {
        name: "claude",
        programs: &[
            acp("claude-agent-acp", &[], "npm install -g @agentclientprotocol/claude-agent-acp"),
            AgentProgram {
                resume: &[
                    "-p",
                    "--output-format",
                    "stream-json",
                    "--verbose",
                    "--dangerously-skip-permissions",
                    "--resume",
                    "{conversation}",
                ],
                output: AgentOutput::ClaudeJson,
                model: &["--model", "{model}"],
                ..command(
                    "claude",
                    &[
                        "-p",
                        "--output-format",
                        "stream-json",
                        "--verbose",
                        "--dangerously-skip-permissions",
                    ],
                    "npm install -g @anthropic-ai/claude-code",
                )
            },
        ],
        write: &["~/.claude", "~/.claude.json"],
        // Without the second one, it refuses to skip permissions for root.
        variables: &["ANTHROPIC_BASE_URL", "IS_SANDBOX=1"],
        login_files: &["~/.claude/.credentials.json"],
        key_variables: &["ANTHROPIC_API_KEY"],
        hosts: &[
            "api.anthropic.com",
            "*.anthropic.com",
            "claude.ai",
            "*.claude.ai",
            "claude.com",
            "*.claude.com",
        ],
        proxy_keys: &["anthropic"],
    },
    BuiltInAgent {
        name: "codex",
        programs: &[
            // Codex's own sandbox does not work inside of studio's. The arguments are those of its
            // versions before 1.0; later ones read variables.
            acp(
                "codex-acp",
                &["-c", "sandbox_mode=danger-full-access"],
                "npm install -g @agentclientprotocol/codex-acp",
            ),
            AgentProgram {
                resume: &[
                    "exec",
                    "--json",
                    "--dangerously-bypass-approvals-and-sandbox",
                    "resume",
                    "{conversation}",
                    "-",
                ],
                output: AgentOutput::CodexJson,
                model: &["-c", "model={model}"],
                ..command(
                    "codex",
                    &["exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "-"],
                    "npm install -g @openai/codex",
                )
            },
        ],
        write: &["~/.codex"],
        variables: &["INITIAL_AGENT_MODE=agent-full-access", "NO_BROWSER=1"],
        login_files: &["~/.codex/auth.json"],
        key_variables: &["OPENAI_API_KEY"],
        hosts: &["api.openai.com", "auth.openai.com", "chatgpt.com", "*.chatgpt.com"],
        proxy_keys: &["codex"],
    },
    BuiltInAgent {
        name: "copilot",
        programs: &[acp("copilot", &["--acp"], "npm install -g @github/copilot")],
        write: &["~/.copilot"],
        variables: &[],
        login_files: &["~/.copilot/config.json"],
        key_variables: &["COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN"],
        hosts: &["github.com", "api.github.com", "*.githubcopilot.com"],
        proxy_keys: &[],
    },
    BuiltInAgent {
        name: "cursor-agent",
        programs: &[acp("cursor-agent", &["acp"], "see the installation page of Cursor's CLI")],
        write: &["~/.cursor", "~/.config/cursor"],
        variables: &[],
        login_files: &["~/.config/cursor/auth.json"],
        key_variables: &["CURSOR_API_KEY"],
        hosts: &["cursor.com", "*.cursor.com", "cursor.sh", "*.cursor.sh"],
        proxy_keys: &[],
    },
    BuiltInAgent {
        name: "gemini",
        programs: &[acp("gemini", &["--acp"], "npm install -g @google/gemini-cli")],
        write: &["~/.gemini"],
        // Each worktree is a new directory, which it would not trust: without the project's files.
        variables: &["GOOGLE_GEMINI_BASE_URL", "GEMINI_CLI_TRUST_WORKSPACE=true"],
        login_files: &["~/.gemini/oauth_creds.json"],
        key_variables: &["GEMINI_API_KEY"],
        hosts: &[
            "generativelanguage.googleapis.com",
            "cloudcode-pa.googleapis.com",
            "oauth2.googleapis.com",
            "accounts.google.com",
            "aiplatform.googleapis.com",
        ],
        proxy_keys: &["gemini"],
    },
    BuiltInAgent {
        name: "goose",
        programs: &[acp("goose", &["acp"], "see the installation page of goose")],
        write: &["~/.config/goose", "~/.local/share/goose", "~/.local/state/goose"],
        variables: &["GOOSE_PROVIDER", "GOOSE_MODEL"],
        login_files: &["~/.config/goose/config.yaml"],
        key_variables: &["OPENAI_API_KEY", "ANTHROPIC_API_KEY"],
        hosts: &[
            "api.anthropic.com",
            "api.openai.com",
            "generativelanguage.googleapis.com",
            "openrouter.ai",
        ],
        proxy_keys: &[],
    },
    BuiltInAgent {
        name: "mini-swe-agent",
        programs: &[AgentProgram {
            model: &["--model={model}"],
            ..command(
                "mini-swe-agent",
                &[
                    "--yolo",
                    "--exit-immediately",
                    "--output={state}/mini.traj.json",
                    "--task={prompt}",
                ],
                "uv tool install mini-swe-agent --with mcp",
            )
        }],
        write: &["~/.config/mini-swe-agent"],
        // Without the first one, its first start asks questions.
        variables: &[
            "MSWEA_CONFIGURED=true",
            "MSWEA_SILENT_STARTUP=1",
            "MSWEA_MODEL_NAME",
            "MSWEA_COST_TRACKING",
            "MSWEA_GLOBAL_CONFIG_DIR",
            "LITELLM_LOCAL_MODEL_COST_MAP",
            "OPENAI_API_BASE",
            "ANTHROPIC_BASE_URL",
        ],
        login_files: &["~/.config/mini-swe-agent/.env"],
        key_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"],
        hosts: &["api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com"],
        proxy_keys: &["anthropic", "openai"],
    },
    BuiltInAgent {
        name: "opencode",
        programs: &[acp("opencode", &["acp"], "npm install -g opencode-ai")],
        write: &["~/.local/share/opencode", "~/.local/state/opencode", "~/.config/opencode"],
        variables: &[],
        login_files: &["~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"],
        key_variables: &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
        hosts: &[
            "opencode.ai",
            "*.opencode.ai",
            "models.dev",
            "api.anthropic.com",
            "api.openai.com",
            "generativelanguage.googleapis.com",
            "openrouter.ai",
        ],
        proxy_keys: &["opencode"],
    },
    BuiltInAgent {
        name: "qwen",
        programs: &[acp("qwen", &["--acp"], "npm install -g @qwen-code/qwen-code")],
        write: &["~/.qwen"],
        variables: &["OPENAI_BASE_URL", "OPENAI_MODEL"],
        login_files: &["~/.qwen/oauth_creds.json"],
        key_variables: &["OPENAI_API_KEY"],
        hosts: &[
            "chat.qwen.ai",
            "portal.qwen.ai",
            "dashscope.aliyuncs.com",
            "dashscope-intl.aliyuncs.com",
            "api.openai.com",
        ],
        proxy_keys: &["openai"],
    },
];

/// The standard ports of model servers on this machine: Ollama, LM Studio.
pub(crate) const LOCAL_MODEL_HOSTS: &[&str] = &["localhost:11434", "localhost:1234"];

/// Returns the built-in agent of this name.
pub fn find(name: &str) -> Option<&'static BuiltInAgent> {
    BUILT_IN_AGENTS.iter().find(|agent| agent.name == name)
}

impl BuiltInAgent {
    /// Returns the preferred installed program with its path.
    pub fn installed(&self) -> Option<(&'static AgentProgram, PathBuf)> {
        self.programs.iter().find_map(|program| Some((program, find_program(program.name)?)))
    }

    /// Returns the entry of the agent for one of its programs.
    pub fn row(&self, program: &AgentProgram) -> AgentRow {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let line = |arguments: &[&str]| texts(&[&[program.name], arguments].concat());
        let can_resume = !program.resume.is_empty();
        AgentRow {
            protocol: program.protocol,
            command: line(program.arguments),
            resume: if can_resume { line(program.resume) } else { Vec::new() },
            output: program.output,
            read: Vec::new(),
            write: self.write.iter().map(PathBuf::from).collect(),
            env: [texts(self.key_variables), texts(self.variables)].concat(),
            events: None,
            network: None,
            hosts: [texts(self.hosts), texts(LOCAL_MODEL_HOSTS)].concat(),
            proxy_keys: texts(self.proxy_keys),
            options: BTreeMap::new(),
            model_arguments: texts(program.model),
        }
    }

    /// Returns the user's login: a key in the environment, or a file of the agent. Whether the service
    /// accepts it is unknown.
    pub fn login(&self, home: &Path) -> Option<Login> {
        let is_set = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let variable = self.key_variables.iter().find(is_set);
        let exists = |path: &&&str| expand_tilde(Path::new(path), home).is_file();
        variable
            .map(|name| Login::Variable(name))
            .or_else(|| self.login_files.iter().find(exists).map(|path| Login::File(path)))
    }

    /// Returns how the user can log in.
    pub fn login_hint(&self, program: &AgentProgram) -> String {
        let start = format!("run `{}` once to log in", self.login_program(program));
        match self.key_variables.first() {
            Some(variable) => format!("{start}, or set {variable}"),
            None => start,
        }
    }

    /// The program that people use; the adapters of claude and codex only speak ACP.
    fn login_program<'a>(&'a self, program: &'a AgentProgram) -> &'a str {
        if program.name.ends_with("-acp") { self.name } else { program.name }
    }
}
