//! `[studio] notify`: one notification for each settled session and each open question.

use testkit::env::until;

use crate::fixtures::Scene;

/// Writes a line with id, state and reason for each notification.
const NOTIFY: &str = "notify = ['sh', '-c', 'printf \"%s %s %s\\n\" \"$STUDIO_ID\" \"$1\" \"$STUDIO_REASON\" >> \"$HOME/pings\"', 'sh', '{state}']";

fn pings(scene: &Scene) -> Vec<String> {
    let text = std::fs::read_to_string(scene.env.home().join("pings")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until there are this many notifications, and returns the last one.
fn last_of(scene: &Scene, count: usize) -> String {
    until("a notification", || (pings(scene).len() >= count).then_some(()));
    assert_eq!(pings(scene).len(), count, "{:?}", pings(scene));
    pings(scene).pop().unwrap_or_default()
}

#[test]
fn each_settled_session_sends_one_notification() {
    let scene = Scene::new();
    scene.configure(NOTIFY);
    let ready = scene.ready("write a 1");
    assert_eq!(
        last_of(&scene, 1),
        format!("{ready} ready the agent finished; no checks are configured")
    );
    let failed = scene.exec(["exit 3"]);
    assert_eq!(last_of(&scene, 2), format!("{failed} failed the agent exited with code 3"));

    // It settles again, and lands.
    scene.await_free(&ready);
    scene.studio(["send", &ready, "write b 1"]).exits(0);
    assert!(last_of(&scene, 3).starts_with(&format!("{ready} ready ")));
    let landed = scene.exec(["--accept", "write c 1"]);
    assert!(last_of(&scene, 4).starts_with(&format!("{landed} accepted landed as ")));
    scene.await_free(&landed);
    assert_eq!(pings(&scene).len(), 4);
}

#[test]
fn each_question_sends_one_notification_and_turns_send_none() {
    let scene = Scene::new();
    scene.configure(NOTIFY);
    let id = scene.exec(["--agent", "talk", "--ask", "say hello; ask one; say there; ask two"]);
    assert_eq!(last_of(&scene, 1), format!("{id} waiting permission 1: one"));
    scene.studio(["answer", &id, "1", "allow", "--always"]).exits(0);
    assert_eq!(last_of(&scene, 2), format!("{id} waiting permission 2: two"));
    scene.studio(["answer", &id, "2", "deny"]).exits(0);
    assert!(last_of(&scene, 3).starts_with(&format!("{id} ready ")));

    // Without anybody to ask, a question is denied and sends none.
    let unattended = scene.exec(["--agent", "talk", "ask one"]);
    assert!(last_of(&scene, 4).starts_with(&format!("{unattended} ready ")), "{:?}", pings(&scene));
}

#[test]
fn a_notification_that_cannot_be_sent_does_not_affect_the_session() {
    let scene = Scene::new();
    scene.configure("notify = ['/nonexistent', '{id}']");
    scene.ready("write a 1");
    scene.configure("notify = ['sh', '-c', 'sleep 10']");
    let id = scene.ready("write b 1");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Add b"]).exits(0);
}
