//! One policy for every call: a rule says allow, ask, box or deny; what no rule names is judged by
//! where it reaches. Every call passes here before it runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::config::agent::{CommandPolicy, GateAction, GateConfig as Config};
use futures_util::future::BoxFuture;

use core_exact::Evaluator;
use permission_mode::PermissionMode;
use policy::BoxUse;
use rules::{CompiledRule, question};

pub mod core_exact;
pub mod hosts;
pub mod paths;
pub mod permission_mode;
pub mod policy;
mod rules;
pub mod shell;
pub mod shell_parse;
mod trace_events;
pub mod write_scope;
pub mod write_targets;

/// What a call wants to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads this file or below this directory (absolute, symlinks resolved).
    Read(PathBuf),
    /// Writes this file (absolute, symlinks resolved).
    Write(PathBuf),
    /// Runs a command line.
    Run {
        /// The line as the shell gets it.
        line: String,
        /// Where it runs.
        cwd: PathBuf,
        /// Whether destructive commands ask, wherever they reach (the core profile).
        careful: bool,
    },
    /// Calls a tool of a server that is not ours (MCP).
    Foreign {
        /// The server's name.
        server: String,
        /// Whether the user's configuration lets its calls run.
        free: bool,
    },
    /// Acts on something that is open: a page in the browser.
    Act(String),
    /// Asks a host over the network.
    Fetch {
        /// Its name or address, in small letters, without a port.
        host: String,
        /// Whether the user's configuration names it.
        free: bool,
    },
    /// Looks at the screen, or acts on it.
    Screen {
        /// Whether it acts.
        acts: bool,
        /// Whether the user's configuration lets it.
        free: bool,
    },
}

/// A call at the gate.
#[derive(Clone, Debug)]
pub struct AccessRequest<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Inside this directory nothing asks.
    pub root: &'a Path,
    /// The session's own files may be read.
    pub session_dir: &'a Path,
    /// What it wants to reach.
    pub access: &'a Access,
    /// Tells what it would do in detail, when the user is asked.
    pub preview: Option<Preview<'a>>,
}

/// Tells what a call would do: the unified diff of a write, the arguments for a server's tool.
#[derive(Clone, Copy)]
pub struct Preview<'a>(pub &'a (dyn Fn() -> Option<String> + Sync));

impl std::fmt::Debug for Preview<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Preview")
    }
}

/// What the user is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// The tool's name.
    pub tool: String,
    /// What it wants, in a sentence.
    pub what: String,
    /// Why it needs an answer, in a clause.
    pub why: String,
    /// The rule that would answer it once and for all; empty when there can be none.
    pub rule: String,
    /// The host for which "always" holds in later sessions as well; none where it holds in this one.
    pub host: Option<String>,
    /// The file that it wants to write; none where it wants something else.
    pub writes: Option<PathBuf>,
    /// What it would do in detail: the unified diff of a write, the arguments for a server's tool.
    pub details: Option<String>,
}

/// What the user says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// This once.
    Once,
    /// This, until the session ends, or for good where the question names a host.
    Always,
    /// No.
    No,
    /// No, without asking the user, and why.
    Unasked(String),
}

/// Somebody who can be asked: a terminal, an editor, an orchestrator.
pub trait Asker: Send + Sync {
    /// Asks, and waits for the answer.
    fn ask<'a>(&'a self, question: &'a PermissionQuestion) -> BoxFuture<'a, PermissionAnswer>;
}

/// How a call may run, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// As it is.
    Free,
    /// In the box that commands run in by default.
    Confined,
    /// In the tighter box.
    Boxed,
    /// In the sandbox, which changes nothing and reaches nobody.
    Sandboxed,
}

/// Why a call may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDenied {
    /// What the model reads.
    pub why: String,
    /// Whether it is refused only because the answer did not come in time.
    pub late: bool,
}

impl AccessDenied {
    fn now(why: impl Into<String>) -> AccessDenied {
        AccessDenied { why: why.into(), late: false }
    }
}

/// How long the user has for an answer about a command of the core tools.
#[derive(Clone, Copy)]
struct AnswerTimeout(Duration);

impl Default for AnswerTimeout {
    fn default() -> AnswerTimeout {
        AnswerTimeout(Duration::from_secs(300))
    }
}

tokio::task_local! {
    /// Set while a call runs about which the user would not be asked: somebody answered before.
    static ANSWERED: ();
}

/// Work in which what would be asked is allowed; what is denied stays so.
pub async fn answered<T>(work: impl Future<Output = T>) -> T {
    ANSWERED.scope((), work).await
}

/// What holds the commands that may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandConfinement {
    /// A box: what is not sure to stay inside may run in it.
    #[default]
    Box,
    /// A box that no answer of the user opens: studio's. The paths are what may be written.
    Studio(Vec<PathBuf>),
    /// Nothing, because the configuration says so: they are judged by what their lines say.
    Off,
    /// Nothing, because the kernel cannot; why. They are asked about.
    Unable(String),
}

