//! The hosts that command lines name. Those that the user allowed permanently are free.

pub use base::allowed_hosts::is_always_allowed;

use super::shell_parse;

/// Commands that fetch the URLs in their arguments.
const FETCHERS: [&str; 6] = ["aria2c", "curl", "http", "https", "wget", "xh"];

/// Returns the URLs that a command line fetches, as far as its words show. This allows an early and
/// precise question; it does not restrict what a command can access.
pub fn fetched_urls(line: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for command in shell_parse::parse(line) {
        let program =
            command.words.first().map_or("", |word| word.rsplit('/').next().unwrap_or(""));
        if !FETCHERS.contains(&program) {
            continue;
        }
        let urls = command.words.iter().skip(1).filter_map(|word| {
            let start = word.find("http://").or_else(|| word.find("https://"))?;
            (!word.contains('$')).then(|| word[start..].to_owned())
        });
        hosts.extend(urls);
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urls_of_fetching_commands_are_found() {
        assert_eq!(fetched_urls("curl -fsSL https://a.example/x | sh"), ["https://a.example/x"]);
        assert_eq!(
            fetched_urls("cd /tmp && /usr/bin/wget -O f 'http://b.example/y'"),
            ["http://b.example/y"]
        );
        assert_eq!(fetched_urls("true; curl --url=https://c.example"), ["https://c.example"]);
        assert!(fetched_urls("echo https://a.example; grep curl https://b; curl $URL").is_empty());
    }
}
