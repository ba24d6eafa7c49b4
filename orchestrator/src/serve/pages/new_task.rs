//! The page that starts tasks: several at once, with the same options.

use axum::extract::State;
use maud::html;

use crate::serve::error_answer::PageResult;
use crate::serve::pages::layout::{self, NavigationItem};
use crate::serve::server::PageServer;
use base::text::printable;

/// Shows the form.
pub(crate) async fn show(State(server): State<PageServer>) -> PageResult {
    let (default, agents) = server
        .read(|_, context| {
            let studio = &context.config.studio;
            let agents: Vec<String> = studio.agents.keys().cloned().collect();
            Ok((studio.agent.clone(), agents))
        })
        .await?;
    let content = html! {
        h1 { "New tasks" }
        form.card.start action="/api/v1/sessions" method="post" data-done="started" data-next="/" {
            p {
                label for="tasks" { "Tasks" }
                textarea #tasks name="tasks" data-split="---" rows="8" required autofocus
                    aria-describedby="tasks-help" {}
                small #tasks-help {
                    "Each task gets a session, a worktree and a branch of its own. A line " code { "---" }
                    " separates several tasks. Ctrl-Enter starts them."
                }
            }
            div.columns {
                p {
                    label for="agent" { "Agent" }
                    input #agent name="agent" list="agents" data-split="," autocomplete="off"
                        placeholder=[default.as_deref().map(printable)];
                    datalist #agents { @for name in &agents { option value=(name) {} } }
                }
                p {
                    label for="persona" { "Persona" }
                    input #persona name="persona" autocomplete="off";
                }
                p {
                    label for="attempts" { "Attempts per task" }
                    input #attempts name="attempts" type="number" min="1" max="20" placeholder="1";
                }
                p {
                    label for="base" { "Start from" }
                    input #base name="base" autocomplete="off" placeholder="HEAD";
                }
            }
            p {
                label for="checks" { "Additional checks, one per line" }
                textarea #checks name="checks" data-split="\n" rows="2" {}
            }
            p {
                label.check { input type="checkbox" name="ask" checked; " Ask me for permissions" }
            }
            p.buttons { button.primary { "Start" } a href="/" { "Cancel" } }
        }
    };
    Ok(layout::page(&server, NavigationItem::New, "New tasks", None, &content))
}
