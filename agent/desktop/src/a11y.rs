//! Controls of programs through the accessibility bus (AT-SPI): listing them and acting on them.

mod act;
mod bus;
mod node;
mod tree;

use base::desktop_protocol::{ControlAction, ControlQuery, ControlResult, Controls};
use base::failure::Result;

use bus::A11yBus;
use tree::ControlTree;

/// Lists the controls. If no program exposes any, the list is empty and says why.
pub(crate) fn controls(query: &ControlQuery) -> Controls {
    let active = tree::active_title();
    let tree_and_bus =
        A11yBus::open().and_then(|bus| Ok((ControlTree::of(&bus, query, active.as_deref())?, bus)));
    let (tree, bus) = match tree_and_bus {
        Ok(tree_and_bus) => tree_and_bus,
        Err(failure) => {
            let active = active.unwrap_or_default();
            return Controls { active, note: Some(failure.full_text()), ..Controls::default() };
        }
    };
    let limit = if query.limit == 0 { USUAL_LIMIT } else { query.limit as usize };
    let matching = tree.nodes.iter().filter(|node| !query.interactive || node.is_interactive());
    let mut controls: Vec<_> =
        matching.take(limit + 1).map_while(|node| node.to_control(&bus)).collect();
    let is_truncated = tree.is_truncated || controls.len() > limit || bus.is_late();
    controls.truncate(limit);
    let focused = tree.nodes.iter().find(|node| node.has(node::FOCUSED));
    let focused = focused.and_then(|node| node.to_control(&bus));
    Controls { active: tree.active, focused, controls, cut: is_truncated, note: bus.silence() }
}

/// Acts on a control.
pub(crate) fn act(action: &ControlAction) -> Result<ControlResult> {
    let bus = A11yBus::open()?;
    act::act(&bus, action)
}

/// Default limit of listed controls.
const USUAL_LIMIT: usize = 200;
