//! The programs of a browser and its driver, and how they are started.

use std::path::{Path, PathBuf};

use base::config::agent::{BrowserKind, WebdriverConfig};
use base::process::find_program;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use gate::paths;

/// Names of Chromium and Chrome on `PATH`.
const CHROMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
/// Their paths on macOS.
const APPLICATIONS: [&str; 2] = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
];
/// The flags of every start: no background requests and no crash reports. The connection to the
/// driver is a pipe, so the browser ends when the driver does, however that ends.
const FLAGS: &[&str] = &[
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-crash-reporter",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--password-store=basic",
    "--window-size=1280,900",
];
/// Hosts of cloud metadata services, which hand out the credentials of a machine; the browser does
/// not resolve them.
const METADATA: [&str; 4] =
    ["169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "metadata.google.internal"];
/// Timeouts of loading a page, of a script, and of finding an element, in milliseconds.
const TIMES: [u32; 3] = [30_000, 30_000, 1_000];

/// The programs of a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserPrograms {
    /// The kind of the browser.
    pub kind: BrowserKind,
    /// The driver.
    pub driver: PathBuf,
    /// The browser, if the driver needs its path.
    pub browser: Option<PathBuf>,
    /// The port of the driver; 0 for any free port.
    pub port: u16,
}

impl BrowserPrograms {
    /// Finds the programs. The error says what to install.
    pub(crate) fn find(
        config: &WebdriverConfig,
        kind: BrowserKind,
    ) -> Result<BrowserPrograms, String> {
        if kind == BrowserKind::Safari {
            let driver = find_program("safaridriver").ok_or(
                "`safaridriver` was not found: Safari needs macOS; elsewhere set \
                 `[webdriver] browser = \"chrome\"`",
            )?;
            return Ok(BrowserPrograms { kind, driver, browser: None, port: config.safari_port });
        }
        let browser = configured(config.chrome_binary.as_deref(), "chrome_binary")?;
        let browser = browser.or_else(chrome);
        let driver = configured(config.chromedriver_binary.as_deref(), "chromedriver_binary")?;
        let driver = driver.or_else(|| find_program("chromedriver"));
        let missing: Vec<&str> = [
            browser.is_none().then_some("Chromium (or Chrome)"),
            driver.is_none().then_some("chromedriver"),
        ]
        .into_iter()
        .flatten()
        .collect();
        match (browser, driver) {
            (Some(browser), Some(driver)) => Ok(BrowserPrograms {
                kind,
                driver,
                browser: Some(browser),
                port: config.chrome_port,
            }),
            (_, _) => Err(format!(
                "{} cannot be found. Install both (Debian: apt-get install chromium \
                 chromium-driver; macOS: brew install --cask chromium chromedriver), or name them \
                 in `[webdriver] chrome_binary` and `chromedriver_binary`",
                missing.join(" and ")
            )),
        }
    }

    /// Returns the driver's arguments. `secret` is a secret part of its URL.
    pub(crate) fn arguments(&self, secret: &str) -> Vec<String> {
        match self.kind {
            BrowserKind::Safari => vec!["-p".to_owned(), self.port.to_string()],
            BrowserKind::Chrome | BrowserKind::ChromeHeadless => {
                vec![format!("--port={}", self.port), format!("--url-base=/{secret}")]
            }
        }
    }

    /// Returns the URL of the driver from a line of its output; commands are relative to it.
    pub(crate) fn address(&self, line: &str, secret: &str) -> Option<String> {
        let port = line.split_once("started successfully on port ")?.1;
        let port: u16 = port.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
        Some(format!("http://127.0.0.1:{port}/{secret}/"))
    }

    /// Returns the capabilities of a new session.
    pub(crate) fn capabilities(&self, directory: &Path, is_root: bool) -> Value {
        let [load, script, implicit] = TIMES;
        let mut capabilities = json!({
            "unhandledPromptBehavior": "dismiss and notify",
            "timeouts": { "pageLoad": load, "script": script, "implicit": implicit },
        });
        if self.kind == BrowserKind::Safari {
            capabilities["browserName"] = json!("safari");
            return json!({ "capabilities": { "alwaysMatch": capabilities } });
        }
        let mut args: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        if self.kind == BrowserKind::ChromeHeadless {
            args.push("--headless=new".to_owned());
        }
        if is_root {
            // Chromium cannot create its own sandbox as root.
            args.extend(["--no-sandbox".to_owned(), "--test-type".to_owned()]);
        }
        args.push(format!("--user-data-dir={}", directory.join("profile").display()));
        let nowhere = METADATA.map(|host| format!("MAP {host} ~NOTFOUND"));
        args.push(format!("--host-resolver-rules={}", nowhere.join(", ")));
        capabilities["browserName"] = json!("chrome");
        capabilities["goog:chromeOptions"] = json!({
            "binary": self.browser,
            "args": args,
            "prefs": {
                "download.default_directory": directory.join("downloads"),
                "download.prompt_for_download": false,
                // Start with an empty page, not with one that makes requests.
                "session.restore_on_startup": 4,
                "session.startup_urls": ["about:blank"],
                "credentials_enable_service": false,
            },
        });
        json!({ "capabilities": { "alwaysMatch": capabilities } })
    }
}

/// Finds the program that the user configured: by its name on `PATH`, or by its path.
fn configured(path: Option<&Path>, key: &str) -> Result<Option<PathBuf>, String> {
    let Some(path) = path else { return Ok(None) };
    let path = paths::expand_home(&path.to_string_lossy());
    let program = match path.components().count() {
        0 | 1 => find_program(&path.to_string_lossy()),
        _ => std::path::absolute(&path).ok().filter(|path| path.is_file()),
    };
    let missing = || format!("`[webdriver] {key}` names {}: no such program", path.display());
    program.map(Some).ok_or_else(missing)
}

/// Finds Chromium in its usual places.
fn chrome() -> Option<PathBuf> {
    let on_path = CHROMES.iter().find_map(|name| find_program(name));
    on_path.or_else(|| APPLICATIONS.iter().map(PathBuf::from).find(|path| path.is_file()))
}

/// Returns whether a window can be shown.
pub(crate) fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}
