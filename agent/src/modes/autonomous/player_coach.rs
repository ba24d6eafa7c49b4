//! Player and coach as they are set up for a directory.

use base::failure::Result;

use super::prompts::{COACH, Contract};
use super::requirements;
use agent_core::limits::UsageLimits;
use agent_core::prompt::Identity;
use agent_core::role::AgentRole;
use agent_core::run::AgentSettings;
use provider::{self, ProviderChoice};
use tools::profile::Profile;

/// Questions that a coach may ask its model.
const COACH_TURNS: u32 = 100;
/// Bytes of evidence at most, however much a coach could read.
const MOST_EVIDENCE: u64 = 160_000;

/// What is typed for runs besides their requirements.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTerms {
    /// Rounds at most; five unless said.
    pub rounds: Option<u32>,
    /// Commands that must pass, besides the configured ones.
    pub checks: Vec<String>,
}

/// The two sides, and on which terms they work.
#[derive(Clone, Debug)]
pub(crate) struct PlayerCoach {
    /// How the player is set up.
    pub player: AgentSettings,
    /// How a coach is set up.
    pub coach: AgentSettings,
    /// Bytes of evidence that a coach can take.
    pub room: usize,
    /// When a run is to stop.
    pub limits: UsageLimits,
    /// Rounds at most, where it was said.
    pub rounds: Option<u32>,
    /// The commands that must pass.
    pub checks: Vec<String>,
}

impl PlayerCoach {
    /// Both sides for these settings. A coach that cannot be asked is noticed here, before
    /// anything is begun.
    pub(crate) fn of(settings: &AgentSettings, terms: &RunTerms) -> Result<PlayerCoach> {
        let (player, coach) = sides(settings);
        let facts = provider::open(&coach.config, &coach.choice)?;
        if player.choice.budget {
            // Its price must be known before anything is spent.
            provider::open(&player.config, &player.choice)?;
        }
        let room = facts.facts().context.min(MOST_EVIDENCE) as usize;
        let mut checks = settings.config.studio.checks.list();
        add_to(&mut checks, &terms.checks);
        Ok(PlayerCoach {
            player,
            coach,
            room,
            limits: settings.limits,
            rounds: terms.rounds,
            checks,
        })
    }

    /// The requirements and checks of a run; those of an earlier beginning stay.
    pub(crate) fn contract(&self, text: String, earlier: &[String]) -> Result<Contract> {
        let mut checks = earlier.to_vec();
        add_to(&mut checks, &self.checks);
        let requirements = requirements::of(&text)?;
        Ok(Contract { text, requirements, checks })
    }
}

fn add_to(checks: &mut Vec<String>, more: &[String]) {
    for line in more {
        if !checks.contains(line) {
            checks.push(line.clone());
        }
    }
}

/// How player and coach are set up. A provider that was typed is meant for both; a model that was
/// typed is meant for the coach only where it is asked at the same place.
fn sides(settings: &AgentSettings) -> (AgentSettings, AgentSettings) {
    let mut both = settings.clone();
    both.config.agent.max_retry_attempts = settings.config.agent.autonomous_max_retry_attempts;
    both.limits.turns = None;
    let providers = &settings.config.providers;
    let at = |role: &Option<String>| settings.choice.reference.clone().or_else(|| role.clone());
    let (player, coach) = (at(&providers.player), at(&providers.coach));
    let typed = Some(settings.choice.clone()).filter(|_| player == coach).unwrap_or_default();
    let budget = settings.choice.budget;
    let choice = ProviderChoice { reference: coach, budget, ..typed };
    let turns = both.config.agent.max_turns.unwrap_or(COACH_TURNS).min(COACH_TURNS);
    let mut coach = AgentSettings {
        choice,
        profile: Profile::G3,
        notices: Vec::new(),
        role: AgentRole {
            identity: Identity::Whole(COACH.to_owned()),
            reads_only: true,
            ..AgentRole::default()
        },
        ..both.clone()
    };
    coach.limits.turns = Some(turns);
    let choice = ProviderChoice { reference: player, ..settings.choice.clone() };
    (AgentSettings { choice, ..both }, coach)
}
