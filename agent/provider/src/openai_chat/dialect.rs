//! Differences between services on the chat completions wire format, as data.

use crate::tool_args::sanitize_id;

/// A service, as far as it matters for the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatService {
    /// OpenAI itself, which accepts parameters that other servers reject.
    Openai,
    /// A serving endpoint of Databricks.
    Databricks,
    /// A serving endpoint of Databricks that serves an Anthropic model.
    DatabricksClaude,
    /// Any other server.
    #[default]
    Other,
}

/// The differences of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// The parameter that limits a reply.
    pub limit: &'static str,
    /// Whether the service accepts a cache key for the requests of a conversation.
    pub cache_key: bool,
    /// Whether cache markers are sent, as in Anthropic's format.
    pub cache_marks: bool,
    /// Whether a tool without parameters has an empty `properties` object. Databricks rejects the
    /// empty object; OpenAI rejects its absence.
    pub empty_properties: bool,
    /// The call ids that the service accepts.
    pub ids: CallIdFormat,
}

/// The call ids that a service accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallIdFormat {
    /// Its own ids, in any form; it may require them unchanged.
    AsMade,
    /// Short ids of letters and digits, from any service.
    Plain,
}

impl CallIdFormat {
    /// Returns the id to send.
    pub(crate) fn sent(self, id: &str) -> String {
        match self {
            CallIdFormat::AsMade => id.to_owned(),
            CallIdFormat::Plain => sanitize_id(id),
        }
    }
}

const COMMON: Dialect = Dialect {
    limit: "max_tokens",
    cache_key: false,
    cache_marks: false,
    empty_properties: true,
    ids: CallIdFormat::AsMade,
};
const OPENAI: Dialect =
    Dialect { limit: "max_completion_tokens", cache_key: true, ids: CallIdFormat::Plain, ..COMMON };
const DATABRICKS: Dialect = Dialect { empty_properties: false, ids: CallIdFormat::Plain, ..COMMON };
const DATABRICKS_CLAUDE: Dialect = Dialect { cache_marks: true, ..DATABRICKS };

impl ChatService {
    /// Returns the dialect of the service.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            ChatService::Openai => OPENAI,
            ChatService::Databricks => DATABRICKS,
            ChatService::DatabricksClaude => DATABRICKS_CLAUDE,
            ChatService::Other => COMMON,
        }
    }
}
