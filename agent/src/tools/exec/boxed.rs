//! Starting a command in the tool box: it writes below the root only, and sees no configuration
//! and no login. In studio's box it sees neither in any case.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::process::{AsyncRunning, Job};
use base::sandbox::{self, Rules};

use super::sandbox::Sandbox;
use crate::gate::Pass;
use crate::tools::Workplace;

/// What holds a command.
#[derive(Clone, Debug)]
pub enum Hold {
    /// The tool box.
    Tight(Arc<Rules>),
    /// What studio wrote into this file; its own box is around us as well.
    Studios(PathBuf),
    /// The sandbox.
    Sandbox(Arc<Sandbox>),
}

/// What a command may reach that the gate let pass: nothing is held back from a free one, unless
/// we are in studio's box, which opens our configuration and logins for us and not for it.
pub fn hold(pass: Pass, at: &Workplace) -> io::Result<Option<Hold>> {
    Ok(match pass {
        Pass::Free => free(),
        Pass::Boxed => {
            // Without rules nothing can be reached.
            let around = around().unwrap_or_else(|_| Some(Rules::default()));
            Some(Hold::Tight(Arc::new(tight(at, around))))
        }
        Pass::Sandboxed => Some(Hold::Sandbox(Arc::new(Sandbox::new(at)?))),
    })
}

/// What holds a command that is free: studio's box, where there is one around us.
pub fn free() -> Option<Hold> {
    studios().map(Hold::Studios)
}

fn studios() -> Option<PathBuf> {
    std::env::var_os(sandbox::COMMANDS).map(PathBuf::from)
}

/// The rules of studio's box for commands, where there is one around us.
pub fn around() -> io::Result<Option<Rules>> {
    studios().map(|file| read(&file)).transpose()
}

/// The rules that every box of a command starts from outside of studio's.
pub fn home_rules() -> Rules {
    let home = std::env::var_os("HOME");
    let home = home.map_or_else(|| PathBuf::from("/nonexistent"), PathBuf::from);
    sandbox::home::home_rules(&home, &[home.join(".config/g3")])
}

fn tight(at: &Workplace, around: Option<Rules>) -> Rules {
    // What is not there cannot be opened, and long outputs of the command itself go there.
    let _ = std::fs::create_dir_all(&at.session_dir);
    let mut rules = around.unwrap_or_else(home_rules);
    rules.write.extend([at.root.clone(), at.session_dir.clone(), std::env::temp_dir()]);
    rules
}

fn read(file: &Path) -> io::Result<Rules> {
    Ok(serde_json::from_slice(&std::fs::read(file)?)?)
}

/// Starts a job, in the box when something holds it. The kernel confines a thread and what it
/// starts, for good, so a thread of its own does it and ends.
pub fn spawn(job: Job, hold: Option<Hold>) -> io::Result<AsyncRunning> {
    let Some(hold) = hold else { return job.spawn_async() };
    let runtime = tokio::runtime::Handle::current();
    let started = std::thread::spawn(move || {
        enter(&hold)?;
        let _inside = runtime.enter();
        let job = match &hold {
            Hold::Sandbox(sandbox) => sandbox.bind(job),
            Hold::Tight(_) | Hold::Studios(_) => job,
        };
        job.spawn_async()
    });
    started.join().map_err(|_| io::Error::other("the thread that starts it broke down"))?
}

fn enter(hold: &Hold) -> io::Result<()> {
    match hold {
        Hold::Tight(rules) => whole("box", sandbox::enter(rules)),
        Hold::Sandbox(sandbox) => whole("sandbox", sandbox::enter(&sandbox.rules)),
        // Whether a box that is not whole will do was decided when studio's was made.
        Hold::Studios(file) => {
            let unread = |why| io::Error::other(format!("cannot read {}: {why}", file.display()));
            let rules = read(file).map_err(unread)?;
            sandbox::enter_side_by_side(&rules).map(drop)
        }
    }
}

/// Whether the kernel holds all of it.
fn whole(what: &str, entered: io::Result<sandbox::Enforced>) -> io::Result<()> {
    let lack = match entered {
        Ok(enforced) => enforced.lacks.into_iter().next(),
        Err(why) => Some(why.to_string()),
    };
    match lack {
        Some(lack) => Err(io::Error::other(format!("there is no {what} to run it in: {lack}"))),
        None => Ok(()),
    }
}
