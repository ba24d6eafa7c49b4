//! The permission mode: everything that the rules allow, only confirmed actions, or nothing before
//! a plan is approved.

use base::config::agent::GateAction;

use super::Access;
use super::policy::PolicyVerdict;

/// How much the agent may do without confirmation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PermissionMode {
    /// Everything that the rules allow.
    #[default]
    Auto,
    /// Every write and command that no rule of the user allows needs confirmation.
    Ask,
    /// No writes and no commands before the user approves a plan.
    Plan,
}

impl PermissionMode {
    /// All modes.
    pub const ALL: [PermissionMode; 3] =
        [PermissionMode::Auto, PermissionMode::Ask, PermissionMode::Plan];

    /// Returns the id of the mode, as used by editors.
    pub fn id(self) -> &'static str {
        match self {
            PermissionMode::Auto => "auto",
            PermissionMode::Ask => "ask",
            PermissionMode::Plan => "plan",
        }
    }

    /// Returns the mode with this id.
    pub fn parse(id: &str) -> Option<PermissionMode> {
        PermissionMode::ALL.into_iter().find(|mode| mode.id() == id)
    }

    /// Describes the mode in a sentence.
    pub fn description(self) -> &'static str {
        match self {
            PermissionMode::Auto => "runs what the rules allow, and asks about the rest",
            PermissionMode::Ask => "asks before every write and every command",
            PermissionMode::Plan => "plans; changes nothing before you approve the plan",
        }
    }

    /// Adjusts a verdict to the mode. The error is the message for the model.
    pub(super) fn apply(
        self,
        verdict: PolicyVerdict,
        access: &Access,
    ) -> Result<PolicyVerdict, String> {
        let is_read_only = match access {
            Access::Read(_) | Access::Fetch { .. } | Access::Screen { is_control: false, .. } => {
                true
            }
            Access::Write(_)
            | Access::Run { .. }
            | Access::Foreign { .. }
            | Access::Act(_)
            | Access::Screen { is_control: true, .. } => false,
        };
        match self {
            PermissionMode::Auto => Ok(verdict),
            _ if is_read_only => Ok(verdict),
            PermissionMode::Plan => {
                Err("denied: this is plan mode, where nothing is written and nothing \
                                 run; look around with the tools that read, then call \
                                 propose_plan, and continue when the user has approved"
                    .to_owned())
            }
            PermissionMode::Ask => match verdict.action {
                GateAction::Allow | GateAction::Box if !verdict.by_rule => {
                    let reason = "every write and command is asked about".to_owned();
                    Ok(PolicyVerdict { action: GateAction::Ask, reason, ..verdict })
                }
                GateAction::Allow | GateAction::Box | GateAction::Ask | GateAction::Deny => {
                    Ok(verdict)
                }
            },
        }
    }
}
