//! Asks the user questions on stdin; `--yes` answers them with yes.

use base::failure::{OrFail, Result};
use planner::planning_stage::StageAnswer;

use crate::modes::interrupt::Interrupts;
use crate::ui;

/// The source of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerSource {
    /// Lines of stdin, from a user or a program.
    Lines,
    /// `--yes`: every question is answered with yes.
    Yes,
}

/// The possible answers to a question.
pub(crate) struct AnswerChoice {
    /// The choices as shown after the question, e.g. `[Y/n/q]`.
    pub label: &'static str,
    /// The answer that an empty line means; without it, the question is repeated.
    pub empty: Option<StageAnswer>,
}

/// An empty line means yes.
pub(crate) const YES: AnswerChoice =
    AnswerChoice { label: "[Y/n/q]", empty: Some(StageAnswer::Yes) };
/// An explicit answer is required.
pub(crate) const OWN: AnswerChoice = AnswerChoice { label: "[yes/no/quit]", empty: None };

impl AnswerSource {
    /// Asks until there is an answer. The end of stdin and Ctrl-C mean quit.
    pub(crate) async fn ask(
        self,
        interrupts: &Interrupts,
        question: &str,
        choice: &AnswerChoice,
    ) -> Result<StageAnswer> {
        if self == AnswerSource::Yes {
            return Ok(StageAnswer::Yes);
        }
        loop {
            ui::say(&format!("{question} {}", choice.label));
            let Some(line) = line(interrupts).await? else { return Ok(StageAnswer::Quit) };
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

/// Reads a line from stdin; returns `None` at its end and after Ctrl-C.
pub(crate) async fn line(interrupts: &Interrupts) -> Result<Option<String>> {
    let tokens = interrupts.begin();
    let reading = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    let read = tokio::select! {
        read = reading => Some(read.or_fail(|| "cannot read the answer")?),
        () = tokens.cancel.cancelled() => None,
    };
    interrupts.over();
    read.map_or(Ok(None), |read| read.or_fail(|| "cannot read stdin"))
}
