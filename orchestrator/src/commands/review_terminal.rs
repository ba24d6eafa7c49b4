//! `studio review` on a terminal: shows one session after the other and carries out what the user
//! asks for.

use std::io::BufRead;
use std::time::Duration;

use base::failure::{OrFail, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use studio_core::landing::{Landed, LandingOptions, Rejection};
use studio_core::review::Review;
use studio_core::review::since::EarlierState;
use studio_core::review::syntax::SyntaxHighlighter;
use studio_core::session_view::SessionView;

use crate::commands::context::CommandContext;
use crate::commands::{accept, editor, review};
use crate::report;
use crate::review::screen::{CommentTarget, ReviewRequest, ReviewScreen};
use crate::review::view;

/// How often changes by another process, and signals, are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The sessions that are reviewed in a row.
struct ReviewSitting<'c> {
    context: &'c CommandContext,
    views: Vec<SessionView>,
    since: Option<EarlierState>,
    /// The index of the session that is shown.
    at: usize,
    terminal: Option<DefaultTerminal>,
    highlighter: Option<SyntaxHighlighter>,
    landed: usize,
    sent: usize,
}

/// Reviews the sessions in a row.
pub(crate) fn run(
    context: &CommandContext,
    views: &[SessionView],
    since: Option<EarlierState>,
) -> Result<u8> {
    let mut sitting = ReviewSitting {
        context,
        views: views.to_vec(),
        since,
        at: 0,
        terminal: None,
        highlighter: None,
        landed: 0,
        sent: 0,
    };
    let first = review::open(context, &sitting.views[0], since)?;
    let result = sitting.resume_terminal().and_then(|()| sitting.review_all(first));
    sitting.suspend_terminal();
    if sitting.landed + sitting.sent > 0 {
        let (landed, sent) = (sitting.landed, sitting.sent);
        report::say(&format!("{landed} landed, {sent} sent back to their agents"));
    }
    result.map(|()| 0)
}

