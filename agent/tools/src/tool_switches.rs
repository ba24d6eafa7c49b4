//! Selects the tools that are offered to a model.

use super::kind::ToolKind;
use super::profile::{self, Profile, ProfileTool};
use provider::ToolDefinition;

/// The tools that a screen planner uses itself, and that are not offered then.
const PLANNED_KINDS: [ToolKind; 4] =
    [ToolKind::OBSERVE, ToolKind::GUI, ToolKind::CONTROLS, ToolKind::CONTROL_ACTION];

/// The enabled features. They determine which tools are offered, not which can run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolSwitches {
    /// The model is small and gets few tools.
    pub small: bool,
    /// Finished turns are moved into files: `--acd`.
    pub acd: bool,
    /// Plan mode: the model plans and the user approves.
    pub plan: bool,
    /// The features enabled by the configuration, as in [`ProfileTool::enabled_by`].
    pub configured: [Option<&'static str>; 4],
}

impl ToolSwitches {
    /// Returns the `enabled_by` values of the tools that are enabled now.
    fn enabled(self) -> impl Iterator<Item = &'static str> {
        let acd = self.acd.then_some("--acd");
        acd.into_iter().chain(self.plan.then_some("plan mode"))
    }

    /// Whether the configuration enables a tool. With a screen planner, some screen tools are
    /// reserved for it.
    fn configured(self, tool: &ProfileTool) -> bool {
        let enabled = |switch: &str| self.configured.contains(&Some(switch));
        let switch = tool.enabled_by.as_str();
        enabled(switch)
            || switch == SCREEN && enabled(PLANNED) && !PLANNED_KINDS.contains(&tool.kind)
    }
}

/// Enables the tool `skill`.
pub const SKILLS: &str = "skills.enabled";
/// Enables the tools for the user's memories.
pub const MEMORY: &str = "memory.enabled";
/// Enables the browser tools.
pub const BROWSER: &str = "--webdriver, --chrome-headless or webdriver.enabled";
/// Enables the screen tools.
pub const SCREEN: &str = "computer_control.enabled";
/// Enables a screen planner.
pub const PLANNED: &str = "computer_control.computer_use_provider";

/// Returns the tools to offer to a model, in a fixed order.
pub fn offered_tools(profile: Profile, switches: ToolSwitches) -> Vec<ToolDefinition> {
    let mut tools =
        if switches.small { profile::for_small_model(profile) } else { profile::tools(profile) };
    tools.retain(|tool| tool.enabled_by == profile::ALWAYS);
    let configured = |tool: &&ProfileTool| switches.configured(tool);
    tools.extend(profile::tools(profile).into_iter().filter(configured));
    tools.extend(switches.enabled().filter_map(profile::of_switch));
    let mut specs: Vec<ToolDefinition> = tools.into_iter().map(ProfileTool::spec).collect();
    if switches.small {
        // Small models fail at nested quotes, so the content may be given as JSON.
        for spec in &mut specs {
            if let Some(content) = spec.parameters.pointer_mut("/properties/content/type") {
                *content = serde_json::json!(["string", "object", "array"]);
            }
        }
    }
    specs
}
