//! A browser without a window, by the WebDriver protocol of chromedriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use base::process::{Command, Running, Stream, find_program};
use serde_json::{Value, json};

/// A browser with one page. It ends on drop.
pub struct Browser {
    driver: Running,
    host: String,
    session: String,
}

impl Browser {
    /// Starts chromium with its driver; its profile is in this directory.
    pub fn start(directory: &Path) -> Browser {
        let find = |names: &[&str]| names.iter().find_map(|name| find_program(name));
        let program = find(&["chromium", "chromium-browser", "google-chrome"]);
        let (Some(program), Some(driver)) = (program, find(&["chromedriver"])) else {
            panic!("./setup --tests installs chromium and chromedriver")
        };
        let command = Command::new(&driver, directory).arg("--port=0");
        let command = command.env("HOME", directory).stdout(Stream::Piped).stderr(Stream::Null);
        let mut driver = command.spawn().expect("chromedriver can be started");
        let stdout = driver.child.stdout.take().expect("a pipe");
        let port = BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| {
            let port = line.split_once("started successfully on port ")?.1;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        let host = format!("127.0.0.1:{}", port.expect("the driver says its port"));
        let profile = directory.join("profile");
        let mut args = vec![
            "--headless=new".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-gpu".to_owned(),
            "--window-size=1280,900".to_owned(),
            format!("--user-data-dir={}", profile.display()),
        ];
        if rustix::process::getuid().is_root() {
            args.push("--no-sandbox".to_owned());
        }
        let options = json!({"binary": program, "args": args});
        let wanted = json!({"browserName": "chrome", "goog:chromeOptions": options});
        let mut browser = Browser { driver, host, session: String::new() };
        let answer = browser.post("/session", &json!({"capabilities": {"alwaysMatch": wanted}}));
        browser.session = answer["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Opens a URL, and waits for its load event.
    pub fn goto(&self, url: &str) {
        self.command("url", &json!({"url": url}));
    }

    /// Runs a script in the page; returns its value.
    pub fn script(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script before those of each page that is opened.
    pub fn before_each_page(&self, script: &str) {
        let params = json!({"source": script});
        let command = "Page.addScriptToEvaluateOnNewDocument";
        self.command("goog/cdp/execute", &json!({"cmd": command, "params": params}));
    }

    fn command(&self, name: &str, body: &Value) -> Value {
        self.post(&format!("/session/{}/{name}", self.session), body)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (host, body) = (&self.host, body.to_string());
        let mut stream = TcpStream::connect(host).expect("the driver listens");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).expect("the driver reads");
        // The driver keeps the connection open.
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let at = head.len();
            reader.read_line(&mut head).expect("the driver answers");
            if let Some(value) = head[at..].to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the driver answers");
        let body = String::from_utf8_lossy(&body);
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {body}");
        let answer: Value = serde_json::from_str(&body).expect("JSON");
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.end(Duration::from_secs(2));
    }
}
