//! Explains failures that the network of a sandbox may have caused.

use base::config::network::NetworkPolicy;

/// The texts of errors of programs that reach no host: libcurl, getaddrinfo, Node, Rust, Go.
const UNREACHABLE_TEXTS: [&str; 10] = [
    "Could not resolve host",
    "ENOTFOUND",
    "EAI_AGAIN",
    "Temporary failure in name resolution",
    "Name or service not known",
    "failed to lookup address",
    "no such host",
    "ENETUNREACH",
    "etwork is unreachable",
    "CONNECT tunnel failed, response 403",
];

/// The texts of errors of programs that reach no service of this machine.
const REFUSED_TEXTS: [&str; 2] = ["ECONNREFUSED", "onnection refused"];

/// Returns what the network policy may have to do with a failure, and the configuration line that
/// changes it.
pub(crate) fn network_hint(
    policy: NetworkPolicy,
    denied: &[String],
    output: &str,
) -> Option<String> {
    let contains = |texts: &[&str]| texts.iter().any(|text| output.contains(text));
    let file = "~/.config/g3/config.toml";
    match policy {
        NetworkPolicy::On => None,
        NetworkPolicy::AllowList if !denied.is_empty() => {
            let quoted: Vec<String> = denied.iter().map(|host| format!("\"{host}\"")).collect();
            Some(format!(
                "the network of the sandbox denied {}; `[sandbox] hosts = [{}]` in {file} allows it",
                denied.join(", "),
                quoted.join(", ")
            ))
        }
        NetworkPolicy::AllowList if contains(&UNREACHABLE_TEXTS) => Some(format!(
            "the network of the sandbox is `allow-list`: only programs that use the proxy in \
             `HTTPS_PROXY` reach a host; `network = \"on\"` in {file} opens it"
        )),
        NetworkPolicy::AllowList if contains(&REFUSED_TEXTS) => Some(format!(
            "the sandbox has its own loopback interface; `[sandbox] hosts = [\"localhost:PORT\"]` \
             in {file} opens a service of this machine"
        )),
        NetworkPolicy::Off if contains(&UNREACHABLE_TEXTS) || contains(&REFUSED_TEXTS) => {
            Some(format!("the network of the sandbox is `off`; `network` in {file} changes it"))
        }
        NetworkPolicy::AllowList | NetworkPolicy::Off => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_network_is_explained() {
        let hint = |policy, denied: &[&str], output: &str| {
            let denied: Vec<String> = denied.iter().map(|host| (*host).to_owned()).collect();
            network_hint(policy, &denied, output)
        };
        let (on, list, off) = (NetworkPolicy::On, NetworkPolicy::AllowList, NetworkPolicy::Off);
        let dns = "curl: (6) Could not resolve host: a.example";
        assert!(hint(list, &["a.example"], "").unwrap().contains("hosts = [\"a.example\"]"));
        assert!(hint(list, &[], dns).unwrap().contains("HTTPS_PROXY"));
        assert!(hint(list, &[], "connect ECONNREFUSED 127.0.0.1:5432").unwrap().contains("PORT"));
        assert!(hint(off, &[], dns).unwrap().contains("`off`"));
        assert_eq!(hint(list, &[], "assertion failed"), None);
        assert_eq!(hint(on, &["a.example"], dns), None);
    }
}
