//! `studio answer`: answers an agent's permission request.

use base::failure::{Failure, Result};
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::report;
use studio_core::session::state::SessionState;
use studio_core::session::summary::OpenRequest;
use studio_core::supervisor::control::{self, ControlRequest};

/// The command line of `answer`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session, request number (if several are open), and `allow` or `deny`
    #[arg(value_name = "ID [N] allow|deny", num_args = 1..=3, required = true)]
    pub words: Vec<String>,
    /// Also answer further requests: allow those of this kind in this session; allow or deny a host in
    /// all sessions
    #[arg(long)]
    pub always: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let (id, n, allow) = parse(&args.words)?;
    let always = args.always;
    let view =
        context.find(id.as_deref(), |state| matches!(state, SessionState::Waiting { .. }))?;
    let id = &view.record.id;
    let requests = &view.facts.summary.open_requests;
    let request = n.map_or_else(|| requests.values().next(), |n| requests.get(&n));
    if always && !allow && request.is_some_and(|request| request.host.is_none()) {
        return Err(Failure::usage("--always cannot be used with deny")
            .because("only a host can be denied in all sessions")
            .hint(format!("studio answer {id} deny")));
    }
    context.reconnect(id)?;
    if !control::send_request(
        &context.repository.common_dir,
        id,
        &ControlRequest::Answer { n, allow, always },
    )? {
        return Err(Failure::refused(format!("session `{id}` is {}", view.state.name()))
            .because("it is not waiting for an answer")
            .hint(format!("studio status {id}")));
    }
    match context.json {
        true => {
            let host = request.and_then(|request| request.host.as_ref());
            let answer =
                json!({"schema": 1, "id": id, "allow": allow, "always": always, "host": host});
            report::json_line(&answer);
        }
        false => {
            let word = if allow { "allowed" } else { "denied" };
            let scope = request.filter(|_| always).map(OpenRequest::always_scope);
            let scope = scope.map(|scope| format!(" {scope}")).unwrap_or_default();
            report::say(&format!("{id}: {word}{scope}"));
        }
    }
    Ok(0)
}

/// Parses `[ID] [N] allow|deny`.
fn parse(words: &[String]) -> Result<(Option<String>, Option<u32>, bool)> {
    let usage_error = |what: String| {
        Err(Failure::usage(what).hint("studio answer ID allow").hint("studio answer ID 2 deny"))
    };
    let Some((last, rest)) = words.split_last() else {
        return usage_error("no answer given".into());
    };
    let allow = match last.as_str() {
        "allow" => true,
        "deny" => false,
        other => return usage_error(format!("invalid answer `{other}`: use `allow` or `deny`")),
    };
    match rest {
        [] => Ok((None, None, allow)),
        [first] => match first.parse() {
            Ok(n) => Ok((None, Some(n), allow)),
            Err(_) => Ok((Some(first.clone()), None, allow)),
        },
        [id, n, ..] => match n.parse() {
            Ok(n) => Ok((Some(id.clone()), Some(n), allow)),
            Err(_) => usage_error(format!("invalid request number `{n}`")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(Option<String>, Option<u32>, bool)> {
        parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>()).ok()
    }

    #[test]
    fn the_number_and_the_session_are_optional() {
        assert_eq!(parsed("fix-a 2 deny"), Some((Some("fix-a".into()), Some(2), false)));
        assert_eq!(parsed("fix-a allow"), Some((Some("fix-a".into()), None, true)));
        assert_eq!(parsed("3 allow"), Some((None, Some(3), true)));
        assert_eq!(parsed("allow"), Some((None, None, true)));
        assert_eq!(parsed("fix-a maybe"), None);
        assert_eq!(parsed("fix-a two deny"), None);
    }
}
