//! The selected windows and everything in them.

use base::desktop_protocol::ControlQuery;
use base::failure::{Failure, Result};

use super::bus::{A11yBus, ObjectRef};
use super::node::{ACCESSIBLE, ACTIVE, Node, string};

/// Maximum number of visited nodes and maximum depth, since a program may have a table of a million
/// cells.
const MAX_NODES: usize = 4000;
const MAX_DEPTH: u32 = 64;

/// The nodes that were found.
pub(crate) struct ControlTree {
    /// The title of the active window.
    pub active: String,
    /// All nodes below the selected windows, from the top.
    pub nodes: Vec<Node>,
    /// Whether there were more nodes than could be visited.
    pub is_truncated: bool,
}

impl ControlTree {
    /// Walks the selected windows.
    pub(crate) fn of(
        bus: &A11yBus,
        query: &ControlQuery,
        active: Option<&str>,
    ) -> Result<ControlTree> {
        let windows = windows(bus);
        let by_state = windows.iter().find(|window| window.has(ACTIVE));
        let active = active.map(str::to_owned);
        let active =
            active.or_else(|| by_state.map(|window| window.name.clone())).unwrap_or_default();
        let depth = if query.depth == 0 { MAX_DEPTH } else { query.depth.min(MAX_DEPTH) };
        let mut tree = ControlTree { active, nodes: Vec::new(), is_truncated: false };
        for window in select_windows(&windows, query, &tree.active)? {
            tree.walk(bus, window, depth);
        }
        Ok(tree)
    }

    /// Walks everything below a window; each node comes before its children.
    fn walk(&mut self, bus: &A11yBus, window: &Node, depth: u32) {
        let mut pending = PendingNode::children_of(bus, &window.place, None, 1);
        while let Some(PendingNode { place, parent, index, level }) = pending.pop() {
            if self.nodes.len() >= MAX_NODES || bus.is_late() {
                self.is_truncated = true;
                return;
            }
            let Some(mut node) = Node::read(bus, place, &window.app) else { continue };
            (node.parent, node.index) = (parent, index);
            if level < depth {
                let number = Some(self.nodes.len());
                pending.extend(PendingNode::children_of(bus, &node.place, number, level + 1));
            }
            self.nodes.push(node);
        }
    }
}

/// A node to be visited.
struct PendingNode {
    place: ObjectRef,
    parent: Option<usize>,
    index: i32,
    level: u32,
}

impl PendingNode {
    /// Returns the children of a node in reverse order, for a stack.
    fn children_of(
        bus: &A11yBus,
        place: &ObjectRef,
        parent: Option<usize>,
        level: u32,
    ) -> Vec<PendingNode> {
        let mut children: Vec<PendingNode> = (0..)
            .zip(children(bus, place))
            .map(|(index, place)| PendingNode { place, parent, index, level })
            .collect();
        children.reverse();
        children
    }
}

/// Returns the title of the active window according to the window system.
pub(crate) fn active_title() -> Option<String> {
    let display = crate::x11::X11Display::open(None).ok()?;
    let windows = display.windows().ok()?;
    windows.into_iter().find(|open| open.info.active).map(|open| open.info.title)
}

/// Returns the windows of all programs.
fn windows(bus: &A11yBus) -> Vec<Node> {
    let root = "/org/a11y/atspi/accessible/root".try_into();
    let Ok(root) = root else { return Vec::new() };
    let mut windows = Vec::new();
    for program in children(bus, &("org.a11y.atspi.Registry".to_owned(), root)) {
        let name = string(bus, &program, "Name");
        let children = children(bus, &program).into_iter();
        windows.extend(children.filter_map(|window| Node::read(bus, window, &name)));
    }
    windows
}

fn children(bus: &A11yBus, place: &ObjectRef) -> Vec<ObjectRef> {
    bus.call(place, ACCESSIBLE, "GetChildren", &()).unwrap_or_default()
}

/// Returns the windows that a request selects.
fn select_windows<'a>(
    windows: &'a [Node],
    query: &ControlQuery,
    active: &str,
) -> Result<Vec<&'a Node>> {
    if query.everywhere {
        return Ok(windows.iter().collect());
    }
    let candidates: Vec<&Node> = match &query.window {
        Some(wanted_title) => {
            let wanted_title = wanted_title.trim().to_lowercase();
            let is_named = |node: &&Node| {
                [&node.name, &node.app]
                    .iter()
                    .any(|name| name.to_lowercase().contains(&wanted_title))
            };
            windows.iter().filter(is_named).collect()
        }
        None => {
            // Two programs may both report the focus; the window system decides.
            let is_titled = |node: &&&Node| node.name == active;
            let by_state: Vec<&Node> = windows.iter().filter(|node| node.has(ACTIVE)).collect();
            let both: Vec<&Node> = by_state.iter().filter(is_titled).copied().collect();
            let by_title = || windows.iter().filter(|node| node.name == active).collect();
            [both, by_state].into_iter().find(|group| !group.is_empty()).unwrap_or_else(by_title)
        }
    };
    if !candidates.is_empty() {
        return Ok(candidates);
    }
    let what = match &query.window {
        Some(wanted_title) => format!("no window is called `{wanted_title}`"),
        None if active.is_empty() => "no window is active".to_owned(),
        None => format!("the window `{active}` does not tell its controls"),
    };
    let named_windows = windows.iter().filter(|node| !node.name.is_empty());
    let names: Vec<String> =
        named_windows.take(15).map(|node| format!("{} ({})", node.name, node.app)).collect();
    let reason = if names.is_empty() {
        "no program tells its controls".to_owned()
    } else {
        format!("these do: {}", names.join("; "))
    };
    Err(Failure::not_found(what).because(reason))
}
