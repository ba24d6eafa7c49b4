//! One part of a plan by itself, as `g3 plan` asks for it: refining a wish, splitting requirements.

use std::path::Path;

use base::event::Usage;
use base::failure::{Failure, Result};
use planner::task::{self, Mistake};

use super::given::{Came, Heard};
use super::{explore, refine, split, words};
use crate::modes::autonomous::requirements;
use crate::modes::interrupt::{self, Interrupts};
use crate::run::Settings;

/// A part of a plan.
#[derive(Clone, Debug)]
pub enum Part {
    /// The wish becomes a list of requirements.
    Refine,
    /// The requirements become tasks; these tasks (TOML, with the file's name) are there already.
    Split(Option<(String, String)>),
}

/// Carries a part out; gives the list in Markdown, or the new tasks in TOML.
pub async fn run(settings: &Settings, part: &Part, text: &str, heard: Heard) -> Result<String> {
    let report = explore::report(&settings.cwd);
    let (tool, asked) = match part {
        Part::Refine if text.trim().is_empty() => {
            return Err(
                Failure::usage("there is no wish on stdin").next("g3 plan refine < wish.md")
            );
        }
        Part::Refine => refine::refine(text, words::refine(text, &report, "")),
        Part::Split(there) => {
            let there = there.as_ref().map(|(name, text)| (Path::new(name), text));
            let there = there.map(|(name, text)| {
                task::from_toml(text).map_err(|mistakes| refused(name, &mistakes))
            });
            split::split(requirements::of(text)?, there.transpose()?.unwrap_or_default(), &report)
        }
    };
    let interrupts = Interrupts::listen()?;
    match tool
        .ask(settings, asked, heard, (interrupts.begin().cancel, &mut Usage::default()))
        .await?
    {
        Came::Text(text) => Ok(text),
        Came::Nothing(failure) => Err(failure),
        Came::Cancelled => Err(interrupt::failure()),
    }
}

fn refused(file: &Path, mistakes: &[Mistake]) -> Failure {
    let lines: Vec<String> =
        mistakes.iter().map(|it| format!("{}:{}: {}", file.display(), it.line, it.what)).collect();
    Failure::usage(format!("{} is not a list of tasks", file.display())).because(lines.join("\n"))
}
