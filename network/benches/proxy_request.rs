//! The time that the proxy adds to a request: to a model service, and through a tunnel. Prints the
//! medians, and the ratio to a direct request of the same run.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark for developers")]

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use base::secret::Secret;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use network::host::{HostList, Target};
use network::{
    Denial, KeyHeader, NameResolver, NetworkProxy, ProviderRoute, ProxyConfig, ProxyObserver,
    UpstreamProxies,
};
use reqwest::{Client, Proxy};

/// Number of measured requests of each kind.
const REQUESTS: usize = 1000;

struct Loopback;

impl NameResolver for Loopback {
    fn resolve(&self, _name: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(std::future::ready(Ok(vec![[127, 0, 0, 1].into()])))
    }
}

struct NoObserver;

impl ProxyObserver for NoObserver {
    fn on_unlisted(&self, _target: &Target) -> BoxFuture<'static, bool> {
        Box::pin(std::future::ready(false))
    }

    fn on_denied(&self, _denial: &Denial) {}
}

/// Starts a server that answers every request, in a thread of its own.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        base::runtime::current_thread().unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    let service = service_fn(|_| async {
                        Ok::<_, Infallible>(hyper::Response::new(Full::new(Bytes::from("reply"))))
                    });
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    let _ = connection.await;
                });
            }
        });
    });
    address
}

/// Returns the median duration of requests that are sent alternately to all URLs.
async fn medians(kinds: &[(&Client, String)]) -> Vec<Duration> {
    let mut times = vec![Vec::new(); kinds.len()];
    for round in 0..REQUESTS + 20 {
        for (index, (client, url)) in kinds.iter().enumerate() {
            let start = Instant::now();
            client.get(url).send().await.unwrap().text().await.unwrap();
            if round >= 20 {
                times[index].push(start.elapsed());
            }
        }
    }
    for times in &mut times {
        times.sort_unstable();
    }
    times.into_iter().map(|times| times[times.len() / 2]).collect()
}

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let address = server();
    let direct_url = format!("http://{address}");
    let key = Secret::new("key");
    let route =
        ProviderRoute::new("service", &direct_url, Some((KeyHeader::Bearer, &key))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy_url = format!("http://{}", listener.local_addr().unwrap());
    let (hosts, _) = HostList::parse([format!("host.example:{}", address.port()).as_str()]);
    let config = ProxyConfig {
        hosts,
        observer: Box::new(NoObserver),
        routes: vec![route],
        token: "token".to_owned(),
        resolver: Box::new(Loopback),
        upstream: UpstreamProxies::default(),
    };
    let _proxy = NetworkProxy::start(config, listener, Vec::new()).unwrap();
    let direct = Client::builder().no_proxy().build().unwrap();
    let plain = Client::builder().proxy(Proxy::http(&proxy_url).unwrap()).build().unwrap();
    let kinds = [
        (&direct, direct_url),
        (&direct, format!("{proxy_url}/token/service/x")),
        (&plain, format!("http://host.example:{}/x", address.port())),
    ];
    let medians = base::runtime::current_thread().unwrap().block_on(medians(&kinds));
    let names = ["direct", "model service through the proxy", "plain HTTP through the proxy"];
    for (name, time) in names.iter().zip(&medians) {
        let added = time.saturating_sub(medians[0]).as_secs_f64() * 1000.0;
        let ratio = time.as_secs_f64() / medians[0].as_secs_f64();
        println!("{name}: {:.3} ms, +{added:.3} ms, {ratio:.2}x", time.as_secs_f64() * 1000.0);
    }
}
