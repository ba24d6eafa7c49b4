//! What is asked of the engine's thread.

use std::sync::mpsc::Sender;

use base::model_host::wire::{HostChat, HostResponseLine};

/// What the engine is asked.
pub(crate) enum EngineCommand {
    /// The next reply of a conversation.
    Chat {
        /// The connection.
        connection: u64,
        /// The id of the request.
        id: u64,
        /// The question.
        chat: Box<HostChat>,
        /// Who hears the reply.
        hears: Sender<HostResponseLine>,
    },
    /// A vector of each text.
    Embed(EmbedRequest),
    /// End a reply or an embed early.
    Cancel {
        /// The connection.
        connection: u64,
        /// The id of the request.
        chat: u64,
    },
    /// A connection closed: its replies and conversations end.
    Closed(u64),
    /// What is going on?
    Count(Sender<EngineLoad>),
    /// Give everything back and end.
    Stop,
}

/// Texts of which vectors are wanted.
#[derive(Debug)]
pub(crate) struct EmbedRequest {
    /// The connection.
    pub connection: u64,
    /// The id of the request.
    pub id: u64,
    /// The texts.
    pub texts: Vec<String>,
    /// Who hears the answer.
    pub hears: Sender<HostResponseLine>,
}

/// What is going on in an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineLoad {
    /// Replies that are being written or wait.
    pub chats: usize,
    /// Conversations in memory.
    pub in_memory: usize,
    /// Conversations on disk.
    pub on_disk: usize,
    /// Requests for vectors that wait.
    pub embeds: usize,
    /// Threads that compute.
    pub threads: u32,
}
