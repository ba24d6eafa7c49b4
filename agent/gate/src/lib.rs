//! The permission gate, which checks every call before it runs. A rule allows, asks, sandboxes or
//! denies a call; a call without a matching rule is decided by what it accesses.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::config::agent::{CommandPolicy, GateAction, GateConfig as Config};
use futures_util::future::BoxFuture;

use core_exact::Evaluator;
use form::{FormAnswer, UserForm};
use permission_mode::PermissionMode;
use policy::SandboxUse;
use rules::{CompiledRule, build_question};

pub mod core_exact;
pub mod form;
#[cfg(any(test, fuzzing))]
pub mod fuzz_tests;
pub mod hosts;
pub mod paths;
pub mod permission_mode;
pub mod policy;
pub mod rules;
pub mod shell;
pub mod shell_parse;
mod trace_events;
pub mod write_scope;
pub mod write_targets;

/// What a call accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads this file or directory tree (absolute, symbolic links resolved).
    Read(PathBuf),
    /// Writes this file (absolute, symbolic links resolved).
    Write(PathBuf),
    /// Runs a command line.
    Run {
        /// The line as passed to the shell.
        line: String,
        /// The working directory.
        cwd: PathBuf,
        /// Whether destructive commands ask, regardless of what they access (the core profile).
        confirm_destructive: bool,
    },
    /// Calls a tool of an external server (MCP).
    Foreign {
        /// The server's name.
        server: String,
        /// Whether the user's configuration allows its calls.
        allowed: bool,
    },
    /// Acts on something that is open, such as a page in the browser.
    Act(String),
    /// Sends a request to a host.
    Fetch {
        /// The host name or address, in lower case, without a port.
        host: String,
        /// Whether the user's configuration allows it.
        allowed: bool,
    },
    /// Reads or controls the screen.
    Screen {
        /// Whether it controls the screen.
        is_control: bool,
        /// Whether the user's configuration allows it.
        allowed: bool,
    },
}

/// A request to the gate about a call.
#[derive(Clone, Debug)]
pub struct AccessRequest<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Access within this directory needs no permission.
    pub root: &'a Path,
    /// The session's own files may be read.
    pub session_dir: &'a Path,
    /// The requested access.
    pub access: &'a Access,
    /// Returns a preview of the call for the user.
    pub preview: Option<Preview<'a>>,
}

/// Returns a preview of a call: the unified diff of a write, or the arguments for a server's tool.
#[derive(Clone, Copy)]
pub struct Preview<'a>(pub &'a (dyn Fn() -> Option<String> + Sync));

impl std::fmt::Debug for Preview<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Preview")
    }
}

/// A permission question for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionQuestion {
    /// The tool's name.
    pub tool: String,
    /// The requested access, in a sentence.
    pub what: String,
    /// Why permission is needed, in a clause.
    pub reason: String,
    /// The rule that would answer the question permanently; empty if there is none.
    pub rule: String,
    /// The host for which "always" is stored permanently; if absent, "always" applies to this
    /// session.
    pub host: Option<String>,
    /// The file to be written, if it is a write.
    pub writes: Option<PathBuf>,
    /// The preview: the unified diff of a write, or the arguments for a server's tool.
    pub details: Option<String>,
}

/// The user's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// Allow this call.
    Once,
    /// Allow this until the session ends, or permanently if the question names a host.
    Always,
    /// Deny.
    No,
    /// Deny without asking the user, for this reason.
    Unasked(String),
}

/// Asks permission questions: a terminal, an editor, an orchestrator.
pub trait Asker: Send + Sync {
    /// Asks a question and waits for the answer.
    fn ask<'a>(&'a self, question: &'a PermissionQuestion) -> BoxFuture<'a, PermissionAnswer>;

    /// Whether it can show forms.
    fn can_show_forms(&self) -> bool {
        false
    }

    /// Shows a form, and waits until the user fills or rejects it.
    fn fill<'a>(&'a self, form: &'a UserForm) -> BoxFuture<'a, FormAnswer> {
        let _ = form;
        Box::pin(std::future::ready(FormAnswer::Declined))
    }
}

