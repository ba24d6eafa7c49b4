//! Runs checks for home, until it has the outcome or its connection ends.

use std::io::{self, Read};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use base::config::ConfigSources;
use base::failure::{OrFail, Result};
use studio_git::replica;

use crate::interrupt::Interrupt;
use crate::place::frames::{self, PlaceFrame};
use crate::place::node::deliver;
use crate::place::node::spool::{JobFiles, Spool};
use crate::place::protocol::{CheckOrder, refuse_other_protocol};
use crate::project::Project;
use crate::tree_checks;

/// How often home hears from here: when that fails, the checks end.
const ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Runs the checks.
pub(super) fn check(spool: &Spool, order: &CheckOrder, input: &mut impl Read) -> Result<()> {
    refuse_other_protocol(&order.query)?;
    let begin = |job: &String| JobFiles::new(spool, job)?.begin_checks();
    let _job = order.query.job.as_ref().map(begin).transpose()?;
    let fail = || "cannot read what home sent";
    deliver::refuse_full_disk(spool.root(), order.pack_bytes, 0)?;
    let pack = frames::copy_to_file(input, order.pack_bytes).or_fail(fail)?;
    let repository = {
        let _lock = spool.lock(&order.query)?;
        let repository = deliver::prepare_repository(spool, &order.query, &order.shared)?;
        let commits = std::slice::from_ref(&order.commit);
        replica::take_base(&repository, &order.query.id, commits, pack)?;
        repository
    };
    let directory = repository.common_dir.clone();
    let mut config = base::config::load(&ConfigSources::from_env(&directory))?.config;
    order.settings.apply(&mut config.studio, "");
    let interrupt = Interrupt::default();
    let project = Project { interrupt: interrupt.clone(), ..Project::new(repository, config) };
    let (done, is_done) = mpsc::channel::<()>();
    let outcome = thread::scope(|scope| {
        scope.spawn(move || {
            while is_done.recv_timeout(ALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if frames::write(&mut io::stdout().lock(), &PlaceFrame::Alive, &[]).is_err() {
                    return interrupt.trigger();
                }
            }
        });
        let outcome = tree_checks::run(&project, &order.templates, &order.commit, &order.checks);
        drop(done);
        outcome
    })?;
    let json = serde_json::to_vec(&outcome).or_fail(|| "cannot answer")?;
    let frame = PlaceFrame::Checked { bytes: json.len() as u64 };
    frames::write(&mut io::stdout().lock(), &frame, &json).or_fail(|| "cannot answer")
}
