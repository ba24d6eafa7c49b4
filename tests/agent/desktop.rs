//! Tests of the screen tools on a real desktop: each effect is read from the log of the target
//! program.

use base::process;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::desktop_support::{Screen, control, pixels};
use crate::tools_support::{Bench, G3};

#[test]
fn clicks_and_text_reach_the_program() {
    let screen = Screen::new("g3");
    let at = screen.at("Press_me", json!({}));
    screen.call("mouse_click", at).says("clicked the left button at").works();
    screen.program.saw("clicked Press me");
    screen.call("mouse_click", screen.at("Name", json!({}))).works();
    let typed = "Zażółć & 漢字 🙂".to_owned() + &"x".repeat(60);
    let told = screen.call("type_text", json!({ "text": typed }));
    assert!(told.works().contains("characters more") && !told.text.contains(&typed));
    screen.program.saw(&format!("text {typed}"));
    let (x, y) = screen.middle("Canvas");
    let right = screen.at("Canvas", json!({ "button": "right" }));
    screen.call("mouse_click", right).works();
    screen.program.saw(&format!("pressed 3 {x} {y}"));
    screen
        .call("mouse_click", json!({ "x": 1, "y": 1, "button": "middle-ish" }))
        .fails("validation");
    screen.call("type_text", json!({ "text": "" })).says("empty").fails("validation");
    let windows = screen.call("list_windows", json!({}));
    windows.says("\"Fixture\"").says("[active]").works();
    assert_eq!(windows.metadata["windows"][0]["title"], "Fixture");
}

#[test]
fn divergence_04_both_argument_forms_of_execute_gui_do_the_same() {
    let screen = Screen::new("core");
    let flat = screen.call("execute_gui", screen.at("Press_me", json!({ "action": "click" })));
    flat.works();
    let (x, y) = screen.middle("Press_me");
    let nested = json!({ "action": "click", "target": "the button",
        "coordinates": { "x": x, "y": y } });
    let nested = screen.call("execute_gui", nested);
    nested.works();
    screen.program.saw_times("clicked Press me", 2);
    for told in [&flat.metadata, &nested.metadata] {
        assert_eq!(told["status"], "success");
        assert_eq!(told["coordinates"], json!({ "x": x, "y": y }), "native");
        assert!(told["duration_ms"].is_u64() && told["voice_message"].is_string(), "{told}");
    }
    assert_eq!(nested.metadata["target"], "the button");
    // The flat form takes precedence.
    let both = screen.at(
        "Name",
        json!({ "action": "type", "text": "flat",
        "coordinates": { "text": "nested", "x": 1, "y": 1 } }),
    );
    let typed = screen.call("execute_gui", both);
    assert_eq!(typed.metadata["action"], "type");
    screen.program.saw("text flat");
}

#[test]
fn all_nine_actions_reach_the_program() {
    let screen = Screen::new("core");
    let (x, y) = screen.middle("Canvas");
    let act = |name: &str, more: Value| {
        let mut more = more;
        more["action"] = json!(name);
        screen.call("execute_gui", screen.at("Canvas", more)).works();
    };
    act("click", json!({}));
    screen.program.saw(&format!("pressed 1 {x} {y}"));
    act("double_click", json!({}));
    screen.program.saw(&format!("double 1 {x} {y}"));
    act("right_click", json!({}));
    screen.program.saw(&format!("pressed 3 {x} {y}"));
    act("scroll", json!({ "direction": "up", "clicks": 2 }));
    screen.program.saw_times("scrolled up", 2);
    act("scroll", json!({}));
    screen.program.saw_times("scrolled down", 5);
    act("move_mouse", json!({}));
    let drag = json!({ "action": "drag",
        "coordinates": { "start_x": x, "start_y": y, "end_x": x + 60, "end_y": y } });
    screen.call("execute_gui", drag).works();
    screen.program.saw(&format!("released 1 {} {y}", x + 60));
    screen.call("execute_gui", json!({ "action": "hotkey", "key": "ctrl+s" })).works();
    screen.program.saw("key ctrl+s");
    screen.call("execute_gui", json!({ "action": "press_key", "key": "PageDown" })).works();
    screen.program.saw("key Page_Down");
    let typed = screen.at("Name", json!({ "action": "type", "text": "ä漢" }));
    screen.call("execute_gui", typed).works();
    screen.program.saw("text ä漢");
    let wrong = screen.call("execute_gui", json!({ "action": "tap", "x": 1, "y": 1 }));
    wrong.says("double_click").fails("validation");
    assert_eq!(wrong.metadata["status"], "error");
    screen
        .call("execute_gui", json!({ "action": "click" }))
        .says("`x` and `y`")
        .fails("validation");
    let blocked = json!({ "action": "hotkey", "key": "Alt+F4" });
    screen.call("execute_gui", blocked).says("never pressed").fails("validation");
    let log = screen.program.log();
    assert!(!log.contains("closed"), "{log}");
}

