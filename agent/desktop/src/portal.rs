//! The desktop portal: what a Wayland compositor lets a program do after the user agreed.

mod picture;
pub mod remote;

use std::cell::Cell;
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use base::failure::{Failure, Result};
use futures_util::StreamExt;
use serde::Serialize;
use zbus::connection::Builder;
use zbus::{
    Connection, DynamicType, MatchRule, MessageStream, OwnedObjectPath, OwnedVariant, Variant,
};

const NAME: &str = "org.freedesktop.portal.Desktop";
const PATH: &str = "/org/freedesktop/portal/desktop";
const REQUEST: &str = "org.freedesktop.portal.Request";
/// Timeout of a call that needs no user.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a call to which the user must agree.
const CONSENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Named arguments and results of a call.
type Options<'a> = HashMap<&'a str, Variant<'a>>;
type Results = HashMap<String, OwnedVariant>;

/// A connection to the portal of this session.
pub(crate) struct Portal {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
    /// Number of requests made.
    requests: Cell<u32>,
}

impl Portal {
    /// Finds the session's portal.
    pub(crate) fn open() -> Result<Portal> {
        let runtime = base::runtime::current_thread();
        let runtime = runtime.map_err(unavailable)?;
        let connection = within(&runtime, CALL_TIMEOUT, Builder::session().build())?;
        Ok(Portal { runtime, connection, requests: Cell::new(0) })
    }

    /// Sends a request to which the user may have to agree, and waits for its result.
    fn request<'a, B>(
        &self,
        interface: &str,
        method: &str,
        body: impl FnOnce(Options<'a>) -> B,
    ) -> Result<Results>
    where
        B: Serialize + DynamicType,
    {
        // The response is a signal of an object whose path is determined in advance, so that it
        // cannot be missed.
        self.requests.update(|count| count + 1);
        let token = format!("g3_{}", self.requests.get());
        let unique_name =
            self.connection.unique_name().map(|name| name.as_str()).unwrap_or_default();
        let unique_name = unique_name.trim_start_matches(':').replace('.', "_");
        let path = format!("{PATH}/request/{unique_name}/{token}");
        let body = body(HashMap::from([("handle_token", Variant::from(token.clone()))]));
        within(&self.runtime, CONSENT_TIMEOUT, async {
            let rule = MatchRule::builder()
                .msg_type(zbus::message::Type::Signal)
                .interface(REQUEST)
                .member("Response")
                .path(path)
                .build()?;
            let mut responses = MessageStream::for_match_rule(rule, &self.connection, None).await?;
            let reply =
                self.connection.call_method(Some(NAME), PATH, Some(interface), method, &body);
            reply.await?.body().deserialize::<OwnedObjectPath>()?;
            let Some(responses) = responses.next().await else {
                return Err(zbus::Error::InvalidReply);
            };
            responses?.body().deserialize::<(u32, Results)>()
        })
        .and_then(|(code, results)| match code {
            0 => Ok(results),
            1 => Err(Failure::refused("the person at the desktop did not agree")),
            _ => Err(Failure::failed("the portal ended the request without an answer")),
        })
    }
}

fn within<T>(
    runtime: &tokio::runtime::Runtime,
    time: Duration,
    call: impl Future<Output = zbus::Result<T>>,
) -> Result<T> {
    match runtime.block_on(async { tokio::time::timeout(time, call).await }) {
        Ok(result) => result.map_err(unavailable),
        Err(_) => Err(unavailable(format!("it did not answer within {} s", time.as_secs()))),
    }
}

fn unavailable(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::failed("the desktop portal of this Wayland session cannot be used")
        .because(reason)
        .hint("install xdg-desktop-portal with the backend of your desktop, e.g. xdg-desktop-portal-gnome")
        .hint("or start the programs on an X server of their own (Xvfb)")
}
