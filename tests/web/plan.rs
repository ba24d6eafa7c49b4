//! The page of the plan: states, approvals, edits of two windows, the picture of the dependencies.

use serde_json::{Value, json};
use testkit::env::until;

use crate::api;
use crate::browser::Browser;
use crate::fixtures::Scene;
use crate::server::PageServer;

const REQUIREMENTS: &str = "g3-plan/current_requirements.md";
const TASKS: &str = "g3-plan/tasks.toml";
/// What would run if a page did not escape it.
const SCRIPT: &str =
    "</textarea></text></svg><img src=x onerror=window.ran=1><script>window.ran=1</script>";

/// Writes requirements, and tasks: id, text, requirement, dependencies.
fn write_plan(scene: &Scene, requirements: &[&str], tasks: &[(&str, &str, &str, &[&str])]) {
    let lines: String = requirements.iter().map(|line| format!("- {line}\n")).collect();
    scene.repo.write(REQUIREMENTS, format!("{{{{CURRENT REQUIREMENTS}}}}\n\n{lines}"));
    let task = |(id, text, requirement, after): &(&str, &str, &str, &[&str])| {
        format!(
            "[[task]]\nid = {id:?}\ntext = {text:?}\nrequirements = [{requirement:?}]\nafter = {after:?}\nchecks = [\"test -d .\"]\n\n"
        )
    };
    scene.repo.write(TASKS, tasks.iter().map(task).collect::<String>());
}

fn scene() -> Scene {
    let scene = Scene::new();
    write_plan(
        &scene,
        &["R1: there is an a", "R2: there is a b", "R3: c has what a has"],
        &[
            ("third", "sh cat a b > c", "R3", &["first", "second"]),
            ("first", "gate open; write a 1", "R1", &[]),
            ("second", "write b 2", "R2", &[]),
        ],
    );
    scene
}

/// Returns the session of a task that is at work.
fn session_of(scene: &Scene, task: &str) -> String {
    until("the task to have a session", || {
        let plan = plan_of(scene);
        let task = plan["tasks"].as_array()?.iter().find(|it| it["id"] == task)?.clone();
        task["session"].as_str().map(str::to_owned)
    })
}

fn plan_of(scene: &Scene) -> Value {
    scene.studio(["plan", "--status", "--json"]).exits(0).json()["plan"].clone()
}

fn open_gate(scene: &Scene) {
    let id = session_of(scene, "first");
    scene.await_state(&id, "working");
    scene.worktree(&id).write("open", "");
}

#[test]
fn a_plan_is_approved_on_its_page_and_its_tasks_land() {
    let scene = Scene::new();
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    browser.goto("/plan").until_text("No plan in this repository").until_text("--from");
    // The page shows changes of the files without a reload.
    write_plan(
        &scene,
        &["R1: there is an a", "R2: there is a b", "R3: c has what a has"],
        &[
            ("third", "sh cat a b > c", "R3", &["first", "second"]),
            ("first", "gate open; write a 1", "R1", &[]),
            ("second", "write b 2", "R2", &[]),
        ],
    );
    browser.until_text("your approval of the requirements").until_text("c has what a has");
    let edges = "[...document.querySelectorAll('.graph-edge')].map((it) => it.dataset.from + ' > ' + it.dataset.to)";
    let drawn = browser.script(&format!("return {edges}.sort()"));
    assert_eq!(drawn, json!(["first > third", "second > third"]));
    let link = |task: &str| {
        let script =
            format!("return document.querySelector('[data-task={task}]').getAttribute('href')");
        browser.script(&script).as_str().unwrap().to_owned()
    };
    assert_eq!(link("first"), "#task-first");
    let named = "document.querySelector('[data-task=first]').getAttribute('aria-label')";
    let name = browser.script(&format!("return {named}"));
    assert_eq!(name, "2 first gate open; write a 1 to do");
    let described = browser.script("return document.getElementById('graph-desc').textContent");
    assert!(described.as_str().unwrap().contains("third depends on first, second."), "{described}");
    browser.click("#plan-approve").until_text("your approval of the tasks");
    assert!(scene.studio(["list", "--all", "--json"]).json()["sessions"] == json!([]));
    browser.click("#plan-approve").until_text("studio plan is running");
    let first = session_of(&scene, "first");
    scene.await_state(&first, "working");
    browser.until("document.querySelector('#task-second .state').innerText == 'accepted'");
    browser.until("document.querySelector('[data-task=first]').classList.contains('busy')");
    assert_eq!(link("first"), format!("/sessions/{first}"));
    browser.until_text("waiting for first").until_text("1 of 3 tasks are done");
    browser.picture("plan-working");
    scene.worktree(&first).write("open", "");
    browser.until_text("All tasks are done").until_text("3 of 3 tasks are done");
    assert_eq!(scene.repo.read("c"), "1\n2\n");
    // The proofs of the requirements are those of `studio trace`.
    browser.until("document.querySelector('#requirement-R3 .proof .state').innerText == 'shown'");
    browser.until(
        "document.querySelector('#requirement-R3 .proof').innerText.includes('passed test -d .')",
    );
    browser.click("[data-task=third]").until("location.pathname.startsWith('/sessions/')");
}