#[test]
fn the_pointer_in_a_corner_stops_every_action() {
    let screen = Screen::new("core");
    let corner = json!({ "action": "move_mouse", "x": 0, "y": 0 });
    screen.call("execute_gui", corner).works();
    let act = screen.at("Press_me", json!({ "action": "click" }));
    let told = screen.call("execute_gui", act.clone());
    told.says("corner").fails("failed");
    assert_eq!(told.metadata["status"], "error");
    assert!(!screen.program.log().contains("clicked"), "nothing was done");
    screen.bench.env.config(&control("fail_safe = false"));
    screen.call("execute_gui", act).works();
    screen.program.saw("clicked Press me");
}

#[test]
fn points_are_scaled_by_the_last_seen_image() {
    let screen = Screen::new("g3");
    // Before any image, points are screen coordinates.
    screen.call("execute_gui", screen.at("Press_me", json!({ "action": "click" }))).works();
    screen.program.saw("clicked Press me");
    let taken = screen.call("take_screenshot", json!({ "path": "w.png", "window_id": "Fixture" }));
    taken.works();
    let shows = &taken.metadata["shows"];
    let (x, y) = screen.middle("Press_me");
    let from = |key: &str| i32::try_from(shows[key].as_i64().unwrap()).unwrap();
    let inside = json!({ "action": "click", "x": x - from("x"), "y": y - from("y") });
    let clicked = screen.call("execute_gui", inside);
    clicked.works();
    assert_eq!(clicked.metadata["coordinates"], json!({ "x": x, "y": y }));
    screen.program.saw_times("clicked Press me", 2);
    // Another session has seen no image.
    let other = ["tool", "exec", "--name", "execute_gui", "--session", "other", "--args"];
    let args = screen.at("Press_me", json!({ "action": "click" })).to_string();
    let ran = screen.bench.env.run(G3, &screen.bench.dir, other.into_iter().chain([args.as_str()]));
    ran.ok();
    screen.program.saw_times("clicked Press me", 3);
}

#[test]
fn a_window_is_maximized_once() {
    let screen = Screen::new("core");
    let first = screen.call("maximize_active_window", json!({}));
    first.works();
    assert_eq!(first.metadata["was_maximized"], false);
    screen.program.saw("maximized on");
    let again = screen.call("maximize_active_window", json!({}));
    again.works();
    assert_eq!(
        (&again.metadata["was_maximized"], &again.metadata["status"]),
        (&json!(true), &json!("success"))
    );
    assert!(again.metadata["voice_message"].is_string());
}

#[test]
fn controls_are_found_by_text_role_and_attributes() {
    let screen = Screen::new("g3");
    let (x, y) = screen.middle("Press_me");
    let found = screen.call("find_element", json!({ "text": "press" }));
    found.says(&format!("middle {x},{y}")).works();
    assert_eq!(found.metadata["elements"][0]["type"], "push button");
    let boxes = screen.call("find_element", json!({ "role": "check_box", "app": "program" }));
    let named = screen.call("find_element", json!({ "role": "checkbox", "app": "program" }));
    assert_eq!(named.works(), boxes.works(), "the word of web pages");
    boxes.says("\"Remember\"").works();
    let off = json!({ "role": "button", "attributes": { "enabled": false } });
    let off = screen.call("find_element", off);
    assert!(off.works().contains("\"Off\"") && !off.text.contains("Press me"), "{off:?}");
    let none = screen.call("find_element", json!({ "role": "no such thing" }));
    none.says("nothing on the screen fits role").fails("not_found");
    screen.call("find_element", json!({})).says("`text`, `role`").fails("validation");
}

#[test]
fn collision_find_element_means_the_desktop_in_every_profile() {
    let mut screen = Screen::new("g3");
    for profile in ["g3", "all", "core"] {
        screen = screen.of(profile);
        screen.call("find_element", json!({ "text": "Press me" })).says("push button").works();
    }
}

#[test]
fn divergence_03_the_context_is_a_bare_array_in_core_and_an_object_elsewhere() {
    let screen = Screen::new("core");
    let bare = screen.call("get_ui_context", json!({}));
    bare.works();
    let named = |list: &Value, name: &str| {
        let mut all = list.as_array().unwrap().iter();
        all.find(|it| it["name"] == name).cloned().unwrap_or_else(|| panic!("{list}"))
    };
    let press = named(&bare.metadata, "Press me");
    assert_eq!(press["type"], "push button");
    assert!(press["automation_id"].is_string());
    let screen = screen.of("all");
    let told = screen.call("get_ui_context", json!({ "max_depth": "20" })).metadata;
    assert_eq!(
        (&told["status"], &told["foreground_window"]),
        (&json!("success"), &json!("Fixture"))
    );
    let elements = &told["interactive_elements"];
    named(elements, "Remember");
    assert_eq!(told["element_count"], elements.as_array().unwrap().len());
    assert!(told.as_object().unwrap().contains_key("focused_element"));
}

