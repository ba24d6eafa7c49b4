//! The accessibility bus. Every call has a timeout, and programs that hang are not called again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::time::{Duration, Instant};

use base::failure::{Failure, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zbus::connection::Builder;
use zbus::{Connection, DynamicType, Message, OwnedObjectPath, OwnedVariant, Type};

/// Timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of all calls of a request.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(9);

/// An object of a program: its name on the bus, and its path.
pub(crate) type ObjectRef = (String, OwnedObjectPath);

/// A connection to the accessibility bus.
pub(crate) struct A11yBus {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
    end: Instant,
    /// Programs that did not answer in time.
    silent: RefCell<BTreeSet<String>>,
}

impl A11yBus {
    /// Finds the accessibility bus through the session bus.
    pub(crate) fn open() -> Result<A11yBus> {
        let runtime = base::runtime::current_thread();
        let runtime = runtime.map_err(unavailable)?;
        let end = Instant::now() + TOTAL_TIMEOUT;
        let session = within(&runtime, Builder::session().build())?;
        let (destination, path) = ("org.a11y.Bus", "/org/a11y/bus");
        let address_call =
            session.call_method(Some(destination), path, Some(destination), "GetAddress", &());
        let address: String =
            within(&runtime, address_call)?.body().deserialize().map_err(unavailable)?;
        let connection = within(&runtime, Builder::address(address.as_str()).build())?;
        Ok(A11yBus { runtime, connection, end, silent: RefCell::default() })
    }

    /// Calls a method of an object. Returns `None` if it has no such method, is gone or does not
    /// answer.
    pub(crate) fn call<B, R>(
        &self,
        object: &ObjectRef,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Option<R>
    where
        B: Serialize + DynamicType,
        R: DeserializeOwned + Type,
    {
        self.reply(object, interface, method, body)?.body().deserialize_ignore_signature().ok()
    }

    /// Returns a property of an object.
    pub(crate) fn property(
        &self,
        object: &ObjectRef,
        interface: &str,
        name: &str,
    ) -> Option<OwnedVariant> {
        let properties = "org.freedesktop.DBus.Properties";
        let reply = self.reply(object, properties, "Get", &(interface, name))?;
        reply.body().deserialize::<OwnedVariant>().ok()
    }

    /// Sets a property of an object.
    pub(crate) fn set<V>(
        &self,
        object: &ObjectRef,
        interface: &str,
        name: &str,
        value: V,
    ) -> Option<()>
    where
        V: Into<zbus::Variant<'static>>,
    {
        let body = (interface, name, value.into());
        self.reply(object, "org.freedesktop.DBus.Properties", "Set", &body).map(drop)
    }

    fn reply<B>(
        &self,
        object: &ObjectRef,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Option<Message>
    where
        B: Serialize + DynamicType,
    {
        let (name, path) = object;
        if self.silent.borrow().contains(name) || self.is_late() {
            return None;
        }
        let remaining = self.end.saturating_duration_since(Instant::now()).min(CALL_TIMEOUT);
        let call =
            self.connection.call_method(Some(name.as_str()), path, Some(interface), method, body);
        let result = self.runtime.block_on(async { tokio::time::timeout(remaining, call).await });
        if result.is_err() {
            self.silent.borrow_mut().insert(name.clone());
        }
        result.ok()?.ok()
    }

    /// Whether the time for this request is over.
    pub(crate) fn is_late(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Describes the programs that did not answer.
    pub(crate) fn silence(&self) -> Option<String> {
        let silent = self.silent.borrow();
        let many = silent.len();
        (many > 0).then(|| match many {
            1 => "a program does not answer: it hangs, and its controls are missing".to_owned(),
            _ => format!("{many} programs do not answer: their controls are missing"),
        })
    }
}

fn within<T>(
    runtime: &tokio::runtime::Runtime,
    call: impl Future<Output = zbus::Result<T>>,
) -> Result<T> {
    match runtime.block_on(async { tokio::time::timeout(CALL_TIMEOUT, call).await }) {
        Ok(result) => result.map_err(unavailable),
        Err(_) => Err(unavailable("it does not answer")),
    }
}

fn unavailable(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::failed("no accessibility bus")
        .because(reason)
        .hint("install at-spi2-core and restart the desktop session")
        .hint("look at a picture of the screen instead")
}
