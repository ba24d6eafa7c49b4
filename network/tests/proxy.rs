//! The proxy over real sockets: what it permits, what it denies, and what arrives outside.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base::secret::Secret;
use futures_util::future::BoxFuture;
use network::host::{HostList, Target};
use network::{
    Denial, KeyHeader, NameResolver, NetworkProxy, ProviderRoute, ProxyConfig, ProxyObserver,
    UpstreamProxies,
};

/// Answers every lookup with the next addresses.
#[derive(Clone, Default)]
struct ScriptedResolver(Arc<Mutex<Vec<&'static str>>>);

impl NameResolver for ScriptedResolver {
    fn resolve(&self, _name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0] };
        let addresses = answer.split(' ').map(|address| address.parse().unwrap()).collect();
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// Records what is asked and denied.
#[derive(Clone, Default)]
struct Observer {
    allows: bool,
    asked: Arc<Mutex<Vec<String>>>,
    denied: Arc<Mutex<Vec<String>>>,
}

impl ProxyObserver for Observer {
    fn on_unlisted(&self, target: &Target) -> BoxFuture<'static, bool> {
        self.asked.lock().unwrap().push(target.to_string());
        Box::pin(std::future::ready(self.allows))
    }

    fn on_denied(&self, denial: &Denial) {
        self.denied.lock().unwrap().push(format!("{}: {}", denial.target, denial.reason));
    }
}

struct Scene {
    address: SocketAddr,
    observer: Observer,
    _proxy: NetworkProxy,
}

/// Starts a proxy with these hosts, whose names resolve to these addresses.
fn scene(hosts: &[&str], addresses: &[&'static str]) -> Scene {
    start(hosts, addresses, Observer::default(), Vec::new(), UpstreamProxies::default())
}

fn start(
    hosts: &[&str],
    addresses: &[&'static str],
    observer: Observer,
    routes: Vec<ProviderRoute>,
    upstream: UpstreamProxies,
) -> Scene {
    let (hosts, invalid) = HostList::parse(hosts.iter().copied());
    assert!(invalid.is_empty(), "{invalid:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = ProxyConfig {
        hosts,
        observer: Box::new(observer.clone()),
        routes,
        token: "secret-token".to_owned(),
        resolver: Box::new(ScriptedResolver(Arc::new(Mutex::new(addresses.to_vec())))),
        upstream,
    };
    let proxy = NetworkProxy::start(config, listener, Vec::new()).unwrap();
    Scene { address, observer, _proxy: proxy }
}

impl Scene {
    /// Sends bytes; returns the connection.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// Returns the status of the answer to a request.
    fn status(&self, request: &[u8]) -> String {
        head(&mut BufReader::new(self.send(request)))
    }

    fn connect(&self, target: &str) -> (String, BufReader<TcpStream>) {
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        let mut stream = BufReader::new(self.send(request.as_bytes()));
        (head(&mut stream), stream)
    }

    fn denied(&self) -> Vec<String> {
        self.observer.denied.lock().unwrap().clone()
    }
}

/// Reads the head of an answer; returns its status.
fn head(stream: &mut BufReader<TcpStream>) -> String {
    let mut first = String::new();
    stream.read_line(&mut first).unwrap_or_default();
    let mut line = String::new();
    while stream.read_line(&mut line).unwrap_or_default() > 2 {
        line.clear();
    }
    first.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// A server outside of the sandbox that answers once and returns what it received.
fn server(answer: &'static [u8], until: &'static [u8]) -> (u16, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut received = Vec::new();
        let mut byte = [0];
        while !received.ends_with(until) && stream.read(&mut byte).unwrap_or(0) > 0 {
            received.push(byte[0]);
        }
        stream.write_all(answer).unwrap();
        received
    });
    (port, thread)
}

#[test]
fn a_tunnel_reaches_a_listed_host_and_no_other() {
    let (port, received) = server(b"world", b"hello");
    let scene = scene(&[&format!("inside.example:{port}")], &["127.0.0.1"]);
    let (status, mut stream) = scene.connect(&format!("INSIDE.example:{port}"));
    assert_eq!(status, "200");
    stream.get_mut().write_all(b"hello").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "world");
    assert_eq!(received.join().unwrap(), b"hello");

    assert_eq!(scene.connect("inside.example:1").0, "403");
    assert_eq!(scene.connect(&format!("other.example:{port}")).0, "403");
    let asked = scene.observer.asked.lock().unwrap().clone();
    assert_eq!(asked, ["inside.example:1".to_owned(), format!("other.example:{port}")]);
}

