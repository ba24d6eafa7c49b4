//! What services do in their own way on the chat completions wire, as data.

use crate::tool_args::plain_id;

/// Who is asked, where that makes a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChatService {
    /// OpenAI itself, which knows keys that others refuse.
    Openai,
    /// A serving endpoint of Databricks.
    Databricks,
    /// A serving endpoint of Databricks with a model of Anthropic behind it.
    DatabricksClaude,
    /// Any other server.
    #[default]
    Other,
}

/// What a service does in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// The key that limits a reply.
    pub limit: &'static str,
    /// Whether a key ties the requests of a conversation to one cache.
    pub cache_key: bool,
    /// Whether marks say what to cache, as Anthropic's format has them.
    pub cache_marks: bool,
    /// Whether a tool without parameters has an empty list of them: Databricks refuses the empty
    /// list, OpenAI its absence.
    pub empty_properties: bool,
    /// Which ids of calls it takes.
    pub ids: CallIdFormat,
}

/// Which ids of calls a service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallIdFormat {
    /// Those it made itself, whatever they look like; it may want them back as they were.
    AsMade,
    /// Short ones of letters and digits, whoever made them.
    Plain,
}

impl CallIdFormat {
    /// The id as it is sent.
    pub(crate) fn sent(self, id: &str) -> String {
        match self {
            CallIdFormat::AsMade => id.to_owned(),
            CallIdFormat::Plain => plain_id(id),
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
    /// Its way.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            ChatService::Openai => OPENAI,
            ChatService::Databricks => DATABRICKS,
            ChatService::DatabricksClaude => DATABRICKS_CLAUDE,
            ChatService::Other => COMMON,
        }
    }
}
