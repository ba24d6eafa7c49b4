//! The turns of a conversation as they are shown when it is taken up again.

use base::event::RunStatus;

use crate::ui::recap::PastTurn;
use agent_core::call_line::call_line;
use agent_core::context::{ConversationEntry, turns};

/// Whether the last turn came to no end.
pub(crate) fn is_unfinished(entries: &[ConversationEntry]) -> bool {
    let mut unfinished = false;
    for entry in entries {
        match entry {
            ConversationEntry::Request { .. } => unfinished = true,
            ConversationEntry::Ended { status } => {
                unfinished = unfinished && status != RunStatus::Done.word()
            }
            ConversationEntry::Cleared | ConversationEntry::Rewound { .. } => unfinished = false,
            _ => {}
        }
    }
    unfinished
}

/// The turns that these entries of a journal hold.
pub(crate) fn turns(entries: Vec<ConversationEntry>) -> Vec<PastTurn> {
    let mut all: Vec<PastTurn> = Vec::new();
    for entry in turns::effective(entries).entries {
        match entry {
            ConversationEntry::Request { message } => {
                all.push(PastTurn { asked: message.own_words(), ..PastTurn::default() });
            }
            ConversationEntry::Reply { message, .. } => {
                let Some(turn) = all.last_mut() else { continue };
                turn.calls.extend(message.calls().map(|call| call_line(&call.name, &call.args)));
                let words = message.words();
                if !words.trim().is_empty() {
                    turn.answer = words;
                }
            }
            ConversationEntry::Cleared => all.clear(),
            ConversationEntry::Opened { .. }
            | ConversationEntry::Prompt { .. }
            | ConversationEntry::Steered { .. }
            | ConversationEntry::Result { .. }
            | ConversationEntry::Thinned { .. }
            | ConversationEntry::Compacted { .. }
            | ConversationEntry::Dehydrated { .. }
            | ConversationEntry::Rehydrated { .. }
            | ConversationEntry::Rewound { .. }
            | ConversationEntry::Noted { .. }
            | ConversationEntry::Ended { .. } => {}
        }
    }
    all
}
