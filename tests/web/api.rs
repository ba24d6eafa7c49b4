//! The API: the JSON of the command line, its description, and events that a reconnect continues.

use serde_json::{Value, json};
use testkit::env::until;

use crate::fixtures::Scene;
use crate::server::{PageServer, next_event};

#[test]
fn the_api_answers_with_the_json_of_the_command_line() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_supervisor(&id);
    let mut server = PageServer::start(&scene);
    server.log_in();
    let path = format!("/api/v1/sessions/{id}");
    for (path, words) in [
        ("/api/v1/sessions".to_owned(), vec!["list"]),
        ("/api/v1/sessions?all=true".to_owned(), vec!["list", "--all"]),
        (path.clone(), vec!["status", &id]),
        (format!("{path}/diff"), vec!["diff", &id]),
        (format!("{path}/review"), vec!["review", &id]),
        ("/api/v1/inbox".to_owned(), vec!["inbox"]),
        ("/api/v1/operations".to_owned(), vec!["operations"]),
        ("/api/v1/plan".to_owned(), vec!["plan", "--status"]),
    ] {
        let words = [vec!["--json"], words].concat();
        let expected =
            scene.env.run(crate::fixtures::studio(), scene.repo.path(), words).exits(0).json();
        assert_eq!(server.get(&path).is(200).json(), expected, "{path}");
    }
    let missing = server.get("/api/v1/sessions/no-such-session").is(404).json();
    assert!(missing["error"]["what"].as_str().unwrap().contains("no-such-session"), "{missing}");
    let wrong = server.get("/api/v1/sessions?al=true").is(400).json();
    assert!(wrong["error"]["why"].as_str().unwrap().contains("unknown field `al`"), "{wrong}");
}

