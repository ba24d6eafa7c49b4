//! The turns of a conversation as they are shown when it is taken up again.

use base::event::Status;

use crate::ui::recap::PastTurn;
use agent_core::call_line::call_line;
use agent_core::context::{Entry, turns};

/// Whether the last turn came to no end.
pub fn is_unfinished(entries: &[Entry]) -> bool {
    let mut unfinished = false;
    for entry in entries {
        match entry {
            Entry::Request { .. } => unfinished = true,
            Entry::Ended { status } => unfinished = unfinished && status != Status::Done.word(),
            Entry::Cleared | Entry::Rewound { .. } => unfinished = false,
            _ => {}
        }
    }
    unfinished
}

/// The turns that these entries of a journal hold.
pub fn turns(entries: Vec<Entry>) -> Vec<PastTurn> {
    let mut all: Vec<PastTurn> = Vec::new();
    for entry in turns::effective(entries).entries {
        match entry {
            Entry::Request { message } => {
                all.push(PastTurn { asked: message.own_words(), ..PastTurn::default() });
            }
            Entry::Reply { message, .. } => {
                let Some(turn) = all.last_mut() else { continue };
                turn.calls.extend(message.calls().map(|call| call_line(&call.name, &call.args)));
                let words = message.words();
                if !words.trim().is_empty() {
                    turn.answer = words;
                }
            }
            Entry::Cleared => all.clear(),
            Entry::Opened { .. }
            | Entry::Prompt { .. }
            | Entry::Steered { .. }
            | Entry::Result { .. }
            | Entry::Thinned { .. }
            | Entry::Compacted { .. }
            | Entry::Dehydrated { .. }
            | Entry::Rehydrated { .. }
            | Entry::Rewound { .. }
            | Entry::Noted { .. }
            | Entry::Ended { .. } => {}
        }
    }
    all
}
