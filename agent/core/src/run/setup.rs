//! Sets up the tools of a session and selects which ones the model is offered.

use std::sync::Arc;

use base::config::Config;
use base::config::agent::ComputerControlConfig;
use base::failure::Result;

use super::{AgentSettings, root_of};
use crate::context::Conversation;
use crate::context::window::{CompactionPolicy, ContextWindow};
use crate::session::Session;
use gate::Gate;
use memory::Memory;
use provider::ProviderFacts;
use provider::message::Message;
use skills::{self, SkillSet, prompt_list};
use tools::context::{Services, ToolContext};
use tools::dispatch;
use tools::kind::ToolKind;
use tools::profile::Profile;
use tools::profile::{self, ProfileTool};
use tools::result_limit;
use tools::screen_access::{self, ScreenAccess};
use tools::services::BrowserOwner;
use tools::tool_switches::{BROWSER, MEMORY, PLANNED, SCREEN, SKILLS, ToolSwitches};

/// Creates the context in which the tools of a session run.
pub(crate) fn tool_context(
    settings: &AgentSettings,
    session: &Session,
    facts: &ProviderFacts,
    gate: Arc<Gate>,
) -> Result<ToolContext> {
    let toolset = settings.toolset;
    let base_context =
        ToolContext::quiet(toolset.registry(), settings.cwd.clone(), session.dir.clone());
    let skills = Arc::new(skills::find::load(&settings.config.skills, &settings.cwd));
    let mut memory = Memory::new(&settings.config, settings.notes.file.clone());
    memory.takes_notes =
        settings.tools && !settings.role.reads_only && settings.notes.auto.unwrap_or(false);
    let memory = Arc::new(memory);
    let model = Some((facts.provider.clone(), facts.model.clone()));
    let base_services = toolset.services(&settings.config, BrowserOwner::Session)?;
    let screen = Arc::new(ScreenAccess::new(&settings.config));
    let services = Services { model, screen, ..base_services };
    let root = root_of(&settings.cwd);
    let window = window(&settings.config, facts, 0);
    let result_limit = result_limit::for_window(window.limit());
    let plain = facts.small;
    Ok(ToolContext { root, plain, result_limit, gate, skills, memory, services, ..base_context })
}

/// Returns the tool switches for a model, and the list of skills if it has the tool to load them. A
/// small model gets skills only if the user enables them for it.
pub(crate) fn switches(
    settings: &AgentSettings,
    facts: &ProviderFacts,
    skill_set: &SkillSet,
) -> (ToolSwitches, Option<String>) {
    let has_shared_memory = || Memory::new(&settings.config, None).shared;
    let loads_skills = |tool: &&ProfileTool| tool.kind == ToolKind::SKILL;
    let lists_skills = (!facts.small || settings.config.skills.small_models)
        && profile::tools(settings.profile).iter().any(loads_skills);
    let list = prompt_list::prompt(skill_set).filter(|_| lists_skills);
    let (config, small) = (&settings.config, facts.small);
    let configured = [
        list.is_some().then_some(SKILLS),
        (!small && has_shared_memory()).then_some(MEMORY),
        config.webdriver.enabled.then_some(BROWSER),
        screen(&config.computer_control).filter(|_| !small),
    ];
    (ToolSwitches { small: facts.small, acd: settings.acd, plan: false, configured }, list)
}

/// Whether a tool of a profile works here. Without a session bus, programs do not expose their
/// controls.
pub(crate) fn is_usable(profile: Profile, name: &str) -> bool {
    let needs_bus = [ToolKind::CONTROLS, ToolKind::CONTROL_ACTION];
    let kind = dispatch::kind(profile, name, &serde_json::Value::Null);
    screen_access::has_session_bus() || !kind.is_some_and(|kind| needs_bus.contains(&kind))
}

/// Returns a notice about tools that are not offered here.
pub(crate) fn notices(settings: &AgentSettings) -> Option<String> {
    let missing = settings.config.computer_control.enabled && !screen_access::has_session_bus();
    missing.then(|| {
        "no accessibility bus: tools that read or use the controls of programs are not offered, \
         and find_element finds text only (DBUS_SESSION_BUS_ADDRESS is not set)"
            .to_owned()
    })
}

/// Returns the switch of the screen tools: none, those of the model itself, or those of a planner.
fn screen(control: &ComputerControlConfig) -> Option<&'static str> {
    let switch = if control.computer_use_provider.is_some() { PLANNED } else { SCREEN };
    control.enabled.then_some(switch)
}

/// Marks what a resumed session has already discovered as known.
pub(crate) fn mark_known(conversation: &Conversation, profile: Profile, context: &ToolContext) {
    for call in conversation.messages().iter().flat_map(Message::calls) {
        context.memory.novelty.add(dispatch::discovery(profile, &call.name, &call.args, context));
    }
}

/// Returns the context window of a model, limited by the configuration.
pub(crate) fn window(config: &Config, facts: &ProviderFacts, overhead: u64) -> ContextWindow {
    let agent = &config.agent;
    let max = agent.max_context_length.map_or(facts.context, u64::from);
    let policy = CompactionPolicy {
        thin_from: u64::from(agent.thinning_floor_percent),
        compact_at: agent.auto_compact.then_some(80),
    };
    ContextWindow::new(facts.context.min(max), overhead).with(policy)
}