#[test]
fn controls_are_acted_on_by_their_names() {
    let screen = Screen::new("core");
    let act = |args: Value| screen.call("execute_accessible", args);
    let clicked = act(json!({ "element_name": "press ME", "action": "click" }));
    clicked.works();
    screen.program.saw("clicked Press me");
    let told = &clicked.metadata;
    for (key, value) in [
        ("status", json!("success")),
        ("found", json!(true)),
        ("element_name", json!("Press me")),
        ("element_type", json!("push button")),
        ("action_performed", json!("click")),
    ] {
        assert_eq!(told[key], value, "{key}");
    }
    act(json!({ "element_name": "Name", "action": "type", "value": "Ada" })).works();
    screen.program.saw("text Ada");
    act(json!({ "target": "Remember", "action": "toggle" })).works();
    screen.program.saw("toggled Remember on");
    act(json!({ "element_name": "Size", "action": "select", "value": "medium" })).works();
    screen.program.saw("size medium");
    let missing = act(json!({ "element_name": "Nowhere", "action": "click" }));
    missing.says("available:").fails("not_found");
    let told = &missing.metadata;
    assert_eq!((&told["found"], &told["status"]), (&json!(false), &json!("error")));
    assert!(told["available_elements"].as_str().unwrap().contains("Press me (push button)"));
    assert!(told["description"].as_str().unwrap().contains("Press me"));
    for key in ["element_name", "element_type", "action_performed", "duration_ms", "voice_message"]
    {
        assert!(told.as_object().unwrap().contains_key(key), "{key}");
    }
    let unknown = act(json!({ "element_name": "Name", "action": "poke" }));
    for known in ["click", "set_value", "toggle", "select", "expand", "collapse", "focus"] {
        unknown.says(known);
    }
    unknown.fails("validation");
    act(json!({ "action": "click" })).says("which control").fails("validation");
    let cannot = act(json!({ "element_name": "Press me", "action": "expand" }));
    cannot.fails("failed");
    assert_eq!(cannot.metadata["action_performed"], "expand");
}

#[test]
fn divergence_02_observe_screen_reports_text_and_json_and_its_elements_can_be_clicked() {
    let screen = Screen::new("core");
    let seen = screen.call("observe_screen", json!({ "mode": "anything", "intent": "the button" }));
    seen.works();
    let told = &seen.metadata;
    assert_eq!(told["stdout"], told["ui_elements"]);
    assert_eq!(
        (&told["actual_backend"], &told["needs_llm_vision"]),
        (&json!("accessibility"), &json!(false))
    );
    assert!(told["stdout"].as_str().unwrap().contains("push button \"Press me\""), "{told}");
    assert!(!seen.text.contains("image_b64") && seen.images.is_empty(), "the model gets text");
    let shown = pixels(told["image_b64"].as_str().unwrap());
    assert_eq!(shown.dimensions(), (1280, 800));
    let elements = told["elements"].as_array().unwrap();
    let press = elements.iter().find(|it| it["content"] == "Press me").unwrap();
    let click = json!({ "action": "click", "coordinates": { "element_id": press["id"] } });
    screen.call("execute_gui", click).works();
    screen.program.saw("clicked Press me");
}

#[test]
fn a_cancelled_action_stops_and_leaves_no_helper() {
    let screen = Screen::new("g3");
    screen.call("mouse_click", screen.at("Name", json!({}))).works();
    let text = "typed ".repeat(1_500);
    let args = json!({ "text": text }).to_string();
    let args = ["tool", "exec", "--name", "type_text", "--args", &args];
    let mut g3 = screen.bench.env.start(G3, &screen.bench.dir, args);
    screen.program.saw("text typed");
    process::signal_group(g3.id(), Signal::INT);
    assert_eq!(g3.child.wait().unwrap().code(), Some(1));
    // The text typed before is seen before this click, which a new helper executes.
    screen.call("mouse_click", screen.at("Press_me", json!({}))).works();
    screen.program.saw("clicked Press me");
    let log = screen.program.log();
    let typed = log.lines().filter_map(|line| line.strip_prefix("text ")).map(str::len).max();
    assert!(typed.unwrap() < text.len() - 100, "{typed:?}");
    screen.call("mouse_click", screen.at("Press_me", json!({}))).works();
    screen.program.saw_times("clicked Press me", 2);
    let after = screen.program.log();
    let more = after.lines().filter_map(|line| line.strip_prefix("text ")).map(str::len).max();
    assert_eq!(more, typed, "nothing is typed any more");
}

#[test]
fn a_missing_helper_is_reported_with_a_hint() {
    let bench = Bench::new("g3");
    bench.env.config("[computer_control]\nprogram = \"/nowhere/g3-desktop\"\n");
    bench.call("list_windows", json!({})).says("/nowhere/g3-desktop").fails("failed");
    // Without a screen.
    bench.env.config(&control(""));
    bench.call("list_windows", json!({})).says("DISPLAY").fails("failed");
}