/// How a call may run, the strictest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permit {
    /// Without restrictions.
    Unconfined,
    /// In the default sandbox of commands.
    CommandSandbox,
    /// In the stricter sandbox.
    StrictSandbox,
    /// In the scratch sandbox, which changes nothing and has no network.
    ScratchSandbox,
}

/// A denied access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDenied {
    /// The reason, for the model.
    pub reason: String,
    /// Whether it was denied only because no answer arrived in time.
    pub timed_out: bool,
}

impl AccessDenied {
    fn new(reason: impl Into<String>) -> AccessDenied {
        AccessDenied { reason: reason.into(), timed_out: false }
    }
}

/// Timeout of answers about a command of the core tools.
#[derive(Clone, Copy)]
struct AnswerTimeout(Duration);

impl Default for AnswerTimeout {
    fn default() -> AnswerTimeout {
        AnswerTimeout(Duration::from_secs(300))
    }
}

tokio::task_local! {
    /// Set while a call runs whose permission questions were answered in advance.
    static PREAPPROVED: ();
}

/// Runs work in which permission questions count as answered with yes. Denials still apply.
pub async fn preapproved<T>(work: impl Future<Output = T>) -> T {
    PREAPPROVED.scope((), work).await
}

/// How commands are confined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandConfinement {
    /// In a sandbox: a command whose effects are uncertain may run in it.
    #[default]
    Box,
    /// In studio's sandbox, which no answer of the user opens. The paths are the writable ones.
    Studio(Vec<PathBuf>),
    /// Not at all, by configuration. Commands are judged by their command lines.
    Off,
    /// Not at all, because the kernel does not support it, for this reason. Commands ask.
    Unable(String),
}

/// The rules, and the asker. Clones share their state: the user's answers apply to all of them.
#[derive(Clone, Default)]
pub struct Gate {
    rules: Arc<[CompiledRule]>,
    asker: Option<Arc<dyn Asker>>,
    always_allowed: Arc<Mutex<BTreeSet<String>>>,
    mode: Arc<Mutex<PermissionMode>>,
    write_scope: Option<write_scope::WriteScope>,
    /// The evaluator of the policy `core-exact`, if configured.
    evaluator: Option<Arc<Evaluator>>,
    /// How commands are confined.
    confinement: Arc<CommandConfinement>,
    answer_timeout: AnswerTimeout,
}

impl Gate {
    /// Creates a gate from the configuration. The error names an invalid pattern.
    pub fn new(config: &Config, asker: Option<Arc<dyn Asker>>) -> base::failure::Result<Gate> {
        let rules = config.rules.iter().map(CompiledRule::new).collect::<Result<_, _>>()?;
        let evaluator = match config.policy {
            CommandPolicy::Default => None,
            CommandPolicy::CoreExact => Some(Arc::new(Evaluator::new(config)?)),
        };
        Ok(Gate { rules, asker, evaluator, ..Gate::default() })
    }

    /// Sets how commands are confined.
    #[must_use]
    pub fn with_confinement(self, confinement: CommandConfinement) -> Gate {
        Gate { confinement: Arc::new(confinement), ..self }
    }

    /// Limits the gate to a write scope.
    #[must_use]
    pub fn with_write_scope(self, write_scope: Option<write_scope::WriteScope>) -> Gate {
        Gate { write_scope, ..self }
    }

