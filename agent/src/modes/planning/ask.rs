//! Questions to the user, by lines of stdin; or the answers that `--yes` stands for.

use base::failure::{OrFail, Result};
use planner::planning_stage::StageAnswer;

use crate::modes::interrupt::Interrupts;
use crate::ui;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerSource {
    /// Somebody types, or a program writes into stdin.
    Lines,
    /// `--yes`: what would be asked is done.
    Yes,
}

/// What is taken for which answer: the words, and what an empty line stands for.
pub(crate) struct AnswerChoice {
    /// What is shown behind the question, e.g. `[Y/n/q]`.
    pub shown: &'static str,
    /// What an empty line means; the question is asked again without it.
    pub empty: Option<StageAnswer>,
}

/// Yes is what an empty line means.
pub(crate) const YES: AnswerChoice =
    AnswerChoice { shown: "[Y/n/q]", empty: Some(StageAnswer::Yes) };
/// An answer is needed.
pub(crate) const OWN: AnswerChoice = AnswerChoice { shown: "[yes/no/quit]", empty: None };

impl AnswerSource {
    /// Asks until there is an answer. The end of stdin, or Ctrl-C, quits.
    pub(crate) async fn ask(
        self,
        hear: &Interrupts,
        question: &str,
        choice: &AnswerChoice,
    ) -> Result<StageAnswer> {
        if self == AnswerSource::Yes {
            return Ok(StageAnswer::Yes);
        }
        loop {
            ui::say(&format!("{question} {}", choice.shown));
            let Some(line) = line(hear).await? else { return Ok(StageAnswer::Quit) };
            match line.trim().to_ascii_lowercase().as_str() {
                "" if choice.empty.is_some() => {
                    return Ok(choice.empty.unwrap_or(StageAnswer::Quit));
                }
                "y" | "yes" => return Ok(StageAnswer::Yes),
                "n" | "no" => return Ok(StageAnswer::No),
                "q" | "quit" | "exit" => return Ok(StageAnswer::Quit),
                _ => ui::say("answer yes, no or quit"),
            }
        }
    }
}

/// A line of stdin; `None` at its end and after Ctrl-C.
pub(crate) async fn line(hear: &Interrupts) -> Result<Option<String>> {
    let tokens = hear.begin();
    let reading = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    let read = tokio::select! {
        read = reading => Some(read.or_fail(|| "cannot read the answer")?),
        () = tokens.cancel.cancelled() => None,
    };
    hear.over();
    read.map_or(Ok(None), |read| read.or_fail(|| "cannot read stdin"))
}
