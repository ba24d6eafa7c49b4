//! Environment variables by which tests fix values that otherwise differ from run to run. Only test
//! builds read them: those with debug assertions and the feature `test-hooks`, which `testkit`
//! enables. A release build neither reads them nor passes them on.

/// A variable that a test sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestHook {
    /// The current time, in RFC 3339.
    Now,
    /// The seed of all random values.
    Seed,
    /// `NAME` or `NAME:N`: the durable step at which the process kills itself, on its N-th pass.
    KillAt,
    /// The file to which the name of every durable step is appended.
    Steps,
    /// The file to which every point is appended at which a fault can be injected.
    Points,
    /// `FAULT@POINT:N`: the fault that happens at the N-th pass of a point, if points are recorded.
    Fault,
    /// The length of one second of retry delay, in milliseconds.
    RetryMs,
    /// The timeout of a login in the browser, in milliseconds.
    LoginMs,
    /// The file that contains the number of processors that other programs use.
    Busy,
    /// The free memory in bytes.
    Memory,
    /// The load average of the machine.
    Load,
    /// The free bytes on the disk of the worktrees.
    FreeDisk,
    /// Whether `g3-desktop` uses xcap for screenshots and windows on Linux, if it was built with
    /// it.
    Xcap,
    /// `off`: sandboxes have no namespaces, as on a system that forbids them.
    Namespaces,
}

impl TestHook {
    /// Returns what the test set; always `None` in a build for users.
    pub fn value(self) -> Option<String> {
        environment::value(self)
    }

    /// Like [`TestHook::value`], parsed as a number.
    pub fn number(self) -> Option<u64> {
        self.value()?.parse().ok()
    }
}

/// Returns whether a variable is a hook, so that it is not configuration and is passed to our other
/// programs; always `false` in a build for users.
pub fn is_hook(variable: &str) -> bool {
    environment::is_hook(variable)
}

#[cfg(all(feature = "test-hooks", debug_assertions))]
mod environment {
    use super::TestHook;

    pub(crate) fn value(hook: TestHook) -> Option<String> {
        std::env::var(variable(hook)).ok()
    }

    pub(crate) fn is_hook(variable: &str) -> bool {
        variable.to_ascii_uppercase().starts_with("G3_TEST_")
    }

    fn variable(hook: TestHook) -> &'static str {
        match hook {
            TestHook::Now => "G3_TEST_NOW",
            TestHook::Seed => "G3_TEST_SEED",
            TestHook::KillAt => "G3_TEST_KILL_AT",
            TestHook::Steps => "G3_TEST_STEPS",
            TestHook::Points => "G3_TEST_POINTS",
            TestHook::Fault => "G3_TEST_FAULT",
            TestHook::RetryMs => "G3_TEST_RETRY_MS",
            TestHook::LoginMs => "G3_TEST_LOGIN_MS",
            TestHook::Busy => "G3_TEST_BUSY",
            TestHook::Memory => "G3_TEST_MEMORY",
            TestHook::Load => "G3_TEST_LOAD",
            TestHook::FreeDisk => "G3_TEST_FREE_DISK",
            TestHook::Xcap => "G3_TEST_XCAP",
            TestHook::Namespaces => "G3_TEST_NAMESPACES",
        }
    }
}

#[cfg(not(all(feature = "test-hooks", debug_assertions)))]
mod environment {
    pub(crate) fn value(_: super::TestHook) -> Option<String> {
        None
    }

    pub(crate) fn is_hook(_: &str) -> bool {
        false
    }
}
