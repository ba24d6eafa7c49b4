//! Asks the user at the terminal about permission requests while sessions are shown: a single key
//! answers.

use std::io::IsTerminal;

use base::failure::Result;
use base::id::Id;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use tokio::net::unix::pipe::Receiver;

use crate::commands::context::CommandContext;
use crate::report::progress::SessionProgress;
use studio_core::inbox::InboxQuestion;
use studio_core::supervisor::control::{self, ControlRequest};

/// The terminal, and the request that is shown.
pub(crate) struct PermissionPrompt {
    terminal: Receiver,
    /// The terminal's settings before a request was shown.
    saved_settings: Option<Termios>,
    open: Option<(Id, u32)>,
    /// Where an answer for always applies.
    always_scope: &'static str,
}

impl PermissionPrompt {
    /// Creates a prompt if stdin and stderr are the controlling terminal. Call it within a runtime.
    pub(crate) fn new() -> Option<PermissionPrompt> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return None;
        }
        // Opened separately: other users of the descriptor must not find it non-blocking.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let terminal = Receiver::from_owned_fd_unchecked(terminal).ok()?;
        let open = None;
        Some(PermissionPrompt { terminal, saved_settings: None, open, always_scope: "" })
    }

    /// Shows the first of these requests, and removes it after it was answered elsewhere. `more_keys`
    /// describes the keys that the caller handles.
    pub(crate) fn update<'v>(
        &mut self,
        questions: impl Iterator<Item = InboxQuestion<'v>>,
        more_keys: &str,
        progress: &mut SessionProgress,
    ) {
        let mut first = None;
        for question in questions {
            if let Some((id, number)) = &self.open
                && question.view.record.id == *id
                && question.number == *number
            {
                return;
            }
            first = first.or(Some(question));
        }
        self.open = None;
        let Some(question) = first else { return self.restore() };
        let InboxQuestion { view, number, request } = question;
        if !self.enter_raw_mode() {
            return;
        }
        let id = &view.record.id;
        self.open = Some((id.clone(), number));
        self.always_scope = request.always_scope();
        let description = base::text::printable(&request.description).replace('\n', "\n  ");
        let never = question.never_hint().map(|hint| format!("  {hint}\n\n"));
        let never = never.unwrap_or_default();
        let agent = base::text::printable(&view.record.agent);
        let directory = view.record.session_repo.worktree.display();
        let always = request.always_allow_text();
        progress.say(&format!(
            "\n{id} asks for permission {number} ({agent}, in {directory}):\n\n  {description}\n\n\
             {never}[y] allow  [n] deny  [a] {always}{more_keys}",
        ));
    }

    /// Returns the request that is shown.
    pub(crate) fn shown(&self) -> Option<&(Id, u32)> {
        self.open.as_ref()
    }

    /// Returns the next key; never returns while no request is shown.
    pub(crate) async fn read_key(&mut self) -> char {
        loop {
            if self.open.is_none() {
                return std::future::pending().await;
            }
            let mut keys = [0u8; 64];
            if self.terminal.readable().await.is_err() {
                return std::future::pending().await;
            }
            match self.terminal.try_read(&mut keys) {
                Ok(n @ 1..) => {
                    let answer_key = keys[..n].iter().find(|key| b"yYnNaA".contains(key));
                    return char::from(*answer_key.unwrap_or(&keys[0]));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                // The terminal is gone.
                Ok(0) | Err(_) => return std::future::pending().await,
            }
        }
    }

    /// Answers the shown request with a key; other keys are ignored.
    pub(crate) fn answer(
        &mut self,
        context: &CommandContext,
        key: char,
        progress: &mut SessionProgress,
    ) -> Result<()> {
        let (allow, always, decision) = match key {
            'y' | 'Y' => (true, false, "allowed"),
            'a' | 'A' => (true, true, "allowed"),
            'n' | 'N' => (false, false, "denied"),
            _ => return Ok(()),
        };
        let Some((id, n)) = self.open.take() else { return Ok(()) };
        self.restore();
        let request = ControlRequest::Answer { n: Some(n), allow, always };
        // A refusal means that it was answered elsewhere.
        match control::send_request(&context.repository.common_dir, &id, &request) {
            Ok(true) => {
                let scope = if always { format!(" {}", self.always_scope) } else { String::new() };
                progress.say(&format!("{id}: permission {n} {decision}{scope}"));
            }
            Ok(false) | Err(_) => progress.say(&format!("{id}: permission {n} was withdrawn")),
        }
        Ok(())
    }

    /// Puts the terminal into single-key mode without echo; returns `false` in the background. Keys
    /// that were typed before the request was shown are discarded.
    fn enter_raw_mode(&mut self) -> bool {
        let terminal = &self.terminal;
        let is_foreground = base::process::is_in_foreground(terminal);
        let Some(saved_settings) =
            rustix::termios::tcgetattr(terminal).ok().filter(|_| is_foreground)
        else {
            return false;
        };
        let mut keys = saved_settings.clone();
        keys.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO);
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        if rustix::termios::tcsetattr(terminal, OptionalActions::Flush, &keys).is_err() {
            return false;
        }
        self.saved_settings.get_or_insert(saved_settings);
        true
    }

    fn restore(&mut self) {
        if let Some(saved_settings) = self.saved_settings.take() {
            let terminal = &self.terminal;
            let _ = rustix::termios::tcsetattr(terminal, OptionalActions::Now, &saved_settings);
        }
    }
}

impl Drop for PermissionPrompt {
    fn drop(&mut self) {
        self.restore();
    }
}
