//! Decides about a call: by the user's rules, by what it accesses, and by its words if configured.
//! Never asks.

use std::path::Path;

use base::config::agent::GateAction;
use serde_json::json;

use super::core_exact::{self, Judgement, Route};
use super::{Access, AccessRequest, CommandConfinement, Gate, paths, shell};

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVerdict {
    /// The action.
    pub action: GateAction,
    /// The reason, in a clause.
    pub reason: String,
    /// Whether a rule of the user decided.
    pub by_rule: bool,
    /// Whether it may run only in the scratch sandbox.
    pub sandboxed: bool,
    /// Whether it runs in the command sandbox.
    pub confine: SandboxUse,
}

/// When a call runs in the default sandbox of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxUse {
    /// Never: it is not a command, or an answer or a rule allows it to run outside.
    #[default]
    Never,
    /// If the user cannot be asked: the sandbox contains uncertain effects.
    Alone,
    /// Always: nothing in it needs access outside of the sandbox.
    Always,
}

impl PolicyVerdict {
    /// Returns the verdict for a command that may run in the sandbox.
    pub(super) fn confined() -> PolicyVerdict {
        let allowed = PolicyVerdict::by_access(GateAction::Allow, String::new());
        PolicyVerdict { confine: SandboxUse::Always, ..allowed }
    }

    /// Returns the verdict for a command whose effects are uncertain.
    pub(super) fn unsure(reason: String) -> PolicyVerdict {
        PolicyVerdict {
            confine: SandboxUse::Alone,
            ..PolicyVerdict::by_access(GateAction::Ask, reason)
        }
    }

    /// Returns a verdict based on what a call accesses.
    pub fn by_access(action: GateAction, reason: String) -> PolicyVerdict {
        PolicyVerdict {
            action,
            reason,
            by_rule: false,
            sandboxed: false,
            confine: SandboxUse::Never,
        }
    }
}

impl Gate {
    /// Decides about a call: the first matching rule, else what the call accesses. A command that
    /// destroys the machine is always denied. Never asks.
    pub fn judge(&self, request: &AccessRequest<'_>) -> PolicyVerdict {
        let scope = self.write_scope.as_ref();
        if let Some(reason) =
            scope.and_then(|scope| scope.access_denial(request.access, request.root))
        {
            return PolicyVerdict::by_access(GateAction::Deny, reason);
        }
        let verdict =
            self.apply_evaluator(request, self.apply_confinement(request, judge_access(request)));
        match self.rules.iter().find(|rule| rule.matches(request, verdict.action)) {
            Some(rule) if verdict.action != GateAction::Deny => {
                let reason = match verdict.sandboxed {
                    true => verdict.reason,
                    false => "a rule says so".to_owned(),
                };
                // A call allowed by a rule, or by the user when a rule asks, runs unconfined.
                let confine = SandboxUse::Never;
                PolicyVerdict { action: rule.action, reason, by_rule: true, confine, ..verdict }
            }
            Some(_) | None => verdict,
        }
    }

    /// Adjusts the verdict to the confinement of commands.
    fn apply_confinement(
        &self,
        request: &AccessRequest<'_>,
        verdict: PolicyVerdict,
    ) -> PolicyVerdict {
        let is_command = matches!(request.access, Access::Run { .. });
        match self.confinement.as_ref() {
            CommandConfinement::Box => verdict,
            // No answer opens studio's sandbox, so the user is not asked: the sandbox protects what
            // is outside.
            CommandConfinement::Studio(_)
                if is_command && verdict.confine != SandboxUse::Always =>
            {
                match verdict.action {
                    GateAction::Ask => PolicyVerdict::confined(),
                    GateAction::Allow | GateAction::Box | GateAction::Deny => verdict,
                }
            }
            CommandConfinement::Studio(writable) => match request.access {
                // If studio can be asked, it denies with the same message and records the denial.
                Access::Write(path)
                    if !self.can_ask()
                        && !writable.iter().any(|tree| paths::is_inside(path, tree)) =>
                {
                    deny_outside_studio(path, verdict, request.root)
                }
                _ => verdict,
            },
            CommandConfinement::Off => PolicyVerdict { confine: SandboxUse::Never, ..verdict },
            CommandConfinement::Unable(reason)
                if is_command && verdict.action == GateAction::Allow =>
            {
                let reason = format!("nothing can hold the command on this system ({reason})");
                PolicyVerdict::by_access(GateAction::Ask, reason)
            }
            CommandConfinement::Unable(_) => {
                PolicyVerdict { confine: SandboxUse::Never, ..verdict }
            }
        }
    }

