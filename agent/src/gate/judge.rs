//! The verdict about a call: by the user's rules, by where it reaches, and by its words where the
//! configuration wants that. Asks nobody.

use std::path::Path;

use base::config::agent::Action;
use serde_json::json;

use super::core::{self, Judgement, Route};
use super::{Access, Gate, Visitor, paths, shell};

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the call.
    pub action: Action,
    /// Why, in a clause.
    pub why: String,
    /// Whether a rule of the user's says so.
    pub by_rule: bool,
    /// Whether it runs nowhere but in the sandbox.
    pub sandboxed: bool,
}

impl Verdict {
    /// A verdict by where a call reaches.
    pub(super) fn by_reach(action: Action, why: String) -> Verdict {
        Verdict { action, why, by_rule: false, sandboxed: false }
    }
}

impl Gate {
    /// The verdict: the first rule that matches, else by where the call reaches; what destroys
    /// the machine is denied whatever the rules say. Asks nobody.
    pub fn judge(&self, visitor: &Visitor<'_>) -> Verdict {
        let fence = self.fence.as_ref();
        if let Some(why) = fence.and_then(|fence| fence.refusal(visitor.access, visitor.root)) {
            return Verdict::by_reach(Action::Deny, why);
        }
        let reach = self.by_words(visitor, by_reach(visitor));
        match self.rules.iter().find(|rule| rule.matches(visitor, reach.action)) {
            Some(rule) if reach.action != Action::Deny => {
                let why = match reach.sandboxed {
                    true => reach.why,
                    false => "a rule says so".to_owned(),
                };
                Verdict { action: rule.action, why, by_rule: true, ..reach }
            }
            Some(_) | None => reach,
        }
    }

    /// The stricter of what the words of a call say, where they count, and of where it reaches.
    /// What goes to the sandbox is no longer denied: it harms nothing there.
    fn by_words(&self, visitor: &Visitor<'_>, reach: Verdict) -> Verdict {
        let Some(exact) = &self.exact else { return reach };
        let (tool, args) = match visitor.access {
            Access::Run { line, .. } => (core::COMMAND, json!({ "command": line })),
            Access::Read(path) | Access::Write(path) if core::rows::way(visitor.tool).is_some() => {
                (visitor.tool, json!({ "file_path": path }))
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
            Route::Sandbox if tool == core::COMMAND => Verdict {
                action: Action::Ask,
                why: format!("{reason}; it would run in the sandbox"),
                by_rule: false,
                sandboxed: true,
            },
            Route::Sandbox => {
                let why =
                    format!("{reason}; look at it with a command, which the sandbox can hold");
                Verdict::by_reach(Action::Deny, why)
            }
            Route::Host if require_confirmation && reach.action == Action::Allow => {
                Verdict::by_reach(Action::Ask, reason)
            }
            Route::Host => reach,
        }
    }
}

fn by_reach(visitor: &Visitor<'_>) -> Verdict {
    let verdict = Verdict::by_reach;
    let inside = |path: &Path| paths::is_inside(path, visitor.root);
    match visitor.access {
        Access::Read(path) if inside(path) || paths::is_inside(path, visitor.session_dir) => {
            verdict(Action::Allow, String::new())
        }
        Access::Read(path) => {
            verdict(Action::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if !inside(path) => {
            verdict(Action::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if paths::is_git_internal(path, visitor.root) => {
            verdict(Action::Ask, format!("{} belongs to git itself", path.display()))
        }
        Access::Write(_) => verdict(Action::Allow, String::new()),
        Access::Run { line, cwd, careful } => shell::judge(line, cwd, visitor.root, *careful),
        Access::Foreign { free: true, .. } => verdict(Action::Allow, String::new()),
        Access::Foreign { server, free: false } => {
            verdict(Action::Ask, format!("the MCP server `{server}` acts outside of g3's control"))
        }
        Access::Act(_) | Access::Fetch { free: true, .. } => verdict(Action::Allow, String::new()),
        Access::Screen { free: true, .. } => verdict(Action::Allow, String::new()),
        Access::Screen { acts: true, .. } => {
            verdict(Action::Ask, "it acts on the screen, outside of g3's control".to_owned())
        }
        Access::Screen { acts: false, .. } => {
            verdict(Action::Ask, "it looks at the whole screen".to_owned())
        }
        Access::Fetch { host, free: false } => {
            let why =
                format!("`{host}` is asked over the network; \"always\" is kept for this host");
            verdict(Action::Ask, why)
        }
    }
}
