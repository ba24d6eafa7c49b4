//! The network of a sandbox: a network namespace with a loopback interface of its own, or, where
//! namespaces are not available, rules of the kernel for sockets.
//!
//! The sockets of a proxy listen inside the namespace and are accepted outside of it, so nothing
//! else connects the two.

use std::io;
use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, BorrowedFd};
use std::os::fd::{AsRawFd, OwnedFd};

/// A network namespace. It exists as long as this value, or a process in it.
#[derive(Debug)]
pub struct NetworkNamespace {
    /// The user namespace that owns it, if it was created without privileges.
    pub user: Option<OwnedFd>,
    /// The network namespace.
    pub network: OwnedFd,
}

/// How a child's network is confined, between fork and exec.
#[derive(Debug)]
pub enum NetworkConfinement {
    /// It enters a network namespace.
    Namespace(NetworkNamespace),
    /// The kernel limits its sockets.
    Rules(SocketRules),
}

/// Rules for sockets: TCP only, and connections to one port at most.
#[derive(Debug)]
pub struct SocketRules {
    #[cfg(target_os = "linux")]
    ruleset: OwnedFd,
    #[cfg(target_os = "linux")]
    filter: Vec<libc::sock_filter>,
}

/// Maximum number of listening sockets in a namespace.
pub const MAX_LISTENERS: usize = 64;

impl NetworkNamespace {
    /// Returns a copy of the descriptors.
    pub fn try_clone(&self) -> io::Result<NetworkNamespace> {
        Ok(NetworkNamespace {
            user: self.user.as_ref().map(OwnedFd::try_clone).transpose()?,
            network: self.network.try_clone()?,
        })
    }
}

impl NetworkConfinement {
    /// Returns the user namespace that a child enters, if any.
    #[cfg(target_os = "linux")]
    pub(crate) fn user_namespace(&self) -> Option<BorrowedFd<'_>> {
        match self {
            NetworkConfinement::Namespace(namespace) => namespace.user.as_ref().map(AsFd::as_fd),
            NetworkConfinement::Rules(_) => None,
        }
    }

    /// Confines the calling process before its files are confined. Makes only system calls.
    pub(crate) fn enter_first(&self) -> io::Result<()> {
        match self {
            NetworkConfinement::Namespace(namespace) => system::enter(namespace),
            NetworkConfinement::Rules(_) => Ok(()),
        }
    }

    /// Confines the calling process after its files are confined. Makes only system calls.
    pub(crate) fn enter_last(&self) -> io::Result<()> {
        match self {
            NetworkConfinement::Namespace(_) => Ok(()),
            NetworkConfinement::Rules(rules) => system::restrict(rules),
        }
    }
}

/// Creates a network namespace in which only the loopback interface exists, with a socket that
/// listens on each of these ports of 127.0.0.1 in it; 0 is any free port.
pub fn create_namespace(ports: &[u16]) -> io::Result<(NetworkNamespace, Vec<TcpListener>)> {
    if ports.len() > MAX_LISTENERS {
        return Err(io::Error::other(format!("more than {MAX_LISTENERS} ports")));
    }
    system::create_namespace(ports)
}

/// Creates rules that allow TCP connections to these ports only, and no other sockets than TCP and
/// local ones. Fails if the kernel does not support them.
pub fn socket_rules(ports: &[u16]) -> io::Result<SocketRules> {
    system::socket_rules(ports)
}

