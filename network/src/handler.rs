//! Handles the requests of a sandbox: tunnels (CONNECT), plain HTTP, and requests to model
//! services.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::client_hello::{self, FirstMessage};
use crate::dial::{DialError, NameResolver, address_denial, dial};
use crate::host::{Host, HostPermit, Target};
use crate::policy::Policy;
use crate::provider_route::ProviderRoute;
use crate::upstream::UpstreamProxies;

/// How long the first message of a tunnel may take.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a host may take to answer a plain request.
const PLAIN_TIMEOUT: Duration = Duration::from_secs(300);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// What all connections of a proxy share.
pub(crate) struct Handler {
    pub(crate) policy: Policy,
    pub(crate) routes: Vec<ProviderRoute>,
    /// The first part of the paths of model services, which nothing outside of the sandbox knows.
    pub(crate) token: String,
    pub(crate) resolver: Box<dyn NameResolver>,
    pub(crate) upstream: UpstreamProxies,
    /// The port on which the proxy listens.
    pub(crate) port: u16,
    /// The free slots for tunnels.
    pub(crate) tunnels: Arc<Semaphore>,
}

impl Handler {
    /// Handles one request.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Infallible> {
        Ok(if request.method() == Method::CONNECT {
            self.tunnel(request).await
        } else if request.uri().authority().is_some() {
            self.plain(request).await
        } else {
            self.model_service(request).await
        })
    }

    /// Returns what is permitted for a target, or the answer that denies it.
    async fn permit(&self, target: &Target) -> Result<HostPermit, Response<ResponseBody>> {
        if !self.policy.is_listed(target)
            && let Some(reason) = address_denial(target)
        {
            return Err(self.deny(target, reason));
        }
        self.policy.permit(target).await.ok_or_else(|| {
            let entry = target.entry();
            text(
                StatusCode::FORBIDDEN,
                format!(
                    "the sandbox of this session denies {target}: it is not on the allow list; \
                     `[sandbox] hosts = [\"{entry}\"]` in ~/.config/g3/config.toml adds it"
                ),
            )
        })
    }

    async fn dial(
        &self,
        target: &Target,
        permit: HostPermit,
    ) -> Result<TcpStream, Response<ResponseBody>> {
        let dialed = dial(target, permit, &*self.resolver, &self.upstream).await;
        dialed.map_err(|error| match error {
            DialError::Denied(reason) => self.deny(target, reason),
            DialError::Failed(reason) => {
                text(StatusCode::BAD_GATEWAY, format!("cannot reach {target}: {reason}"))
            }
        })
    }

    fn deny(&self, target: &Target, reason: String) -> Response<ResponseBody> {
        let answer = format!("the sandbox of this session denies {target}: {reason}");
        self.policy.on_denied(target, reason);
        text(StatusCode::FORBIDDEN, answer)
    }

    async fn tunnel(self: Arc<Self>, request: Request<Incoming>) -> Response<ResponseBody> {
        let authority = request.uri().authority().map(|authority| authority.as_str());
        let Some(target) = authority.and_then(Target::parse) else {
            return text(StatusCode::BAD_REQUEST, "invalid host or port");
        };
        if self.is_own(&target) {
            tokio::spawn(self.serve_tunnel(request));
            return Response::new(empty());
        }
        let connected = match self.permit(&target).await {
            Ok(permit) => self.dial(&target, permit).await,
            Err(answer) => Err(answer),
        };
        let Ok(slot) = self.tunnels.clone().try_acquire_owned() else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "too many connections");
        };
        let outside = match connected {
            Ok(stream) => stream,
            Err(answer) => return answer,
        };
        tokio::spawn(async move {
            if let Ok(inside) = hyper::upgrade::on(request).await {
                // An error ends the connection, which both sides see.
                let _ = self.copy(&target, TokioIo::new(inside), outside).await;
            }
            drop(slot);
        });
        Response::new(empty())
    }

    /// Whether a target is this proxy: some programs use their proxy for loopback addresses too.
    fn is_own(&self, target: &Target) -> bool {
        target.port == self.port && target.host.is_loopback()
    }

    /// Serves the requests in a tunnel to this proxy.
    fn serve_tunnel(self: Arc<Self>, request: Request<Incoming>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Ok(inside) = hyper::upgrade::on(request).await else { return };
            let service = service_fn(move |request: Request<Incoming>| {
                let handler = self.clone();
                async move { Ok::<_, Infallible>(handler.model_service(request).await) }
            });
            let _ = http1::Builder::new().serve_connection(inside, service).await;
        })
    }

    /// Copies both directions of a tunnel. On the port of HTTPS, it must be a TLS connection to the
    /// same host.
    async fn copy<S>(
        &self,
        target: &Target,
        mut inside: S,
        mut outside: TcpStream,
    ) -> io::Result<()>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        if target.port == 443 {
            let read = read_first_message(&mut inside);
            let (bytes, message) = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, read).await??;
            let problem = match (&message, &target.host) {
                (FirstMessage::Tls(Some(name)), Host::Name(host)) if name == host => None,
                (FirstMessage::Tls(None), Host::Address(_)) => None,
                (FirstMessage::Tls(Some(name)), _) => {
                    Some(format!("the TLS connection is for `{}`", base::text::head(name, 253)))
                }
                (FirstMessage::Tls(None), Host::Name(_)) => {
                    Some("the TLS connection names no server".to_owned())
                }
                (FirstMessage::Other | FirstMessage::Incomplete, _) => {
                    Some("it is not a TLS connection".to_owned())
                }
            };
            if let Some(problem) = problem {
                if !bytes.is_empty() {
                    self.policy.on_denied(target, problem);
                }
                return Ok(());
            }
            outside.write_all(&bytes).await?;
        }
        tokio::io::copy_bidirectional(&mut inside, &mut outside).await.map(drop)
    }

    /// Forwards one request with an absolute URI. Each has its own connection, so that every
    /// request is checked.
    async fn plain(&self, mut request: Request<Incoming>) -> Response<ResponseBody> {
        let target = match (request.uri().scheme_str(), request.uri().authority()) {
            (Some("http"), Some(authority)) => match authority.port() {
                Some(_) => Target::parse(authority.as_str()),
                None => Target::parse(&format!("{authority}:80")),
            },
            _ => None,
        };
        let Some(target) = target else {
            return text(StatusCode::BAD_REQUEST, "invalid URL");
        };
        if self.is_own(&target) {
            return self.model_service(request).await;
        }
        let connected = match self.permit(&target).await {
            Ok(permit) => self.dial(&target, permit).await,
            Err(answer) => Err(answer),
        };
        let stream = match connected {
            Ok(stream) => stream,
            Err(answer) => return answer,
        };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let host = match target.port {
            80 => target.host.to_string(),
            _ => target.to_string(),
        };
        let (Ok(uri), Ok(host)) = (path.parse::<Uri>(), HeaderValue::from_str(&host)) else {
            return text(StatusCode::BAD_REQUEST, "invalid URL");
        };
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        for name in
            ["connection", "keep-alive", "proxy-connection", "proxy-authorization", "upgrade"]
        {
            headers.remove(HeaderName::from_static(name));
        }
        headers.insert(HOST, host);
        match tokio::time::timeout(PLAIN_TIMEOUT, send(stream, request)).await {
            Ok(Ok(response)) => response.map(|body| body.map_err(BoxError::from).boxed_unsync()),
            Ok(Err(error)) => text(StatusCode::BAD_GATEWAY, format!("{target}: {error}")),
            Err(_) => text(StatusCode::GATEWAY_TIMEOUT, format!("{target} does not answer")),
        }
    }

    /// Forwards a request to a model service, with its key. Bodies are streamed both ways.
    async fn model_service(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let not_found = || text(StatusCode::NOT_FOUND, "no such path");
        let path = request.uri().path().trim_start_matches('/');
        let Some((token, rest)) = path.split_once('/') else { return not_found() };
        if !is_equal(token.as_bytes(), self.token.as_bytes()) {
            return not_found();
        }
        let name = rest.split('/').next().unwrap_or_default();
        let Some(route) = self.routes.iter().find(|route| route.name() == name) else {
            return not_found();
        };
        let Some(url) = route.url(&rest[name.len()..], request.uri().query()) else {
            return text(StatusCode::BAD_REQUEST, "invalid path");
        };
        let key = match route.key().await {
            Ok(key) => key,
            Err(reason) => return text(StatusCode::UNAUTHORIZED, reason),
        };
        let (parts, body) = request.into_parts();
        let headers = route.headers(&parts.headers, key.as_ref());
        let mut outgoing = route.client().request(parts.method, url).headers(headers);
        let size = hyper::body::Body::size_hint(&body).exact();
        if size != Some(0) {
            if let Some(size) = size {
                outgoing = outgoing.header("content-length", size);
            }
            let frames =
                BodyStream::new(body).try_filter_map(|frame| async { Ok(frame.into_data().ok()) });
            outgoing = outgoing.body(reqwest::Body::wrap_stream(frames));
        }
        match outgoing.send().await {
            Ok(response) => {
                if let (StatusCode::UNAUTHORIZED, Some((_, key))) = (response.status(), &key) {
                    route.forget_key(key).await;
                }
                streamed(response)
            }
            Err(error) => {
                let reason = innermost(&error.without_url());
                text(StatusCode::BAD_GATEWAY, format!("cannot reach the model service: {reason}"))
            }
        }
    }
}