    /// Returns the stricter of the verdict on the words of a call, if enabled, and on its access. A
    /// call routed to the scratch sandbox is no longer denied, since it does no harm there.
    fn apply_evaluator(
        &self,
        request: &AccessRequest<'_>,
        verdict: PolicyVerdict,
    ) -> PolicyVerdict {
        let Some(evaluator) = &self.evaluator else { return verdict };
        let (tool, args) = match request.access {
            Access::Run { line, .. } => (core_exact::COMMAND, json!({ "command": line })),
            Access::Read(path) | Access::Write(path)
                if core_exact::rows::route_of(request.tool).is_some() =>
            {
                (request.tool, json!({ "file_path": path }))
            }
            Access::Read(_)
            | Access::Write(_)
            | Access::Foreign { .. }
            | Access::Act(_)
            | Access::Screen { .. }
            | Access::Fetch { .. } => return verdict,
        };
        let Judgement { route, reason, require_confirmation, .. } =
            evaluator.judge(tool, &args, false);
        match route {
            Route::Sandbox if tool == core_exact::COMMAND => PolicyVerdict {
                action: GateAction::Ask,
                reason: format!("{reason}; it would run in the sandbox"),
                by_rule: false,
                sandboxed: true,
                confine: SandboxUse::Never,
            },
            Route::Sandbox => {
                let denial =
                    format!("{reason}; look at it with a command, which the sandbox can hold");
                PolicyVerdict::by_access(GateAction::Deny, denial)
            }
            Route::Host if require_confirmation && verdict.action == GateAction::Allow => {
                PolicyVerdict { action: GateAction::Ask, reason, ..verdict }
            }
            Route::Host => verdict,
        }
    }
}

/// Denies a write that studio's sandbox does not allow, with the configuration line that would
/// allow it.
fn deny_outside_studio(path: &Path, verdict: PolicyVerdict, root: &Path) -> PolicyVerdict {
    if verdict.action != GateAction::Ask || paths::is_inside(path, root) {
        return verdict;
    }
    let directory = path.parent().unwrap_or(path).display();
    let reason = format!(
        "{} is outside of this session's box. To open the directory for later sessions, add this \
         to the configuration:\n[sandbox]\nwrite = [\"{directory}\"]",
        path.display()
    );
    PolicyVerdict::by_access(GateAction::Deny, reason)
}

fn judge_access(request: &AccessRequest<'_>) -> PolicyVerdict {
    let verdict = PolicyVerdict::by_access;
    let is_inside_root = |path: &Path| paths::is_inside(path, request.root);
    match request.access {
        Access::Read(path)
            if is_inside_root(path) || paths::is_inside(path, request.session_dir) =>
        {
            verdict(GateAction::Allow, String::new())
        }
        Access::Read(path) => {
            verdict(GateAction::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if !is_inside_root(path) => {
            verdict(GateAction::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if paths::is_git_internal(path, request.root) => {
            verdict(GateAction::Ask, format!("{} belongs to git itself", path.display()))
        }
        Access::Write(_) => verdict(GateAction::Allow, String::new()),
        Access::Run { line, cwd, confirm_destructive } => {
            shell::judge(line, cwd, request.root, *confirm_destructive)
        }
        Access::Foreign { allowed: true, .. } => verdict(GateAction::Allow, String::new()),
        Access::Foreign { server, allowed: false } => verdict(
            GateAction::Ask,
            format!("the MCP server `{server}` acts outside of g3's control"),
        ),
        Access::Act(_) | Access::Fetch { allowed: true, .. } => {
            verdict(GateAction::Allow, String::new())
        }
        Access::Screen { allowed: true, .. } => verdict(GateAction::Allow, String::new()),
        Access::Screen { is_control: true, .. } => {
            verdict(GateAction::Ask, "it acts on the screen, outside of g3's control".to_owned())
        }
        Access::Screen { is_control: false, .. } => {
            verdict(GateAction::Ask, "it looks at the whole screen".to_owned())
        }
        Access::Fetch { host, allowed: false } => {
            let reason =
                format!("`{host}` is asked over the network; \"always\" is kept for this host");
            verdict(GateAction::Ask, reason)
        }
    }
}