#[test]
fn the_second_of_two_editors_is_told_and_keeps_the_text() {
    let scene = scene();
    let mut server = PageServer::start(&scene);
    let first = Browser::open(&scene, &server, &[]);
    server.log_in_again();
    let second = Browser::open(&scene, &server, &[]);
    let type_text = |browser: &Browser, text: &str| {
        browser.script(&format!("document.getElementById('plan-text').value = {text:?}"));
    };
    let text_of =
        |browser: &Browser| browser.script("return document.getElementById('plan-text').value");
    let before = scene.repo.read(TASKS);
    for browser in [&first, &second] {
        browser.goto("/plan").click("#edit-tasks").until("document.getElementById('plan-text')");
        assert_eq!(text_of(browser), json!(before));
        assert_eq!(browser.script("return document.getElementById('plan-changed').hidden"), true);
    }
    let one = before.replace("write b 2", "write b 3");
    let other = before.replace("write b 2", "write b 4");
    type_text(&second, &other);
    // An error names its line and is not saved.
    type_text(&first, &before.replace("\"R2\"", "\"R9\""));
    first.click("#plan-save").until_text("names R9, which is not in");
    assert_eq!(scene.repo.read(TASKS), before);
    type_text(&first, &one);
    first.click("#plan-save").until("location.pathname == '/plan'");
    first.until_text("tasks.toml saved").until_text("write b 3");
    assert_eq!(scene.repo.read(TASKS), one);
    // The other window says so while the user still types.
    second.until("!document.getElementById('plan-changed').hidden").until_text("write b 3");
    assert_eq!(text_of(&second), json!(other));
    second.click("#plan-save").until_text("changed in between").picture("plan-conflict");
    assert_eq!((scene.repo.read(TASKS), text_of(&second)), (one, json!(other)));
    second.click("#plan-replace").until("location.pathname == '/plan'");
    assert_eq!(scene.repo.read(TASKS), other);
    // An edit by hand is the same to a page.
    first.click("#edit-requirements").until("document.getElementById('plan-text')");
    let by_hand = scene.repo.read(REQUIREMENTS) + "- R4: there is a d\n";
    scene.repo.write(REQUIREMENTS, &by_hand);
    first.until("!document.getElementById('plan-changed').hidden");
    first.click("#plan-save").until_text("changed in between");
    assert_eq!(scene.repo.read(REQUIREMENTS), by_hand);
}