#[test]
fn an_address_that_no_answer_opens_is_denied_without_a_question() {
    let scene = start(&[], &[], Observer::default(), Vec::new(), UpstreamProxies::default());
    for target in ["169.254.169.254:80", "169.254.169.254:8080", "127.0.0.1:443", "[::1]:80"] {
        assert_eq!(scene.connect(target).0, "403", "{target}");
    }
    assert!(scene.observer.asked.lock().unwrap().is_empty());
    let denied = scene.denied();
    assert_eq!(denied.len(), 4, "{denied:?}");
    assert!(denied[0].contains("169.254.169.254"), "{denied:?}");
    // A private service with its port is a question.
    assert_eq!(scene.connect("127.0.0.1:1").0, "403");
    assert_eq!(*scene.observer.asked.lock().unwrap(), ["127.0.0.1:1"]);
}

#[test]
fn an_unlisted_host_is_asked_about_once_and_reached_after_a_yes() {
    let (port, received) = server(b"", b"x");
    let observer = Observer { allows: true, ..Observer::default() };
    let scene = start(&[], &["127.0.0.1"], observer, Vec::new(), UpstreamProxies::default());
    let target = format!("asked.example:{port}");
    let (status, mut stream) = scene.connect(&target);
    assert_eq!(status, "200");
    stream.get_mut().write_all(b"x").unwrap();
    assert_eq!(received.join().unwrap(), b"x");
    scene.connect(&target);
    assert_eq!(*scene.observer.asked.lock().unwrap(), [target]);
}

#[test]
fn hosts_in_other_spellings_are_refused() {
    let scene = scene(&["good.example", "*.good.example"], &["127.0.0.1"]);
    for request in [
        &b"CONNECT good.example.:443 HTTP/1.1\r\n\r\n"[..],
        b"CONNECT good.example\0.evil.net:443 HTTP/1.1\r\n\r\n",
        b"CONNECT evil.net\0.good.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 0x7f.0.0.1:443 HTTP/1.1\r\n\r\n",
        b"CONNECT user@good.example:443 HTTP/1.1\r\n\r\n",
        b"CONNECT good.example HTTP/1.1\r\n\r\n",
        b"GET http://good.example.:80/ HTTP/1.1\r\n\r\n",
        b"GET http://user@good.example/ HTTP/1.1\r\n\r\n",
        b"GET ftp://good.example/ HTTP/1.1\r\n\r\n",
        b"GET https://good.example/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    ] {
        let status = scene.status(request);
        assert!(status.is_empty() || status.starts_with('4'), "{request:?}: {status}");
    }
    assert!(scene.observer.asked.lock().unwrap().is_empty());
}

#[test]
fn a_name_that_resolves_to_an_internal_address_is_denied_on_every_lookup() {
    let internal =
        ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "1.1.1.1 ::1"];
    let scene = scene(&["rebinds.example"], &internal);
    for address in internal {
        assert_eq!(scene.connect("rebinds.example:443").0, "403", "{address}");
        let denied = scene.denied();
        let denied = denied.last().unwrap();
        assert!(denied.starts_with("rebinds.example:443: its address "), "{denied}");
    }
}

#[test]
fn a_metadata_service_is_denied_even_with_a_rule() {
    let hosts = ["169.254.169.254:80", "[fd00:ec2::254]:80", "metadata.example:80"];
    let scene = scene(&hosts, &["169.254.169.254"]);
    for url in ["169.254.169.254", "[fd00:ec2::254]", "metadata.example"] {
        let request = format!("GET http://{url}/latest HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(scene.status(request.as_bytes()), "403", "{url}");
    }
    assert_eq!(scene.denied().len(), 3);
}

#[test]
fn plain_requests_are_checked_one_by_one_and_keep_no_proxy_headers() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (port, received) = server(answer, b"\r\n\r\n");
    let scene = scene(&[&format!("plain.example:{port}")], &["127.0.0.1"]);
    let request = format!(
        "GET http://plain.example:{port}/path?q HTTP/1.1\r\nHost: fronted.example\r\n\
         Proxy-Authorization: Basic eA==\r\n\r\n\
         GET http://other.example:{port}/ HTTP/1.1\r\nHost: plain.example\r\n\r\n"
    );
    let mut stream = BufReader::new(scene.send(request.as_bytes()));
    assert_eq!(head(&mut stream), "200");
    stream.read_exact(&mut [0; 2]).unwrap();
    assert_eq!(head(&mut stream), "403", "the second request is for another host");
    let received = String::from_utf8(received.join().unwrap()).unwrap().to_lowercase();
    assert!(received.starts_with("get /path?q http/1.1\r\n"), "{received}");
    assert!(received.contains(&format!("host: plain.example:{port}\r\n")), "{received}");
    assert!(!received.contains("fronted") && !received.contains("proxy-"), "{received}");
}

