//! One policy for every call: a rule says allow, ask, box or deny; what no rule names is judged by
//! where it reaches. Every call passes here before it runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::config::agent::{Action, GateRule};
use futures_util::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};

use stance::Stance;

pub mod fence;
pub mod paths;
pub mod shell;
pub mod stance;
mod traced;
pub mod verbs;

/// What a call wants to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads this file or below this directory (absolute, symlinks resolved).
    Read(PathBuf),
    /// Writes this file (absolute, symlinks resolved).
    Write(PathBuf),
    /// Runs a command line.
    Run {
        /// The line as the shell gets it.
        line: String,
        /// Where it runs.
        cwd: PathBuf,
        /// Whether destructive commands ask, wherever they reach (the core profile).
        careful: bool,
    },
    /// Calls a tool of a server that is not ours (MCP).
    Foreign {
        /// The server's name.
        server: String,
        /// Whether the user's configuration lets its calls run.
        free: bool,
    },
    /// Asks a host over the network.
    Fetch {
        /// Its name or address, in small letters, without a port.
        host: String,
        /// Whether the user's configuration names it.
        free: bool,
    },
    /// Looks at the screen, or acts on it.
    Screen {
        /// Whether it acts.
        acts: bool,
        /// Whether the user's configuration lets it.
        free: bool,
    },
}

/// A call at the gate.
#[derive(Clone, Debug)]
pub struct Visitor<'a> {
    /// The tool's name.
    pub tool: &'a str,
    /// Inside this directory nothing asks.
    pub root: &'a Path,
    /// The session's own files may be read.
    pub session_dir: &'a Path,
    /// What it wants to reach.
    pub access: &'a Access,
}

/// What the user is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The tool's name.
    pub tool: String,
    /// What it wants, in a sentence.
    pub what: String,
    /// Why it needs an answer, in a clause.
    pub why: String,
    /// The rule that would answer it once and for all; empty when there can be none.
    pub rule: String,
}

/// What the user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This once.
    Once,
    /// This, until the session ends.
    Always,
    /// No.
    No,
}

/// Somebody who can be asked: a terminal, an editor, an orchestrator.
pub trait Asker: Send + Sync {
    /// Asks, and waits for the answer.
    fn ask<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Answer>;
}

/// How a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// As it is.
    Free,
    /// In the tighter box.
    Boxed,
}

tokio::task_local! {
    /// Set while a call runs about which the user would not be asked: somebody answered before.
    static ANSWERED: ();
}

/// Work in which what would be asked is allowed; what is denied stays so.
pub async fn answered<T>(work: impl Future<Output = T>) -> T {
    ANSWERED.scope((), work).await
}

/// The rules, and whom to ask.
/// A clone is the same gate: what the user answers at one holds at the other.
#[derive(Clone, Default)]
pub struct Gate {
    rules: Arc<[Rule]>,
    asker: Option<Arc<dyn Asker>>,
    always: Arc<Mutex<BTreeSet<String>>>,
    stance: Arc<Mutex<Stance>>,
    fence: Option<fence::Fence>,
}

struct Rule {
    tool: Option<GlobMatcher>,
    command: Option<GlobMatcher>,
    path: Option<GlobMatcher>,
    /// Rules about hosts never match a call that reaches none.
    host: Option<GlobMatcher>,
    action: Action,
}

/// A verdict and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the call.
    pub action: Action,
    /// Why, in a clause.
    pub why: String,
    /// Whether a rule of the user's says so.
    pub by_rule: bool,
}

impl Verdict {
    /// A verdict by where a call reaches.
    fn by_reach(action: Action, why: String) -> Verdict {
        Verdict { action, why, by_rule: false }
    }
}

impl Gate {
    /// A gate with the user's rules. The error names a pattern that is none.
    pub fn new(rules: &[GateRule], asker: Option<Arc<dyn Asker>>) -> base::failure::Result<Gate> {
        let rules = rules.iter().map(Rule::new).collect::<Result<_, _>>()?;
        Ok(Gate { rules, asker, ..Gate::default() })
    }

    /// The same gate, with a fence around what is written.
    #[must_use]
    pub fn fenced(self, fence: Option<fence::Fence>) -> Gate {
        Gate { fence, ..self }
    }

