//! Resolves the name in a call to a tool.

use serde_json::Value;

use super::{BORROWED, ProfileTool, tools};
use crate::profile::Profile;

/// The result of a lookup.
#[derive(Debug)]
pub(crate) enum NamedTool {
    /// Exactly one tool.
    One(&'static ProfileTool),
    /// Several profiles have the name and the arguments do not decide.
    Several(Vec<Profile>),
    /// No profile has it; the most similar name, if there is one.
    None(Option<&'static str>),
}

/// Finds a tool by name: first in the profile, then in all others. A name in several other profiles
/// resolves to the tool whose parameters match the arguments.
pub(crate) fn find(profile: Profile, name: &str, args: &Value) -> NamedTool {
    let profile_tool = (profile != Profile::All)
        .then(|| tools(profile).into_iter().find(|tool| tool.name == name))
        .flatten();
    if let Some(tool) = profile_tool {
        return NamedTool::One(tool);
    }
    // The profile `all` has borrowed tools in the variant of the g3 profile.
    let as_borrowed =
        profile == Profile::All && BORROWED.iter().any(|(_, borrowed)| *borrowed == name);
    let candidates: Vec<(Profile, &'static ProfileTool)> = Profile::EACH
        .into_iter()
        .flat_map(|each| tools(each).into_iter().map(move |tool| (each, tool)))
        .filter(|(_, tool)| tool.name == name && tool.borrowed == as_borrowed)
        .collect();
    match candidates.as_slice() {
        [] => return NamedTool::None(nearest(profile, name)),
        [(_, tool)] => return NamedTool::One(tool),
        [..] => {}
    }
    let mut matching = candidates.iter().filter(|(_, tool)| tool.accepts(args));
    match (matching.next(), matching.next(), profile) {
        (Some((_, tool)), None, _) => NamedTool::One(tool),
        (_, _, Profile::All) => NamedTool::One(candidates[0].1),
        (_, _, Profile::G3 | Profile::Egirl | Profile::ToolsApi | Profile::Core) => {
            NamedTool::Several(candidates.iter().map(|(profile, _)| *profile).collect())
        }
    }
}

fn nearest(profile: Profile, name: &str) -> Option<&'static str> {
    let names = tools(profile).into_iter().chain(tools(Profile::All)).map(|f| f.name.as_str());
    base::text::similar(name, names).first().copied()
}