#[test]
fn no_text_of_a_plan_runs_in_a_page() {
    let scene = Scene::new();
    let requirement = format!("R1: {SCRIPT}");
    let text = format!("write a {SCRIPT}\nand {SCRIPT}");
    write_plan(&scene, &[&requirement], &[("one", &text, "R1", &[]), ("two", "x", "R1", &["one"])]);
    let list = scene.repo.read(TASKS).replace("test -d .", &format!("echo '{SCRIPT}'"));
    scene.repo.write(TASKS, format!("\n# {SCRIPT}\n{list}"));
    let original = format!(
        "{}\n{{{{ORIGINAL USER REQUIREMENTS -- THIS SECTION WILL BE IGNORED BY THE IMPLEMENTATION}}}}\n\n{SCRIPT}\n",
        scene.repo.read(REQUIREMENTS)
    );
    scene.repo.write(REQUIREMENTS, original);
    let server = PageServer::start(&scene);
    let browser = Browser::open(&scene, &server, &[]);
    let check = |page: &str| {
        browser.until("document.readyState == 'complete'");
        let found = browser.script(
            "return [window.ran ?? 0, document.querySelectorAll('main img, main script, main [onerror]').length, window.blocked.length]",
        );
        assert_eq!(found, json!([0, 0, 0]), "{page}");
    };
    for (page, file) in [("tasks", TASKS), ("requirements", REQUIREMENTS)] {
        let page = format!("/plan/edit/{page}");
        browser.goto(&page);
        check(&page);
        let value = browser.script("return document.getElementById('plan-text').value");
        assert_eq!(value, json!(scene.repo.read(file)));
    }
    browser.goto("/plan").until_text(SCRIPT);
    check("/plan");
    assert_eq!(browser.script("return document.querySelectorAll('.graph-box').length"), 2);
    // The errors of a list have its text too.
    scene.repo.write(TASKS, format!("[[task]]\n'{SCRIPT}' = 1\n"));
    browser.until_text("invalid task list");
    check("/plan with an error");
    let (code, text) = server.interrupt();
    assert_eq!(code, 0);
    assert!(!text.contains("blocked"), "{text}");
}

#[test]
fn the_plan_fits_narrow_windows_and_its_picture_scrolls_in_its_own_box() {
    let scene = Scene::new();
    let long = "document-the-longest-word-of-all-words-that-has-no-space-at-all-".repeat(3);
    let names: Vec<String> = (1..=14).map(|n| format!("task-number-{n}")).collect();
    let after = [
        &[][..],
        &[0],
        &[0],
        &[0],
        &[1, 2],
        &[3],
        &[],
        &[6],
        &[4, 5],
        &[7, 8, 0],
        &[],
        &[],
        &[9],
        &[9, 11],
    ];
    let after: Vec<Vec<&str>> =
        after.iter().map(|all| all.iter().map(|n| names[*n].as_str()).collect()).collect();
    let texts = ["write a 1", "gate open; write b 1", "write c 1", "sh exit 3", &long];
    let texts = texts.map(str::to_owned).into_iter();
    let texts: Vec<String> = texts
        .chain((5..14).map(|n| format!("Extend part {n} of the program with its tests")))
        .collect();
    let tasks: Vec<(&str, &str, &str, &[&str])> = (0..14)
        .map(|n| {
            let requirement = ["R1", "R2", "R3"][n % 3];
            (names[n].as_str(), texts[n].as_str(), requirement, after[n].as_slice())
        })
        .collect();
    let requirements = [
        "R1: The program greets people by their name",
        "R2: The program tells its version",
        "R3: The pages say how",
    ];
    write_plan(
        &scene,
        &[requirements[0], requirements[1], &format!("{}-{long}", requirements[2])],
        &tasks,
    );
    let mut server = PageServer::start(&scene);
    for (name, flags) in [("light", &[][..]), ("dark", &["--force-dark-mode"][..])] {
        let browser = Browser::open(&scene, &server, flags);
        server.log_in_again();
        for (width, height) in [(360, 740), (1280, 900), (2560, 1300)] {
            browser.resize(width, height);
            for (page, path) in [("plan", "/plan"), ("plan-edit", "/plan/edit/tasks")] {
                browser.goto(path).until("document.querySelector('h1')");
                browser.picture(&format!("{page}-{name}-{width}"));
                let size = "[document.documentElement.scrollWidth, innerWidth]";
                let size = browser.script(&format!("return {size}"));
                assert!(size[0].as_u64() <= size[1].as_u64(), "{page} at {width}: {size}");
            }
            browser.goto("/plan");
            let count = browser.script("return document.querySelectorAll('.graph-box').length");
            assert_eq!(count, 14);
            let scrolls = browser.script(
                "const it = document.querySelector('.graph-scroll'); return it.scrollWidth > it.clientWidth",
            );
            assert_eq!(scrolls, width == 360, "at {width}");
        }
    }
}

