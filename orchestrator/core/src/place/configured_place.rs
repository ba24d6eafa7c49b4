//! A configured place, and the choice of one.

use base::config::Config;
use base::config::places::{HERE, PlaceConfig};
use base::failure::{Failure, Result};
use base::id::Id;
use base::text::similar;
use studio_git::replica;

use crate::project::Project;

/// Lets a session continue at another place, or here. The caller holds its lock.
pub fn choose(project: &Project, id: &Id, name: &str) -> Result<()> {
    let mut record = project.store.load(id)?;
    let place = match name {
        HERE => None,
        name => Some(find_for(project, name, &record.session_repo.base)?.name),
    };
    if record.run_mode.place == place {
        return Ok(());
    }
    record.run_mode.place = place;
    project.store.rewrite(&record)
}

/// Returns the place with this name, if sessions that start from a commit can run there.
pub fn find_for(project: &Project, name: &str, commit: &str) -> Result<Place> {
    let place = Place::find(&project.config, name)?;
    if replica::has_submodules(&project.repository, commit)? {
        return Err(Failure::usage(format!("this repository cannot be used at {}", place.name))
            .because("it has submodules, which are not copied to places")
            .hint("run them here: --on here"));
    }
    Ok(place)
}

/// A configured place.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub config: PlaceConfig,
}

impl Place {
    /// Returns the place with this name, if its settings can be used.
    pub fn find(config: &Config, name: &str) -> Result<Place> {
        let places = &config.studio.places;
        let Some(found) = places.get(name) else {
            let failure = Failure::usage(format!("no such place: `{name}`"));
            let known = similar(name, places.keys().map(String::as_str));
            let failure = known
                .into_iter()
                .fold(failure, |failure, name| failure.hint(format!("studio places {name}")));
            return Err(failure.hint(
                "[studio.places.NAME] host = \"HOST\"    in ~/.config/g3/config.toml, as in docs/places.md",
            ));
        };
        found.validate(name)?;
        Ok(Place { name: name.to_owned(), config: found.clone() })
    }
}
