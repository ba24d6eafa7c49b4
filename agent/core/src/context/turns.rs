//! User turns in a journal, and rewinding to one of them.

use base::event::Usage;

use super::ConversationEntry;
use provider::message::SideUsage;

/// A turn of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserTurn {
    /// The index of its request among the entries.
    pub index: usize,
    /// The user's text.
    pub text: String,
}

/// Returns the turns in these entries, oldest first.
pub fn list(entries: &[ConversationEntry]) -> Vec<UserTurn> {
    let turn = |(index, entry): (usize, &ConversationEntry)| {
        let ConversationEntry::Request { message } = entry else { return None };
        Some(UserTurn { index, text: message.user_text() })
    };
    entries.iter().enumerate().filter_map(turn).collect()
}

/// The part of a journal that is in effect.
#[derive(Clone, Debug, Default)]
pub struct EffectiveHistory {
    /// The entries without the rewound turns.
    pub entries: Vec<ConversationEntry>,
    /// The cost of the rewound replies.
    pub usage: Usage,
    /// The number of rewound replies.
    pub replies: u32,
}

/// Removes the turns that the user rewound.
pub fn effective(entries: Vec<ConversationEntry>) -> EffectiveHistory {
    let mut history = EffectiveHistory::default();
    for entry in entries {
        let ConversationEntry::Rewound { before } = entry else {
            history.entries.push(entry);
            continue;
        };
        let turn =
            before.checked_sub(1).and_then(|index| list(&history.entries).into_iter().nth(index));
        let Some(turn) = turn else { continue };
        for dropped in history.entries.split_off(turn.index) {
            history.replies += u32::from(matches!(dropped, ConversationEntry::Reply { .. }));
            if let ConversationEntry::Reply { usage, .. }
            | ConversationEntry::Compacted { usage, .. }
            | ConversationEntry::Noted { bill: SideUsage { usage, .. } } = dropped
            {
                history.usage = history.usage.plus(usage);
            }
        }
    }
    history
}

#[cfg(test)]
mod tests {
    use super::*;
    use provider::message::{Message, MessageRole, StopReason};

    fn turn(n: u64) -> [ConversationEntry; 2] {
        let message = Message::text(MessageRole::Assistant, format!("answer {n}"));
        let usage = Usage { input: n, ..Usage::default() };
        [
            ConversationEntry::Request {
                message: Message::text(MessageRole::User, format!("ask {n}")),
            },
            ConversationEntry::Reply { message, usage, stop: StopReason::Done },
        ]
    }

    #[test]
    fn rewound_turns_are_removed_and_their_cost_remains() {
        let mut entries: Vec<ConversationEntry> = (1..=3).flat_map(turn).collect();
        entries.push(ConversationEntry::Rewound { before: 2 });
        entries.extend(turn(9));
        let kept = effective(entries.clone());
        let texts: Vec<String> = list(&kept.entries).into_iter().map(|turn| turn.text).collect();
        assert_eq!(texts, ["ask 1", "ask 9"]);
        assert_eq!((kept.usage.input, kept.replies), (5, 2));
        // A turn that does not exist rewinds nothing.
        entries.push(ConversationEntry::Rewound { before: 7 });
        assert_eq!(list(&effective(entries).entries).len(), 2);
    }
}
