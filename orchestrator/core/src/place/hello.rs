//! The first question to a host: whether it can run sessions, and what it has.

use base::failure::Failure;

use crate::place::configured_place::Place;
use crate::place::host::{Host, HostError};
use crate::place::protocol::{self, HostReport, PlacedSession};
use crate::place::{keeper, ship};

/// Returns what a host says about itself. Copies this program to it if that is missing.
pub(crate) fn report(
    place: &Place,
    host: &Host,
    query: &PlacedSession,
) -> std::result::Result<HostReport, HostError> {
    let ask = || host.ask::<HostReport>("hello", keeper::json_line(query));
    let report = match ask() {
        Err(HostError::NotInstalled) => {
            ship::install_studio(host, place).map_err(HostError::Failed)?;
            ask()?
        }
        answer => answer?,
    };
    let refuse = |failure: Failure| Err(HostError::Failed(failure));
    if let Some(problem) = &report.git_problem {
        return refuse(
            Failure::refused(format!("{} cannot run sessions", host.name))
                .because(problem.as_str())
                .hint(format!("install git there, then: studio places check {}", host.place)),
        );
    }
    if report.protocol != protocol::PROTOCOL {
        return refuse(
            Failure::refused(format!("studio on {} is another version", host.name))
                .because(format!("{} there", report.version))
                .hint("install the same version there, or remove `binary` of the place"),
        );
    }
    Ok(report)
}
