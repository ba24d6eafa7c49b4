//! Renders the chat template of a model file, compatible with Jinja in Python.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;
use serde_json::ser::Formatter;

/// ChatML, which models without a template understand best.
const PLAIN: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n\
    {{ message.content }}<|im_end|>\n{% endfor %}\
    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A parsed chat template.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    knows_calls: bool,
}

/// Why a prompt cannot be rendered.
#[derive(Debug, thiserror::Error)]
#[error("the model's chat template fails: {0}")]
pub(crate) struct BadTemplate(#[from] Error);

/// A message as templates expect it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TemplateMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// The tool that returned this result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The calls, each `{type: "function", function: {name, arguments}}`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<serde_json::Value>,
}

impl Template {
    /// Parses a template. Uses ChatML if there is none.
    pub(crate) fn new(source: Option<&str>) -> Result<Template, BadTemplate> {
        let source = source.unwrap_or(PLAIN).to_owned();
        // Some templates write `<function=NAME>` and parameters between the markers, which is not
        // JSON.
        let knows_calls =
            source.contains(crate::tool_call_parser::BEGIN) && !source.contains("<function=");
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        environment.set_syntax(syntax);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |reason: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, reason))
        });
        // The date would change the prompt, and with it every saved prefix, so it is constant.
        environment.add_function("strftime_now", |_format: String| "2026-01-01".to_owned());
        environment.add_filter("tojson", python_json);
        environment.add_template_owned("chat", source)?;
        Ok(Template { environment, knows_calls })
    }

    /// Whether it writes tools and calls with the markers that we parse.
    pub(crate) fn knows_calls(&self) -> bool {
        self.knows_calls
    }

    /// Renders the prompt for these messages; `open` adds the start of an assistant message.
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
            bos_token => "", // the tokenizer adds it if the model needs it
            eos_token => "",
        })?)
    }
}

/// Formats JSON like Python, as in the models' training data; without HTML escapes.
fn python_json(value: Value, _options: Kwargs) -> Result<Value, Error> {
    let mut bytes = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut bytes, PythonJson);
    value
        .serialize(&mut writer)
        .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The format of `json.dumps`: a space after each comma and colon.
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

/// Formats a value like Python.
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
    fn json_is_formatted_like_python() {
        let template = Template::new(Some("{{ tools[0] | tojson }}")).unwrap();
        let tools = [json!({"z": ["<a>", 'é', 1], "a": "it's & that"})];
        let text = template.render(&[], &tools, false).unwrap();
        assert_eq!(text, r#"{"z": ["<a>", "é", 1], "a": "it's & that"}"#);
    }

    #[test]
    fn python_methods_and_blocks_are_supported() {
        let source = "{% for m in messages %}\n  {% if m.content.startswith('a') %}\n{{ m.content.strip().split(' ')[0] | trim }}\n  {% endif %}\n{% endfor %}\n{%- if tools is not none and tools %}T{% endif %}";
        let template = Template::new(Some(source)).unwrap();
        assert_eq!(template.render(&[user("a b "), user("c")], &[], false).unwrap(), "a\n");
    }

    #[test]
    fn chatml_is_the_default_template() {
        let text = Template::new(None).unwrap().render(&[user("hi")], &[], true).unwrap();
        assert_eq!(text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    }

    #[test]
    fn only_markers_around_json_are_recognized_as_calls() {
        let knows = |source| Template::new(Some(source)).unwrap().knows_calls();
        assert!(knows("<tool_call>\n{{ call | tojson }}\n</tool_call>"));
        assert!(!knows("<tool_call>\n<function={{ call.name }}>\n</function>\n</tool_call>"));
        assert!(!knows("{{ messages }}"));
    }

    #[test]
    fn a_template_that_raises_an_exception_says_why() {
        let template = Template::new(Some("{{ raise_exception('no system role') }}")).unwrap();
        let error = template.render(&[], &[], false).unwrap_err();
        assert!(error.to_string().contains("no system role"), "{error}");
    }
}
