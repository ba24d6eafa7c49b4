//! A real Slurm of two nodes on loopback. Each node has its own processes, and its own file system where
//! the test has its home directory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use base::process::{Command, OutputLimits, Running, Stream};
use rustix::process::{Pid, Signal, kill_process};
use testkit::env::{poll, processes_in, until};

use crate::fixtures::Scene;

/// The program path of the daemons.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A cluster. Everything that runs on it ends on drop.
pub struct SlurmCluster {
    directory: tempfile::TempDir,
    home: PathBuf,
    nodes: [Option<Running>; 2],
    controller: Option<Running>,
    _munge: Running,
}

impl SlurmCluster {
    /// Starts a cluster and configures it as the place `farm` of a scene.
    pub fn start(scene: &mut Scene, more: &str) -> SlurmCluster {
        let directory = tempfile::Builder::new().prefix("s-").tempdir().unwrap();
        for name in ["etc", "state", "log", "run", "spool/node1", "spool/node2"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        let root = directory.path();
        fs::write(root.join("etc/munge.key"), [7; 128]).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(root.join("etc/munge.key"), private).unwrap();
        fs::write(root.join("etc/slurm.conf"), configuration(root)).unwrap();
        fs::write(root.join("etc/gres.conf"), "Name=gpu File=/dev/null\n").unwrap();
        let socket = root.join("run/munge.sock");
        let munge = daemon(root, "munged").args(["--foreground", "--force"]);
        let munge = munge
            .arg(format!("--key-file={}", root.join("etc/munge.key").display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", root.join("run/munged.pid").display()))
            .arg(format!("--log-file={}", root.join("log/munged.log").display()))
            .arg(format!("--seed-file={}", root.join("run/munge.seed").display()));
        let munge = munge.spawn().unwrap();
        until("munged to listen", || socket.exists().then_some(()));
        let home = scene.env.home().canonicalize().unwrap();
        let mut cluster =
            SlurmCluster { directory, home, nodes: [None, None], controller: None, _munge: munge };
        cluster.start_controller();
        cluster.start_node(0);
        cluster.start_node(1);
        until("two idle nodes", || {
            (cluster.run("sinfo", &["-h", "-N", "-o", "%T"]).matches("idle").count() == 2)
                .then_some(())
        });
        scene.env.set("SLURM_CONF", cluster.configuration_file().display());
        scene.configure(&format!("[studio.places.farm]\nengine = \"slurm\"\n{more}\n"));
        cluster
    }

    /// Returns the configuration of Slurm.
    pub fn configuration_file(&self) -> PathBuf {
        self.directory.path().join("etc/slurm.conf")
    }

    /// Starts the controller.
    pub fn start_controller(&mut self) {
        let controller = daemon(self.directory.path(), "slurmctld").args(["-D", "-f"]);
        self.controller = Some(controller.arg(self.configuration_file()).spawn().unwrap());
    }

    /// Kills the controller.
    pub fn kill_controller(&mut self) {
        self.controller = None;
    }

    /// Starts a node.
    pub fn start_node(&mut self, index: usize) {
        let script = format!(
            "mount -t tmpfs -o size=1g,mode=0700 tmpfs '{home}' && mkdir '{home}/tmp' && \
             exec slurmd -D -N node{number} -f '{configuration}'",
            home = self.home.display(),
            number = index + 1,
            configuration = self.configuration_file().display(),
        );
        let node = daemon(self.directory.path(), "unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "private", "sh", "-c", &script]);
        self.nodes[index] = Some(node.spawn().unwrap());
    }

    /// Kills a node with everything that runs on it. Its files are gone.
    pub fn kill_node(&mut self, index: usize) {
        self.nodes[index] = None;
    }

    /// Returns a path of the home directory of a node.
    pub fn path(&self, index: usize, name: &str) -> PathBuf {
        let process = self.nodes[index].as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let children = children.unwrap();
        let init = children.split_whitespace().next().unwrap();
        let home = self.home.strip_prefix("/").unwrap();
        Path::new("/proc").join(init).join("root").join(home).join(name)
    }

    /// Returns the number of the node that has a session, once it has it.
    pub fn node_of(&self, id: &str) -> usize {
        until("the session to be delivered", || {
            (0..2).find(|index| self.nodes[*index].is_some() && self.sessions(*index, id).is_some())
        })
    }

    fn sessions(&self, index: usize, id: &str) -> Option<PathBuf> {
        let repositories = fs::read_dir(self.path(index, "studio/repos")).ok()?.flatten();
        let mut sessions = repositories.map(|it| it.path().join("studio/sessions").join(id));
        sessions.find(|session| session.join("attempt").exists())
    }

    /// Returns a file of a session on a node.
    pub fn session_file(&self, index: usize, id: &str, name: &str) -> PathBuf {
        self.sessions(index, id).expect("the session was delivered").join(name)
    }

    /// Returns a file in the worktree of a session on a node.
    pub fn worktree_file(&self, index: usize, id: &str, name: &str) -> PathBuf {
        let session = self.sessions(index, id).expect("the session was delivered");
        let repository = session.ancestors().nth(3).unwrap();
        repository.with_extension("git.worktrees").join(id).join(name)
    }

    /// Runs a command of Slurm and returns its output.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let command = Command::new(program, "/").args(args);
        let command = command.env("SLURM_CONF", self.configuration_file());
        command.output(OutputLimits::seconds(30)).unwrap().text()
    }

    /// Waits until Slurm has no job that waits or runs.
    pub fn await_idle(&self) {
        let is_idle = || self.run("squeue", &["-h"]).trim().is_empty().then_some(());
        assert!(poll(is_idle).or_else(|| poll(is_idle)).is_some(), "a job is left");
    }

    /// Returns all files in which Slurm keeps what it was told, and its logs.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut waiting = vec![self.directory.path().to_owned()];
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => waiting.push(entry.path()),
                    kind if kind.is_file() => found.push(entry.path()),
                    _ => {}
                }
            }
        }
        found
    }
}

