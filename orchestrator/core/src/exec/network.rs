//! The network of a session's processes: a namespace of its own whose only way out is a proxy that
//! this process runs.

use std::collections::BTreeSet;
use std::io::{Seek, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

use base::config::agent::SandboxConfig;
use base::config::keyless::{KEYLESS_CONFIG_VAR, KeylessConfig, is_key_variable};
use base::config::network::NetworkPolicy;
use base::failure::{Failure, OrFail, Result};
use base::sandbox::network::{self as kernel, NetworkNamespace};
use futures_util::future::BoxFuture;
use network::host::{HostList, HostRule, Target};
use network::{
    Denial, KeyLookup, NetworkProxy, ProviderRoute, ProxyConfig, ProxyObserver, SystemNameResolver,
    UpstreamProxies,
};
use tokio::sync::{mpsc, oneshot};

use crate::exec::agent_services::{self, OPENCODE_VARIABLE};
use crate::exec::model_services::{KeyValue, ServiceKey, UrlSetting};
use crate::sandbox::{NetworkAccess, SandboxSpec, unnamed_file};

/// Package registries, for every allow list: builds, checks and setup commands need them.
const REGISTRIES: &[&str] = &[
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "static.rust-lang.org",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "repo.yarnpkg.com",
    "jsr.io",
    "npm.jsr.io",
    "pypi.org",
    "files.pythonhosted.org",
    "conda.anaconda.org",
    "proxy.golang.org",
    "sum.golang.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "services.gradle.org",
    "rubygems.org",
    "index.rubygems.org",
    "api.nuget.org",
    "packagist.org",
    "repo.packagist.org",
    "hex.pm",
    "repo.hex.pm",
];

/// Hosts that receive usage statistics and error reports of agents. They are denied without a
/// question, unless they are listed.
const TELEMETRY: &[&str] = &[
    "*.rum.aliyuncs.com",
    "*.datadoghq.com",
    "*.sentry.io",
    "*.statsigapi.net",
    "statsig.anthropic.com",
    "api.statsig.com",
    "play.googleapis.com",
    "*.posthog.com",
    "us.i.posthog.com",
];

/// The numbers of the descriptors of a namespace in a sandbox.
const USER_FD: i32 = 7;
const NETWORK_FD: i32 = 8;
/// The number of the descriptor of g3's configuration in a sandbox.
const CONFIG_FD: i32 = 9;

/// A request of a proxy to its supervisor.
pub(crate) enum NetworkRequest {
    /// A host that is not listed; the answer is whether it may be reached.
    Unlisted {
        /// The host and the port.
        target: Target,
        /// Takes the answer.
        reply: oneshot::Sender<bool>,
    },
    /// A connection was denied for another reason.
    Denied(Denial),
}

/// What the processes of a runner can reach. The network is created with the first process.
#[derive(Clone)]
pub(crate) struct NetworkSetup {
    policy: NetworkPolicy,
    best_effort: bool,
    hosts: Vec<String>,
    services: Vec<ServiceKey>,
    /// The configuration for g3; its keys stay outside.
    keyless: Option<KeylessConfig>,
    shared: Arc<SharedNetwork>,
}

/// What all copies of a runner share.
#[derive(Default)]
struct SharedNetwork {
    started: OnceLock<std::result::Result<SessionNetwork, String>>,
    requests: OnceLock<mpsc::UnboundedSender<NetworkRequest>>,
    denied: Arc<Mutex<BTreeSet<String>>>,
}

/// A running network.
struct SessionNetwork {
    namespace: Option<NetworkNamespace>,
    access: NetworkAccess,
    environment: Vec<(String, String)>,
    /// The URL of the proxy with its token.
    proxy_url: Option<String>,
    missing: Option<String>,
    _proxy: Option<NetworkProxy>,
}

impl NetworkSetup {
    /// Creates the setup for a policy and the entries of its allow list.
    pub(crate) fn new(
        policy: NetworkPolicy,
        best_effort: bool,
        hosts: Vec<String>,
        services: Vec<ServiceKey>,
    ) -> Result<NetworkSetup> {
        if let Some(invalid) = hosts.iter().find(|host| HostRule::parse(host).is_none()) {
            return Err(Failure::usage(format!("invalid host `{invalid}`"))
                .because("a host is `name`, `*.name`, an address, or one of these with `:port`")
                .hint("correct `hosts` in ~/.config/g3/config.toml"));
        }
        let shared = Arc::default();
        Ok(NetworkSetup { policy, best_effort, hosts, services, keyless: None, shared })
    }

    /// Adds the configuration for g3 in the sandbox.
    #[must_use]
    pub(crate) fn with_configuration(self, keyless: KeylessConfig) -> NetworkSetup {
        NetworkSetup { keyless: Some(keyless), ..self }
    }

    /// Creates the setup of processes without a sandbox.
    pub(crate) fn open() -> NetworkSetup {
        NetworkSetup {
            policy: NetworkPolicy::On,
            best_effort: true,
            hosts: Vec::new(),
            services: Vec::new(),
            keyless: None,
            shared: Arc::default(),
        }
    }

    /// Sends the requests of the proxy to a supervisor. Without one, hosts that are not listed are
    /// denied.
    pub(crate) fn send_requests(&self, tx: mpsc::UnboundedSender<NetworkRequest>) {
        let _ = self.shared.requests.set(tx);
    }

    /// Returns the hosts that were denied so far.
    pub(crate) fn denied(&self) -> Vec<String> {
        base::sync::lock(&self.shared.denied).iter().cloned().collect()
    }

    /// Returns what the kernel cannot enforce, if processes have been started.
    pub(crate) fn missing(&self) -> Option<String> {
        self.shared.started.get()?.as_ref().ok()?.missing.clone()
    }

    /// Returns the policy.
    pub(crate) fn policy(&self) -> NetworkPolicy {
        self.policy
    }

    /// Adds the network, and g3's configuration, to a sandbox; returns the descriptors that its
    /// processes inherit.
    pub(crate) fn apply(&self, spec: &mut SandboxSpec) -> Result<Vec<(OwnedFd, i32)>> {
        let mut descriptors = self.apply_network(spec)?;
        if let Some(keyless) = &self.keyless {
            descriptors.push((self.configuration(keyless, spec)?, CONFIG_FD));
        }
        Ok(descriptors)
    }

    /// Returns the arguments that the program gets besides its own, once the network has started.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Some(proxy_url) = self.proxy_url() else { return Vec::new() };
        self.services.iter().flat_map(|service| service.arguments(proxy_url)).collect()
    }

    fn proxy_url(&self) -> Option<&str> {
        self.shared.started.get()?.as_ref().ok()?.proxy_url.as_deref()
    }

    /// Adds g3's configuration, with the URLs of the proxy; returns its file, which has no name.
    fn configuration(&self, keyless: &KeylessConfig, spec: &mut SandboxSpec) -> Result<OwnedFd> {
        let mut keyless = keyless.clone();
        if let Some(proxy_url) = self.proxy_url() {
            for service in &self.services {
                if let UrlSetting::Configuration(path) = &service.setting {
                    keyless.overrides.push((path.clone(), service.url(proxy_url)));
                }
            }
        }
        let write = || {
            let mut file = unnamed_file("g3-config")?;
            file.write_all(&serde_json::to_vec(&keyless)?)?;
            file.rewind()?;
            std::io::Result::Ok(file.into())
        };
        let file = write().or_fail(|| "cannot write the configuration of the sandbox")?;
        spec.environment.retain(|(name, _)| !is_key_variable(name));
        spec.environment.push((KEYLESS_CONFIG_VAR.to_owned(), CONFIG_FD.to_string()));
        spec.descriptors.push(CONFIG_FD);
        Ok(file)
    }

    fn apply_network(&self, spec: &mut SandboxSpec) -> Result<Vec<(OwnedFd, i32)>> {
        if self.policy == NetworkPolicy::On && self.services.is_empty() {
            return Ok(Vec::new());
        }
        let started =
            self.shared.started.get_or_init(|| self.start().map_err(|failure| failure.full_text()));
        let network = started.as_ref().map_err(|error| {
            Failure::failed("cannot set up the network of the sandbox").because(error.clone())
        })?;
        spec.network = network.access.clone();
        if self.policy != NetworkPolicy::On {
            let name = base::sandbox::NETWORK_VAR.to_owned();
            spec.environment.push((name, self.policy.name().to_owned()));
        }
        for (name, value) in &network.environment {
            spec.environment.retain(|(existing, _)| existing != name);
            spec.environment.push((name.clone(), value.clone()));
        }
        if self.policy != NetworkPolicy::On && network.access != NetworkAccess::Open {
            let is_proxy = |name: &str| name.to_ascii_uppercase().ends_with("_PROXY");
            let is_ours = |name: &str| network.environment.iter().any(|(ours, _)| ours == name);
            spec.environment.retain(|(name, _)| !is_proxy(name) || is_ours(name));
        }
        let Some(namespace) = &network.namespace else { return Ok(Vec::new()) };
        let copy = namespace.try_clone().or_fail(|| "cannot copy a descriptor")?;
        let user = copy.user.map(|user| (user, USER_FD));
        Ok(user.into_iter().chain([(copy.network, NETWORK_FD)]).collect())
    }

    fn start(&self) -> Result<SessionNetwork> {
        match self.policy {
            NetworkPolicy::On => self.with_proxy_on_this_machine(NetworkAccess::Open, None),
            NetworkPolicy::Off => self.without_proxy(),
            NetworkPolicy::AllowList => self.with_proxy(),
        }
    }

    fn without_proxy(&self) -> Result<SessionNetwork> {
        let (namespace, access, missing) = match kernel::create_namespace(&[]) {
            Ok((namespace, _)) => {
                let access = namespace_access(&namespace);
                (Some(namespace), access, None)
            }
            Err(_) if kernel::socket_rules(&[]).is_ok() => {
                (None, NetworkAccess::Ports(Vec::new()), None)
            }
            Err(error) => {
                (None, NetworkAccess::Open, Some(self.tolerate_missing(error.to_string())?))
            }
        };
        let (environment, proxy_url) = (Vec::new(), None);
        Ok(SessionNetwork { namespace, access, environment, proxy_url, missing, _proxy: None })
    }

    /// Returns the notice that the network is not confined, or fails if the configuration requires
    /// that it is.
    fn tolerate_missing(&self, reason: String) -> Result<String> {
        let what = "the network of the sandbox is not confined";
        if !self.best_effort {
            return Err(Failure::failed(what)
                .because(reason)
                .hint("`[sandbox] best_effort = true` continues without it"));
        }
        Ok(format!("{what}: {reason}"))
    }

    fn with_proxy(&self) -> Result<SessionNetwork> {
        let (hosts, _) = HostList::parse(self.hosts.iter().map(String::as_str));
        let loopback_ports = hosts.loopback_ports();
        let ports: Vec<u16> = [0].into_iter().chain(loopback_ports.iter().copied()).collect();
        match kernel::create_namespace(&ports) {
            Ok((namespace, listeners)) => {
                let mut listeners = listeners.into_iter();
                let listener = listeners.next().ok_or("no listening socket");
                let listener = listener.or_fail(|| "cannot start the network proxy")?;
                let forwards = loopback_ports.into_iter().zip(listeners).collect();
                let access = namespace_access(&namespace);
                let started = self.start_proxy(hosts, listener, forwards)?;
                Ok(SessionNetwork { namespace: Some(namespace), access, ..started })
            }
            Err(_) if kernel::socket_rules(&[]).is_ok() => {
                self.with_proxy_on_this_machine(NetworkAccess::Ports(loopback_ports), Some(hosts))
            }
            Err(error) => {
                let missing = self.tolerate_missing(error.to_string())?;
                let started = self.with_proxy_on_this_machine(NetworkAccess::Open, Some(hosts))?;
                Ok(SessionNetwork { missing: Some(missing), ..started })
            }
        }
    }

    /// Starts a proxy on a port of this machine.
    fn with_proxy_on_this_machine(
        &self,
        access: NetworkAccess,
        hosts: Option<HostList>,
    ) -> Result<SessionNetwork> {
        let cannot = || "cannot start the network proxy";
        let listener = TcpListener::bind(("127.0.0.1", 0)).or_fail(cannot)?;
        let port = listener.local_addr().or_fail(cannot)?.port();
        let is_open = hosts.is_none();
        let mut started = self.start_proxy(hosts.unwrap_or_default(), listener, Vec::new())?;
        if is_open {
            // The user's own proxy applies; only model services are reached through this one.
            started.environment.retain(|(name, _)| !PROXY_VARIABLES.contains(&name.as_str()));
        }
        if let NetworkAccess::Ports(ports) = access {
            let ports: Vec<u16> = [port].into_iter().chain(ports).collect();
            started.missing = kernel::missing_with_socket_rules(&ports);
            if let (Some(missing), false) = (&started.missing, self.best_effort) {
                return Err(Failure::failed("the network of the sandbox is not fully confined")
                    .because(missing.clone())
                    .hint("`[sandbox] best_effort = true` continues without it"));
            }
            started.access = NetworkAccess::Ports(ports);
        }
        Ok(started)
    }

    fn start_proxy(
        &self,
        hosts: HostList,
        listener: TcpListener,
        forwards: Vec<(u16, TcpListener)>,
    ) -> Result<SessionNetwork> {
        let cannot = || "cannot start the network proxy";
        let port = listener.local_addr().or_fail(cannot)?.port();
        let token = base::random::hex::<24>().or_fail(cannot)?;
        let routes = self.services.iter().map(route).collect::<Result<_>>()?;
        let observer = Box::new(SupervisorObserver {
            shared: Arc::downgrade(&self.shared),
            denied: self.shared.denied.clone(),
        });
        let upstream = UpstreamProxies::from_variables(|name| std::env::var(name).ok());
        let upstream = upstream.or_fail(cannot)?;
        let resolver = Box::new(SystemNameResolver);
        let config =
            ProxyConfig { hosts, observer, routes, token: token.clone(), resolver, upstream };
        let proxy = NetworkProxy::start(config, listener, forwards).or_fail(cannot)?;
        let url = format!("http://127.0.0.1:{port}");
        let mut environment = proxy_variables(&url);
        let proxy_url = format!("{url}/{token}");
        let mut lines = String::new();
        let config = agent_services::opencode_config(&self.services, &proxy_url);
        environment.extend(config.map(|config| (OPENCODE_VARIABLE.to_owned(), config)));
        for service in &self.services {
            environment.extend(service.variables(&proxy_url));
            lines += &format!("{} {}\n", service.url(&proxy_url), service.base_url);
        }
        if !lines.is_empty() {
            environment.push((base::sandbox::MODEL_SERVICES_VAR.to_owned(), lines));
        }
        Ok(SessionNetwork {
            namespace: None,
            access: NetworkAccess::Open,
            environment,
            proxy_url: Some(proxy_url),
            missing: None,
            _proxy: Some(proxy),
        })
    }
}

