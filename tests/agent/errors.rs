//! Tests of the error records of failed runs.

use serde_json::Value;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;

fn records(stage: &Stage) -> Vec<String> {
    let folder = stage.env.g3_state(stage.repo.path()).join("errors");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = files.map(|file| file.path()).collect();
    names.sort();
    names.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn a_failed_turn_leaves_a_record_without_keys() {
    let stage = Stage::new([ScriptedReply::status(401)
        .body("application/json", r#"{"error":{"message":"bad key topsecret-1234"}}"#)]);
    let job = stage.job(["do it\nwith topsecret-1234"]).env("MY_API_KEY", "topsecret-1234");
    stage.env.run_command(job).exits(1);
    let records = records(&stage);
    assert_eq!(records.len(), 1);
    let record: Value = serde_json::from_str(&records[0]).unwrap();
    assert_eq!(record["task"], "do it\nwith [secret]");
    assert_eq!(record["provider"], "anthropic.scripted");
    assert!(record["what"].as_str().unwrap().contains("model request failed"), "{record}");
    assert!(!records[0].contains("topsecret"), "{}", records[0]);
    let file = std::fs::read_dir(stage.env.g3_state(stage.repo.path()).join("errors"))
        .unwrap()
        .next()
        .unwrap();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(file.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
    assert_eq!(stage.repo.git(["status", "--porcelain"]), "", "git must not see it");
}

#[test]
fn successes_limits_and_usage_errors_leave_no_record_and_old_records_are_deleted() {
    let stage = Stage::new([ScriptedReply::says("done"), ScriptedReply::status(401)]);
    stage.g3(["no problems found"]).ok();
    stage.g3(["--nonsense"]).exits(2);
    assert!(records(&stage).is_empty());
    let folder = stage.env.g3_state(stage.repo.path()).join("errors");
    std::fs::create_dir_all(&folder).unwrap();
    for n in 0..60 {
        std::fs::write(folder.join(format!("error_2001-01-01T00-00-{n:02}Z_x.json")), "{}")
            .unwrap();
    }
    stage.g3(["break"]).exits(1);
    assert_eq!(records(&stage).len(), 50);
    assert!(records(&stage).last().unwrap().contains("model request failed"));
}
