//! Tests of the planner functions.

use super::*;

const SIZE: (u32, u32) = (1440, 900);

fn actions(name: &str, args: Value) -> Vec<PlannedAction> {
    plan_call(name, &args, SIZE).unwrap().actions
}

fn gui(args: Value) -> PlannedAction {
    PlannedAction::Gui(args)
}

#[test]
fn points_are_scaled_from_the_grid_to_the_image() {
    let click = |x: i64, y: i64| actions("click_at", json!({ "x": x, "y": y }));
    assert_eq!(click(500, 250), [gui(json!({ "action": "click", "x": 720, "y": 225 }))]);
    assert_eq!(click(999, 999), [gui(json!({ "action": "click", "x": 1438, "y": 899 }))]);
    assert_eq!(click(0, 1), [gui(json!({ "action": "click", "x": 0, "y": 0 }))]);
    for (x, y) in [(1000, 0), (-1, 0)] {
        let reason = plan_call("click_at", &json!({ "x": x, "y": y }), SIZE).unwrap_err();
        assert!(reason.contains("from 0 to 999"), "{reason}");
    }
    assert!(plan_call("click_at", &json!({ "x": 1 }), SIZE).unwrap_err().contains("`y`"));
}

#[test]
fn every_function_becomes_the_actions_in_the_table() {
    let hover = actions("hover_at", json!({ "x": 100, "y": 100 }));
    assert_eq!(hover, [gui(json!({ "action": "move_mouse", "x": 144, "y": 90 }))]);
    let scroll = |args: Value| actions("scroll_at", args);
    let at = json!({ "x": 0, "y": 0, "direction": "left" });
    let expected = json!({ "action": "scroll", "x": 0, "y": 0, "direction": "left", "clicks": 3 });
    assert_eq!(scroll(at), [gui(expected)]);
    let far = json!({ "x": 0, "y": 0, "direction": "down", "magnitude": 800 });
    let PlannedAction::Gui(far) = &scroll(far)[0] else { panic!() };
    assert_eq!(far["clicks"], 8);
    for (direction, key) in
        [("up", "page_up"), ("down", "page_down"), ("left", "home"), ("right", "end")]
    {
        let pressed = actions("scroll_document", json!({ "direction": direction }));
        assert_eq!(pressed, [gui(json!({ "action": "press_key", "key": key }))]);
    }
    let keys = actions("key_combination", json!({ "keys": "Control+Shift+T" }));
    assert_eq!(keys, [press("ctrl+shift+t")]);
    for (name, key) in [("go_back", "alt+left"), ("go_forward", "alt+right"), ("search", "ctrl+k")]
    {
        assert_eq!(actions(name, json!({})), [press(key)]);
    }
    assert_eq!(actions("wait_5_seconds", json!({})), [PlannedAction::Wait(5.0)]);
    assert_eq!(actions("open_web_browser", json!({}))[0], PlannedAction::Browser);
    let expected = json!({ "action": "drag",
        "coordinates": { "start_x": 0, "start_y": 0, "end_x": 144, "end_y": 180 } });
    for (x, y) in [("dest_x", "dest_y"), ("destination_x", "destination_y")] {
        let dragged = actions("drag_and_drop", json!({ "x": 0, "y": 0, x: 100, y: 200 }));
        assert_eq!(dragged, [gui(expected.clone())]);
    }
    let opened = plan_call("navigate", &json!({ "url": "example.org/a" }), SIZE).unwrap();
    assert_eq!(opened.url.as_deref(), Some("https://example.org/a"));
    let typed = json!({ "action": "type", "text": "https://example.org/a" });
    assert_eq!(opened.actions[1], gui(typed));
    let reason = plan_call("fly", &json!({}), SIZE).unwrap_err();
    assert!(reason.contains("`fly` does nothing"), "{reason}");
}

#[test]
fn typed_text_replaces_existing_text_by_default() {
    let typed = |args: Value| {
        let kinds = actions("type_text_at", args).into_iter().map(|deed| match deed {
            PlannedAction::Gui(args) => {
                format!("{} {}", args["action"].as_str().unwrap(), args["key"])
            }
            other => format!("{other:?}"),
        });
        kinds.collect::<Vec<_>>()
    };
    let all = ["click null", "hotkey \"ctrl+a\"", "press_key \"backspace\"", "type null"];
    let enter = "press_key \"enter\"";
    let args = json!({ "x": 1, "y": 1, "text": "a" });
    assert_eq!(typed(args), [&all[..], &[enter]].concat());
    let plain = json!({ "x": 1, "y": 1, "text": "a", "press_enter": false,
        "clear_before_typing": false });
    assert_eq!(typed(plain), [all[0], all[3]]);
}

#[test]
fn blocked_combinations_are_reported_and_not_pressed() {
    for keys in ["Win+R", "super + r", "Ctrl+Alt+Delete", "alt+f4"] {
        let reason = plan_call("key_combination", &json!({ "keys": keys }), SIZE).unwrap_err();
        assert!(reason.contains("blocked"), "{reason}");
    }
    let listed = plan_call("key_combination", &json!({ "keys": ["Alt", "F4"] }), SIZE);
    assert!(listed.unwrap_err().contains("blocked"));
}

#[test]
fn a_planner_may_ask_for_confirmation() {
    let call = |name: &str, args: Value| ToolCall {
        id: String::new(),
        name: name.into(),
        args,
        malformed: None,
    };
    let safety = json!({ "x": 1, "y": 1,
        "safety_decision": { "decision": "require_confirmation", "explanation": "a purchase" } });
    assert_eq!(confirmation_reason(&call("click_at", safety)).as_deref(), Some("a purchase"));
    let asked = call("ask_confirmation", json!({ "explanation": "it deletes" }));
    assert_eq!(confirmation_reason(&asked).as_deref(), Some("it deletes"));
    assert_eq!(confirmation_reason(&call("click_at", json!({ "x": 1 }))), None);
}
