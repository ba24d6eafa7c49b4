//! Which tools are offered to a model.

use super::kind::ToolKind;
use super::profile::{self, Profile, ProfileTool};
use provider::ToolDefinition;

/// What a model that plans on the screen does instead of ours.
const PLANNED_KINDS: [ToolKind; 4] =
    [ToolKind::OBSERVE, ToolKind::GUI, ToolKind::CONTROLS, ToolKind::CONTROL_ACTION];

/// What is switched on; decides what is offered to a model, not what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolSwitches {
    /// The model is small: it gets few tools.
    pub small: bool,
    /// Finished turns are moved into files: `--acd`.
    pub acd: bool,
    /// The model plans and the user approves.
    pub plan: bool,
    /// What the configuration switches on, as in [`ProfileTool::enabled_by`].
    pub configured: [Option<&'static str>; 4],
}

impl ToolSwitches {
    /// What `enabled_by` says of the tools that are on now.
    fn on(self) -> impl Iterator<Item = &'static str> {
        let acd = self.acd.then_some("--acd");
        acd.into_iter().chain(self.plan.then_some("plan mode"))
    }

    /// Whether the configuration switches a tool on. A model that plans on the screen has some of
    /// its tools to itself.
    fn configured(self, face: &ProfileTool) -> bool {
        let on = |switch: &str| self.configured.contains(&Some(switch));
        let by = face.enabled_by.as_str();
        on(by) || by == SCREEN && on(PLANNED) && !PLANNED_KINDS.contains(&face.engine)
    }
}

/// What switches the tool `skill` on.
pub const SKILLS: &str = "skills.enabled";
/// What switches the tools of the user's memories on.
pub const MEMORY: &str = "memory.enabled";
/// What switches the tools of the browser on.
pub const BROWSER: &str = "--webdriver, --chrome-headless or webdriver.enabled";
/// What switches the tools of the screen on.
pub const SCREEN: &str = "computer_control.enabled";
/// What switches a model on that plans on the screen.
pub const PLANNED: &str = "computer_control.computer_use_provider";

/// The tools to offer to a model, in a fixed order.
pub fn offered(profile: Profile, switches: ToolSwitches) -> Vec<ToolDefinition> {
    let mut faces = if switches.small { profile::few(profile) } else { profile::faces(profile) };
    faces.retain(|face| face.enabled_by == profile::ALWAYS);
    let configured = |face: &&ProfileTool| switches.configured(face);
    faces.extend(profile::faces(profile).into_iter().filter(configured));
    faces.extend(switches.on().filter_map(profile::switched));
    let mut specs: Vec<ToolDefinition> = faces.into_iter().map(ProfileTool::spec).collect();
    if switches.small {
        // Small models lose their way in quotes within quotes, so JSON may stand there as it is.
        for spec in &mut specs {
            if let Some(content) = spec.parameters.pointer_mut("/properties/content/type") {
                *content = serde_json::json!(["string", "object", "array"]);
            }
        }
    }
    specs
}
