//! Repairs URLs as planners write them, and restricts them to what a browser opens.

/// Returns a URL to be typed: `http` or `https`. A bare host gets `https`, and a dot in place of
/// the colon is repaired. The error is for the planner.
pub(crate) fn repair(raw: &str) -> Result<String, String> {
    let raw = raw.trim();
    if raw.is_empty() {
        return Err("`url` is empty".to_owned());
    }
    if raw.contains(char::is_control) || raw.contains(char::is_whitespace) {
        return Err(format!("`{}` is not an address", base::text::printable(raw)));
    }
    let url = repair_scheme(raw)?;
    let parsed = reqwest::Url::parse(&url).map_err(|error| format!("`{raw}`: {error}"))?;
    match (parsed.scheme(), parsed.host_str()) {
        ("http" | "https", Some(_)) => Ok(url),
        (_, _) => Err(refusal_text(raw)),
    }
}

fn repair_scheme(raw: &str) -> Result<String, String> {
    let lower = raw.to_ascii_lowercase();
    for scheme in ["https", "http"] {
        let Some(rest) = lower.strip_prefix(scheme) else { continue };
        // `https.//host`, `https.host`, `https//host`, `https:/host`
        let cut = rest.trim_start_matches(['.', ':', '/']);
        if cut.len() < rest.len() && !cut.is_empty() {
            return Ok(format!("{scheme}://{}", &raw[raw.len() - cut.len()..]));
        }
    }
    match lower.split_once(':') {
        None => Ok(format!("https://{raw}")),
        // A host with a port; anything else before a colon is a scheme.
        Some((host, rest)) => {
            let port: String = rest.chars().take_while(|c| *c != '/').collect();
            let is_port = !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
            let is_host = host.contains('.') || host == "localhost";
            if is_port && is_host { Ok(format!("https://{raw}")) } else { Err(refusal_text(raw)) }
        }
    }
}

fn refusal_text(raw: &str) -> String {
    format!("`{}` is not opened: only http and https are", base::text::head(raw, 100))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_are_repaired_or_rejected() {
        for (raw, url) in [
            ("https://example.org/A?b=C", "https://example.org/A?b=C"),
            ("http://example.org", "http://example.org"),
            ("HTTPS://example.org", "https://example.org"),
            ("example.org", "https://example.org"),
            ("example.org:8080/x", "https://example.org:8080/x"),
            ("localhost:3000", "https://localhost:3000"),
            ("https.example.org", "https://example.org"),
            ("https.//example.org", "https://example.org"),
            ("https//example.org", "https://example.org"),
            ("httpbin.example", "https://httpbin.example"),
        ] {
            assert_eq!(repair(raw).as_deref(), Ok(url), "{raw}");
        }
        for raw in [
            "",
            "  ",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/html,x",
            "about:config",
            "chrome://settings",
            "a b.example",
            "https://",
            "x:1",
        ] {
            assert!(repair(raw).is_err(), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn only_web_urls_are_accepted(raw in "\\PC{0,40}") {
            if let Ok(url) = repair(&raw) {
                let parsed = reqwest::Url::parse(&url).unwrap();
                prop_assert!(matches!(parsed.scheme(), "http" | "https"), "{}", url);
                prop_assert!(!url.contains(char::is_whitespace));
            }
        }
    }
}
