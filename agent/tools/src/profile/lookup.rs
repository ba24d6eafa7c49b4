//! Resolves the name in a call to a tool.

use serde_json::Value;

use super::{BORROWED, ProfileTool, faces};
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
    let own = (profile != Profile::All)
        .then(|| faces(profile).into_iter().find(|face| face.name == name))
        .flatten();
    if let Some(face) = own {
        return NamedTool::One(face);
    }
    // The profile `all` has borrowed tools in the variant of the g3 profile.
    let as_lent = profile == Profile::All && BORROWED.iter().any(|(_, lent)| *lent == name);
    let known: Vec<(Profile, &'static ProfileTool)> = Profile::EACH
        .into_iter()
        .flat_map(|each| faces(each).into_iter().map(move |face| (each, face)))
        .filter(|(_, face)| face.name == name && face.borrowed == as_lent)
        .collect();
    match known.as_slice() {
        [] => return NamedTool::None(nearest(profile, name)),
        [(_, face)] => return NamedTool::One(face),
        [..] => {}
    }
    let mut fitting = known.iter().filter(|(_, face)| face.fits(args));
    match (fitting.next(), fitting.next(), profile) {
        (Some((_, face)), None, _) => NamedTool::One(face),
        (_, _, Profile::All) => NamedTool::One(known[0].1),
        (_, _, Profile::G3 | Profile::Egirl | Profile::ToolsApi | Profile::Core) => {
            NamedTool::Several(known.iter().map(|(profile, _)| *profile).collect())
        }
    }
}

fn nearest(profile: Profile, name: &str) -> Option<&'static str> {
    let names = faces(profile).into_iter().chain(faces(Profile::All)).map(|f| f.name.as_str());
    base::text::similar(name, names).first().copied()
}