#[test]
fn answers_about_the_plan_have_the_form_that_the_description_says() {
    let scene = Scene::new();
    let mut server = PageServer::start(&scene);
    server.log_in();
    let document = server.get("/api/v1/openapi.json").is(200).json();
    let read = || {
        let answer = server.get("/api/v1/plan").is(200).json();
        api::check_answer(&document, "get", "/api/v1/plan", &answer);
        let expected = scene.studio(["plan", "--status", "--json"]).exits(0).json();
        (answer, expected)
    };
    let send = |path: &str, body: &Value| {
        let path = format!("/api/v1/plan/{path}");
        let answer = server.post(&path, body).is(200).json();
        api::check_answer(&document, "post", &path, &answer);
        answer["plan"].clone()
    };
    let (answer, expected) = read();
    assert_eq!((&answer, &answer["plan"]), (&expected, &Value::Null));
    for path in ["continue", "stop"] {
        let answer = server.post(&format!("/api/v1/plan/{path}"), &json!({}));
        assert!(matches!(answer.status, 400 | 409), "{path}: {}", answer.body);
    }
    write_plan(
        &scene,
        &["R1: there is an a", "R2: there is a b"],
        &[("first", "gate open; write a 1", "R1", &[]), ("second", "write b 1", "R2", &["first"])],
    );
    let (answer, expected) = read();
    assert_eq!(answer, expected);
    let old = answer["plan"]["requirements_file"]["digest"].clone();
    assert_eq!(answer["plan"]["stage"], "approve");
    // An approval is of the text that was read.
    let text = scene.repo.read(REQUIREMENTS) + "- R3: there is a c\n";
    let edit = json!({"file": "requirements", "digest": old, "text": text});
    let edited = send("text", &edit);
    assert_eq!(scene.repo.read(REQUIREMENTS), text);
    server.post("/api/v1/plan/text", &edit).is(409);
    let refused = server.post("/api/v1/plan/approve", &json!({"digest": old})).is(409).json();
    assert_eq!(refused["error"]["what"], "the requirements are not approved");
    let list = scene.repo.read(TASKS).replace("\"R2\"", "\"R2\", \"R3\"");
    let digest = &edited["tasks_file"]["digest"];
    send("text", &json!({"file": "tasks", "digest": digest, "text": list}));
    let approved = send("approve", &json!({"digest": edited["requirements_file"]["digest"]}));
    assert_eq!((&approved["stage"], &approved["running"]), (&json!("agree"), &json!(false)));
    let started = send("approve", &json!({"digest": approved["tasks_file"]["digest"]}));
    assert_eq!(started["stage"], "work");
    let id = session_of(&scene, "first");
    scene.await_state(&id, "working");
    let (answer, _) = read();
    assert_eq!(
        (&answer["plan"]["running"], &answer["plan"]["waits_for"]),
        (&json!(true), &json!("1 session"))
    );
    server.post("/api/v1/plan/continue", &json!({})).is(409);
    let stopped = send("stop", &json!({}));
    assert_eq!(
        (&stopped["running"], &stopped["tasks"][0]["state"]),
        (&json!(false), &json!("stopped"))
    );
    send("continue", &json!({}));
    open_gate(&scene);
    until("the plan to end", || (plan_of(&scene)["stage"] == "over").then_some(()));
    until("its process to end", || (plan_of(&scene)["running"] == false).then_some(()));
    let (answer, expected) = read();
    assert_eq!(answer, expected);
    assert_eq!((&answer["plan"]["done"], &answer["plan"]["waits_for"]), (&json!(2), &Value::Null));
    // No model compares here.
    let refused = server.post("/api/v1/plan/converge", &json!({}));
    assert!(matches!(refused.status, 400 | 500), "{}", refused.body);
    assert!(refused.json()["error"]["what"].is_string(), "{}", refused.body);
    let described: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    for path in ["", "/approve", "/continue", "/converge", "/stop", "/text", "/events"] {
        assert!(described.contains(&&format!("/api/v1/plan{path}")), "{path}: {described:?}");
    }
}
