//! What is asked of the engine's thread.

use std::sync::mpsc::Sender;

use base::host::wire::{Chat, Told};

/// What the engine is asked.
pub enum Command {
    /// The next reply of a conversation.
    Chat {
        /// The connection.
        connection: u64,
        /// The id of the request.
        id: u64,
        /// The question.
        chat: Box<Chat>,
        /// Who hears the reply.
        hears: Sender<Told>,
    },
    /// End a reply early.
    Cancel {
        /// The connection.
        connection: u64,
        /// The id of the chat.
        chat: u64,
    },
    /// A connection closed: its replies and conversations end.
    Closed(u64),
    /// What is going on?
    Count(Sender<Count>),
    /// Give everything back and end.
    Stop,
}

/// What is going on in an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Replies that are being written or wait.
    pub chats: usize,
    /// Conversations in memory.
    pub in_memory: usize,
    /// Conversations on disk.
    pub on_disk: usize,
    /// Threads that compute.
    pub threads: u32,
}
