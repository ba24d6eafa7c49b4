//! The picture of the dependencies of a plan's tasks. It has no styles of its own: the style sheet
//! knows its classes.

use base::text::printable;
use maud::{Markup, html};

use crate::commands::plan::status::TaskReport;
use crate::serve::graph_layout::{self, BOX_HEIGHT, BOX_WIDTH, GraphEdge, GraphLayout};
use crate::serve::pages::plan::{state_kind, task_anchor, task_title};

/// Maximum number of tasks in the picture.
const MAX_TASKS: usize = 300;
/// Maximum number of characters of a line in a box.
const MAX_CHARS: usize = 22;

/// Returns the picture.
pub(crate) fn graph(tasks: &[TaskReport]) -> Markup {
    if tasks.len() > MAX_TASKS {
        return html! { p.empty { "There are more tasks than a picture can show." } };
    }
    let index_of = |id: &String| tasks.iter().position(|task| task.id == *id);
    let edges: Vec<(usize, usize)> = (0..tasks.len())
        .flat_map(|to| tasks[to].after.iter().filter_map(index_of).map(move |from| (from, to)))
        .collect();
    let layout = graph_layout::lay_out(tasks.len(), &edges);
    let (width, height) = (layout.width.ceil(), layout.height.ceil());
    html! {
        div.graph-scroll tabindex="0" role="region" aria-label="Picture of the dependencies" {
            svg.graph width=(width) height=(height) viewBox=(format!("0 0 {width} {height}"))
                role="group" aria-labelledby="graph-title" {
                title #graph-title { "Dependencies of the tasks" }
                desc #graph-desc { (description(tasks)) }
                defs {
                    marker #graph-arrow viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"
                        markerHeight="7" orient="auto" { path.graph-arrow d="M 0 0 L 8 4 L 0 8 z" {} }
                }
                g role="img" aria-labelledby="graph-title graph-desc" {
                    @for edge in &layout.edges {
                        path.graph-edge d=(path_data(edge)) marker-end="url(#graph-arrow)"
                            data-from=(tasks[edge.from].id) data-to=(tasks[edge.to].id) {}
                    }
                }
                (boxes(tasks, &layout))
            }
        }
    }
}

/// Describes the dependencies in words.
fn description(tasks: &[TaskReport]) -> String {
    let line = |task: &TaskReport| match task.after.is_empty() {
        true => format!("{} depends on nothing.", task.id),
        false => format!("{} depends on {}.", task.id, task.after.join(", ")),
    };
    printable(&tasks.iter().map(line).collect::<Vec<_>>().join(" "))
}

fn boxes(tasks: &[TaskReport], layout: &GraphLayout) -> Markup {
    html! {
        @for (index, (task, (x, y))) in tasks.iter().zip(&layout.boxes).enumerate() {
            @let title = task_title(task);
            @let name = format!("{} {}", index + 1, task.id);
            a.graph-box.(state_kind(task)) href=(link(task)) data-task=(task.id)
                aria-label=(format!("{} {} {}", short(&name), short(&title), short(&task.state))) {
                // The inner picture cuts off what is too long.
                svg x=(format!("{x:.1}")) y=(format!("{y:.1}")) width=(BOX_WIDTH) height=(BOX_HEIGHT) {
                    rect x="1" y="1" width=(BOX_WIDTH - 2.0) height=(BOX_HEIGHT - 2.0) rx="6" {}
                    text.graph-name x="10" y="19" { (short(&name)) } " "
                    text x="10" y="36" { (short(&title)) } " "
                    text.graph-state x="10" y="53" { "● " (short(&task.state)) }
                }
            }
        }
    }
}

/// Returns where a box leads: to the session, else to the task in the list.
fn link(task: &TaskReport) -> String {
    match &task.session {
        Some(session) => format!("/sessions/{session}"),
        None => format!("#{}", task_anchor(task)),
    }
}

fn short(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(MAX_CHARS).collect();
    if chars.next().is_some() { format!("{}…", start.trim_end()) } else { start }
}

/// Returns the curve of an edge: straight through rows, bent between them.
fn path_data(edge: &GraphEdge) -> String {
    let mut data = String::new();
    for (index, (x, y)) in edge.points.iter().enumerate() {
        let part = match index.checked_sub(1).map(|before| edge.points[before]) {
            None => format!("M {x:.1} {y:.1}"),
            // Points come in pairs: the first leads to a row, the second through it.
            Some((from_x, from_y)) if index % 2 == 1 => {
                let middle = f64::midpoint(from_y, *y);
                format!(" C {from_x:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}")
            }
            Some(_) => format!(" L {x:.1} {y:.1}"),
        };
        data.push_str(&part);
    }
    data
}
