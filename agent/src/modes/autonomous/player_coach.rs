//! Player and coach, set up for a directory.

use base::failure::Result;

use super::prompts::{COACH, Contract};
use super::requirements;
use agent_core::limits::UsageLimits;
use agent_core::prompt::Identity;
use agent_core::role::AgentRole;
use agent_core::run::AgentSettings;
use provider::{self, ProviderChoice};
use tools::profile::Profile;

/// Maximum number of model requests of a coach.
const COACH_TURNS: u32 = 100;
/// Maximum number of bytes of evidence, however large the coach's context is.
const MOST_EVIDENCE: u64 = 160_000;

/// The terms of a run, besides its requirements.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTerms {
    /// Maximum number of rounds; five by default.
    pub rounds: Option<u32>,
    /// Commands that must pass, in addition to the configured ones.
    pub checks: Vec<String>,
}

/// Player and coach, and the terms of their runs.
#[derive(Clone, Debug)]
pub(crate) struct PlayerCoach {
    /// The settings of the player.
    pub player: AgentSettings,
    /// The settings of a coach.
    pub coach: AgentSettings,
    /// Maximum number of bytes of evidence for a coach.
    pub room: usize,
    /// The limits of a run.
    pub limits: UsageLimits,
    /// Maximum number of rounds, if given.
    pub rounds: Option<u32>,
    /// The commands that must pass.
    pub checks: Vec<String>,
}

impl PlayerCoach {
    /// Sets up both for these settings. Fails here, before anything has started, if the coach's
    /// model cannot be used.
    pub(crate) fn of(settings: &AgentSettings, terms: &RunTerms) -> Result<PlayerCoach> {
        let (player, coach) = sides(settings);
        let facts = provider::open(&coach.config, &coach.choice)?;
        if player.choice.budget {
            // The player's price must be known before anything is spent.
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

    /// Builds the contract of a run; the checks that it started with are kept.
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

/// Returns the settings of player and coach. A provider of the command line applies to both; a
/// model of the command line applies to the coach only if it uses the same provider.
fn sides(settings: &AgentSettings) -> (AgentSettings, AgentSettings) {
    let mut both = settings.clone();
    both.config.agent.max_retry_attempts = settings.config.agent.autonomous_max_retry_attempts;
    both.limits.turns = None;
    let providers = &settings.config.providers;
    let reference_of =
        |role: &Option<String>| settings.choice.reference.clone().or_else(|| role.clone());
    let (player, coach) = (reference_of(&providers.player), reference_of(&providers.coach));
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
