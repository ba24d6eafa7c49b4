//! Attacks from inside a sandbox that file rules alone do not stop, with real programs. Each runs
//! outside the sandbox as well, where it succeeds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use landlock::{AccessFs, Ruleset, RulesetAttr};

use super::home::home_rules;
use super::{ClosedScope, Confinement, SandboxRules};
use crate::process::{Command, Output, OutputLimits, Stream};

/// A home directory, a writable tree in it, and a sandbox around it.
struct Cell {
    directory: tempfile::TempDir,
    rules: SandboxRules,
}

impl Cell {
    fn new() -> Cell {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let home = directory.path().canonicalize().unwrap();
        for name in ["tree/sub", "outside", "temp"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        fs::write(home.join("outside/notes"), "notes").unwrap();
        let mut rules = home_rules(&home, &[]);
        rules.write.push(home.join("tree"));
        Cell { directory, rules }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, line: &str) -> Command {
        Command::new("bash", self.path("tree")).args(["-c", line])
    }

    fn confined(&self, line: &str) -> Output {
        let confinement = Confinement::new(self.rules.clone(), ClosedScope::Closed).unwrap();
        let command = self.command(line).confined(Arc::new(confinement));
        command.output(OutputLimits::seconds(120)).unwrap()
    }

    /// Runs a line in the sandbox with a process id namespace, and asserts that there is one.
    fn own_processes(&self, line: &str) -> Output {
        let confinement = Confinement::new(self.rules.clone(), ClosedScope::Closed).unwrap();
        let confinement = confinement.with_own_processes();
        let command = self.command(line).confined(Arc::new(confinement));
        command.output(OutputLimits::seconds(120)).unwrap()
    }

    fn open(&self, line: &str) -> Output {
        self.command(line).output(OutputLimits::seconds(120)).unwrap()
    }

    /// Asserts that a line fails in the sandbox and succeeds outside.
    #[track_caller]
    fn holds(&self, line: &str) {
        let confined = self.confined(line);
        assert_ne!(confined.code(), 0, "{line}: {}", confined.text());
        let open = self.open(line);
        assert_eq!(open.code(), 0, "outside, {line}: {}", open.error_text());
    }

    #[track_caller]
    fn allows(&self, line: &str) -> String {
        let confined = self.confined(line);
        assert_eq!(confined.code(), 0, "{line}: {} {}", confined.text(), confined.error_text());
        confined.text()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn modes_times_and_attributes_outside_stay_as_they_are() {
    let cell = Cell::new();
    let notes = cell.path("outside/notes");
    fs::set_permissions(&notes, fs::Permissions::from_mode(0o600)).unwrap();
    cell.confined("chmod 777 ../outside/notes; chmod 777 ../outside; touch -d @1 ../outside/notes");
    assert_eq!(mode(&notes), 0o600);
    assert_ne!(fs::metadata(&notes).unwrap().mtime(), 1);
    cell.holds("chmod 640 ../outside/notes");
    cell.holds("touch -d @1 ../outside/notes");
    cell.holds("python3 -c 'import os; os.setxattr(\"../outside/notes\", \"user.x\", b\"y\")'");
    cell.allows("echo x > sub/f && chmod 700 sub/f && touch -d @1 sub/f && mv sub/f g && rm g");
}

#[test]
fn terminals_of_others_do_not_exist_and_own_ones_work() {
    let cell = Cell::new();
    let pty = crate::process::Pty::open().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&pty.terminal);
    let name = fs::read_link(format!("/proc/self/fd/{fd}")).unwrap();
    cell.holds(&format!("echo typed > {}", name.display()));
    let own = cell.allows(
        "python3 -c 'import os,pty; m, s = pty.openpty(); os.write(s, b\"hi\"); \
         print(os.read(m, 9).decode(), os.ttyname(s))'",
    );
    assert_eq!(own, "hi /dev/pts/0");
    cell.allows("script -qec 'echo x > /dev/tty; test -t 0' /dev/null");
}

#[test]
fn an_inherited_terminal_has_a_name() {
    let mut cell = Cell::new();
    let pty = crate::process::Pty::open().unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&pty.terminal);
    cell.rules.terminal = Some(fs::read_link(format!("/proc/self/fd/{fd}")).unwrap());
    let confinement = Confinement::new(cell.rules.clone(), ClosedScope::Closed).unwrap();
    let terminal = fs::File::from(pty.terminal.try_clone().unwrap());
    let command = cell.command("tty && echo x > $(tty)").stdin(Stream::File(terminal));
    let command = command.confined(Arc::new(confinement)).on_terminal(pty.terminal);
    let output = command.output(OutputLimits::seconds(120)).unwrap();
    assert_eq!((output.text().as_str(), output.code()), ("/dev/console", 0));
}

#[test]
fn shared_memory_is_private() {
    let cell = Cell::new();
    let name = format!("/dev/shm/sandbox-test-{}", std::process::id());
    fs::write(&name, "x").unwrap();
    cell.holds(&format!("cat {name}"));
    cell.allows(&format!("echo y > {name}.own && cat {name}.own"));
    let leaked = Path::new(&format!("{name}.own")).exists();
    fs::remove_file(&name).unwrap();
    assert!(!leaked, "a file of the sandbox is in the shared memory of others");
    let id = cell.open("ipcmk -M 4096").text();
    let id = id.split_whitespace().last().unwrap().to_owned();
    cell.holds(&format!("ipcs -m -i {id} | grep -q bytes"));
    cell.open(&format!("ipcrm -m {id}"));
}

/// Connects to a socket by its path.
fn connect(path: &Path) -> String {
    let program = "import socket,sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])";
    format!("python3 -c '{program}' {}", path.display())
}

#[test]
fn sockets_with_a_path_are_hidden_unless_they_are_opened() {
    let mut cell = Cell::new();
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    let sockets =
        [cell.path("agent.sock"), temporary.path().join("s"), cell.path("outside/deep.sock")];
    let _listeners = sockets.clone().map(|path| UnixListener::bind(path).unwrap());
    for socket in &sockets[..2] {
        cell.holds(&connect(socket));
    }
    cell.allows(
        "python3 -c 'import socket,threading
s = socket.socket(socket.AF_UNIX); s.bind(\"own\"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect(\"own\")
a, b = socket.socketpair()'",
    );
    cell.rules.sockets.push(sockets[1].clone());
    cell.allows(&connect(&sockets[1]));
    assert_ne!(cell.confined(&connect(&sockets[0])).code(), 0);
}

#[test]
fn sockets_in_a_visible_temporary_directory_are_hidden() {
    let mut cell = Cell::new();
    cell.rules.write.push("/tmp".into());
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    let socket = temporary.path().join("a/s");
    fs::create_dir(temporary.path().join("a")).unwrap();
    let _listener = UnixListener::bind(&socket).unwrap();
    cell.holds(&connect(&socket));
    let file = temporary.path().join("file");
    cell.allows(&format!("echo x > {}", file.display()));
    assert_eq!(fs::read_to_string(file).unwrap(), "x\n");
    cell.rules.sockets.push(socket.clone());
    cell.allows(&connect(&socket));
}

#[test]
fn a_private_temporary_directory_replaces_that_of_the_system() {
    let mut cell = Cell::new();
    let temp = cell.path("temp");
    cell.rules.write.push(temp.clone());
    cell.rules.temp = Some(temp.clone());
    let marker = format!("sandbox-test-{}", std::process::id());
    cell.allows(&format!("echo x > /tmp/{marker} && test -e $PWD && ls -a /dev > /dev/null"));
    assert!(temp.join(&marker).exists() && !Path::new("/tmp").join(&marker).exists());
    assert_eq!(fs::metadata(&temp).unwrap().mode() & 0o777, mode(&temp));
}

#[test]
fn the_private_home_shows_what_is_open() {
    let mut cell = Cell::new();
    fs::create_dir(cell.path(".ssh")).unwrap();
    fs::write(cell.path(".ssh/id"), "canary").unwrap();
    std::os::unix::fs::symlink("outside", cell.path("link")).unwrap();
    cell.holds("stat ../.ssh/id");
    cell.holds("stat ../.ssh");
    cell.holds("stat ../outside");
    cell.rules.read.push(cell.path("link"));
    assert_eq!(
        cell.allows("cat ../outside/notes ../link/notes && test -L ../link && ls .. > /dev/null"),
        "notesnotes"
    );
    cell.holds("mkdir ../new; test -e ../new");
    assert!(cell.path("new").exists(), "the control made it");
}

#[test]
fn standard_devices_work() {
    let cell = Cell::new();
    cell.allows("echo x > /dev/null; : >> /dev/null; head -c 4 /dev/urandom | wc -c");
    cell.allows("test -c /dev/full && test -c /dev/zero && cat < /dev/null && test -d /dev/fd");
    cell.allows("cat <(echo x) > /dev/stdout");
    cell.holds("test -e /dev/vda -o -e /dev/sda -o -e /dev/mem -o -e /dev/kmsg -o -e /dev/cpu");
}

#[test]
fn limits_and_priorities_of_other_processes_stay_as_they_are() {
    let cell = Cell::new();
    let victim = Command::new("sleep", "/").arg("300").spawn().unwrap();
    let pid = victim.child.id();
    for line in [
        format!("prlimit --pid {pid} --nofile=64:64"),
        format!("renice -n 3 -p {pid}"),
        format!("taskset -p 1 {pid}"),
        format!("ionice -c 3 -p {pid}"),
        format!("chrt -b -p 0 {pid}"),
    ] {
        cell.holds(&line);
    }
    cell.allows("ulimit -n 100; nice -n 5 true; taskset 1 true; ionice -c 3 true");
}

#[test]
fn calls_that_reach_the_kernel_or_the_keyring_are_denied() {
    let cell = Cell::new();
    // Each fails outside as well, with another error, or works.
    let calls = [
        (libc::SYS_keyctl, "0, -4, 0"),
        (libc::SYS_request_key, "b\"user\", b\"none\", 0, 0"),
        (libc::SYS_io_uring_setup, "0, 0"),
        (libc::SYS_perf_event_open, "0, 0, 0, 0, 0"),
        (libc::SYS_mount_setattr, "-9, 0, 0, 0, 0"),
        (libc::SYS_setns, "-9, 0"),
        (libc::SYS_socket, "40, -9, 0"),
        (libc::SYS_socket, "38, -9, 0"),
        (libc::SYS_process_madvise, "-9, 0, 0, 0, 1"),
        (libc::SYS_getpriority, "9, 0"),
    ];
    let calls: Vec<String> =
        calls.iter().map(|(number, arguments)| format!("({number}, {arguments})")).collect();
    let program = format!(
        "import ctypes; c = ctypes.CDLL(None, use_errno=True)
for call in [{}]: print(c.syscall(*call) == -1 and ctypes.get_errno() == 1)",
        calls.join(", ")
    );
    let line = format!("python3 -c '{program}'");
    let denied = "True\n".repeat(calls.len() - 1) + "False";
    assert_eq!(cell.allows(&line), denied);
    assert_eq!(cell.open(&line).text(), "False\n".repeat(calls.len()).trim_end());
}

#[test]
fn text_is_not_typed_into_a_terminal() {
    let cell = Cell::new();
    let type_text = "import fcntl,termios; fcntl.ioctl(0, termios.TIOCSTI, bytes([120]))";
    let output = cell.confined(&format!("script -qec \"python3 -c '{type_text}'\" /dev/null"));
    assert!(output.text().contains("Operation not permitted"), "{}", output.text());
    let open = cell.open(&format!("script -qec \"python3 -c '{type_text}'\" /dev/null"));
    assert!(!open.text().contains("not permitted"), "{}", open.text());
    cell.allows("script -qec 'stty size; stty -echo' /dev/null");
}

#[test]
fn a_debugger_works_on_programs_of_the_sandbox_only() {
    let cell = Cell::new();
    let trace = "import ctypes,os,sys,time
pid = int(sys.argv[1]) or os.fork()
if pid == 0: time.sleep(60); sys.exit()
r = ctypes.CDLL(None).ptrace(16, pid, 0, 0)
if sys.argv[1] == \"0\": os.kill(pid, 9)
sys.exit(r != 0)";
    let victim = Command::new("sleep", "/").arg("300").spawn().unwrap();
    cell.allows(&format!("python3 -c '{trace}' 0"));
    cell.holds(&format!("python3 -c '{trace}' {}", victim.child.id()));
}

#[test]
fn a_first_process_that_cannot_start_the_program_says_why_and_nothing_runs() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let run = |is_damaged: bool| {
        let (read, write) = (vec!["/".into()], vec![directory.path().to_owned()]);
        let rules = SandboxRules { read, write, ..SandboxRules::default() };
        let confinement = Confinement::new(rules, ClosedScope::Closed).unwrap();
        let mut confinement = confinement.with_own_processes();
        assert!(confinement.has_namespace(), "this system has no namespaces");
        if is_damaged {
            // The kernel takes no rule for `/proc`: it does not handle reading.
            let ruleset = Ruleset::default().handle_access(AccessFs::MakeSock).unwrap();
            let ruleset: Option<std::os::fd::OwnedFd> = ruleset.create().unwrap().into();
            confinement.ruleset = ruleset.unwrap();
        }
        let command = Command::new("touch", directory.path()).arg("ran");
        command.confined(Arc::new(confinement)).output(OutputLimits::seconds(60))
    };
    let error = run(true).unwrap_err().to_string();
    assert!(error.contains("Invalid argument"), "{error}");
    assert!(!directory.path().join("ran").exists());
    assert!(run(false).unwrap().ok());
    assert!(directory.path().join("ran").exists());
}

#[test]
fn with_gpus_only_the_files_of_own_processes_in_proc_are_writable() {
    let mut cell = Cell::new();
    let rename = "echo renamed > /proc/self/task/$$/comm; read name < /proc/self/comm; echo $name";
    let writable = "find /proc -path '/proc/[0-9]*' -prune -o -type f -writable -print";
    cell.holds("echo x > /proc/self/comm");
    assert_eq!(cell.own_processes(writable).text(), "");
    cell.rules.open_gpus();
    assert_eq!(cell.own_processes(rename).text(), "renamed");
    assert_eq!(cell.own_processes(writable).text(), "");
    let others = cell.own_processes("touch /proc/sys/kernel/core_pattern; echo x > /proc/1/comm");
    assert_ne!(others.code(), 0);
    let other = format!("test -e /proc/{}", std::process::id());
    assert_ne!(cell.own_processes(&other).code(), 0, "only its own processes are there");
}

/// These tests need a GPU of NVIDIA with its driver.
mod needs_gpu {
    use super::*;

