//! Runs over the Agent Client Protocol: a session's first prompt states the requirements and starts
//! the run, and each later prompt continues it.

use base::event::RunStatus;
use base::failure::{Failure, Result};
use base::text::CONTINUE_PROMPT;
use planner::document;
use tokio_util::sync::CancellationToken;

use super::prompts::Contract;
use super::round_log::{NextStep, RoundNote};
use super::start::ResumableRun;
use super::start::{Listeners, ROUNDS, ResumedRun, open};
use super::{PlayerCoach, Run, checks, requirements};
use agent_core::run::AgentSession;
use agent_core::run::outcome::{RunOutcome, report_failure};

/// Player and coach of one session, which wait for prompts.
pub(crate) struct PromptedPair {
    /// Player and coach.
    pub pair: PlayerCoach,
    /// The event bus and the asker.
    pub listeners: Listeners,
}

impl PromptedPair {
    /// Runs a prompt. Its end has already been emitted as an event.
    pub(crate) async fn prompt(
        &self,
        text: &str,
        work: &mut AgentSession,
        cancel: &CancellationToken,
    ) -> RunOutcome {
        match self.begin(text, work).await {
            Ok(mut run) => {
                let ended = run.go(cancel).await;
                run.finish(ended)
            }
            Err(failure) => {
                report_failure(&self.listeners.bus, &failure);
                RunOutcome::new(RunStatus::Failed, Some(failure))
            }
        }
    }

    async fn begin<'w>(&self, text: &str, work: &'w mut AgentSession) -> Result<Run<'w>> {
        let (contract, resumed_run) = match ResumableRun::read(&work.session.dir)? {
            None => (self.first(text)?, None),
            Some(resumable) => {
                checks::refuse_unknown(&work.session.dir, &resumable.checks, &self.pair.checks)?;
                let contract = self.pair.contract(resumable.text.clone(), &resumable.checks)?;
                let note = self.later(text, &resumable);
                (contract, Some(ResumedRun { run: resumable, note }))
            }
        };
        // Limits apply to each prompt.
        let mut run = open(&self.pair, contract, resumed_run, work, self.listeners.clone()).await?;
        let spent = run.cost().usage;
        run.budget.leave_out(spent);
        Ok(run)
    }

    /// Builds the contract of the first prompt. A prompt that only says to go on is not a
    /// requirement.
    fn first(&self, text: &str) -> Result<Contract> {
        if text.trim() == CONTINUE_PROMPT {
            return Err(Failure::usage("this session has no requirements yet")
                .because("there is nothing to resume")
                .hint("state the requirements, one item per line"));
        }
        self.pair.contract(text.to_owned(), &[])
    }

    /// Returns how the run continues: where it was interrupted. If it had ended, or if the user
    /// says something, the player works again and the run gets its full number of further rounds.
    fn later(&self, text: &str, run: &ResumableRun) -> RoundNote {
        let rounds = &run.rounds;
        let message = user_message(text, &run.text);
        let more = message.is_some() || matches!(rounds.next(), NextStep::End(_));
        let allowance = self.pair.rounds.unwrap_or(ROUNDS);
        let most = if more { rounds.rounds.len() as u32 + allowance } else { rounds.most };
        RoundNote::Resumed { rounds: most, more, said: message }
    }
}

/// Returns what the user says in a later prompt, without the request to go on and without the text
/// that the run began with.
fn user_message(text: &str, began_with: &str) -> Option<String> {
    let has_section = document::current(text)
        .is_some_and(|section| section.trim() == requirements::section(began_with).trim());
    let words = if has_section {
        document::remove_section(text, document::CURRENT)
    } else {
        text.to_owned()
    };
    let known = document::remove_section(began_with, document::CURRENT);
    let known = Some(known.trim()).filter(|known| has_section && !known.is_empty());
    let words = known.and_then(|known| words.trim().strip_prefix(known)).unwrap_or(&words).trim();
    (!words.is_empty() && words != CONTINUE_PROMPT).then(|| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_the_run_began_with_is_not_repeated() {
        let mark = document::CURRENT;
        let began = format!("Build it\n\n{mark}\n\n- R1: a\n");
        assert_eq!(user_message(CONTINUE_PROMPT, &began), None);
        assert_eq!(user_message(&format!("{CONTINUE_PROMPT}\n\n{mark}\n\n- R1: a"), &began), None);
        assert_eq!(
            user_message(&format!("be quick\n\n{mark}\n\n- R1: a"), &began),
            Some("be quick".into())
        );
        assert_eq!(user_message("be quick", &began), Some("be quick".into()));
        assert_eq!(user_message(&began, &began), None);
        let task = began.replace("it\n", "it\n\nbe quick\n");
        assert_eq!(user_message(&task, &began), Some("be quick".into()));
        let other = format!("{mark}\n- R1: b");
        assert_eq!(user_message(&other, &began), Some(other.clone()), "new words are not lost");
        assert_eq!(user_message(" \n", &began), None);
    }
}