    /// Judges a call; the error is what the model reads.
    pub async fn admit(&self, visitor: &Visitor<'_>) -> Result<Pass, String> {
        let verdict = self.stance().tempered(self.judge(visitor), visitor.access);
        let verdict = verdict.inspect_err(|_| traced::decided(visitor, "denied", "stance"))?;
        let hooked = verdict.action == Action::Ask && ANSWERED.try_with(|()| ()).is_ok();
        traced::verdict(visitor, &verdict, hooked);
        match verdict.action {
            Action::Allow => Ok(Pass::Free),
            Action::Box => Ok(Pass::Boxed),
            Action::Deny => Err(format!("denied: {}", verdict.why)),
            Action::Ask if hooked => Ok(Pass::Free),
            Action::Ask => self.ask(&question(visitor, verdict.why)).await,
        }
    }

    /// Asks the user, unless that was answered for good; the error is what the model reads.
    pub async fn ask(&self, question: &Question) -> Result<Pass, String> {
        if self.remembered().contains(&question.rule) {
            return Ok(Pass::Free);
        }
        let answer = self.put(question).await;
        traced::asked(&question.tool, answer);
        let Some(answer) = answer else {
            if question.rule.is_empty() {
                return Err(format!("denied: {}, and there is nobody to ask", question.why));
            }
            return Err(format!(
                "denied: {}, and there is nobody to ask. To allow it, add this rule to the \
                 configuration:\n{}",
                question.why, question.rule
            ));
        };
        match answer {
            Answer::Once => Ok(Pass::Free),
            Answer::Always if question.rule.is_empty() => Ok(Pass::Free),
            Answer::Always => {
                self.remembered().insert(question.rule.clone());
                Ok(Pass::Free)
            }
            Answer::No => Err(format!("denied by the user: {}", question.what)),
        }
    }