/// Returns what [`socket_rules`] do not enforce, as one sentence; `None` without ports.
pub fn missing_with_socket_rules(ports: &[u16]) -> Option<String> {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let text = format!(
        "no network namespace: programs can reach port {} of every host, and no other port",
        ports.join(", ")
    );
    (!ports.is_empty()).then_some(text)
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    fn unsupported<T>() -> io::Result<T> {
        Err(io::Error::other("a private network is not supported on this system"))
    }

    pub(super) fn create_namespace(_: &[u16]) -> io::Result<(NetworkNamespace, Vec<TcpListener>)> {
        unsupported()
    }

    pub(super) fn socket_rules(_: &[u16]) -> io::Result<SocketRules> {
        unsupported()
    }

    pub(super) fn enter(namespace: &NetworkNamespace) -> io::Result<()> {
        let _ = namespace.network.as_raw_fd();
        unsupported()
    }

    pub(super) fn restrict(_rules: &SocketRules) -> io::Result<()> {
        unsupported()
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io::IoSliceMut;
    use std::os::fd::{FromRawFd, RawFd};

    use rustix::net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags,
        SocketType, recvmsg, socketpair,
    };
    use rustix::thread::{CapabilitySet, capabilities};

    use super::*;

    /// The size of a control message with this many descriptors, rounded up.
    const CONTROL_BYTES: usize = 64 + 4 * (MAX_LISTENERS + 2);

    /// The id maps of a user namespace: the current user only.
    struct Maps {
        user: Vec<u8>,
        group: Vec<u8>,
    }

    pub(super) fn create_namespace(
        ports: &[u16],
    ) -> io::Result<(NetworkNamespace, Vec<TcpListener>)> {
        let (outside, inside) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let maps = (!is_privileged()).then(|| {
            let map = |id: u32| format!("{id} {id} 1\n").into_bytes();
            Maps {
                user: map(rustix::process::geteuid().as_raw()),
                group: map(rustix::process::getegid().as_raw()),
            }
        });
        let child = fork_maker(&inside, maps.as_ref(), ports)?;
        drop(inside);
        let received = receive(&outside);
        wait(child);
        let mut received = received?.into_iter();
        let mut next =
            || received.next().ok_or_else(|| io::Error::other("a descriptor is missing"));
        let network = next()?;
        let user = if maps.is_some() { Some(next()?) } else { None };
        let listeners: Vec<TcpListener> = received.map(TcpListener::from).collect();
        if listeners.len() != ports.len() {
            return Err(io::Error::other("a listening socket is missing"));
        }
        Ok((NetworkNamespace { user, network }, listeners))
    }

    /// Returns whether this process may create namespaces without a user namespace.
    fn is_privileged() -> bool {
        let effective = capabilities(None).map(|sets| sets.effective);
        effective.is_ok_and(|sets| sets.contains(CapabilitySet::SYS_ADMIN))
    }

    /// Forks a child that creates the namespace, sends its descriptors and exits.
    #[allow(unsafe_code)]
    fn fork_maker(inside: &OwnedFd, maps: Option<&Maps>, ports: &[u16]) -> io::Result<libc::pid_t> {
        // SAFETY: the child only makes system calls on memory that exists already, and exits.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let error = match make(inside.as_raw_fd(), maps, ports) {
                    Ok(()) => 0,
                    Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
                };
                if error != 0 {
                    let bytes = error.to_ne_bytes();
                    // SAFETY: the bytes live until the call returns.
                    unsafe {
                        libc::send(inside.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0)
                    };
                }
                // SAFETY: it ends the child immediately, without running exit handlers.
                unsafe { libc::_exit(0) }
            }
            child => Ok(child),
        }
    }

    #[allow(unsafe_code)]
    fn wait(child: libc::pid_t) {
        let mut status = 0;
        // SAFETY: the kernel writes one number to the pointer's target.
        while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }

    /// Creates the namespace and its sockets, and sends them.
    fn make(to: RawFd, maps: Option<&Maps>, ports: &[u16]) -> io::Result<()> {
        unshare(maps)?;
        start_loopback()?;
        let mut descriptors = [-1; MAX_LISTENERS + 2];
        descriptors[0] = open(c"/proc/self/ns/net", libc::O_RDONLY)?;
        let mut count = 1;
        if maps.is_some() {
            descriptors[count] = open(c"/proc/self/ns/user", libc::O_RDONLY)?;
            count += 1;
        }
        for port in ports {
            descriptors[count] = listen(*port)?;
            count += 1;
        }
        send(to, &descriptors[..count])
    }

    #[allow(unsafe_code)]
    fn unshare(maps: Option<&Maps>) -> io::Result<()> {
        let user_flag = if maps.is_some() { libc::CLONE_NEWUSER } else { 0 };
        // A process that is not dumpable does not own its files in `/proc`.
        // SAFETY: the calls take only numbers.
        unsafe {
            libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
            check(libc::unshare(libc::CLONE_NEWNET | user_flag))?;
        }
        let Some(maps) = maps else { return Ok(()) };
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", &maps.user)?;
        write(c"/proc/self/gid_map", &maps.group)
    }

    #[allow(unsafe_code)]
    fn start_loopback() -> io::Result<()> {
        // SAFETY: the structure is plain data, and lives until the calls return.
        unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
                *to = libc::c_char::from_ne_bytes([from]);
            }
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            check(fd)?;
            let up = libc::IFF_UP | libc::IFF_RUNNING;
            request.ifr_ifru.ifru_flags = libc::c_short::try_from(up).unwrap_or(libc::c_short::MAX);
            let result = check(libc::ioctl(fd, libc::SIOCSIFFLAGS as _, &raw const request));
            libc::close(fd);
            result.map(drop)
        }
    }

    #[allow(unsafe_code)]
    fn listen(port: u16) -> io::Result<RawFd> {
        // SAFETY: the address is plain data, and lives until the calls return.
        unsafe {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let fd = check(libc::socket(libc::AF_INET, kind, 0))?;
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default();
            address.sin_port = port.to_be();
            address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
            let size =
                libc::socklen_t::try_from(size_of::<libc::sockaddr_in>()).unwrap_or_default();
            check(libc::bind(fd, (&raw const address).cast(), size))?;
            check(libc::listen(fd, 1024))?;
            Ok(fd)
        }
    }

    /// Sends descriptors over a socket.
    #[allow(unsafe_code)]
    fn send(to: RawFd, descriptors: &[RawFd]) -> io::Result<()> {
        #[repr(align(16))]
        struct Control([u8; CONTROL_BYTES]);
        let mut control = Control([0; CONTROL_BYTES]);
        let mut byte = [0_u8; 4];
        let size = size_of_val(descriptors);
        let data = libc::c_uint::try_from(size).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the message points to memory that lives until the call returns, and the control
        // message fits into its buffer: there are at most `MAX_LISTENERS + 2` descriptors.
        unsafe {
            let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(data) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            if header.is_null() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(data) as _;
            let to_data = libc::CMSG_DATA(header);
            std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), to_data, size);
            if libc::sendmsg(to, &raw const message, 0) == -1 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Receives the descriptors, or the number of an error.
    fn receive(from: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
        let mut bytes = [0_u8; 4];
        let mut space = [std::mem::MaybeUninit::uninit(); CONTROL_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let message = loop {
            match recvmsg(from, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result?,
            }
        };
        let descriptors: Vec<OwnedFd> = control
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
                _ => Vec::new(),
            })
            .collect();
        if message.bytes == 0 {
            return Err(io::Error::other("the process that creates the namespace ended"));
        }
        match i32::from_ne_bytes(bytes) {
            0 => Ok(descriptors),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    #[allow(unsafe_code)]
    pub(super) fn enter(namespace: &NetworkNamespace) -> io::Result<()> {
        // SAFETY: the descriptors are open while `namespace` lives; the process has one thread
        // after a fork.
        unsafe {
            if let Some(user) = &namespace.user {
                check(libc::setns(user.as_raw_fd(), libc::CLONE_NEWUSER))?;
            }
            check(libc::setns(namespace.network.as_raw_fd(), libc::CLONE_NEWNET))?;
        }
        Ok(())
    }

    pub(super) fn socket_rules(ports: &[u16]) -> io::Result<SocketRules> {
        use ::landlock::{
            AccessNet, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr, RulesetCreatedAttr,
        };
        let failed = |error: &dyn std::error::Error| {
            io::Error::other(format!("no rules for TCP connections (Linux 6.7): {error}"))
        };
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessNet::ConnectTcp)
            .and_then(Ruleset::create)
            .map_err(|error| failed(&error))?;
        for port in ports {
            let rule = NetPort::new(*port, AccessNet::ConnectTcp);
            ruleset = ruleset.add_rule(rule).map_err(|error| failed(&error))?;
        }
        let ruleset: Option<OwnedFd> = ruleset.into();
        let ruleset = ruleset.ok_or_else(|| io::Error::other("Landlock is disabled"))?;
        Ok(SocketRules { ruleset, filter: crate::sandbox::socket_filter::filter()? })
    }

    #[allow(unsafe_code)]
    pub(super) fn restrict(rules: &SocketRules) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        // SAFETY: the call takes two numbers, and the descriptor is open while `rules` lives.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_restrict_self, rules.ruleset.as_raw_fd(), 0_u32)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        crate::sandbox::socket_filter::install(&rules.filter)
    }

    #[allow(unsafe_code)]
    fn open(path: &std::ffi::CStr, flags: libc::c_int) -> io::Result<RawFd> {
        // SAFETY: the path ends with a zero byte.
        check(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) })
    }

    #[allow(unsafe_code)]
    fn write(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
        let fd = open(path, libc::O_WRONLY)?;
        // SAFETY: the descriptor was opened above and is owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        rustix::io::write(&fd, bytes)?;
        Ok(())
    }

    fn check(result: libc::c_int) -> io::Result<libc::c_int> {
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use super::*;
    use crate::process::{Command, OutputLimits};

    fn script(confinement: &Arc<NetworkConfinement>, line: &str) -> (i32, String) {
        let command = Command::new("bash", "/").args(["-c", line]);
        let output = command.in_network(confinement.clone()).output(OutputLimits::seconds(20));
        let output = output.unwrap();
        (output.code(), output.text())
    }

    #[test]
    fn a_namespace_reaches_its_own_listeners_only() {
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = outside.local_addr().unwrap().port();
        let (namespace, listeners) = create_namespace(&[0]).unwrap();
        let inside = listeners[0].local_addr().unwrap().port();
        listeners[0].set_nonblocking(false).unwrap();
        let confinement = Arc::new(NetworkConfinement::Namespace(namespace));
        // The same line without a namespace reaches the listener.
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let free = Command::new("bash", "/").args(["-c", &line]).output(OutputLimits::seconds(20));
        assert!(free.unwrap().status.success());
        assert_ne!(script(&confinement, &line).0, 0);

        let server = std::thread::spawn(move || {
            let (mut client, _) = listeners[0].accept().unwrap();
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            client.write_all(b"answer\n").unwrap();
        });
        let line = format!("exec 3<>/dev/tcp/127.0.0.1/{inside}; printf x >&3; head -n 1 <&3");
        assert_eq!(script(&confinement, &line), (0, "answer".to_owned()));
        server.join().unwrap();
    }

    #[test]
    fn processes_of_a_namespace_reach_each_other() {
        let (namespace, _) = create_namespace(&[]).unwrap();
        let confinement = Arc::new(NetworkConfinement::Namespace(namespace));
        let line = "python3 - <<'END'\nimport socket\ns = socket.create_server(('127.0.0.1', 0))\n\
                    c = socket.create_connection(s.getsockname())\nprint('reached')\nEND";
        assert_eq!(script(&confinement, line), (0, "reached".to_owned()));
    }

    #[test]
    fn socket_rules_allow_tcp_to_one_port_only() {
        let listener = |port: u16| TcpListener::bind(("127.0.0.1", port)).unwrap();
        let (open, closed) = (listener(0), listener(0));
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let rules = socket_rules(&[port(&open)]).unwrap();
        let confinement = Arc::new(NetworkConfinement::Rules(rules));
        let connect = |port: u16| format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        assert_eq!(script(&confinement, &connect(port(&open))).0, 0);
        assert_ne!(script(&confinement, &connect(port(&closed))).0, 0);
        let python = |line: &str| {
            let line = format!("python3 -c 'import socket as s; {line}'");
            let free = Command::new("bash", "/").args(["-c", &line]);
            let free = free.output(OutputLimits::seconds(20)).unwrap();
            (free.ok(), script(&confinement, &line).0 == 0)
        };
        assert_eq!(python("s.socket(s.AF_INET, s.SOCK_STREAM)"), (true, true));
        assert_eq!(python("s.socketpair()"), (true, true));
        assert_eq!(python("s.if_nameindex()"), (true, true));
        assert_eq!(python("s.socket(s.AF_INET, s.SOCK_DGRAM)"), (true, false));
        assert_eq!(python("s.socket(s.AF_INET6, s.SOCK_DGRAM)"), (true, false));
        let to_closed = port(&closed);
        let fast_open = "s.socket(s.AF_INET, s.SOCK_STREAM).sendto(b\"x\", 0x20000000, ";
        let fast_open = format!("{fast_open}(\"127.0.0.1\", {to_closed}))");
        assert_eq!(python(&fast_open), (true, false));
    }
}
