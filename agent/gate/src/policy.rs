//! The verdict about a call: by the user's rules, by where it reaches, and by its words where the
//! configuration wants that. Asks nobody.

use std::path::Path;

use base::config::agent::GateAction;
use serde_json::json;

use super::core_exact::{self, Judgement, Route};
use super::{Access, AccessRequest, CommandConfinement, Gate, paths, shell};

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyVerdict {
    /// What becomes of the call.
    pub action: GateAction,
    /// Why, in a clause.
    pub why: String,
    /// Whether a rule of the user's says so.
    pub by_rule: bool,
    /// Whether it runs nowhere but in the sandbox.
    pub sandboxed: bool,
    /// Whether it runs in the box of commands.
    pub confine: BoxUse,
}

/// When a call runs in the box that commands run in by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoxUse {
    /// Not at all: it is not a command, or an answer or a rule lets it out.
    #[default]
    Never,
    /// Where the user cannot be asked: the box holds what its line leaves open.
    Alone,
    /// In any case: nothing in it needs to leave the box.
    Always,
}

impl PolicyVerdict {
    /// A command that may run in its box.
    pub(super) fn confined() -> PolicyVerdict {
        let allowed = PolicyVerdict::by_reach(GateAction::Allow, String::new());
        PolicyVerdict { confine: BoxUse::Always, ..allowed }
    }

    /// A command about which its line does not say enough.
    pub(super) fn unsure(why: String) -> PolicyVerdict {
        PolicyVerdict { confine: BoxUse::Alone, ..PolicyVerdict::by_reach(GateAction::Ask, why) }
    }

    /// A verdict by where a call reaches.
    pub fn by_reach(action: GateAction, why: String) -> PolicyVerdict {
        PolicyVerdict { action, why, by_rule: false, sandboxed: false, confine: BoxUse::Never }
    }
}

impl Gate {
    /// The verdict: the first rule that matches, else by where the call reaches; what destroys
    /// the machine is denied whatever the rules say. Asks nobody.
    pub fn judge(&self, request: &AccessRequest<'_>) -> PolicyVerdict {
        let scope = self.write_scope.as_ref();
        if let Some(why) = scope.and_then(|scope| scope.refusal(request.access, request.root)) {
            return PolicyVerdict::by_reach(GateAction::Deny, why);
        }
        let reach = self.by_words(request, self.held(request, by_reach(request)));
        match self.rules.iter().find(|rule| rule.matches(request, reach.action)) {
            Some(rule) if reach.action != GateAction::Deny => {
                let why = match reach.sandboxed {
                    true => reach.why,
                    false => "a rule says so".to_owned(),
                };
                // What a rule allows, or the user when a rule asks, runs as it is.
                let confine = BoxUse::Never;
                PolicyVerdict { action: rule.action, why, by_rule: true, confine, ..reach }
            }
            Some(_) | None => reach,
        }
    }

    /// The verdict about a call as far as the box of commands changes it.
    fn held(&self, request: &AccessRequest<'_>, reach: PolicyVerdict) -> PolicyVerdict {
        let is_command = matches!(request.access, Access::Run { .. });
        match self.commands.as_ref() {
            CommandConfinement::Box => reach,
            // No answer opens studio's box, so the user is not asked: it holds what is outside.
            CommandConfinement::Studio(_) if is_command && reach.confine != BoxUse::Always => {
                match reach.action {
                    GateAction::Ask => PolicyVerdict::confined(),
                    GateAction::Allow | GateAction::Box | GateAction::Deny => reach,
                }
            }
            CommandConfinement::Studio(open) => match request.access {
                // Where studio is asked, it denies with the same line and keeps account of it.
                Access::Write(path)
                    if !self.can_ask() && !open.iter().any(|tree| paths::is_inside(path, tree)) =>
                {
                    studio_denies(path, reach, request.root)
                }
                _ => reach,
            },
            CommandConfinement::Off => PolicyVerdict { confine: BoxUse::Never, ..reach },
            CommandConfinement::Unable(why) if is_command && reach.action == GateAction::Allow => {
                let why = format!("nothing can hold the command on this system ({why})");
                PolicyVerdict::by_reach(GateAction::Ask, why)
            }
            CommandConfinement::Unable(_) => PolicyVerdict { confine: BoxUse::Never, ..reach },
        }
    }

