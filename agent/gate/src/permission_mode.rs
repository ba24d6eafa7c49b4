//! What may be done at all for now: everything that the rules allow, only what somebody nodded at,
//! or nothing before a plan is approved.

use base::config::agent::GateAction;

use super::Access;
use super::policy::PolicyVerdict;

/// How much the agent may do by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PermissionMode {
    /// What the rules allow.
    #[default]
    Auto,
    /// Writes and commands that no rule of the user's allows are asked about, each.
    Ask,
    /// Nothing is written and nothing run before the user approves a plan.
    Plan,
}

impl PermissionMode {
    /// Every mode.
    pub const ALL: [PermissionMode; 3] =
        [PermissionMode::Auto, PermissionMode::Ask, PermissionMode::Plan];

    /// Its id, as editors see it.
    pub fn id(self) -> &'static str {
        match self {
            PermissionMode::Auto => "auto",
            PermissionMode::Ask => "ask",
            PermissionMode::Plan => "plan",
        }
    }

    /// The mode of this id.
    pub fn parse(id: &str) -> Option<PermissionMode> {
        PermissionMode::ALL.into_iter().find(|mode| mode.id() == id)
    }

    /// What it means, in a sentence.
    pub fn means(self) -> &'static str {
        match self {
            PermissionMode::Auto => "runs what the rules allow, and asks about the rest",
            PermissionMode::Ask => "asks before every write and every command",
            PermissionMode::Plan => "plans; changes nothing before you approve the plan",
        }
    }

    /// The verdict as this mode has it; the error is what the model reads.
    pub(super) fn tempered(
        self,
        verdict: PolicyVerdict,
        access: &Access,
    ) -> Result<PolicyVerdict, String> {
        let looks = match access {
            Access::Read(_) | Access::Fetch { .. } | Access::Screen { acts: false, .. } => true,
            Access::Write(_)
            | Access::Run { .. }
            | Access::Foreign { .. }
            | Access::Act(_)
            | Access::Screen { acts: true, .. } => false,
        };
        match self {
            PermissionMode::Auto => Ok(verdict),
            _ if looks => Ok(verdict),
            PermissionMode::Plan => {
                Err("denied: this is plan mode, where nothing is written and nothing \
                                 run; look around with the tools that read, then call \
                                 propose_plan, and continue when the user has approved"
                    .to_owned())
            }
            PermissionMode::Ask => match verdict.action {
                GateAction::Allow | GateAction::Box if !verdict.by_rule => {
                    let why = "every write and command is asked about".to_owned();
                    Ok(PolicyVerdict { action: GateAction::Ask, why, ..verdict })
                }
                GateAction::Allow | GateAction::Box | GateAction::Ask | GateAction::Deny => {
                    Ok(verdict)
                }
            },
        }
    }
}
