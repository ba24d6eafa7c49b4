//! Tests of the interactive conversation.

use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;

#[test]
fn a_conversation_continues_over_lines_and_survives_failures() {
    let stage = Stage::new([
        ScriptedReply::says("hello you"),
        ScriptedReply::status(401),
        ScriptedReply::says("still here"),
    ]);
    let ran = stage.g3_with_input([], "hi\nbreak\nare you there?\n/stats\n/exit\nnever read\n");
    ran.ok();
    ran.output_contains("hello you")
        .output_contains("error:")
        .output_contains("still here")
        .output_contains("turns    2");
    let asked = stage.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[2].text().contains("hello you"), "the conversation is one");
    assert!(!asked[2].text().contains("1 turn"), "the line under a turn is for people alone");
    assert_eq!(stage.session_dirs().len(), 1);
}

#[test]
fn an_empty_conversation_leaves_no_session() {
    let stage = Stage::new([]);
    stage.g3_with_input([], "/help\n\n").output_contains("/resume").ok();
    assert!(stage.session_dirs().is_empty());
}

#[test]
fn clear_drops_the_conversation_and_a_backslash_continues_a_line() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.g3_with_input([], "the word is plum\n/clear\nfirst half\\\nsecond half\n").ok();
    let asked = stage.asked();
    assert!(!asked[1].text().contains("plum"));
    assert!(asked[1].text().contains("first half\nsecond half"), "{}", asked[1].text());
}

#[test]
fn an_unknown_command_is_not_sent_to_the_model() {
    let stage = Stage::new([]);
    stage.g3_with_input([], "/nope\n").output_contains("no such command: `/nope`");
    assert!(stage.asked().is_empty());
}

#[test]
fn a_session_can_be_resumed_at_the_prompt() {
    let stage = Stage::new([ScriptedReply::says("noted"), ScriptedReply::says("plum")]);
    stage.g3(["the word is plum"]).ok();
    let id = stage.session_dir().file_name().unwrap().to_str().unwrap().to_owned();
    let input = format!("/resume\n/resume {}\nwhich word?\n", &id[..6]);
    stage.g3_with_input([], &input).output_contains(&id);
    assert!(stage.asked()[1].text().contains("the word is plum"));
}