    /// Checks a call and asks the user if necessary.
    pub async fn admit(&self, request: &AccessRequest<'_>) -> Result<Permit, AccessDenied> {
        let verdict = self.permission_mode().apply(self.judge(request), request.access);
        let verdict =
            verdict.inspect_err(|_| trace_events::trace_decision(request, "denied", "mode"));
        let verdict = verdict.map_err(AccessDenied::new)?;
        let answered_by_hook =
            verdict.action == GateAction::Ask && PREAPPROVED.try_with(|()| ()).is_ok();
        trace_events::trace_verdict(request, &verdict, answered_by_hook);
        let is_unattended =
            verdict.confine == SandboxUse::Alone && !answered_by_hook && self.asker.is_none();
        let is_confined = is_unattended || verdict.confine == SandboxUse::Always;
        let permit = match verdict.action {
            GateAction::Deny => {
                return Err(AccessDenied::new(format!("denied: {}", verdict.reason)));
            }
            GateAction::Allow | GateAction::Box | GateAction::Ask if verdict.sandboxed => {
                Permit::ScratchSandbox
            }
            GateAction::Box => Permit::StrictSandbox,
            GateAction::Allow | GateAction::Ask if is_confined => Permit::CommandSandbox,
            GateAction::Allow | GateAction::Ask => Permit::Unconfined,
        };
        if verdict.action == GateAction::Ask && !answered_by_hook && !is_unattended {
            let question = build_question(request, verdict.reason);
            let answer = self.ask(&question);
            match self.answer_timeout(request) {
                None => answer.await,
                Some(time) => tokio::time::timeout(time, answer)
                    .await
                    .unwrap_or_else(|_| Err(timeout_denied(time))),
            }?;
            if let Some(host) = &question.host
                && self.remembered_rules().contains(&question.rule)
            {
                base::allowed_hosts::allow_always(host);
            }
        }
        Ok(permit)
    }

    /// Returns the timeout of an answer about a call; `None` for no timeout.
    fn answer_timeout(&self, request: &AccessRequest<'_>) -> Option<Duration> {
        let confirm_destructive =
            matches!(request.access, Access::Run { confirm_destructive: true, .. });
        (confirm_destructive || self.evaluator.is_some()).then_some(self.answer_timeout.0)
    }

    /// Asks the user, unless the question was answered permanently.
    pub async fn ask(&self, question: &PermissionQuestion) -> Result<(), AccessDenied> {
        if self.remembered_rules().contains(&question.rule) {
            return Ok(());
        }
        let answer = self.ask_user(question).await;
        trace_events::trace_answer(&question.tool, answer.as_ref());
        let Some(answer) = answer else {
            if question.rule.is_empty() {
                let reason = format!("denied: {} (no terminal to ask on)", question.reason);
                return Err(AccessDenied::new(reason));
            }
            return Err(AccessDenied::new(format!(
                "denied: {} (no terminal to ask on). To allow it, add this rule to the \
                 configuration:\n{}",
                question.reason, question.rule
            )));
        };
        match answer {
            PermissionAnswer::Once => Ok(()),
            PermissionAnswer::Always if question.rule.is_empty() => Ok(()),
            PermissionAnswer::Always => {
                self.remembered_rules().insert(question.rule.clone());
                Ok(())
            }
            PermissionAnswer::No => {
                Err(AccessDenied::new(format!("denied by the user: {}", question.what)))
            }
            PermissionAnswer::Unasked(reason) => {
                Err(AccessDenied::new(format!("denied: {}: {reason}", question.what)))
            }
        }
    }

    /// Returns the current permission mode.
    pub fn permission_mode(&self) -> PermissionMode {
        *self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets the permission mode.
    pub fn set_permission_mode(&self, mode: PermissionMode) {
        *self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = mode;
    }

    /// Whether the user can be asked.
    pub fn can_ask(&self) -> bool {
        self.asker.is_some()
    }

    /// Asks the user. Returns `None` if there is no asker.
    pub async fn ask_user(&self, question: &PermissionQuestion) -> Option<PermissionAnswer> {
        Some(self.asker.as_ref()?.ask(question).await)
    }

    /// Whether a form can be shown to the user.
    pub fn can_show_forms(&self) -> bool {
        self.asker.as_ref().is_some_and(|asker| asker.can_show_forms())
    }

    /// Shows a form to the user.
    pub async fn fill(&self, form: &UserForm) -> FormAnswer {
        match &self.asker {
            Some(asker) => asker.fill(form).await,
            None => FormAnswer::Declined,
        }
    }

    fn remembered_rules(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.always_allowed.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn timeout_denied(time: Duration) -> AccessDenied {
    let reason = format!("no answer within {} s; nothing was run", time.as_secs());
    AccessDenied { reason, timed_out: true }
}

#[cfg(test)]
mod tests;
