//! Starting a command in the tool box: it writes below the root only, and sees no configuration
//! and no login.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::process::{AsyncRunning, Job};
use base::sandbox::{self, Rules};

use crate::gate::Pass;
use crate::tools::Workplace;

/// What a command may reach that the gate let pass: nothing is held back from a free one.
pub fn rules(pass: Pass, at: &Workplace) -> Option<Arc<Rules>> {
    match pass {
        Pass::Free => None,
        Pass::Boxed => Some(Arc::new(tight(at))),
    }
}

fn tight(at: &Workplace) -> Rules {
    // What is not there cannot be opened, and long outputs of the command itself go there.
    let _ = std::fs::create_dir_all(&at.session_dir);
    let home =
        std::env::var_os("HOME").map_or_else(|| PathBuf::from("/nonexistent"), PathBuf::from);
    let mut rules = sandbox::home::home_rules(&home, &[home.join(".config/g3")]);
    rules.write.extend([at.root.clone(), at.session_dir.clone(), std::env::temp_dir()]);
    rules
}

/// Starts a job, in the box when there are rules. The kernel confines a thread and what it starts,
/// for good, so a thread of its own does it and ends.
pub fn spawn(job: Job, rules: Option<Arc<Rules>>) -> io::Result<AsyncRunning> {
    let Some(rules) = rules else { return job.spawn_async() };
    let runtime = tokio::runtime::Handle::current();
    let started = std::thread::spawn(move || {
        let enforced = sandbox::enter(&rules)?;
        if let Some(lack) = enforced.lacks.first() {
            return Err(io::Error::other(format!("there is no box to run it in: {lack}")));
        }
        let _inside = runtime.enter();
        job.spawn_async()
    });
    started.join().map_err(|_| io::Error::other("the thread that starts it broke down"))?
}