#[test]
fn real_answers_have_the_form_that_the_description_says() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    server.log_in();
    let document = server.get("/api/v1/openapi.json").is(200).json();
    assert_eq!(document["openapi"], "3.1.0");
    let check = |method: &str, path: &str, answer: &Value| {
        check_answer(&document, method, path, answer);
    };
    let send = |path: &str, id: &str, body: &Value| {
        let answer = server.post(&path.replace("{id}", id), body).is(200).json();
        check("post", path, &answer);
        answer
    };
    let read = |path: &str, id: &str| {
        check("get", path, &server.get(&path.replace("{id}", id)).is(200).json());
    };
    let sessions = "/api/v1/sessions";
    let started = send(
        sessions,
        "",
        &json!({"tasks": ["write a 1", "write b 2", "--help"], "checks": ["true"]}),
    );
    let ids: Vec<&str> = started["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    assert_eq!(started["sessions"][2]["task"], "--help");
    let (first, second) = (ids[0], ids[1]);
    scene.await_state(first, "ready");
    scene.await_state(second, "ready");
    until("the third to settle", || (scene.status(ids[2])["state"] == "empty").then_some(()));
    scene.await_supervisor(first);
    scene.await_supervisor(second);
    read(sessions, "");
    for path in ["", "/diff", "/review"] {
        read(&format!("{sessions}/{{id}}{path}"), first);
    }
    send("/api/v1/sessions/{id}/check", first, &json!({}));
    let review = server.get(&format!("{sessions}/{first}/review")).json();
    let (head, hunk) = (&review["reviews"][0]["head"], &review["reviews"][0]["hunks"][0]["id"]);
    let comment = json!({"hunk": hunk, "line": 0, "text": "why?"});
    let decision = json!([{"hunk": hunk, "decision": "accepted"}]);
    let record = json!({"head": head, "decisions": decision, "comment": comment});
    let state = send("/api/v1/sessions/{id}/review", first, &record);
    assert_eq!((&state["accepted"], &state["comments"]), (&json!(1), &json!(1)));
    read("/api/v1/sessions/{id}/review", first);
    read("/api/v1/inbox", "");
    let landed = send("/api/v1/sessions/{id}/review/land", first, &json!({}));
    assert_eq!(landed["landed"][0]["id"], first);
    let undone = send("/api/v1/undo", "", &json!({"operation": landed["operation"]}));
    assert_eq!(undone["undone"], landed["operation"]);
    let landed =
        send("/api/v1/sessions/{id}/accept", second, &json!({"message": "Add b", "yes": true}));
    assert_eq!(landed["landed"][0]["message_by"], "user");
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s", "main"]).trim(), "Add b");
    send("/api/v1/sessions/{id}/discard", first, &json!({}));
    read("/api/v1/operations", "");
    let failure = server.post(&format!("{sessions}/{second}/stop"), &json!({})).is(409).json();
    let mut problems = Vec::new();
    let schema = json!({"$ref": "#/components/schemas/FailureAnswer"});
    validate(&document, &schema, &failure, "failure", &mut problems);
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Checks that an answer has the form that the description says.
#[track_caller]
pub fn check_answer(document: &Value, method: &str, path: &str, answer: &Value) {
    let operation = &document["paths"][path][method];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    assert!(schema.is_object(), "{method} {path} is not described");
    let mut problems = Vec::new();
    validate(document, schema, answer, "answer", &mut problems);
    assert!(problems.is_empty(), "{method} {path}: {problems:#?}\n{answer:#}");
}

/// Checks a value against the parts of JSON Schema that the description uses.
fn validate(document: &Value, schema: &Value, value: &Value, at: &str, problems: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().expect("a name");
        return validate(document, &document["components"]["schemas"][name], value, at, problems);
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let fits = options.iter().any(|option| {
            let mut found = Vec::new();
            validate(document, option, value, at, &mut found);
            found.is_empty()
        });
        if !fits {
            problems.push(format!("{at}: {value} fits none of {options:?}"));
        }
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let fits = types.contains(&kind) || (kind == "integer" && types.contains(&"number"));
    if !types.is_empty() && !fits {
        problems.push(format!("{at}: {value} is {kind}, not {types:?}"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        validate(document, &schema["items"], item, &format!("{at}[{index}]"), problems);
    }
    let Some(object) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            problems.push(format!("{at}: `{name}` is missing"));
        }
    }
    for (name, value) in object {
        match &schema["properties"][name] {
            Value::Null if schema["additionalProperties"] == false => {
                problems.push(format!("{at}: `{name}` is not described"));
            }
            property => validate(document, property, value, &format!("{at}.{name}"), problems),
        }
    }
}

#[test]
fn a_reconnect_gets_what_happened_in_between_also_from_another_server() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    server.log_in();
    let mut events = server.events("/api/v1/events", None);
    let (start, name, _) = next_event(&mut events);
    assert_eq!(name, "start");
    let id = scene.exec(["--agent", "talk", "gate open; write a 1"]);
    scene.await_state(&id, "working");
    let (_, name, data) = next_event(&mut events);
    assert_eq!((name.as_str(), &data["sessions"][0]), ("sessions", &json!(id)));
    drop(events);
    // The session continues without a connected client.
    scene.worktree(&id).write("open", "");
    scene.await_state(&id, "ready");
    let mut again = server.events("/api/v1/events", Some(&start));
    let (_, name, data) = next_event(&mut again);
    assert_eq!((name.as_str(), &data["sessions"][0]), ("sessions", &json!(id)));
    // A journal continues at the line, whichever server answers.
    let path = format!("/api/v1/sessions/{id}/events");
    let mut journal = server.events(&path, None);
    let (after, name, first) = next_event(&mut journal);
    assert_eq!((name.as_str(), &first), ("journal", &scene.journal(&id)[0]));
    drop((journal, again));
    let (code, _) = server.interrupt();
    assert_eq!(code, 0);
    let mut server = PageServer::start(&scene);
    server.log_in();
    let mut journal = server.events(&path, Some(&after));
    for expected in &scene.journal(&id)[1..] {
        assert_eq!(&next_event(&mut journal).2, expected);
    }
    let mut events = server.events("/api/v1/events", Some(&start));
    assert_eq!(next_event(&mut events).1, "everything");
}

#[test]
fn two_users_accept_at_once_and_one_lands_while_one_is_told() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    scene.await_supervisor(&id);
    let mut server = PageServer::start(&scene);
    server.log_in();
    let path = format!("/api/v1/sessions/{id}/accept");
    let body = json!({"message": "Add a"});
    let answers = std::thread::scope(|scope| {
        let threads = [0, 1].map(|_| scope.spawn(|| server.post(&path, &body)));
        threads.map(|thread| thread.join().expect("an answer"))
    });
    let mut statuses = answers.each_ref().map(|answer| answer.status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{}\n{}", answers[0].body, answers[1].body);
    let refused = answers.iter().find(|answer| answer.status == 409).unwrap();
    assert!(refused.body.contains(&id), "{}", refused.body);
    assert_eq!(scene.repo.git(["rev-list", "--count", "main"]).trim(), "2");
}