    /// Copies bytes to the memory of the GPU and back.
    const COPY: &str = "
from ctypes import *
cuda = CDLL(\"libcuda.so.1\")
def check(result):
    if result: raise SystemExit(f\"error {result}\")
check(cuda.cuInit(0))
device, context, memory = c_int(), c_void_p(), c_uint64()
check(cuda.cuDeviceGet(byref(device), 0))
check(cuda.cuCtxCreate_v2(byref(context), 0, device))
check(cuda.cuMemAlloc_v2(byref(memory), c_size_t(1 << 20)))
sent, got = create_string_buffer(b\"x\" * (1 << 20)), create_string_buffer(1 << 20)
check(cuda.cuMemcpyHtoD_v2(memory, sent, c_size_t(1 << 20)))
check(cuda.cuMemcpyDtoH_v2(got, memory, c_size_t(1 << 20)))
assert got.raw[:1 << 20] == sent.raw[:1 << 20]";

    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_is_usable_only_if_the_configuration_opens_it() {
        let mut cell = Cell::new();
        let copy = format!("python3 -c '{COPY}'");
        cell.holds(&copy);
        cell.holds("nvidia-smi -L");
        cell.rules.open_gpus();
        let copied = cell.own_processes(&copy);
        assert_eq!(copied.code(), 0, "{}", copied.error_text());
        assert!(cell.own_processes("nvidia-smi -L").text().contains("GPU 0"));
        cell.holds("test -e /dev/kmsg -o -e /dev/vda -o -e /dev/sda -o -e /dev/mem -o -e /dev/cpu");
    }
}