/// Returns the hosts that every allow list has: those of the configuration, and the registries.
pub(crate) fn listed_hosts(config: &SandboxConfig) -> Vec<String> {
    config.hosts.iter().cloned().chain(REGISTRIES.iter().map(|host| (*host).to_owned())).collect()
}

fn namespace_access(namespace: &NetworkNamespace) -> NetworkAccess {
    let user = namespace.user.as_ref().map(|_| USER_FD);
    NetworkAccess::Namespace { user, network: NETWORK_FD }
}

/// The variables that name a proxy, and those that make programs use it.
const PROXY_VARIABLES: [&str; 9] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "NODE_USE_ENV_PROXY",
];

fn proxy_variables(url: &str) -> Vec<(String, String)> {
    let value = |name: &str| match name {
        "NO_PROXY" | "no_proxy" => "localhost,127.0.0.1,::1".to_owned(),
        "NODE_USE_ENV_PROXY" => "1".to_owned(),
        _ => url.to_owned(),
    };
    PROXY_VARIABLES.iter().map(|name| ((*name).to_owned(), value(name))).collect()
}

fn route(service: &ServiceKey) -> Result<ProviderRoute> {
    let (name, url, header) = (&service.name, &service.base_url, service.header);
    let route = match &service.key {
        KeyValue::Known(key) => ProviderRoute::new(name, url, Some((header, key))),
        KeyValue::Command(sources) => {
            let sources = sources.clone();
            let lookup: KeyLookup = Arc::new(move || {
                sources.required().map(|key| key.secret).map_err(|failure| failure.sentence())
            });
            ProviderRoute::with_lookup(name, url, header, lookup)
        }
    };
    route.map_err(|error| {
        Failure::usage(format!("cannot use the model service at {url}")).because(error)
    })
}