    /// The stricter of what the words of a call say, where they count, and of where it reaches.
    /// What goes to the sandbox is no longer denied: it harms nothing there.
    fn by_words(&self, request: &AccessRequest<'_>, reach: PolicyVerdict) -> PolicyVerdict {
        let Some(exact) = &self.exact else { return reach };
        let (tool, args) = match request.access {
            Access::Run { line, .. } => (core_exact::COMMAND, json!({ "command": line })),
            Access::Read(path) | Access::Write(path)
                if core_exact::rows::way(request.tool).is_some() =>
            {
                (request.tool, json!({ "file_path": path }))
            }
            Access::Read(_)
            | Access::Write(_)
            | Access::Foreign { .. }
            | Access::Act(_)
            | Access::Screen { .. }
            | Access::Fetch { .. } => return reach,
        };
        let Judgement { route, reason, require_confirmation, .. } = exact.judge(tool, &args, false);
        match route {
            Route::Sandbox if tool == core_exact::COMMAND => PolicyVerdict {
                action: GateAction::Ask,
                why: format!("{reason}; it would run in the sandbox"),
                by_rule: false,
                sandboxed: true,
                confine: BoxUse::Never,
            },
            Route::Sandbox => {
                let why =
                    format!("{reason}; look at it with a command, which the sandbox can hold");
                PolicyVerdict::by_reach(GateAction::Deny, why)
            }
            Route::Host if require_confirmation && reach.action == GateAction::Allow => {
                PolicyVerdict { action: GateAction::Ask, why: reason, ..reach }
            }
            Route::Host => reach,
        }
    }
}

/// What studio's box does not let be written is denied, with the line that opens it.
fn studio_denies(path: &Path, reach: PolicyVerdict, root: &Path) -> PolicyVerdict {
    if reach.action != GateAction::Ask || paths::is_inside(path, root) {
        return reach;
    }
    let directory = path.parent().unwrap_or(path).display();
    let why = format!(
        "{} is outside of this session's box. To open the directory for later sessions, add this \
         to the configuration:\n[sandbox]\nwrite = [\"{directory}\"]",
        path.display()
    );
    PolicyVerdict::by_reach(GateAction::Deny, why)
}

fn by_reach(request: &AccessRequest<'_>) -> PolicyVerdict {
    let verdict = PolicyVerdict::by_reach;
    let inside = |path: &Path| paths::is_inside(path, request.root);
    match request.access {
        Access::Read(path) if inside(path) || paths::is_inside(path, request.session_dir) => {
            verdict(GateAction::Allow, String::new())
        }
        Access::Read(path) => {
            verdict(GateAction::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if !inside(path) => {
            verdict(GateAction::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if paths::is_git_internal(path, request.root) => {
            verdict(GateAction::Ask, format!("{} belongs to git itself", path.display()))
        }
        Access::Write(_) => verdict(GateAction::Allow, String::new()),
        Access::Run { line, cwd, careful } => shell::judge(line, cwd, request.root, *careful),
        Access::Foreign { free: true, .. } => verdict(GateAction::Allow, String::new()),
        Access::Foreign { server, free: false } => verdict(
            GateAction::Ask,
            format!("the MCP server `{server}` acts outside of g3's control"),
        ),
        Access::Act(_) | Access::Fetch { free: true, .. } => {
            verdict(GateAction::Allow, String::new())
        }
        Access::Screen { free: true, .. } => verdict(GateAction::Allow, String::new()),
        Access::Screen { acts: true, .. } => {
            verdict(GateAction::Ask, "it acts on the screen, outside of g3's control".to_owned())
        }
        Access::Screen { acts: false, .. } => {
            verdict(GateAction::Ask, "it looks at the whole screen".to_owned())
        }
        Access::Fetch { host, free: false } => {
            let why =
                format!("`{host}` is asked over the network; \"always\" is kept for this host");
            verdict(GateAction::Ask, why)
        }
    }
}
