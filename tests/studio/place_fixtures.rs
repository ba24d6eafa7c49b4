//! A real sshd on loopback with its own keys and a home directory of its own: a host of a place.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use base::process::{Command, OutputLimits, Running, Stream};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::env::{NOW, processes_in, until};

use crate::fixtures::Scene;

const SSHD: &str = "/usr/sbin/sshd";

/// A host. Everything that runs on it ends on drop.
pub struct SshHost {
    directory: tempfile::TempDir,
    port: u16,
    server: Option<Running>,
}

impl SshHost {
    /// Starts a host.
    pub fn start() -> SshHost {
        SshHost::start_with("")
    }

    /// Starts a host whose programs get more variables: `NAME=VALUE …`.
    pub fn start_with(variables: &str) -> SshHost {
        let directory = tempfile::Builder::new().prefix("h-").tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut host = SshHost { directory, port, server: None };
        for name in ["home", "home/run", "home/.config", "home/tmp"] {
            fs::create_dir(host.path(name)).unwrap();
        }
        for key in ["host_key", "id"] {
            host.run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", key]);
        }
        fs::copy(host.path("id.pub"), host.path("authorized_keys")).unwrap();
        let public = fs::read_to_string(host.path("host_key.pub")).unwrap();
        let known = format!("[127.0.0.1]:{port} {public}");
        fs::write(host.path("known_hosts"), known).unwrap();
        host.configure_server(variables);
        host.configure_client();
        host.restart();
        host
    }

    /// Returns a path in the host's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the home directory there.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// Returns the configuration of a place with this host.
    pub fn configuration(&self, name: &str, more: &str) -> String {
        format!(
            "[studio.places.{name}]\nhost = \"farm\"\nspool = {:?}\nssh_config = {:?}\n{more}\n",
            self.path("home/studio"),
            self.path("ssh_config")
        )
    }

    /// Writes the user's configuration with this host as the place `farm`.
    pub fn use_in(&self, scene: &Scene, more: &str) {
        scene.configure(&self.configuration("farm", more));
    }

    /// Lets all connections to the host go through a wire.
    pub fn connect_through(&self, wire: &Wire) {
        for name in ["ssh_config", "known_hosts"] {
            let text = fs::read_to_string(self.path(name)).unwrap();
            let text = text.replace(&self.port.to_string(), &wire.port.to_string());
            fs::write(self.path(name), text).unwrap();
        }
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Gives the programs there more variables from now on.
    pub fn set_variables(&mut self, variables: &str) {
        self.stop_server();
        self.configure_server(variables);
        self.restart();
    }

    /// Starts the server, again if it was stopped.
    pub fn restart(&mut self) {
        let _ = fs::create_dir("/run/sshd");
        let log = fs::File::options().append(true).create(true).open(self.path("log")).unwrap();
        let server = Command::new(SSHD, self.directory.path())
            .args(["-D", "-e", "-f"])
            .arg(self.path("sshd_config"))
            .stdout(Stream::Null)
            .stderr(Stream::File(log));
        self.server = Some(server.spawn().unwrap());
        until("sshd to listen", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    /// Ends all connections; new ones are accepted.
    pub fn cut_connections(&self) {
        let Some(server) = &self.server else { return };
        for child in children_of(server.id()) {
            for grandchild in children_of(child) {
                kill(grandchild, Signal::KILL);
            }
            kill(child, Signal::KILL);
        }
    }

    /// Ends the server and all connections; what was started there goes on.
    pub fn stop_server(&mut self) {
        if let Some(server) = &self.server {
            kill(server.id(), Signal::STOP);
        }
        self.cut_connections();
        self.server = None;
    }

    /// Ends all processes that work in the home directory there.
    pub fn kill_all(&self) {
        loop {
            let processes = processes_in(&self.home());
            if processes.is_empty() {
                return;
            }
            processes.iter().for_each(|process| kill(process.id, Signal::KILL));
        }
    }

    /// Returns the repositories there.
    pub fn repositories(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("home/studio/repos")).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|name| name == "git")).collect()
    }

    /// Returns a file of a session there.
    pub fn session_file(&self, id: &str, name: &str) -> PathBuf {
        let repositories = self.repositories();
        let repository = repositories.first().expect("a session was delivered");
        repository.join("studio/sessions").join(id).join(name)
    }

    /// Like [`SshHost::session_file`], if several repositories were used there.
    pub fn newest_session_file(&self, id: &str, name: &str) -> PathBuf {
        let files = self.repositories().into_iter();
        let files = files.map(|it| it.join("studio/sessions").join(id).join(name));
        let files = files.filter(|file| file.exists());
        let newest = files.max_by_key(|file| fs::metadata(file).unwrap().modified().unwrap());
        newest.expect("a session was delivered")
    }

