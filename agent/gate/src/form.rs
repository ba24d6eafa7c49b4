//! A question with fields that a server asks the user (elicitation in MCP and ACP).

use serde_json::{Map, Value};

/// What a server wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct UserForm {
    /// The name of the server.
    pub source: String,
    /// What it asks for.
    pub message: String,
    /// The fields: a JSON Schema object whose properties are texts, numbers, switches and choices.
    pub schema: Value,
}

/// The user's answer to a form.
#[derive(Clone, Debug, PartialEq)]
pub enum FormAnswer {
    /// The values of the fields, by their names.
    Filled(Map<String, Value>),
    /// The user does not want to answer.
    Declined,
    /// The question was dropped without an answer.
    Cancelled,
}
