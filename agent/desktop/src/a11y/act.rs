//! Acts on a control through its interfaces, and waits until it shows the effect.

use std::time::Duration;

use base::desktop_protocol::{ControlAction, ControlResult, ControlVerb};
use base::failure::{Failure, Result};

use super::bus::A11yBus;
use super::node::{
    ACTION, COMPONENT, EDITABLE, EXPANDABLE, EXPANDED, FOCUSABLE, FOCUSED, Node, SELECTION, VALUE,
};
use super::tree::{self, ControlTree};
use crate::cancel::pause;

/// Maximum number of controls named when none was found.
const MAX_NAMED: usize = 15;
/// Number and interval of checks whether a control shows the effect.
const MAX_CHECKS: usize = 25;
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A control and its tree.
struct Target<'a> {
    bus: &'a A11yBus,
    tree: &'a ControlTree,
    node: &'a Node,
    interfaces: Vec<String>,
}

/// Finds the control and acts on it.
pub(crate) fn act(bus: &A11yBus, act: &ControlAction) -> Result<ControlResult> {
    if act.name.is_none() && act.automation_id.is_none() && act.role.is_none() {
        let failure = Failure::usage("nothing says which control is meant");
        return Err(failure.hint("give its name, its automation id or its role"));
    }
    let tree = ControlTree::of(bus, &act.look, tree::active_title().as_deref())?;
    let Some(node) = find_node(bus, &tree, act) else {
        if let Some(note) = bus.silence() {
            return Err(Failure::failed(note));
        }
        return Ok(ControlResult { control: None, available: available(&tree) });
    };
    if !node.is_enabled() {
        let failure = Failure::failed(format!("{} is disabled", description(node)));
        return Err(failure.because("its program does not take anything there now"));
    }
    let target = Target { bus, tree: &tree, node, interfaces: node.interfaces(bus) };
    // The action may close the window, and the program with it.
    let before = node.to_control(bus);
    target.perform(act.action, act.value.as_deref())?;
    let after = node.reread(bus).unwrap_or_else(|| node.clone());
    Ok(ControlResult { control: after.to_control(bus).or(before), available: Vec::new() })
}

/// Returns the best match: interactive controls before labels, full names before partial ones,
/// visible and enabled controls before others.
fn find_node<'a>(bus: &A11yBus, tree: &'a ControlTree, act: &ControlAction) -> Option<&'a Node> {
    let wanted_name = act.name.as_ref().map(|name| name.trim().to_lowercase());
    let is_match = |node: &&Node| {
        wanted_name
            .as_ref()
            .is_none_or(|wanted_name| node.name.to_lowercase().contains(wanted_name))
            && act.role.as_ref().is_none_or(|role| *role == node.role)
            && act.automation_id.as_ref().is_none_or(|id| *id == node.automation_id(bus))
    };
    tree.nodes.iter().filter(is_match).min_by_key(|node| {
        let exact = wanted_name
            .as_ref()
            .is_some_and(|wanted_name| node.name.to_lowercase() == *wanted_name);
        [!node.is_interactive(), !exact, !node.is_visible(), !node.is_enabled()]
    })
}

/// Lists possible alternatives: interactive controls first, then others with a name.
fn available(tree: &ControlTree) -> Vec<String> {
    let (first, rest): (Vec<&Node>, Vec<&Node>) = tree
        .nodes
        .iter()
        .filter(|node| !node.name.is_empty())
        .partition(|node| node.is_interactive());
    let listed = first.into_iter().chain(rest).take(MAX_NAMED);
    listed
        .map(|node| {
            let disabled = if node.is_enabled() { "" } else { ", disabled" };
            let hidden = if node.is_visible() { "" } else { ", hidden" };
            format!("{} ({}{disabled}{hidden})", node.name, node.role)
        })
        .collect()
}

fn description(node: &Node) -> String {
    match node.name.as_str() {
        "" => format!("the {}", node.role),
        name => format!("`{name}` ({})", node.role),
    }
}

