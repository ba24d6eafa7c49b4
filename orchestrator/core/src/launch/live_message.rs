//! The message that an agent is writing: the journal has it when it is complete, and until then
//! clients of the control socket can follow it.

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Maximum length of a text that is followed from elsewhere, in bytes: more than a supervisor publishes.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// A message, as far as it has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveMessage {
    /// Its number since the agent started.
    pub number: u64,
    /// Its text so far.
    pub text: String,
}

/// A change of the message, as it is sent to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveMessagePart {
    /// The number of the message.
    number: u64,
    /// Whether the text replaces what the client has, instead of following it.
    replaces: bool,
    text: String,
}

/// The place where the message of a session is published.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveMessages(watch::Sender<LiveMessage>);

impl LiveMessages {
    /// Appends a chunk.
    pub(crate) fn push(&self, chunk: &str) {
        self.0.send_modify(|message| message.text.push_str(chunk));
    }

    /// Replaces the text, of which the beginning was dropped.
    pub(crate) fn replace(&self, text: &str) {
        self.0.send_modify(|message| text.clone_into(&mut message.text));
    }

    /// Begins the next message.
    pub(crate) fn finish(&self) {
        self.0.send_if_modified(|message| {
            let had_text = !message.text.is_empty();
            if had_text {
                *message = LiveMessage { number: message.number + 1, text: String::new() };
            }
            had_text
        });
    }

    /// Adds a part that another supervisor published to a client. Its first part replaces what an earlier
    /// client got. Of a text that is too long, the end is kept.
    pub(crate) fn add(&self, part: LiveMessagePart, is_first: bool) {
        self.0.send_modify(|message| {
            message.add(LiveMessagePart { replaces: part.replaces || is_first, ..part });
            if message.text.len() > MAX_TEXT_BYTES {
                message.text = base::text::tail(&message.text, MAX_TEXT_BYTES / 2).to_owned();
            }
        });
    }

    /// Follows the messages.
    pub(crate) fn subscribe(&self) -> watch::Receiver<LiveMessage> {
        self.0.subscribe()
    }
}

impl LiveMessage {
    /// Returns what a client with this message lacks; `None` if nothing.
    pub(crate) fn part_after(&self, known: &LiveMessage) -> Option<LiveMessagePart> {
        let rest = self.text.strip_prefix(&known.text).filter(|_| self.number == known.number);
        match rest {
            Some("") => None,
            Some(rest) => Some(LiveMessagePart {
                number: self.number,
                replaces: false,
                text: rest.to_owned(),
            }),
            None => Some(LiveMessagePart {
                number: self.number,
                replaces: true,
                text: self.text.clone(),
            }),
        }
    }

    /// Adds a part.
    pub fn add(&mut self, part: LiveMessagePart) {
        self.number = part.number;
        match part.replaces {
            true => self.text = part.text,
            false => self.text.push_str(&part.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_only_what_it_lacks() {
        let live = LiveMessages::default();
        let (mut known, followed) = (LiveMessage::default(), live.subscribe());
        let mut update = || {
            let part = followed.borrow().part_after(&known);
            part.clone().into_iter().for_each(|part| known.add(part));
            assert_eq!(known, *followed.borrow());
            part.map(|part| (part.replaces, part.text))
        };
        assert_eq!(update(), None);
        live.finish();
        assert_eq!(update(), None, "an empty message is not a message");
        live.push("Hel");
        assert_eq!(update(), Some((false, "Hel".to_owned())));
        live.push("lo");
        assert_eq!(update(), Some((false, "lo".to_owned())));
        live.finish();
        live.push("Next");
        assert_eq!(update(), Some((true, "Next".to_owned())));
        live.replace("xt");
        assert_eq!(update(), Some((true, "xt".to_owned())));
        // Another client begins from nothing.
        let copy = LiveMessages::default();
        let first = followed.borrow().part_after(&LiveMessage::default()).expect("it has text");
        copy.add(first.clone(), true);
        copy.add(first, true);
        assert_eq!(*copy.subscribe().borrow(), *followed.borrow());
    }
}
