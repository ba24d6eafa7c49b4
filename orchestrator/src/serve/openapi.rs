//! The description of the API as an OpenAPI document, made from the table of its routes and from the
//! types of requests and answers.

use std::sync::OnceLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::commands::plan::status::PlanReport;
use crate::serve::answers::{FailureAnswer, ReviewStateAnswer};
use crate::serve::api::{API_ROUTES, ApiRoute};
use crate::serve::pages::plan_edit::PlanTextRequest;
use crate::serve::pages::review_actions::RecordRequest;

/// Returns the document.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(make)
}

fn make() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|it| it.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let failure = generator.subschema_for::<FailureAnswer>();
    let mut paths: Map<String, Value> = Map::new();
    let mut add = |path: &str, method: &str, operation: Value| {
        let item = paths.entry(format!("/api/v1{path}")).or_insert_with(|| json!({}));
        item[method] = operation;
    };
    for endpoint in API_ROUTES {
        let method = if endpoint.is_action { "post" } else { "get" };
        add(endpoint.path, method, operation(endpoint, &mut generator, &json!(failure)));
    }
    let record = generator.subschema_for::<RecordRequest>();
    let state = generator.subschema_for::<ReviewStateAnswer>();
    add(
        "/sessions/{id}/review",
        "post",
        json!({
            "summary": "Record decisions and comments of a review",
            "parameters": [id_parameter()],
            "requestBody": body(&json!(record)),
            "responses": responses(&json!(state), &json!(failure)),
        }),
    );
    let stream = json!({
        "200": {"description": "Server-sent events; each has an id for Last-Event-ID", "content": {"text/event-stream": {}}},
    });
    add("/events", "get", json!({"summary": "Changes of all sessions", "responses": stream}));
    add(
        "/sessions/{id}/events",
        "get",
        json!({
            "summary": "The journal of a session as it grows: studio logs ID -f --json",
            "parameters": [id_parameter()], "responses": stream,
        }),
    );
    add("/plan/events", "get", json!({"summary": "Changes of the plan", "responses": stream}));
    let queue = json!({"summary": "Changes of the landing queue", "responses": stream});
    add("/queue/events", "get", queue);
    let (text, plan) =
        (generator.subschema_for::<PlanTextRequest>(), generator.subschema_for::<PlanReport>());
    add(
        "/plan/text",
        "post",
        json!({
            "summary": "Replace a text of the plan that is still the one with the digest",
            "requestBody": body(&json!(text)),
            "responses": responses(&json!(plan), &json!(failure)),
        }),
    );
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {"title": "studio serve", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn operation(endpoint: &ApiRoute, generator: &mut SchemaGenerator, failure: &Value) -> Value {
    let request = (endpoint.request)(generator);
    let answer = json!((endpoint.answer)(generator));
    let mut parameters = Vec::new();
    if endpoint.path.contains("{id}") {
        parameters.push(id_parameter());
    }
    let mut operation =
        json!({"summary": endpoint.summary, "responses": responses(&answer, failure)});
    if endpoint.is_action {
        operation["requestBody"] = body(&json!(request));
    } else {
        // The parameters of a query are the properties of its type.
        let name = request.as_value()["$ref"].as_str().and_then(|it| it.rsplit('/').next());
        let definition = name.and_then(|name| generator.definitions().get(name).cloned());
        let properties = definition.as_ref().and_then(|it| it["properties"].as_object());
        for (name, schema) in properties.into_iter().flatten() {
            parameters.push(json!({"name": name, "in": "query", "schema": schema}));
        }
    }
    operation["parameters"] = Value::Array(parameters);
    operation
}

fn id_parameter() -> Value {
    json!({"name": "id", "in": "path", "required": true, "schema": {"type": "string"}})
}

fn body(schema: &Value) -> Value {
    json!({"content": {"application/json": {"schema": schema}}})
}

fn responses(answer: &Value, failure: &Value) -> Value {
    let content = |schema: &Value| json!({"application/json": {"schema": schema}});
    json!({
        "200": {"description": "The JSON of the command", "content": content(answer)},
        "default": {"description": "Why it failed", "content": content(failure)},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_has_its_schema() {
        let document = document();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let names = text.split("\"#/components/schemas/").skip(1);
        let mut count = 0;
        for name in names.filter_map(|rest| rest.split('"').next()) {
            assert!(schemas.contains_key(name), "{name}");
            count += 1;
        }
        assert!(count > 20, "{count}");
        let all = &document["paths"]["/api/v1/sessions"]["get"]["parameters"][0];
        assert_eq!((&all["name"], &all["schema"]["type"]), (&json!("all"), &json!("boolean")));
    }
}
