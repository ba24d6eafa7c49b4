//! The proxy through which sandboxes reach the network. It runs outside of the sandbox, in a thread
//! of its own: it permits hosts by an allow list, checks their addresses after resolving them, and
//! adds the keys of model services to requests that come without.

mod client_hello;
mod dial;
mod forward;
mod handler;
pub mod host;
mod policy;
mod provider_route;
mod upstream;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};

pub use dial::{NameResolver, SystemNameResolver};
use handler::Handler;
use host::HostList;
use policy::Policy;
pub use policy::{Denial, ProxyObserver};
pub use provider_route::{KeyHeader, KeyLookup, ProviderRoute};
pub use upstream::UpstreamProxies;

/// Maximum number of connections at the same time.
const MAX_CONNECTIONS: usize = 512;
/// Maximum size of the head of a request, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 128;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

/// The settings of a proxy.
pub struct ProxyConfig {
    /// The hosts that may be reached.
    pub hosts: HostList,
    /// Decides about other hosts.
    pub observer: Box<dyn ProxyObserver>,
    /// The model services.
    pub routes: Vec<ProviderRoute>,
    /// The first part of the paths of model services.
    pub token: String,
    /// Resolves names.
    pub resolver: Box<dyn NameResolver>,
    /// The user's own proxies.
    pub upstream: UpstreamProxies,
}

/// A running proxy. It ends when this value is dropped.
#[derive(Debug)]
pub struct NetworkProxy {
    _stop: oneshot::Sender<()>,
}

impl NetworkProxy {
    /// Starts a proxy on a listening socket, and forwards ports of this machine on others.
    pub fn start(
        config: ProxyConfig,
        listener: TcpListener,
        forwards: Vec<(u16, TcpListener)>,
    ) -> io::Result<NetworkProxy> {
        let ProxyConfig { hosts, observer, routes, token, resolver, upstream } = config;
        let port = listener.local_addr()?.port();
        let policy = Policy::new(hosts, observer);
        let tunnels = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let handler =
            Arc::new(Handler { policy, routes, token, resolver, upstream, port, tunnels });
        let runtime = base::runtime::current_thread()?;
        let (stop, stopped) = oneshot::channel::<()>();
        listener.set_nonblocking(true)?;
        for (_, listener) in &forwards {
            listener.set_nonblocking(true)?;
        }
        std::thread::Builder::new().name("network-proxy".to_owned()).spawn(move || {
            runtime.block_on(async move {
                for (port, listener) in forwards {
                    if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                        tokio::spawn(forward::serve(listener, port));
                    }
                }
                tokio::select! {
                    _ = stopped => {}
                    _ = accept(listener, handler) => {}
                }
            });
        })?;
        Ok(NetworkProxy { _stop: stop })
    }
}

/// Accepts connections until an error of the listening socket.
async fn accept(listener: TcpListener, handler: Arc<Handler>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            // For example too many open files: the connection stays in the queue.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let handler = handler.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| handler.clone().handle(request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(MAX_HEAD_BYTES)
                .max_headers(MAX_HEADERS)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            let _ = connection.await;
            drop(slot);
        });
    }
}
