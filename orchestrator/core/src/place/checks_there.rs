//! Home's side of checks at a place: sends the commit, waits for the outcome.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::time::Duration;

use base::config::places::PlaceEngine;
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use base::process::Stream;
use studio_git::replica;
use tokio::io::{AsyncReadExt, BufReader};

use crate::place::configured_place::Place;
use crate::place::frames::{self, PlaceFrame};
use crate::place::host::{Host, HostError};
use crate::place::host_choice::{self, HostAnswer};
use crate::place::keeper::json_line;
use crate::place::protocol::{self, CheckOrder, SharedSettings};
use crate::place::{hello, ship};
use crate::project::Project;
use crate::session::home_settings::HomeSettings;
use crate::session::record::Templates;
use crate::tree_checks::ChecksRun;

/// The name under which a place keeps the commits that it checks.
const CHECKS_ID: &str = "merged-checks";
/// A place that sends nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(20);

/// Runs checks on the files of a commit at the place with this name. If the user interrupts, they end
/// there.
pub(crate) fn run(
    project: &Project,
    name: &str,
    templates: &Templates,
    commit: &str,
    checks: &[String],
) -> Result<ChecksRun> {
    let place = Place::find(&project.config, name)?;
    let here = "[studio] checks_on    remove it, and the checks run here";
    if place.config.engine != PlaceEngine::Ssh {
        return Err(Failure::usage(format!("checks cannot run at {name}"))
            .because("they need a place with `engine = \"ssh\"`")
            .hint(here));
    }
    if replica::has_submodules(&project.repository, commit)? {
        return Err(Failure::usage(format!("checks of this repository cannot run at {name}"))
            .because("it has submodules, which are not copied to places")
            .hint(here));
    }
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let chosen = choose_host(project, &place, commit);
    let (host, known) = chosen.map_err(|failure| failure.hint(here))?;
    let pack = replica::pack(&project.repository, &[commit.to_owned()], &known)?;
    let order = CheckOrder {
        query: query(project)?,
        shared: SharedSettings::of(&project.repository)?,
        commit: commit.to_owned(),
        templates: templates.clone(),
        settings: HomeSettings::of(&project.config.studio, place.config.keep_interval(), ""),
        checks: checks.to_vec(),
        pack_bytes: pack.metadata().or_fail(|| "cannot pack the commit")?.len(),
    };
    let input = input(&order, pack).or_fail(|| "cannot make a temporary file")?;
    runtime
        .block_on(project.interrupt.or(outcome(&host, input)))?
        .map_err(|why| HostError::Connection(why).into_failure(&host).hint(here))
}

/// Returns what names the repository at a place.
fn query(project: &Project) -> Result<protocol::PlacedSession> {
    let id = Id::parse(CHECKS_ID).map_err(|error| Failure::failed(error.to_string()))?;
    Ok(protocol::query(&project.repository, &id, None))
}

/// Returns the host for a commit, and the commits that it has: of those with room for it, the commits of
/// a queue are spread over all.
fn choose_host(project: &Project, place: &Place, commit: &str) -> Result<(Host, Vec<String>)> {
    let (names, program) = (place.config.all_hosts(), ship::program_path(place)?);
    let query = query(project)?;
    let ask = |name: &str| {
        let host = Host::new(place, name, &program);
        host.share_connection();
        let report = hello::report(place, &host, &query);
        report.map_err(|error| error.into_failure(&host)).map(|report| (host, report))
    };
    let path = host_choice::answers_file(&project.repository, place)?;
    let recent = host_choice::recent_answers(&path, &names);
    if let Some(name) = host_choice::spread(&recent, commit)
        && let Ok((host, report)) = ask(&name)
    {
        return Ok((host, report.commits));
    }
    let (mut hosts, mut answers, mut first_failure) = (Vec::new(), Vec::new(), None);
    for (name, answer) in names.iter().zip(host_choice::ask_all(&names, ask)) {
        match answer {
            Ok((host, report)) => {
                hosts.push((host, report.commits.clone()));
                answers.push(HostAnswer { name: name.clone(), report });
            }
            Err(failure) => drop(first_failure.get_or_insert(failure)),
        }
    }
    host_choice::save_answers(&path, &answers);
    let chosen = host_choice::spread(&answers, commit);
    let found = hosts.into_iter().find(|(host, _)| Some(&host.name) == chosen.as_ref());
    found.ok_or_else(|| first_failure.unwrap_or_else(|| Failure::usage("the place has no host")))
}

fn input(order: &CheckOrder, mut pack: File) -> io::Result<File> {
    let mut input = tempfile::tempfile()?;
    input.write_all(&json_line(order))?;
    pack.rewind()?;
    io::copy(&mut pack, &mut input)?;
    input.rewind()?;
    Ok(input)
}

/// Waits for the outcome. When this is dropped, the connection ends, and with it the checks there. Fails
/// with why there is no outcome.
async fn outcome(host: &Host, input: File) -> std::result::Result<ChecksRun, String> {
    let command = host.node("check").stdin(Stream::File(input));
    let mut process = command.spawn_async().map_err(|error| error.to_string())?;
    let output = process.child.stdout.take().ok_or("its output is missing")?;
    let mut errors = process.child.stderr.take().ok_or("its output is missing")?;
    let mut output = BufReader::new(output);
    loop {
        let frame = tokio::time::timeout(SILENCE, frames::read(&mut output)).await;
        let frame = frame.map_err(|_| format!("it sent nothing for {} s", SILENCE.as_secs()))?;
        match frame.map_err(|error| error.to_string())? {
            Some(PlaceFrame::Alive) => {}
            Some(PlaceFrame::Checked { bytes }) => {
                let json = frames::read_bytes(&mut output, bytes).await;
                let json = json.map_err(|error| error.to_string())?;
                return serde_json::from_slice(&json).map_err(|error| error.to_string());
            }
            Some(_) => return Err("it sent what does not belong to checks".to_owned()),
            None => {
                let mut text = Vec::new();
                let mut limited = (&mut errors).take(4096);
                let _ =
                    tokio::time::timeout(Duration::from_secs(1), limited.read_to_end(&mut text))
                        .await;
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                return Err(match text.is_empty() {
                    true => "the connection ended".to_owned(),
                    false => base::text::printable(&text),
                });
            }
        }
    }
}