/// The rules, and whom to ask.
/// A clone is the same gate: what the user answers at one holds at the other.
#[derive(Clone, Default)]
pub struct Gate {
    rules: Arc<[CompiledRule]>,
    asker: Option<Arc<dyn Asker>>,
    always: Arc<Mutex<BTreeSet<String>>>,
    mode: Arc<Mutex<PermissionMode>>,
    write_scope: Option<write_scope::WriteScope>,
    /// Judges by words, where the configuration wants that.
    exact: Option<Arc<Evaluator>>,
    /// What holds commands.
    commands: Arc<CommandConfinement>,
    patience: AnswerTimeout,
}

impl Gate {
    /// A gate as the user configured it. The error names a pattern that is none.
    pub fn new(config: &Config, asker: Option<Arc<dyn Asker>>) -> base::failure::Result<Gate> {
        let rules = config.rules.iter().map(CompiledRule::new).collect::<Result<_, _>>()?;
        let exact = match config.policy {
            CommandPolicy::Default => None,
            CommandPolicy::CoreExact => Some(Arc::new(Evaluator::new(config)?)),
        };
        Ok(Gate { rules, asker, exact, ..Gate::default() })
    }

    /// The same gate, for commands that this holds.
    #[must_use]
    pub fn confining(self, commands: CommandConfinement) -> Gate {
        Gate { commands: Arc::new(commands), ..self }
    }

    /// The same gate, limited to a write scope.
    #[must_use]
    pub fn with_write_scope(self, write_scope: Option<write_scope::WriteScope>) -> Gate {
        Gate { write_scope, ..self }
    }

    /// Judges a call, and asks where that is needed.
    pub async fn admit(&self, request: &AccessRequest<'_>) -> Result<Permit, AccessDenied> {
        let verdict = self.permission_mode().tempered(self.judge(request), request.access);
        let verdict = verdict.inspect_err(|_| trace_events::decided(request, "denied", "mode"));
        let verdict = verdict.map_err(AccessDenied::now)?;
        let hooked = verdict.action == GateAction::Ask && ANSWERED.try_with(|()| ()).is_ok();
        trace_events::verdict(request, &verdict, hooked);
        let alone = verdict.confine == BoxUse::Alone && !hooked && self.asker.is_none();
        let confined = alone || verdict.confine == BoxUse::Always;
        let pass = match verdict.action {
            GateAction::Deny => return Err(AccessDenied::now(format!("denied: {}", verdict.why))),
            GateAction::Allow | GateAction::Box | GateAction::Ask if verdict.sandboxed => {
                Permit::Sandboxed
            }
            GateAction::Box => Permit::Boxed,
            GateAction::Allow | GateAction::Ask if confined => Permit::Confined,
            GateAction::Allow | GateAction::Ask => Permit::Free,
        };
        if verdict.action == GateAction::Ask && !hooked && !alone {
            let question = question(request, verdict.why);
            let asked = self.ask(&question);
            match self.patience(request) {
                None => asked.await,
                Some(time) => {
                    tokio::time::timeout(time, asked).await.unwrap_or_else(|_| Err(late(time)))
                }
            }?;
            if let Some(host) = &question.host
                && self.remembered().contains(&question.rule)
            {
                hosts::keep(host);
            }
        }
        Ok(pass)
    }

    /// How long the answer about a call is waited for; for ever where nothing is said.
    fn patience(&self, request: &AccessRequest<'_>) -> Option<Duration> {
        let careful = matches!(request.access, Access::Run { careful: true, .. });
        (careful || self.exact.is_some()).then_some(self.patience.0)
    }

    /// Asks the user, unless that was answered for good.
    pub async fn ask(&self, question: &PermissionQuestion) -> Result<(), AccessDenied> {
        if self.remembered().contains(&question.rule) {
            return Ok(());
        }
        let answer = self.put(question).await;
        trace_events::asked(&question.tool, answer.as_ref());
        let Some(answer) = answer else {
            if question.rule.is_empty() {
                let why = format!("denied: {} (no terminal to ask on)", question.why);
                return Err(AccessDenied::now(why));
            }
            return Err(AccessDenied::now(format!(
                "denied: {} (no terminal to ask on). To allow it, add this rule to the \
                 configuration:\n{}",
                question.why, question.rule
            )));
        };
        match answer {
            PermissionAnswer::Once => Ok(()),
            PermissionAnswer::Always if question.rule.is_empty() => Ok(()),
            PermissionAnswer::Always => {
                self.remembered().insert(question.rule.clone());
                Ok(())
            }
            PermissionAnswer::No => {
                Err(AccessDenied::now(format!("denied by the user: {}", question.what)))
            }
            PermissionAnswer::Unasked(why) => {
                Err(AccessDenied::now(format!("denied: {}: {why}", question.what)))
            }
        }
    }

    /// How much may be done by itself now.
    pub fn permission_mode(&self) -> PermissionMode {
        *self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on so much may be done.
    pub fn set_permission_mode(&self, mode: PermissionMode) {
        *self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = mode;
    }

    /// Whether there is somebody to ask.
    pub fn can_ask(&self) -> bool {
        self.asker.is_some()
    }

    /// Puts a question to the user; `None` when there is nobody.
    pub async fn put(&self, question: &PermissionQuestion) -> Option<PermissionAnswer> {
        Some(self.asker.as_ref()?.ask(question).await)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.always.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn late(time: Duration) -> AccessDenied {
    let why = format!("no answer within {} s; nothing was run", time.as_secs());
    AccessDenied { why, late: true }
}

#[cfg(test)]
mod tests;