/// Sends one request over a connection and returns the response, whose body is not read yet.
async fn send(stream: TcpStream, request: Request<Incoming>) -> hyper::Result<Response<Incoming>> {
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    tokio::spawn(connection);
    sender.send_request(request).await
}

/// Reads until the first message of a connection is complete.
async fn read_first_message(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
) -> io::Result<(Vec<u8>, FirstMessage)> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        bytes.extend_from_slice(&buffer[..count]);
        match client_hello::read(&bytes) {
            FirstMessage::Incomplete if count > 0 && bytes.len() < client_hello::MAX_BYTES => {}
            message => return Ok((bytes, message)),
        }
    }
}

/// Converts a response; its body is passed on as it arrives.
fn streamed(response: reqwest::Response) -> Response<ResponseBody> {
    let mut converted = Response::builder().status(response.status());
    for (name, value) in response.headers() {
        let is_of_connection = matches!(
            name.as_str(),
            "connection" | "keep-alive" | "transfer-encoding" | "content-length" | "upgrade"
        );
        if !is_of_connection {
            converted = converted.header(name, value);
        }
    }
    let frames =
        response.bytes_stream().map(|bytes| bytes.map(Frame::data).map_err(BoxError::from));
    let body = StreamBody::new(frames).boxed_unsync();
    converted.body(body).unwrap_or_else(|error| text(StatusCode::BAD_GATEWAY, error.to_string()))
}

/// Returns the innermost source of an error, which says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut current = error;
    while let Some(source) = current.source() {
        current = source;
    }
    current.to_string()
}

/// Compares without revealing through time how much of the text is equal.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn empty() -> ResponseBody {
    Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync()
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<ResponseBody> {
    let body = Full::new(Bytes::from(format!("studio: {}\n", text.into())));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}