impl ReviewSitting<'_> {
    /// Takes over the terminal. A panic restores it.
    fn resume_terminal(&mut self) -> Result<()> {
        if self.terminal.is_none() {
            self.terminal = Some(ratatui::try_init().or_fail(|| "cannot use the terminal")?);
        }
        Ok(())
    }

    /// Gives the terminal back as it was.
    fn suspend_terminal(&mut self) {
        if self.terminal.take().is_some() {
            let _ = ratatui::try_restore();
        }
    }

    fn size(&self) -> (u16, u16) {
        let size = self.terminal.as_ref().and_then(|terminal| terminal.size().ok());
        size.map_or((80, 24), |size| (size.width, size.height))
    }

    /// Returns the screen of a review, and records that the user has seen it.
    fn show(&self, review: Review) -> ReviewScreen {
        review::record_look(self.context, &review);
        let position = (self.at + 1, self.views.len());
        ReviewScreen::new(review, position, self.size(), report::wants_colours())
    }

    fn review_all(&mut self, first: Review) -> Result<()> {
        let mut screen = self.show(first);
        loop {
            self.draw(&mut screen)?;
            self.context.interrupt.check()?;
            if !event::poll(POLL_INTERVAL).or_fail(cannot_read)? {
                if screen.review.reload_changed()? {
                    screen.rebuild();
                }
                continue;
            }
            let request = match event::read().or_fail(cannot_read)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match screen.press(key) {
                    Ok(request) => request,
                    Err(failure) => {
                        screen.message = failure.sentence();
                        None
                    }
                },
                Event::Resize(columns, rows) => {
                    screen.resize((columns, rows));
                    None
                }
                _ => None,
            };
            match request {
                None => {}
                Some(ReviewRequest::Quit) => return Ok(()),
                Some(request) => match self.carry_out(request, screen)? {
                    Some(next) => screen = next,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Draws the screen; the first frame does not wait for the syntax definitions.
    fn draw(&mut self, screen: &mut ReviewScreen) -> Result<()> {
        let needs_syntax = screen.colours && self.highlighter.is_none();
        screen.mark_visible(self.highlighter.as_ref());
        self.draw_frame(screen)?;
        if needs_syntax {
            base::files::step("review.first_frame");
            self.highlighter = Some(SyntaxHighlighter::load());
            screen.mark_visible(self.highlighter.as_ref());
            self.draw_frame(screen)?;
        }
        Ok(())
    }

    fn draw_frame(&mut self, screen: &ReviewScreen) -> Result<()> {
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        let drawn = terminal.draw(|frame| view::draw(screen, frame.area(), frame.buffer_mut()));
        drawn.map(|_| ()).or_fail(|| "cannot draw on the terminal")
    }

    /// Does what the user asked for; returns the next screen, or `None` at the end.
    fn carry_out(
        &mut self,
        request: ReviewRequest,
        mut screen: ReviewScreen,
    ) -> Result<Option<ReviewScreen>> {
        match request {
            ReviewRequest::Quit => Ok(None),
            ReviewRequest::Session(step) => {
                self.other(step, screen, "no other open session").map(Some)
            }
            ReviewRequest::Send => match review::send_review(self.context, &mut screen.review) {
                Ok(message) => {
                    self.sent += 1;
                    self.settled(screen, message.as_deref().unwrap_or("nothing to send"))
                }
                Err(failure) => {
                    screen.message = failure.sentence();
                    screen.rebuild();
                    Ok(Some(screen))
                }
            },
            ReviewRequest::LandAccepted => {
                let result = self.land(|it| review::land_accepted(it.context, &screen.review))?;
                self.after_landing(result, screen)
            }
            ReviewRequest::LandSession => {
                let options = LandingOptions::default();
                let result =
                    self.land(|it| accept::land_one(it.context, &screen.review.view, &options))?;
                self.after_landing(result, screen)
            }
            ReviewRequest::Editor(target) => {
                self.suspend_terminal();
                let text = self.comment_in_editor(&target);
                self.resume_terminal()?;
                match text.and_then(|text| screen.save_comment(&target, &text)) {
                    Ok(()) => {}
                    Err(failure) => screen.message = failure.sentence(),
                }
                screen.resize(self.size());
                Ok(Some(screen))
            }
        }
    }

    /// Lands on the usual screen, where the checks and questions of a landing appear.
    fn land(
        &mut self,
        land: impl FnOnce(&Self) -> std::result::Result<Landed, Rejection>,
    ) -> Result<std::result::Result<Landed, Rejection>> {
        self.suspend_terminal();
        let result = land(self);
        match &result {
            Ok(landed) => {
                accept::print_landed(landed, false);
                if let Err(failure) = accept::follow_up(self.context) {
                    report::say(&failure.to_string());
                }
            }
            Err(rejection) => {
                report::say(&rejection.failure.to_string());
                report::say("Enter continues the review");
                let mut line = String::new();
                let _ = std::io::stdin().lock().read_line(&mut line);
            }
        }
        self.resume_terminal()?;
        Ok(result)
    }

    fn after_landing(
        &mut self,
        result: std::result::Result<Landed, Rejection>,
        mut screen: ReviewScreen,
    ) -> Result<Option<ReviewScreen>> {
        let landed = match result {
            Ok(landed) => landed,
            Err(rejection) => {
                screen.message = rejection.failure.sentence();
                screen.resize(self.size());
                return Ok(Some(screen));
            }
        };
        self.landed += 1;
        let id = &landed.id;
        let undo = landed.operation.as_deref().unwrap_or_default();
        match &landed.hunks {
            None => self.settled(screen, &format!("{id} landed (studio undo {undo})")),
            Some(hunks) => {
                let count = base::text::count(hunks.ids.len(), "hunk");
                let mut screen = self.open_at(self.at)?.unwrap_or(screen);
                screen.message = format!("{count} landed (studio undo {undo}); the rest stays");
                Ok(Some(screen))
            }
        }
    }

    /// Goes on to the next session after this one is settled; ends after the last one.
    fn settled(&mut self, screen: ReviewScreen, message: &str) -> Result<Option<ReviewScreen>> {
        drop(screen);
        let mut messages = vec![message.to_owned()];
        for at in self.at + 1..self.views.len() {
            match self.open_at(at) {
                Ok(Some(mut next)) => {
                    next.message = messages.join("; ");
                    return Ok(Some(next));
                }
                Ok(None) => {}
                // One session that cannot be read does not end the review of the others.
                Err(failure) => messages.push(failure.sentence()),
            }
        }
        self.suspend_terminal();
        messages.iter().for_each(|message| report::say(message));
        Ok(None)
    }

    /// Shows another open session, or stays at this one.
    fn other(&mut self, step: isize, mut screen: ReviewScreen, none: &str) -> Result<ReviewScreen> {
        let mut at = self.at;
        let mut message = none.to_owned();
        while let Some(next) = at.checked_add_signed(step).filter(|at| *at < self.views.len()) {
            at = next;
            match self.open_at(at) {
                Ok(Some(screen)) => return Ok(screen),
                Ok(None) => {}
                Err(failure) => message = failure.sentence(),
            }
        }
        screen.message = message;
        Ok(screen)
    }

    /// Opens a session; `None` if it has landed or was discarded.
    fn open_at(&mut self, at: usize) -> Result<Option<ReviewScreen>> {
        let view = self.context.view(&self.views[at].record.id)?;
        if view.state.is_over() {
            return Ok(None);
        }
        let review = review::open(self.context, &view, self.since)?;
        self.at = at;
        self.views[at] = view;
        Ok(Some(self.show(review)))
    }

    /// Returns the text that the user wrote in the editor.
    fn comment_in_editor(&self, target: &CommentTarget) -> Result<String> {
        let file = tempfile::Builder::new().prefix("studio-comment-").suffix(".md").tempfile();
        let file = file.or_fail(base::files::cannot_make_temporary)?;
        if let CommentTarget::Existing { text, .. } = target {
            std::fs::write(file.path(), text).or_fail(|| "cannot write the comment")?;
        }
        let directory = &self.context.repository.common_dir;
        let interrupt = &self.context.interrupt;
        editor::edit_file(directory, interrupt, file.path(), "the comment is unchanged")?;
        std::fs::read_to_string(file.path()).or_fail(|| "cannot read the comment")
    }
}

fn cannot_read() -> &'static str {
    "cannot read from the terminal"
}
