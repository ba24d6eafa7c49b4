//! Tests a small model that does not know when it is done.

use serde_json::json;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;

#[test]
fn a_repeated_edit_after_passing_checks_ends_the_run_successfully() {
    let edit = || {
        let args = json!({"filePath": "sum.py", "oldString": "a - b", "newString": "a + b"});
        ScriptedReply::call("edit", args)
    };
    let check = ScriptedReply::call("shell", json!({"command": "python3 test_sum.py"}));
    let stage = Stage::new(vec![edit(), check, edit(), edit(), edit(), edit(), edit()]);
    stage.env.config(&format!(
        "[providers.openai.tiny]\nmodel = \"tiny-1.5b\"\nbase_url = \"{}\"\n",
        stage.model.openai_url()
    ));
    stage.repo.write("sum.py", "def add(a, b):\n    return a - b\n");
    stage.repo.write("test_sum.py", "from sum import add\nassert add(1, 2) == 3\n");
    stage.g3(["test_sum.py fails. Fix sum.py."]).exits(0);
    assert_eq!(stage.repo.read("sum.py"), "def add(a, b):\n    return a + b\n");
    assert_eq!(stage.asked().len(), 4, "the second repetition is the end");
}
