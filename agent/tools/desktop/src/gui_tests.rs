//! Tests of calls of `execute_gui`, in both argument forms.

use base::desktop_protocol::Area;

use super::*;
use crate::shown_screen::Element;

/// A screen twice as large as the image, with element 3 in the center of the image.
fn seen() -> ShownScreen {
    let element = Element { id: "3".into(), bbox: [0.4, 0.4, 0.6, 0.6], ..Element::default() };
    let shows = Area { x: 0, y: 0, width: 2560, height: 1600 };
    ShownScreen { width: 1280, height: 800, shows, elements: vec![element] }
}

fn deed(args: Value) -> Result<GuiAction, String> {
    let seen = seen();
    let map = args.as_object().unwrap().clone();
    let action = args["action"].as_str().unwrap().to_owned();
    GuiArgs { map: merge_coordinates(map), shown_screen: Some(&seen) }.plan(&action)
}

fn steps(args: Value) -> Vec<InputStep> {
    deed(args).unwrap().steps
}

fn why(args: Value) -> String {
    deed(args).unwrap_err()
}

#[test]
fn divergence_4_both_argument_forms_are_equivalent_and_the_flat_one_wins() {
    let flat = steps(json!({"action": "click", "x": 10, "y": 20}));
    let nested = steps(json!({"action": "click", "coordinates": {"x": "10", "y": 20.0}}));
    let click = InputStep::Click { button: Button::Left, times: 1 };
    assert_eq!(flat, [InputStep::Move { x: 20, y: 40 }, click]);
    assert_eq!(flat, nested);
    let both = json!({"action": "click", "x": 10, "y": 20, "coordinates": {"x": 1, "y": 2}});
    assert_eq!(steps(both), flat);
    let amount = json!({"action": "scroll", "coordinates": {"amount": 3, "direction": "left", "x": 5, "y": 5}});
    let scroll = InputStep::Scroll { down: 0, right: -3 };
    assert_eq!(steps(amount), [InputStep::Move { x: 10, y: 10 }, scroll]);
    let keys = json!({"action": "hotkey", "coordinates": {"keys": ["Ctrl", "S"]}});
    assert_eq!(steps(keys), steps(json!({"action": "hotkey", "key": "ctrl+s"})));
}

#[test]
fn each_action_has_its_steps() {
    let here = InputStep::Move { x: 2, y: 4 };
    let at = |action: &str| steps(json!({"action": action, "x": 1, "y": 2}));
    let click = |button, times| InputStep::Click { button, times };
    assert_eq!(at("double_click"), [here.clone(), click(Button::Left, 2)]);
    assert_eq!(at("right_click"), [here.clone(), click(Button::Right, 1)]);
    assert_eq!(at("move_mouse"), std::slice::from_ref(&here));
    assert_eq!(at("scroll"), [here.clone(), InputStep::Scroll { down: 5, right: 0 }]);
    assert_eq!(at("drag"), [InputStep::Drag { x: 2, y: 4 }]);
    let typed = json!({"action": "type", "text": "é", "x": 1, "y": 2});
    let text = InputStep::Type { text: "é".into() };
    assert_eq!(steps(typed), [here.clone(), click(Button::Left, 1), text.clone()]);
    assert_eq!(steps(json!({"action": "type", "text": "é"})), [text]);
    let up = json!({"action": "scroll", "direction": "up", "clicks": 2});
    assert_eq!(steps(up), [InputStep::Scroll { down: -2, right: 0 }]);
    let key = json!({"action": "press_key", "key": "Return"});
    assert_eq!(steps(key), [InputStep::Keys { keys: vec!["enter".into()] }]);
    let drag = json!({"action": "drag",
        "coordinates": {"start_x": 1, "start_y": 2, "end_x": 3, "end_y": 4}});
    assert_eq!(steps(drag), [here, InputStep::Drag { x: 6, y: 8 }]);
}

#[test]
fn an_element_means_its_center_and_an_unknown_one_falls_back_to_the_point() {
    let middle = steps(json!({"action": "click", "element_id": "3", "x": 1, "y": 1}));
    assert_eq!(middle[0], InputStep::Move { x: 1280, y: 800 });
    let unknown =
        steps(json!({"action": "click", "coordinates": {"element_id": 9, "x": 1, "y": 1}}));
    assert_eq!(unknown[0], InputStep::Move { x: 2, y: 2 });
    assert!(why(json!({"action": "click", "element_id": "9"})).contains("no such element: 9"));
    let named = why(json!({"action": "click", "element_id": "Save", "x": 1, "y": 1}));
    assert!(named.contains("must be a number"), "{named}");
}

#[test]
fn without_an_image_points_are_screen_coordinates() {
    let map = json!({"x": 7, "y": 8}).as_object().unwrap().clone();
    let action = GuiArgs { map, shown_screen: None }.plan("click").unwrap();
    assert_eq!(action.position, Some((7, 8)));
}

#[test]
fn invalid_calls_are_rejected_with_a_hint() {
    let unknown = why(json!({"action": "tap"}));
    assert!(ACTIONS.iter().all(|action| unknown.contains(action)), "{unknown}");
    assert!(why(json!({"action": "click"})).contains("`x` and `y`"));
    assert!(why(json!({"action": "click", "x": 1})).contains("without `y`"));
    assert!(why(json!({"action": "click", "x": "left", "y": 1})).contains("must be a number"));
    assert!(why(json!({"action": "drag"})).contains("its end"));
    assert!(why(json!({"action": "type"})).contains("`text`"));
    assert!(why(json!({"action": "hotkey"})).contains("`key`"));
    assert!(why(json!({"action": "hotkey", "key": "Alt + F4"})).contains("blocked"));
    assert!(why(json!({"action": "scroll", "direction": "in"})).contains("up, down"));
}
