//! A real browser: Chromium with its driver, which end with this value.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use base::process::{Running, find_program};
use fantoccini::actions::KeyAction::{Down, Up};
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use testkit::env::{TestEnv, poll};
use tokio::runtime::Runtime;

use crate::fixtures::Scene;
use crate::server::PageServer;

/// A browser with one window.
pub struct Browser {
    runtime: Runtime,
    client: Client,
    driver: Running,
    /// The address of the driver: `127.0.0.1:PORT`.
    driver_host: String,
    host: String,
}

/// Collects what the policy of the pages blocks, before anything of a page runs.
const COLLECT: &str = "window.blocked = []; document.addEventListener('securitypolicyviolation', \
    (event) => window.blocked.push(event.violatedDirective + ' ' + event.blockedURI));";

impl Browser {
    /// Starts a browser and opens the link of a server. `flags` are flags of Chromium.
    pub fn open(scene: &Scene, server: &PageServer, flags: &[&str]) -> Browser {
        let browser = ["chromium", "chromium-browser", "google-chrome"];
        let browser = browser.iter().find_map(|name| find_program(name));
        let driver = find_program("chromedriver");
        let (Some(browser), Some(driver)) = (browser, driver) else {
            panic!(
                "this test drives a real browser: install chromium and chromium-driver (./setup --tests does)"
            )
        };
        let (mut running, driver_host) = start_driver(&scene.env, &driver);
        let profile = scene.env.home().join(format!("profile-{}", running.id()));
        let mut args = vec![
            "--headless=new".to_owned(),
            "--remote-debugging-pipe".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-gpu".to_owned(),
            "--window-size=1280,900".to_owned(),
            format!("--user-data-dir={}", profile.display()),
        ];
        if rustix::process::getuid().is_root() {
            args.extend(["--no-sandbox".to_owned(), "--test-type".to_owned()]);
        }
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let options = json!({"binary": browser, "args": args});
        let capabilities = json!({"browserName": "chrome", "goog:chromeOptions": options});
        let Value::Object(capabilities) = capabilities else { panic!("an object") };
        let runtime = base::runtime::current_thread().expect("a runtime");
        let client = runtime.block_on(
            ClientBuilder::new(HttpConnector::new())
                .capabilities(capabilities)
                .connect(&format!("http://{driver_host}")),
        );
        let client = client.unwrap_or_else(|error| {
            let _ = running.end(Duration::from_secs(1));
            panic!("the browser does not start: {error}")
        });
        let host = server.host.clone();
        let browser = Browser { runtime, client, driver: running, driver_host, host };
        browser.log_in(server);
        browser
    }

    /// Opens the link of a server.
    pub fn log_in(&self, server: &PageServer) {
        self.run(self.client.goto(&server.link));
        self.until_text("Sessions");
    }

    /// Opens the link of a server in another window, and returns to this one.
    pub fn log_in_in_another_window(&self, server: &PageServer) {
        let own = self.run(self.client.window());
        let other = self.run(self.client.new_window(true));
        self.run(self.client.switch_to_window(other.handle));
        self.log_in(server);
        self.run(self.client.close_window());
        self.run(self.client.switch_to_window(own));
    }

    fn run<T>(&self, command: impl Future<Output = Result<T, fantoccini::error::CmdError>>) -> T {
        self.runtime.block_on(command).unwrap_or_else(|error| panic!("the browser: {error}"))
    }

    /// Opens a path of the server.
    pub fn goto(&self, path: &str) -> &Browser {
        self.run(self.client.goto(&format!("http://{}{path}", self.host)));
        self.script(COLLECT);
        self
    }

    /// Runs a script in the page; returns its value.
    pub fn script(&self, script: &str) -> Value {
        self.run(self.client.execute(script, Vec::new()))
    }

    /// Runs a script that calls its last argument with its value; returns the value.
    pub fn script_async(&self, script: &str) -> Value {
        self.run(self.client.execute_async(script, Vec::new()))
    }