impl Target<'_> {
    fn perform(&self, action: ControlVerb, value: Option<&str>) -> Result<()> {
        match action {
            ControlVerb::Click => self.click(),
            ControlVerb::SetValue => self.set_value(value),
            ControlVerb::Toggle if self.node.is_switch() => {
                let before = self.value();
                self.do_named(&["toggle", "click", "press", "activate"])?;
                self.wait_until(|target| target.value() != before)
            }
            ControlVerb::Select => self.select(value),
            ControlVerb::Expand if self.can_expand() => self.expand(true),
            ControlVerb::Collapse if self.can_expand() => self.expand(false),
            ControlVerb::Focus if self.has(COMPONENT) && self.node.has(FOCUSABLE) => {
                self.check_reply(self.ask(COMPONENT, "GrabFocus"))?;
                self.wait_until(|target| {
                    target.node.reread(target.bus).is_none_or(|it| it.has(FOCUSED))
                })
            }
            ControlVerb::Toggle
            | ControlVerb::Expand
            | ControlVerb::Collapse
            | ControlVerb::Focus => Err(self.unsupported(action)),
        }
    }

    fn click(&self) -> Result<()> {
        if self.has(ACTION) && !self.node.actions(self.bus).is_empty() {
            return self.do_action(0);
        }
        if self.parent_selects() {
            self.select(None)
        } else {
            Err(self.unsupported(ControlVerb::Click))
        }
    }

    fn set_value(&self, value: Option<&str>) -> Result<()> {
        let Some(value) = value else {
            return Err(Failure::usage("no value given"));
        };
        if self.has(VALUE) {
            return self.set_number(value);
        }
        if !self.has(EDITABLE) {
            return Err(self.unsupported(ControlVerb::SetValue));
        }
        let set = self.bus.call(&self.node.place, EDITABLE, "SetTextContents", &value);
        self.check_reply(set)?;
        self.wait_until(|target| target.value().is_none_or(|now| now == value))
    }

    fn set_number(&self, value: &str) -> Result<()> {
        let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let Some(number) = number else {
            let failure = Failure::usage(format!("`{value}` is no number"));
            return Err(failure.because(format!("{} holds a number", description(self.node))));
        };
        let bound = |name: &str| {
            let property = self.bus.property(&self.node.place, VALUE, name);
            property.and_then(|property| f64::try_from(property).ok())
        };
        if let (Some(min), Some(max)) = (bound("MinimumValue"), bound("MaximumValue"))
            && min < max
            && !(min..=max).contains(&number)
        {
            let reason = format!("it takes {min} to {max}");
            let failure =
                Failure::usage(format!("{} does not take {number}", description(self.node)));
            return Err(failure.because(reason));
        }
        let set = self.bus.set(&self.node.place, VALUE, "CurrentValue", number);
        self.check_reply(set.map(|()| true))?;
        self.wait_until(|target| target.value().is_none_or(|now| now == number.to_string()))
    }

    /// Selects one of its entries by name, or itself in its container.
    fn select(&self, value: Option<&str>) -> Result<()> {
        let Some(value) = value.filter(|value| !value.trim().is_empty()) else {
            if self.parent_selects() {
                let parent = self.node.parent.map(|parent| &self.tree.nodes[parent]);
                let object_ref = parent.map(|parent| &parent.place);
                let selected = object_ref.and_then(|object_ref| {
                    self.bus.call(object_ref, SELECTION, "SelectChild", &self.node.index)
                });
                return self.check_reply(selected);
            }
            let click_result = self.has(ACTION).then(|| self.do_action(0));
            return click_result.unwrap_or_else(|| Err(self.unsupported(ControlVerb::Select)));
        };
        let Some(entry) = self.entry(value) else {
            let names: Vec<&str> = self.below().map(|node| node.name.as_str()).collect();
            let names: Vec<&str> =
                names.into_iter().filter(|name| !name.is_empty()).take(MAX_NAMED).collect();
            let failure =
                Failure::not_found(format!("{} has no entry `{value}`", description(self.node)));
            return Err(failure.because(format!("its entries are: {}", names.join("; "))));
        };
        if self.has(SELECTION) {
            let selected = self.bus.call(&self.node.place, SELECTION, "SelectChild", &entry.index);
            if selected == Some(true) {
                return self
                    .wait_until(|target| target.value().is_none_or(|now| now == entry.name));
            }
        }
        let interfaces = entry.interfaces(self.bus);
        Target { node: entry, interfaces, ..*self }.select(None)
    }

    fn expand(&self, is_expanded: bool) -> Result<()> {
        let has_state = |node: &Node| node.has(EXPANDED) == is_expanded;
        if self.node.has(EXPANDABLE) && has_state(self.node) {
            return Ok(());
        }
        self.do_named(&["expand", "open", "activate", "press", "click", "toggle"])?;
        if !self.node.has(EXPANDABLE) {
            return Ok(());
        }
        self.wait_until(|target| target.node.reread(target.bus).is_none_or(|now| has_state(&now)))
    }

    /// Performs the first of its actions whose name contains one of these words, in order of the
    /// words.
    fn do_named(&self, words: &[&str]) -> Result<()> {
        let actions = self.node.actions(self.bus);
        let position =
            |word: &&str| actions.iter().position(|name| name.to_lowercase().contains(*word));
        let number = words.iter().find_map(position).unwrap_or_default();
        self.do_action(i32::try_from(number).unwrap_or_default())
    }

    fn do_action(&self, number: i32) -> Result<()> {
        self.check_reply(self.bus.call(&self.node.place, ACTION, "DoAction", &number))
    }

    fn ask(&self, interface: &str, method: &str) -> Option<bool> {
        self.bus.call(&self.node.place, interface, method, &())
    }

    /// Interprets the answer of a program: success, failure, or none.
    fn check_reply(&self, answer: Option<bool>) -> Result<()> {
        let failure = Failure::failed(format!("{} did not do it", description(self.node)));
        match answer {
            Some(true) => Ok(()),
            Some(false) => Err(failure.because("its program refused")),
            None => Err(failure.because("its program does not answer, or knows no such call")),
        }
    }

    /// Waits briefly until the control shows the effect; a slow program is not an error.
    fn wait_until(&self, done: impl Fn(&Self) -> bool) -> Result<()> {
        for _ in 0..MAX_CHECKS {
            if done(self) {
                break;
            }
            pause(CHECK_INTERVAL)?;
        }
        Ok(())
    }

    fn value(&self) -> Option<String> {
        self.node.reread(self.bus)?.to_control(self.bus)?.value
    }

    fn has(&self, interface: &str) -> bool {
        self.interfaces.iter().any(|known| known == interface)
    }

    fn can_expand(&self) -> bool {
        self.has(ACTION) && (self.node.has(EXPANDABLE) || self.node.role == "combo box")
    }

    fn parent_selects(&self) -> bool {
        let parent = self.node.parent.map(|parent| &self.tree.nodes[parent]);
        parent.is_some_and(|parent| {
            parent.interfaces(self.bus).iter().any(|known| known == SELECTION)
        })
    }

    /// Returns its descendants.
    fn below(&self) -> impl Iterator<Item = &Node> {
        let is_inside = |node: &&Node| {
            let mut ancestor = node.parent;
            while let Some(parent) = ancestor {
                let parent = &self.tree.nodes[parent];
                if parent.place == self.node.place {
                    return true;
                }
                ancestor = parent.parent;
            }
            false
        };
        self.tree.nodes.iter().filter(is_inside)
    }

    /// Returns the entry with this name, else one whose name contains the words.
    fn entry(&self, value: &str) -> Option<&Node> {
        let wanted_name = value.trim().to_lowercase();
        let is_called = |node: &&Node| node.name.to_lowercase() == wanted_name;
        let is_containing = |node: &&Node| node.name.to_lowercase().contains(&wanted_name);
        self.below().find(is_called).or_else(|| self.below().find(is_containing))
    }

    /// Returns the error for an action that it does not offer.
    fn unsupported(&self, action: ControlVerb) -> Failure {
        let supported = [
            (self.has(ACTION) || self.parent_selects(), "click"),
            (self.has(EDITABLE) || self.has(VALUE), "set_value"),
            (self.node.is_switch(), "toggle"),
            (self.parent_selects() || self.has(SELECTION), "select"),
            (self.can_expand(), "expand, collapse"),
            (self.node.has(FOCUSABLE), "focus"),
        ];
        let supported: Vec<&str> =
            supported.into_iter().filter(|(offered, _)| *offered).map(|(_, name)| name).collect();
        let supported =
            if supported.is_empty() { "nothing".to_owned() } else { supported.join(", ") };
        Failure::usage(format!("{} does not support {}", description(self.node), word(action)))
            .because(format!("it supports: {supported}"))
    }
}

fn word(action: ControlVerb) -> &'static str {
    match action {
        ControlVerb::Click => "click",
        ControlVerb::SetValue => "set_value",
        ControlVerb::Toggle => "toggle",
        ControlVerb::Select => "select",
        ControlVerb::Expand => "expand",
        ControlVerb::Collapse => "collapse",
        ControlVerb::Focus => "focus",
    }
}
