//! The log filter: `info`, `g3::model=debug,warn`.

use base::failure::{Failure, Result};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::TARGETS;

/// Parses directives, each a level or `TARGET=LEVEL`; the longest matching target applies. Targets
/// other than g3's own are never enabled.
pub(crate) fn parse(text: &str) -> Result<Targets> {
    let mut targets = Targets::new();
    for directive in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (target.trim(), level.trim()),
            None if is_target(directive) => (directive, "trace"),
            None => ("g3", directive),
        };
        if !is_target(target) {
            return Err(invalid(directive, &format!("g3 has no target `{target}`"))
                .hint(format!("use g3, {}", TARGETS.join(", "))));
        }
        let level: LevelFilter =
            level.parse().map_err(|_| invalid(directive, &format!("invalid level `{level}`")))?;
        targets = targets.with_target(target, level);
    }
    Ok(targets)
}

fn is_target(text: &str) -> bool {
    text == "g3" || TARGETS.contains(&text)
}

fn invalid(directive: &str, reason: &str) -> Failure {
    Failure::usage(format!("invalid log filter `{directive}`"))
        .because(reason)
        .hint("G3_LOG=info, or `level` in [trace]: off, error, warn, info, debug, trace")
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn enables(text: &str, target: &str, level: Level) -> bool {
        parse(text).unwrap().would_enable(target, &level)
    }

    #[test]
    fn the_longest_target_applies_and_libraries_are_never_traced() {
        assert!(
            enables("info", "g3::tool", Level::INFO) && !enables("info", "g3::tool", Level::DEBUG)
        );
        let both = "warn, g3::model=debug";
        assert!(
            enables(both, "g3::model", Level::DEBUG) && !enables(both, "g3::tool", Level::INFO)
        );
        assert!(enables("g3::gate", "g3::gate", Level::TRACE));
        assert!(enables("g3::lsp=debug,g3::desktop", "g3::lsp", Level::DEBUG));
        assert!(!enables("g3::gate", "g3::tool", Level::ERROR));
        assert!(!enables("off", "g3::tool", Level::ERROR));
        for foreign in ["rmcp", "hyper_util", "agent_client_protocol"] {
            assert!(!enables("trace", foreign, Level::ERROR), "{foreign} is traced");
        }
    }

    #[test]
    fn invalid_directives_are_named() {
        let error_of = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error_of("loud").contains("invalid level `loud`"));
        assert!(error_of("rmcp=trace").contains("no target `rmcp`"));
        assert!(error_of("g3::modle=info").contains("g3::model"));
    }
}
