//! The chat template that a model file carries, rendered as its makers render it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;
use serde_json::ser::Formatter;

/// ChatML: what a model without a template understands best.
const PLAIN: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A parsed chat template.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    knows_calls: bool,
}

/// Why a prompt cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("the model's chat template fails: {0}")]
pub(crate) struct BadTemplate(#[from] Error);

/// A message as templates know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TemplateMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// The words.
    pub content: String,
    /// The tool whose result this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls, each `{type: "function", function: {name, arguments}}`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<serde_json::Value>,
}

impl Template {
    /// Parses a template; without one, ChatML.
    pub(crate) fn new(source: Option<&str>) -> Result<Template, BadTemplate> {
        let source = source.unwrap_or(PLAIN).to_owned();
        // Some write `<function=NAME>` and parameters between the marks, which is no JSON.
        let knows_calls =
            source.contains(crate::tool_call_parser::BEGIN) && !source.contains("<function=");
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        environment.set_syntax(syntax);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |why: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, why))
        });
        // The day changes the prompt, and with it every saved prefix; so it is always the same day.
        environment.add_function("strftime_now", |_format: String| "2026-01-01".to_owned());
        environment.add_filter("tojson", python_json);
        environment.add_template_owned("chat", source)?;
        Ok(Template { environment, knows_calls })
    }

    /// Whether it writes tools and calls with the marks that we read.
    pub(crate) fn knows_calls(&self) -> bool {
        self.knows_calls
    }

    /// The prompt for these messages; `open` lets the model go on as the assistant.
    pub(crate) fn render(
        &self,
        messages: &[TemplateMessage],
        tools: &[serde_json::Value],
        open: bool,
    ) -> Result<String, BadTemplate> {
        let template = self.environment.get_template("chat")?;
        let tools = (!tools.is_empty()).then(|| Value::from(Serde(tools)));
        Ok(template.render(context! {
            messages => Value::from(Serde(messages)),
            tools => tools,
            add_generation_prompt => open,
            bos_token => "", // the tokenizer adds it where the model wants it
            eos_token => "",
        })?)
    }
}

/// JSON as Python writes it, which is what the models were trained on; not escaped for HTML.
fn python_json(value: Value, _options: Kwargs) -> Result<Value, Error> {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, PythonJson);
    value
        .serialize(&mut writer)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&bytes).into_owned()))
}

/// `json.dumps`: a blank after each comma and colon.
pub(crate) struct PythonJson;

impl Formatter for PythonJson {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// A value as Python writes it.
pub(crate) fn python(value: &serde_json::Value) -> String {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, PythonJson);
    value.serialize(&mut writer).expect("a JSON value is JSON");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> TemplateMessage {
        TemplateMessage { role: "user", content: text.into(), ..TemplateMessage::default() }
    }

    #[test]
    fn json_is_written_as_the_models_know_it() {
        let template = Template::new(Some("{{ tools[0] | tojson }}")).unwrap();
        let tools = [json!({"z": ["<a>", 'é', 1], "a": "it's & that"})];
        let text = template.render(&[], &tools, false).unwrap();
        assert_eq!(text, r#"{"z": ["<a>", "é", 1], "a": "it's & that"}"#);
    }

    #[test]
    fn methods_of_python_and_blocks_work_as_their_makers_meant() {
        let source = "{% for m in messages %}\n  {% if m.content.startswith('a') %}\n{{ m.content.strip().split(' ')[0] | trim }}\n  {% endif %}\n{% endfor %}\n{%- if tools is not none and tools %}T{% endif %}";
        let template = Template::new(Some(source)).unwrap();
        assert_eq!(template.render(&[user("a b "), user("c")], &[], false).unwrap(), "a\n");
    }

    #[test]
    fn without_a_template_it_is_chatml() {
        let text = Template::new(None).unwrap().render(&[user("hi")], &[], true).unwrap();
        assert_eq!(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn only_marks_around_json_are_known_calls() {
        let knows = |source| Template::new(Some(source)).unwrap().knows_calls();
        assert!(knows("<tool_call>\n{{ call | tojson }}\n</tool_call>"));
        assert!(!knows("<tool_call>\n<function={{ call.name }}>\n</function>\n</tool_call>"));
        assert!(!knows("{{ messages }}"));
    }

    #[test]
    fn a_template_that_refuses_says_why() {
        let template = Template::new(Some("{{ raise_exception('no system role') }}")).unwrap();
        let error = template.render(&[], &[], false).unwrap_err();
        assert!(error.to_string().contains("no system role"), "{error}");
    }
}