#[test]
fn a_request_with_a_huge_head_is_refused() {
    let scene = scene(&["a.example"], &["127.0.0.1"]);
    let mut stream = TcpStream::connect(scene.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut request = b"CONNECT a.example:443 HTTP/1.1\r\nX: ".to_vec();
    request.extend(vec![b'x'; 1 << 20]);
    // The proxy may close the connection before it has read everything.
    let _ = stream.write_all(&request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
}

#[test]
fn the_key_is_added_outside_and_the_body_streams_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let key = Secret::new("real-key");
    let route = ProviderRoute::new("anthropic", &url, Some((KeyHeader::XApiKey, &key))).unwrap();
    let scene =
        start(&[], &["127.0.0.1"], Observer::default(), vec![route], UpstreamProxies::default());
    let (go, went) = std::sync::mpsc::channel::<()>();
    let service = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut received = String::new();
        while !received.ends_with("\r\n\r\n") {
            reader.read_line(&mut received).unwrap();
        }
        let mut body = [0; 4];
        reader.read_exact(&mut body).unwrap();
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                  Transfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n",
            )
            .unwrap();
        // The rest is sent only when the first event has arrived.
        went.recv().unwrap();
        stream.write_all(b"7\r\nsecond\n\r\n0\r\n\r\n").unwrap();
        received
    });
    let request = b"POST /secret-token/anthropic/messages?beta=1 HTTP/1.1\r\nHost: x\r\n\
                    X-Api-Key: placeholder\r\nAuthorization: Bearer placeholder\r\n\
                    Content-Length: 4\r\n\r\nbody";
    let mut stream = BufReader::new(scene.send(request));
    assert_eq!(head(&mut stream), "200");
    let mut text = String::new();
    while !text.contains("first") {
        stream.read_line(&mut text).unwrap();
    }
    go.send(()).unwrap();
    while !text.contains("second") {
        stream.read_line(&mut text).unwrap();
    }
    let received = service.join().unwrap().to_lowercase();
    assert!(received.starts_with("post /v1/messages?beta=1 http/1.1\r\n"), "{received}");
    assert!(received.contains("x-api-key: real-key\r\n"), "{received}");
    assert!(!received.contains("placeholder"), "{received}");

    for path in ["/wrong-token-1/anthropic/messages", "/secret-token/openai/x", "/secret-token"] {
        let request = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(scene.status(request.as_bytes()), "404", "{path}");
    }
}

#[test]
fn a_key_is_looked_up_when_it_is_needed_and_again_after_the_service_rejected_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let lookups = count.clone();
    let lookup = Arc::new(move || match lookups.fetch_add(1, Ordering::SeqCst) {
        2 => Err("the command ended with code 3".to_owned()),
        number => Ok(Secret::new(format!("key-{number}"))),
    });
    let route = ProviderRoute::with_lookup("s", &url, KeyHeader::Bearer, lookup).unwrap();
    let scene =
        start(&[], &["127.0.0.1"], Observer::default(), vec![route], UpstreamProxies::default());
    let service = std::thread::spawn(move || {
        let answer = |status: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut received = String::new();
            while !received.ends_with("\r\n\r\n") {
                reader.read_line(&mut received).unwrap();
            }
            let answer =
                format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            received.lines().find(|line| line.contains("Bearer")).unwrap().to_owned()
        };
        ["200 OK", "401 Unauthorized", "401 Unauthorized"].map(answer)
    });
    assert_eq!(count.load(Ordering::SeqCst), 0, "no key is needed yet");
    let request = b"GET /secret-token/s/m HTTP/1.1\r\nHost: x\r\n\r\n";
    let statuses = [(); 4].map(|()| scene.status(request));
    assert_eq!(statuses, ["200", "401", "401", "401"]);
    let keys = service.join().unwrap();
    assert!(keys[0].ends_with("key-0") && keys[1].ends_with("key-0"), "{keys:?}");
    assert!(keys[2].ends_with("key-1"), "{keys:?}");
    assert_eq!(count.load(Ordering::SeqCst), 3, "the last request had no key");
}

