//! Commands for the engine's thread.

use std::sync::mpsc::Sender;

use base::model_host::wire::{HostChat, HostResponseLine};

/// A command for the engine.
pub(crate) enum EngineCommand {
    /// Generates the next reply of a conversation.
    Chat {
        /// The connection.
        connection: u64,
        /// The id of the request.
        id: u64,
        /// The chat request.
        chat: Box<HostChat>,
        /// Receives the reply.
        reply_tx: Sender<HostResponseLine>,
    },
    /// Computes a vector of each text.
    Embed(EmbedRequest),
    /// Cancels a reply or an embedding request.
    Cancel {
        /// The connection.
        connection: u64,
        /// The id of the request.
        chat: u64,
    },
    /// Ends the replies and conversations of a closed connection.
    Closed(u64),
    /// Requests the current load.
    Count(Sender<EngineLoad>),
    /// Releases all resources and stops.
    Stop,
}

/// A request for the vectors of texts.
#[derive(Debug)]
pub(crate) struct EmbedRequest {
    /// The connection.
    pub connection: u64,
    /// The id of the request.
    pub id: u64,
    /// The texts.
    pub texts: Vec<String>,
    /// Receives the answer.
    pub reply_tx: Sender<HostResponseLine>,
}

/// The load of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EngineLoad {
    /// Replies in progress or waiting.
    pub chats: usize,
    /// Conversations in memory.
    pub in_memory: usize,
    /// Conversations on disk.
    pub on_disk: usize,
    /// Waiting embedding requests.
    pub embeds: usize,
    /// Computing threads.
    pub threads: u32,
}