    /// Returns a file in the worktree of a session there.
    pub fn worktree_file(&self, id: &str, name: &str) -> PathBuf {
        let repository = self.repositories().into_iter().next().expect("a session was delivered");
        repository.with_extension("git.worktrees").join(id).join(name)
    }

    /// Kills the supervisor of a session there, and everything else that works for it.
    pub fn kill_session(&self, id: &str) {
        let journal = fs::read_to_string(self.session_file(id, "journal.jsonl")).unwrap();
        let lines = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut pids =
            lines.filter(|line| line["entry"] == "spawned").filter_map(|line| line["pid"].as_u64());
        kill(u32::try_from(pids.next_back().unwrap()).unwrap(), Signal::KILL);
    }

    fn run(&self, program: &str, args: &[&str]) {
        let output = Command::new(program, self.directory.path()).args(args);
        let output = output.output(OutputLimits::seconds(30)).unwrap();
        assert!(output.ok(), "{program}: {}", output.error_text());
    }

    fn configure_server(&self, variables: &str) {
        let home = self.home();
        let home = home.display();
        let path = std::env::var("PATH").unwrap();
        let text = format!(
            "Port {}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\n\
             StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nMaxStartups 100\nMaxSessions 64\n\
             SetEnv HOME={home} XDG_RUNTIME_DIR={home}/run XDG_CONFIG_HOME={home}/.config \
             {variables} TMPDIR={home}/tmp PATH={path} GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL={home}/.gitconfig \
             G3_TEST_NOW={NOW} G3_TEST_LOAD=0\n",
            self.port,
            self.path("host_key").display(),
            self.path("authorized_keys").display(),
        );
        fs::write(self.path("sshd_config"), text).unwrap();
    }

    fn configure_client(&self) {
        let text = format!(
            "Host farm\n    HostName 127.0.0.1\n    Port {}\n    IdentityFile {}\n    \
             IdentitiesOnly yes\n    UserKnownHostsFile {}\n",
            self.port,
            self.path("id").display(),
            self.path("known_hosts").display(),
        );
        fs::write(self.path("ssh_config"), text).unwrap();
    }
}

impl Drop for SshHost {
    fn drop(&mut self) {
        self.stop_server();
        self.kill_all();
    }
}

/// A wire to a server on loopback, which sees everything that goes over it, and can be cut without either
/// end being told.
pub struct Wire {
    port: u16,
    state: Arc<WireState>,
}

#[derive(Default)]
struct WireState {
    /// Connections made before the last cut carry nothing any more.
    cuts: AtomicUsize,
    seen: Mutex<Vec<u8>>,
}

impl Wire {
    /// Opens a wire to a port.
    pub fn to(target: u16) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(WireState::default());
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let cuts = shared.cuts.load(Ordering::SeqCst);
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = shared.clone();
                    thread::spawn(move || shared.carry(from, to, cuts));
                }
            }
        });
        Wire { port, state }
    }

    /// Carries nothing any more over the connections that there are; new ones work.
    pub fn cut_silently(&self) {
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns everything that went over the wire, in both directions.
    pub fn seen(&self) -> Vec<u8> {
        self.state.seen.lock().unwrap().clone()
    }
}

impl WireState {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, cuts: usize) {
        let mut block = [0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut block) {
            if self.cuts.load(Ordering::SeqCst) != cuts {
                continue;
            }
            self.seen.lock().unwrap().extend_from_slice(&block[..length]);
            if to.write_all(&block[..length]).is_err() {
                return;
            }
        }
        if self.cuts.load(Ordering::SeqCst) == cuts {
            let _ = to.shutdown(Shutdown::Both);
        }
    }
}

fn kill(id: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(id.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns the child processes of a process.
fn children_of(parent: u32) -> Vec<u32> {
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok();
        let fields = stat.as_deref().and_then(|stat| stat.rsplit_once(')'));
        let found =
            fields.and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        found == Some(parent)
    };
    ids.filter(is_child).collect()
}

/// Kills the process here that keeps a session at its place.
pub fn kill_keeper(scene: &Scene, id: &str) {
    let home = scene.env.home().to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // The nodes of a cluster have file systems of their own, and the same home directory in them.
    let files_of = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let keeps = |process: &i32| {
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_supervisor = line.contains("__supervise") && line.contains(&home);
        is_supervisor && line.contains(id) && files_of(&process.to_string()) == files_of("self")
    };
    let keeper = ids.into_iter().find(keeps).expect("a keeper runs");
    let keeper = Pid::from_raw(keeper).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    until("the lock to be free", || {
        let facts = scene.studio(["explain", id, "--json"]).json();
        facts["id"].is_string().then_some(())
    });
}