#[test]
fn a_redirect_of_a_model_service_is_not_followed_with_the_key() {
    let (other, redirected) = (TcpListener::bind("127.0.0.1:0").unwrap(), "other");
    other.set_nonblocking(true).unwrap();
    let location = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{}/{redirected}\r\n\
         Content-Length: 0\r\n\r\n",
        other.local_addr().unwrap()
    );
    let (port, received) = server(location.leak().as_bytes(), b"\r\n\r\n");
    let key = Secret::new("real-key");
    let url = format!("http://127.0.0.1:{port}");
    let route = ProviderRoute::new("openai", &url, Some((KeyHeader::Bearer, &key))).unwrap();
    let scene =
        start(&[], &["127.0.0.1"], Observer::default(), vec![route], UpstreamProxies::default());
    assert_eq!(scene.status(b"GET /secret-token/openai/m HTTP/1.1\r\nHost: x\r\n\r\n"), "307");
    assert!(String::from_utf8_lossy(&received.join().unwrap()).contains("real-key"));
    assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn the_users_own_proxy_gets_the_tunnel() {
    let (port, received) = server(b"HTTP/1.1 200 OK\r\n\r\nfrom outside", b"\r\n\r\n");
    let upstream = UpstreamProxies::from_variables(|name| {
        (name == "https_proxy").then(|| format!("http://u:p@127.0.0.1:{port}"))
    });
    let hosts = ["far.example:8443"];
    let scene = start(&hosts, &["1.1.1.1"], Observer::default(), Vec::new(), upstream.unwrap());
    let (status, mut stream) = scene.connect("far.example:8443");
    assert_eq!(status, "200");
    let mut text = [0; 12];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"from outside");
    let received = String::from_utf8(received.join().unwrap()).unwrap();
    assert!(received.starts_with("CONNECT far.example:8443 HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("Proxy-Authorization: Basic dTpw\r\n"), "{received}");
}

/// Returns the start of a TLS connection to a server with this name, as OpenSSL writes it.
fn client_hello(name: &str) -> Vec<u8> {
    let with_length = |bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[..], bytes].concat()
    };
    let entry = [&[0][..], &with_length(name.as_bytes())].concat();
    let extensions = [&[0, 0][..], &with_length(&with_length(&entry))].concat();
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.push(0);
    hello.extend([0, 2, 0x13, 1, 1, 0]);
    hello.extend(with_length(&extensions));
    let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
    let message = [&[1][..], &length[1..], &hello].concat();
    [&[0x16, 3, 1][..], &with_length(&message)].concat()
}

#[test]
fn the_server_name_of_tls_must_be_the_host_of_the_tunnel() {
    for (first, is_passed) in [
        (client_hello("good.example"), true),
        (client_hello("evil.example"), false),
        (client_hello("good.example.evil.example"), false),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec(), false),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), false),
    ] {
        // The user's own proxy stands in for the host, whose port is privileged.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let upstream =
            UpstreamProxies::from_variables(|name| (name == "https_proxy").then(|| proxy.clone()));
        let (observer, hosts) = (Observer::default(), ["good.example"]);
        let scene = start(&hosts, &["1.1.1.1"], observer, Vec::new(), upstream.unwrap());
        let outside = std::thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            head(&mut stream);
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let (status, mut stream) = scene.connect("good.example:443");
        assert_eq!(status, "200");
        stream.get_mut().write_all(&first).unwrap();
        stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
        let received = outside.join().unwrap();
        assert_eq!(received == first, is_passed, "{first:?}");
        assert_eq!(received.is_empty(), !is_passed);
        assert_eq!(scene.denied().is_empty(), is_passed);
    }
}

#[test]
fn a_model_service_is_reached_by_programs_that_use_the_proxy_for_loopback_addresses() {
    for is_tunnel in [false, true] {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (port, received) = server(answer, b"\r\n\r\n");
        let (key, url) = (Secret::new("real-key"), format!("http://127.0.0.1:{port}"));
        let route = ProviderRoute::new("openai", &url, Some((KeyHeader::Bearer, &key))).unwrap();
        let (observer, upstream) = (Observer::default(), UpstreamProxies::default());
        let scene = start(&[], &["127.0.0.1"], observer, vec![route], upstream);
        let own = scene.address;
        let status = if is_tunnel {
            let (status, mut stream) = scene.connect(&own.to_string());
            assert_eq!(status, "200");
            let request = b"GET /secret-token/openai/m HTTP/1.1\r\nHost: x\r\n\r\n";
            stream.get_mut().write_all(request).unwrap();
            head(&mut stream)
        } else {
            let request = format!("GET http://{own}/secret-token/openai/m HTTP/1.1\r\n\r\n");
            scene.status(request.as_bytes())
        };
        assert_eq!(status, "200", "{is_tunnel}");
        assert!(String::from_utf8_lossy(&received.join().unwrap()).contains("real-key"));
    }
}