impl Drop for SlurmCluster {
    fn drop(&mut self) {
        self.nodes = [None, None];
        self.controller = None;
        // Home still asks for jobs.
        let processes = processes_in(&self.home);
        for process in processes {
            if let Some(id) = Pid::from_raw(process.id.cast_signed()) {
                let _ = kill_process(id, Signal::KILL);
            }
        }
    }
}

/// Returns a daemon that ends with the test.
fn daemon(root: &Path, name: &str) -> Command {
    let log = fs::File::options().append(true).create(true).open(root.join("log/daemons")).unwrap();
    Command::new(name, root)
        .env_clear()
        .env("PATH", PATH)
        .stdout(Stream::File(log.try_clone().unwrap()))
        .stderr(Stream::File(log))
        .kill_on_parent_death()
}

fn configuration(root: &Path) -> String {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [controller, node1, node2] =
        listeners.map(|listener| listener.local_addr().unwrap().port());
    let root = root.display();
    let node = |number: u32, port: u16| {
        format!(
            "NodeName=node{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=8 \
             RealMemory=8192 Gres=gpu:1 State=UNKNOWN\n"
        )
    };
    format!(
        "ClusterName=studio\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={controller}\n\
         SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge\n\
         AuthInfo=socket={root}/run/munge.sock,cred_expire=5\n\
         CommunicationParameters=NoInAddrAny,NoCtldInAddrAny\nStateSaveLocation={root}/state\n\
         SlurmdSpoolDir={root}/spool/%n\nSlurmctldPidFile={root}/run/slurmctld.pid\n\
         SlurmdPidFile={root}/run/slurmd-%n.pid\nSlurmctldLogFile={root}/log/slurmctld.log\n\
         SlurmdLogFile={root}/log/slurmd-%n.log\nProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/linux\n\
         JobAcctGatherParams=OverMemoryKill\nJobAcctGatherFrequency=1\n\
         Licenses=compiler:1\nGresTypes=gpu\n\
         AccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\n\
         MpiDefault=none\nSwitchType=switch/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU_Memory\nSchedulerType=sched/backfill\n\
         SchedulerParameters=batch_sched_delay=0,bf_interval=5\n\
         SlurmdParameters=config_overrides\nReturnToService=2\nSlurmdTimeout=3\n\
         SlurmctldTimeout=10\nMessageTimeout=3\nKillWait=5\nMinJobAge=300\nJobRequeue=1\n\
         {}{}\
         PartitionName=main Nodes=node1,node2 Default=YES MaxTime=UNLIMITED DefMemPerCPU=1024 \
         State=UP\n",
        node(1, node1),
        node(2, node2),
    )
}
