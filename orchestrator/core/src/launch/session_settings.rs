//! The settings of an agent's session over ACP: its model, its mode, and other options that it
//! offers.

use std::collections::BTreeMap;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory, SessionConfigOptionValue,
    SessionConfigSelectOption, SessionConfigSelectOptions, SessionId, SessionModeState,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};
use agent_client_protocol::{Agent, Error, JsonRpcRequest, JsonRpcResponse};
use serde::{Deserialize, Serialize};

/// The option for the model.
const MODEL: &str = "model";
/// The option for the mode: what the agent does without a question.
const MODE: &str = "mode";

/// Sets the model at agents that offer no option for it: a method of ACP before the options.
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "session/set_model", response = SetModelResponse)]
#[serde(rename_all = "camelCase")]
struct SetModelRequest {
    session_id: SessionId,
    model_id: String,
}

/// The response to [`SetModelRequest`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcResponse)]
struct SetModelResponse {}

/// The settings that an agent offers.
pub(crate) struct SessionSettings {
    options: Vec<SessionConfigOption>,
    modes: Option<SessionModeState>,
}

impl SessionSettings {
    /// Creates the settings from the response to a request that opened the session.
    pub(crate) fn new(
        options: Option<Vec<SessionConfigOption>>,
        modes: Option<SessionModeState>,
    ) -> SessionSettings {
        SessionSettings { options: options.unwrap_or_default(), modes }
    }

    /// Sets the wanted values, by the ids of the options. The error names what the agent offers.
    pub(crate) async fn apply(
        mut self,
        cx: &ConnectionTo<Agent>,
        session: &SessionId,
        wanted: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        // Other options may depend on the model.
        let (model, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|(id, _)| *id == MODEL);
        for (id, value) in model.into_iter().chain(others) {
            if let Some(option) = self.option(id) {
                let value = option_value(option, value)?;
                let id = option.id.clone();
                let request = SetSessionConfigOptionRequest::new(session.clone(), id, value);
                self.options = cx.send_request(request).block_task().await?.config_options;
            } else if id == MODE
                && let Some(modes) = &self.modes
            {
                let ids: Vec<&str> = modes.available_modes.iter().map(|it| &*it.id.0).collect();
                if !ids.contains(&value.as_str()) {
                    return Err(no_value(id, value, &ids));
                }
                let request = SetSessionModeRequest::new(session.clone(), value.clone());
                cx.send_request(request).block_task().await?;
            } else if id == MODEL && self.options.is_empty() {
                let (session_id, model_id) = (session.clone(), value.clone());
                let request = SetModelRequest { session_id, model_id };
                cx.send_request(request).block_task().await?;
            } else {
                return Err(self.no_option(id));
            }
        }
        Ok(())
    }

    /// Returns the option with this id, or the one for the mode or the model, whatever its id is.
    fn option(&self, id: &str) -> Option<&SessionConfigOption> {
        let category = match id {
            MODE => Some(SessionConfigOptionCategory::Mode),
            MODEL => Some(SessionConfigOptionCategory::Model),
            _ => None,
        };
        let by_id = self.options.iter().find(|option| &*option.id.0 == id);
        let of_kind = |option: &&SessionConfigOption| option.category == category;
        by_id.or_else(|| self.options.iter().find(of_kind).filter(|_| category.is_some()))
    }

    fn no_option(&self, id: &str) -> Error {
        let ids: Vec<&str> = self.options.iter().map(|option| &*option.id.0).collect();
        failure(match ids.is_empty() {
            true => format!("it has no option `{id}`"),
            false => format!("it has no option `{id}`; it has: {}", ids.join(", ")),
        })
    }
}

/// Returns the value of an option that a text means: an id, or a name that is shown to people.
fn option_value(
    option: &SessionConfigOption,
    text: &str,
) -> Result<SessionConfigOptionValue, Error> {
    let select = match &option.kind {
        SessionConfigKind::Select(select) => select,
        SessionConfigKind::Boolean(_) => {
            let is_on = text.parse().map_err(|_| no_value(&option.id.0, text, &["true", "false"]));
            return is_on.map(SessionConfigOptionValue::boolean);
        }
        // Another kind of option, of a later version of the protocol.
        _ => return Ok(SessionConfigOptionValue::value_id(text.to_owned())),
    };
    let values: Vec<&SessionConfigSelectOption> = match &select.options {
        SessionConfigSelectOptions::Ungrouped(values) => values.iter().collect(),
        SessionConfigSelectOptions::Grouped(groups) => {
            groups.iter().flat_map(|group| &group.options).collect()
        }
        _ => Vec::new(),
    };
    let by_id = values.iter().find(|value| &*value.value.0 == text);
    let by_name = || values.iter().find(|value| value.name.eq_ignore_ascii_case(text));
    match by_id.or_else(by_name) {
        Some(value) => Ok(SessionConfigOptionValue::value_id(value.value.clone())),
        None => {
            let ids: Vec<&str> = values.iter().map(|value| &*value.value.0).collect();
            Err(no_value(&option.id.0, text, &ids))
        }
    }
}

/// Maximum number of values that an error names.
const MAX_NAMED: usize = 20;

fn no_value(option: &str, value: &str, values: &[&str]) -> Error {
    let named = values.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if values.len() > MAX_NAMED { ", …" } else { "" };
    failure(format!("its option `{option}` has no value `{value}`; it has: {named}{more}"))
}

fn failure(message: String) -> Error {
    let mut error = Error::invalid_params();
    error.message = message;
    error
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{SessionConfigKind, SessionConfigSelectGroup};

    use super::*;

    #[test]
    fn a_value_is_found_in_a_group_and_a_switch_is_true_or_false() {
        let value = |id: &'static str| SessionConfigSelectOption::new(id, id.to_uppercase());
        let group = |id: &'static str| SessionConfigSelectGroup::new(id, id, vec![value(id)]);
        let groups = vec![group("a"), group("b")];
        let option = SessionConfigOption::select("model", "Model", "a", groups);
        let b = SessionConfigOptionValue::value_id("b");
        assert_eq!(option_value(&option, "B").unwrap(), b);
        let error = option_value(&option, "c").unwrap_err().message;
        assert_eq!(error, "its option `model` has no value `c`; it has: a, b");
        let switch = SessionConfigOption::boolean("fast", "Fast", false);
        assert!(matches!(switch.kind, SessionConfigKind::Boolean(_)));
        let on = SessionConfigOptionValue::boolean(true);
        assert_eq!(option_value(&switch, "true").unwrap(), on);
        let error = option_value(&switch, "on").unwrap_err().message;
        assert_eq!(error, "its option `fast` has no value `on`; it has: true, false");
    }

    #[test]
    fn many_values_are_not_all_named() {
        let names: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        let values = |n: &String| SessionConfigSelectOption::new(n.clone(), n.clone());
        let values: Vec<_> = names.iter().map(values).collect();
        let option = SessionConfigOption::select("model", "Model", "0", values);
        let error = option_value(&option, "x").unwrap_err().message;
        assert!(error.ends_with("18, 19, …"), "{error}");
    }
}
