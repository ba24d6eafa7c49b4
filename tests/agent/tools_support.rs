//! A directory in which the tests call tools with `g3 tool exec`, as a program would.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::env::TestEnv;

/// An empty directory and the tools of one profile.
pub struct Bench {
    pub env: TestEnv,
    pub dir: PathBuf,
    pub profile: &'static str,
}

/// The output of `g3 tool exec --json`.
#[derive(Debug)]
pub struct Called {
    pub code: i32,
    pub ok: bool,
    pub text: String,
    pub metadata: Value,
    pub escalate: Option<String>,
    pub kind: Option<String>,
    pub images: Vec<Value>,
}

pub const G3: &str = env!("CARGO_BIN_EXE_g3");

impl Bench {
    pub fn new(profile: &'static str) -> Bench {
        let env = TestEnv::new();
        let dir = env.home().join("work");
        fs::create_dir(&dir).unwrap();
        Bench { env, dir: dir.canonicalize().unwrap(), profile }
    }

    /// Calls a tool.
    pub fn call(&self, name: &str, args: Value) -> Called {
        self.call_text(name, &args.to_string())
    }

    /// Calls a tool with unparsed arguments, as a model might write them.
    pub fn call_text(&self, name: &str, args: &str) -> Called {
        let ran = self.env.run(
            G3,
            &self.dir,
            ["tool", "exec", "--profile", self.profile, "--name", name, "--args", args, "--json"],
        );
        let said: Value = serde_json::from_str(&ran.out)
            .unwrap_or_else(|e| panic!("{name} {args}: {e}\n{}\n{}", ran.out, ran.err));
        let text = |key: &str| said[key].as_str().map(str::to_owned);
        assert!(said["duration_ms"].is_u64());
        Called {
            code: ran.code,
            ok: said["ok"].as_bool().unwrap(),
            text: text("text").unwrap(),
            metadata: said["metadata"].clone(),
            escalate: text("escalate"),
            kind: text("error_kind"),
            images: said["images"].as_array().unwrap().clone(),
        }
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap()
    }

    pub fn has(&self, path: &str) -> bool {
        self.dir.join(path).exists()
    }

    /// Returns the directory of the state of calls.
    pub fn session(&self) -> PathBuf {
        self.env.g3_state(&self.dir).join("sessions/tool-exec")
    }

    pub fn at(&self, path: impl AsRef<Path>) -> String {
        self.dir.join(path).to_string_lossy().into_owned()
    }
}

impl Called {
    /// Asserts success and returns the text.
    #[track_caller]
    pub fn works(&self) -> &str {
        assert!(self.ok && self.code == 0 && self.kind.is_none(), "{self:?}");
        &self.text
    }

    /// Asserts a failure of this kind with its exit code and returns the text.
    #[track_caller]
    pub fn fails(&self, kind: &str) -> &str {
        let code = if matches!(kind, "validation" | "unknown_tool") { 2 } else { 1 };
        assert!(!self.ok && self.kind.as_deref() == Some(kind), "{self:?}");
        assert_eq!(self.code, code, "{self:?}");
        &self.text
    }

    /// Asserts that the text contains these words.
    #[track_caller]
    pub fn says(&self, words: &str) -> &Called {
        assert!(self.text.contains(words), "expected {words:?} in {self:?}");
        self
    }
}