    /// Sends a command of the Chrome DevTools protocol.
    pub fn devtools(&self, command: &str, params: &Value) {
        let session = self.runtime.block_on(self.client.session_id()).expect("a session");
        let session = session.expect("an open session");
        let body = json!({"cmd": command, "params": params}).to_string();
        let host = &self.driver_host;
        let mut stream = TcpStream::connect(host).expect("the driver listens");
        let head = format!(
            "POST /session/{session}/goog/cdp/execute HTTP/1.1\r\nHost: {host}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).expect("the driver reads");
        // The driver keeps the connection open.
        let status = BufReader::new(stream).lines().next().expect("an answer").expect("a line");
        assert!(status.starts_with("HTTP/1.1 200"), "{command}: {status}");
    }

    /// Sets the colours that the system prefers: `light` or `dark`.
    pub fn prefer_colours(&self, scheme: &str) -> &Browser {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": [feature]}));
        self.until(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"))
    }

    /// Sets the size of the page, which can be narrower than the narrowest window.
    pub fn resize_page(&self, width: u32, height: u32) -> &Browser {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        self.until(&format!("innerWidth == {width}"))
    }

    /// Returns the visible text of the page.
    pub fn text(&self) -> String {
        self.script("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits for a script to return true.
    #[track_caller]
    pub fn until(&self, script: &str) -> &Browser {
        let script = format!("return Boolean({script})");
        let is_true = poll(|| (self.script(&script) == true).then_some(()));
        assert!(is_true.is_some(), "waited 30 s for {script} in:\n{}", self.text());
        self
    }

    /// Waits for a text of the page.
    #[track_caller]
    pub fn until_text(&self, words: &str) -> &Browser {
        let found = poll(|| self.text().contains(words).then_some(()));
        assert!(found.is_some(), "waited 30 s for `{words}` in:\n{}", self.text());
        self
    }

    /// Clicks the first element of a CSS selector.
    #[track_caller]
    pub fn click(&self, selector: &str) -> &Browser {
        let element = self.run(self.client.find(Locator::Css(selector)));
        self.run(element.click());
        self
    }

    /// Types into the first element of a CSS selector.
    pub fn fill(&self, selector: &str, text: &str) -> &Browser {
        let element = self.run(self.client.find(Locator::Css(selector)));
        self.run(element.send_keys(text));
        self
    }

    /// Presses keys one after the other, where the focus is.
    pub fn press(&self, keys: &str) -> &Browser {
        let strokes = keys.chars().flat_map(|value| [Down { value }, Up { value }]);
        self.perform(strokes)
    }

    /// Presses Ctrl-Enter where the focus is.
    pub fn press_control_enter(&self) -> &Browser {
        let [control, enter] = [Key::Control, Key::Enter].map(char::from);
        self.perform([
            Down { value: control },
            Down { value: enter },
            Up { value: enter },
            Up { value: control },
        ])
    }

    /// Presses and releases keys of the keyboard, not of an element: the page may replace the focused one
    /// at any time.
    fn perform(&self, strokes: impl IntoIterator<Item = KeyAction>) -> &Browser {
        let keyboard = KeyActions::new("keyboard".to_owned());
        self.run(self.client.perform_actions(strokes.into_iter().fold(keyboard, KeyActions::then)));
        self
    }

    /// Sets the size of the window.
    pub fn resize(&self, width: u32, height: u32) -> &Browser {
        self.run(self.client.set_window_size(width, height));
        self
    }

    /// Saves a picture of the window, if the variable `STUDIO_SCREENSHOTS` names a directory.
    pub fn picture(&self, name: &str) -> &Browser {
        if let Some(directory) = std::env::var_os("STUDIO_SCREENSHOTS") {
            let bytes = self.run(self.client.screenshot());
            let path = std::path::Path::new(&directory).join(format!("{name}.png"));
            std::fs::write(path, bytes).expect("the directory is there");
        }
        self
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.clone().close());
        let _ = self.driver.end(Duration::from_secs(2));
    }
}

fn start_driver(env: &TestEnv, program: &std::path::Path) -> (Running, String) {
    let mut running = env.start(program, env.home(), ["--port=0"]);
    let stdout = running.child.stdout.take().expect("a pipe");
    let port = BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| {
        let port = line.split_once("started successfully on port ")?.1;
        port.trim_end_matches('.').parse::<u16>().ok()
    });
    let port = port.expect("the driver says its port");
    (running, format!("127.0.0.1:{port}"))
}
