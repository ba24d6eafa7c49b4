//! Sessions that are kept up to date: they always say what a complete reading says.

use base::config::Config;
use studio_core::live_sessions::LiveSessions;
use studio_core::overview::{Overview, SessionGroup};
use studio_core::project::Project;
use studio_core::seen;
use studio_git::repo::Repository;

use crate::fixtures::Scene;

/// Refreshes the sessions, and compares them with a complete reading.
fn refresh(project: &Project, live: &mut LiveSessions) -> bool {
    let is_changed = live.refresh(project).expect("the sessions can be read");
    let (views, unreadable) = project.sessions().expect("the sessions can be read");
    let complete: Vec<String> = views.iter().map(|view| view.json().to_string()).collect();
    let kept: Vec<String> =
        live.oldest_first().iter().map(|(view, _)| view.json().to_string()).collect();
    assert_eq!(kept, complete);
    assert_eq!(live.unreadable().count(), unreadable.len());
    is_changed
}

fn groups(live: &LiveSessions) -> Vec<(SessionGroup, &'static str, bool)> {
    let overview = Overview::of(&live.oldest_first());
    overview.rows.iter().map(|row| (row.group, row.state.name(), row.is_new)).collect()
}

#[test]
fn only_changes_are_read_and_nothing_is_missed() {
    use SessionGroup as Group;
    let scene = Scene::new();
    let repository = Repository::discover(scene.repo.path()).unwrap();
    let project = Project::new(repository, Config::default());
    let mut live = LiveSessions::read(&project).unwrap();
    assert!(!refresh(&project, &mut live));

    let id = scene.exec(["--agent", "talk", "--ask", "ask one; write a 1"]);
    scene.await_state(&id, "waiting");
    assert!(refresh(&project, &mut live));
    assert_eq!(groups(&live), [(Group::NeedsYou, "waiting", false)]);
    assert_eq!(Overview::of(&live.oldest_first()).notices().len(), 1);
    scene.studio(["answer", &id, "allow"]).exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert!(refresh(&project, &mut live));
    assert_eq!(groups(&live), [(Group::Ready, "ready", true)]);
    assert!(!refresh(&project, &mut live), "nothing changed");

    seen::mark(&project.repository, live.views().next().unwrap());
    assert!(refresh(&project, &mut live));
    assert_eq!(groups(&live), [(Group::Ready, "ready", false)]);

    // A commit of the user may cause conflicts.
    let version = live.comparison_version(&project);
    assert_eq!(live.comparison_version(&project), version);
    scene.repo.commit_file("a", "other\n");
    assert_ne!(live.comparison_version(&project), version);

    let failed = scene.exec(["exit 3"]);
    scene.await_state(&failed, "failed");
    scene.await_free(&failed);
    assert!(refresh(&project, &mut live));
    assert_eq!(groups(&live)[0], (Group::NeedsYou, "failed", true));
    scene.studio(["discard", &failed]).exits(0);
    assert!(refresh(&project, &mut live));
    assert_eq!(groups(&live)[1], (Group::Done, "discarded", false));
    scene.studio(["undo"]).exits(0);
    assert!(refresh(&project, &mut live));
    assert_eq!(groups(&live)[0].1, "failed");

    // A damaged journal is reported as by a complete reading, also after it was read in part.
    let journal = scene.session_file(&id, "journal.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, format!("{text}not JSON\n{{}}\n")).unwrap();
    assert!(refresh(&project, &mut live));
    assert_eq!(live.unreadable().count(), 1);
    std::fs::write(&journal, text).unwrap();
    assert!(refresh(&project, &mut live));
    std::fs::remove_dir_all(scene.session_file(&failed, "")).unwrap();
    assert!(refresh(&project, &mut live));
    assert_eq!(live.views().count(), 1);
}

#[test]
fn what_a_queued_session_waits_for_is_read_when_it_changes() {
    let scene = Scene::new();
    let repository = Repository::discover(scene.repo.path()).unwrap();
    let project = Project::new(repository, Config::default());
    let first = scene.exec(["--agent", "talk", "--ask", "ask one; write a 1"]);
    scene.await_state(&first, "waiting");
    let id = scene.exec(["-j", "1", "write b 1"]);
    let mut live = LiveSessions::read(&project).unwrap();
    let why = |live: &LiveSessions| {
        let view = live.views().find(|view| view.record.id.as_str() == id).unwrap();
        view.reason().unwrap_or_default()
    };
    assert_eq!(why(&live), "waiting for a free slot");
    let file = scene.repo.path().join(".git/studio/queue.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, text.replace("waiting for a free slot", "waiting for the moon")).unwrap();
    assert!(refresh(&project, &mut live));
    assert_eq!(why(&live), "waiting for the moon");
    scene.studio(["stop", &first, &id]);
}
