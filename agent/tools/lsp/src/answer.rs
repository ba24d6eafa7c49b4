//! What g3 answers when a server asks: it has no settings of its own, and edits files itself.

use std::path::Path;

use serde_json::{Value, json};

use super::uri;

/// The number of the protocol for a method that is not there.
const UNKNOWN: i64 = -32601;

/// The whole answer to a request of the server's.
pub(crate) fn to(id: &Value, method: &str, params: &Value, root: &Path) -> Value {
    let result = match method {
        "workspace/configuration" => {
            let wanted = params["items"].as_array().map_or(0, Vec::len);
            json!(vec![Value::Null; wanted])
        }
        "workspace/workspaceFolders" => folders(root),
        "workspace/applyEdit" => {
            json!({ "applied": false, "failureReason": "g3 edits files with its own tools" })
        }
        "client/registerCapability"
        | "client/unregisterCapability"
        | "window/workDoneProgress/create"
        | "window/showMessageRequest"
        | "workspace/codeLens/refresh"
        | "workspace/diagnostic/refresh"
        | "workspace/inlayHint/refresh"
        | "workspace/semanticTokens/refresh" => Value::Null,
        "window/showDocument" => json!({ "success": false }),
        _ => {
            let error = json!({ "code": UNKNOWN, "message": format!("g3 has no `{method}`") });
            return json!({ "jsonrpc": "2.0", "id": id, "error": error });
        }
    };
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The folders of a workspace: its root.
pub(crate) fn folders(root: &Path) -> Value {
    let name = root.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
    json!([{ "uri": uri::of(root), "name": name }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_gets_an_answer() {
        let to = |method: &str, params: Value| to(&json!(7), method, &params, Path::new("/r"));
        let asked = to("workspace/configuration", json!({ "items": [{}, {}] }));
        assert_eq!(asked, json!({ "jsonrpc": "2.0", "id": 7, "result": [null, null] }));
        assert_eq!(to("workspace/applyEdit", json!({}))["result"]["applied"], false);
        assert_eq!(to("workspace/workspaceFolders", Value::Null)["result"][0]["name"], "r");
        assert_eq!(to("window/workDoneProgress/create", json!({}))["result"], Value::Null);
        assert_eq!(to("made/up", json!({}))["error"]["code"], UNKNOWN);
    }
}