    /// How much may be done by itself now.
    pub fn stance(&self) -> Stance {
        *self.stance.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on so much may be done.
    pub fn take(&self, stance: Stance) {
        *self.stance.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = stance;
    }

    /// Puts a question to the user; `None` when there is nobody.
    pub async fn put(&self, question: &Question) -> Option<Answer> {
        Some(self.asker.as_ref()?.ask(question).await)
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.always.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The verdict: the first rule that matches, else by where the call reaches; what destroys
    /// the machine is denied whatever the rules say. Asks nobody.
    pub fn judge(&self, visitor: &Visitor<'_>) -> Verdict {
        let fence = self.fence.as_ref();
        if let Some(why) = fence.and_then(|fence| fence.refusal(visitor.access, visitor.root)) {
            return Verdict::by_reach(Action::Deny, why);
        }
        let reach = by_reach(visitor);
        match self.rules.iter().find(|rule| rule.matches(visitor, reach.action)) {
            Some(rule) if reach.action != Action::Deny => {
                Verdict { action: rule.action, why: "a rule says so".to_owned(), by_rule: true }
            }
            Some(_) | None => reach,
        }
    }
}

fn by_reach(visitor: &Visitor<'_>) -> Verdict {
    let verdict = Verdict::by_reach;
    let inside = |path: &Path| paths::is_inside(path, visitor.root);
    match visitor.access {
        Access::Read(path) if inside(path) || paths::is_inside(path, visitor.session_dir) => {
            verdict(Action::Allow, String::new())
        }
        Access::Read(path) => {
            verdict(Action::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if !inside(path) => {
            verdict(Action::Ask, format!("{} is outside the working directory", path.display()))
        }
        Access::Write(path) if paths::is_git_internal(path, visitor.root) => {
            verdict(Action::Ask, format!("{} belongs to git itself", path.display()))
        }
        Access::Write(_) => verdict(Action::Allow, String::new()),
        Access::Run { line, cwd, careful } => shell::judge(line, cwd, visitor.root, *careful),
        Access::Foreign { free: true, .. } => verdict(Action::Allow, String::new()),
        Access::Foreign { server, free: false } => {
            verdict(Action::Ask, format!("the MCP server `{server}` acts outside of g3's control"))
        }
        Access::Fetch { free: true, .. } => verdict(Action::Allow, String::new()),
        Access::Fetch { host, free: false } => {
            verdict(Action::Ask, format!("`{host}` is asked over the network"))
        }
        Access::Screen { free: true, .. } => verdict(Action::Allow, String::new()),
        Access::Screen { acts: true, .. } => {
            verdict(Action::Ask, "it acts on the screen, outside of g3's control".to_owned())
        }
        Access::Screen { acts: false, .. } => {
            verdict(Action::Ask, "it looks at the whole screen".to_owned())
        }
    }
}

fn question(visitor: &Visitor<'_>, why: String) -> Question {
    let tool = visitor.tool.to_owned();
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let path = |path: &Path| Some(("path", escape(&path.to_string_lossy())));
    let (what, narrower) = match visitor.access {
        Access::Read(file) => (format!("read {}", file.display()), path(file)),
        Access::Write(file) => (format!("write {}", file.display()), path(file)),
        Access::Run { line, .. } => (format!("run `{line}`"), Some(("command", escape(line)))),
        Access::Foreign { server, .. } => (format!("run on the MCP server `{server}`"), None),
        Access::Fetch { host, .. } => {
            (format!("ask {host} over the network"), Some(("host", escape(host))))
        }
        Access::Screen { acts: true, .. } => ("act on the screen".to_owned(), None),
        Access::Screen { acts: false, .. } => ("look at the screen".to_owned(), None),
    };
    let narrower = narrower.map(|(key, value)| format!("{key} = {}\n", quoted(&value)));
    let rule = format!(
        "[[gate.rules]]\ntool = {}\n{}action = \"allow\"",
        quoted(visitor.tool),
        narrower.unwrap_or_default()
    );
    Question { tool, what, why, rule }
}

/// A text as a glob that matches just that text.
fn escape(text: &str) -> String {
    // A backslash quotes in a glob; in a class it is a character.
    text.split('\\').map(globset::escape).collect::<Vec<_>>().join("[\\]")
}

impl Rule {
    fn new(rule: &GateRule) -> base::failure::Result<Rule> {
        let path = rule.path.as_deref().map(paths::expand_home);
        let path = path.as_ref().map(|path| path.to_string_lossy().into_owned());
        Ok(Rule {
            tool: glob(rule.tool.as_deref())?,
            // In a command line `/` is a character like any other.
            command: glob(rule.command.as_deref())?,
            path: glob(path.as_deref())?,
            host: glob(rule.host.as_deref().map(str::to_lowercase).as_deref())?,
            action: rule.action,
        })
    }

    /// Whether it speaks of a call, which without any rule would fare so.
    fn matches(&self, visitor: &Visitor<'_>, otherwise: Action) -> bool {
        let (path, command) = match visitor.access {
            Access::Read(path) | Access::Write(path) => (Some(path), None),
            Access::Run { line, cwd, .. } => (Some(cwd), Some((line, cwd))),
            Access::Foreign { .. } | Access::Fetch { .. } | Access::Screen { .. } => (None, None),
        };
        let host = match visitor.access {
            Access::Fetch { host, .. } => Some(Path::new(host)),
            Access::Read(_)
            | Access::Write(_)
            | Access::Run { .. }
            | Access::Foreign { .. }
            | Access::Screen { .. } => None,
        };
        let fits = |glob: &Option<GlobMatcher>, text: Option<&Path>| {
            glob.as_ref().is_none_or(|glob| text.is_some_and(|text| glob.is_match(text)))
        };
        fits(&self.host, host)
            && fits(&self.tool, Some(Path::new(visitor.tool)))
            && fits(&self.path, path.map(PathBuf::as_path))
            && self.command.as_ref().is_none_or(|glob| {
                let opens = self.action == Action::Allow
                    || self.action == Action::Box && otherwise != Action::Allow;
                match command {
                    Some((line, cwd)) if opens => opens_all(glob, line, cwd, visitor.root),
                    Some((line, _)) => names_one(glob, line),
                    None => false,
                }
            })
    }
}

/// Whether a rule that forbids, asks or boxes speaks of this line: one of its commands is enough.
fn names_one(glob: &GlobMatcher, line: &str) -> bool {
    let fits = |piece: verbs::Piece| {
        [piece.words.join(" "), piece.text].iter().any(|text| glob.is_match(text))
    };
    glob.is_match(line) || verbs::pieces(line).into_iter().any(fits)
}

/// Whether a rule lets this line through: it is the line, or it fits each of its commands, and
/// none of them is sent into a file outside.
fn opens_all(glob: &GlobMatcher, line: &str, cwd: &Path, root: &Path) -> bool {
    let pieces = verbs::pieces(line);
    let fits = |piece: &verbs::Piece| {
        (glob.is_match(&piece.text) || piece.text.is_empty() && !piece.written.is_empty())
            && shell::redirected_outside(piece, cwd, root).is_none()
    };
    glob.glob().glob() == escape(line) || !pieces.is_empty() && pieces.iter().all(fits)
}

fn glob(pattern: Option<&str>) -> base::failure::Result<Option<GlobMatcher>> {
    let Some(pattern) = pattern else { return Ok(None) };
    let glob = GlobBuilder::new(pattern).literal_separator(false).build().map_err(|why| {
        base::failure::Failure::usage(format!("`{pattern}` in [[gate.rules]] is not a glob"))
            .because(why)
    })?;
    Ok(Some(glob.compile_matcher()))
}

#[cfg(test)]
mod tests;