/// Asks the supervisor, if there is one.
struct SupervisorObserver {
    /// The proxy is a part of it.
    shared: std::sync::Weak<SharedNetwork>,
    denied: Arc<Mutex<BTreeSet<String>>>,
}

impl ProxyObserver for SupervisorObserver {
    fn on_unlisted(&self, target: &Target) -> BoxFuture<'static, bool> {
        let entry = target.entry();
        let tx = self.shared.upgrade().and_then(|shared| shared.requests.get().cloned());
        let (denied, target) = (self.denied.clone(), target.clone());
        Box::pin(async move {
            if base::allowed_hosts::is_always_allowed(&entry) {
                return true;
            }
            let (telemetry, _) = HostList::parse(TELEMETRY.iter().copied());
            if telemetry.permits(&target).is_some() {
                return false;
            }
            if base::allowed_hosts::is_always_denied(&entry) {
                base::sync::lock(&denied).insert(entry);
                return false;
            }
            let answer = match tx {
                Some(tx) => {
                    let (reply, answer) = oneshot::channel();
                    match tx.send(NetworkRequest::Unlisted { target, reply }) {
                        Ok(()) => answer.await.unwrap_or(false),
                        Err(_) => false,
                    }
                }
                None => false,
            };
            if !answer {
                base::sync::lock(&denied).insert(entry);
            }
            answer
        })
    }

    fn on_denied(&self, denial: &Denial) {
        base::sync::lock(&self.denied).insert(denial.target.entry());
        let tx = self.shared.upgrade().and_then(|shared| shared.requests.get().cloned());
        if let Some(tx) = tx {
            // The supervisor may have ended.
            let _ = tx.send(NetworkRequest::Denied(denial.clone()));
        }
    }
}
