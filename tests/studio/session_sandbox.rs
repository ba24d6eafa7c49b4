//! The sandbox of a session: its agent can commit, stash, rebase and collect garbage, and cannot
//! access the main checkout, the repository's git directory, or another session.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use base::config::agent::SandboxConfig;
use base::config::studio::AgentRow;
use studio_core::sandbox::session_rules::{SessionPaths, SessionTrees};
use studio_core::sandbox::{self, SandboxJob, SandboxSpec};
use studio_git::import::tampering_warning;
use studio_git::session_repo;
use testkit::env::{CommandRun, until};
use testkit::repo::tree;

use crate::git_fixtures::{Session, Setting, setting};

/// A session's sandbox with a configurable agent entry.
struct SandboxedAgent<'a> {
    setting: &'a Setting,
    spec: SandboxSpec,
}

impl<'a> SandboxedAgent<'a> {
    fn new(setting: &'a Setting, session: &Session, row: Option<&AgentRow>) -> SandboxedAgent<'a> {
        let home = setting.env.home().canonicalize().unwrap();
        let git = setting.repo.path().canonicalize().unwrap().join(".git");
        let (temp, cache) = (home.join("tmp/own"), git.join("studio/cache"));
        let places = SessionPaths {
            home: &home,
            worktree: &session.place.worktree,
            private_git: &session.place.git_dir,
            repository_git: &git,
            temp: &temp,
            cache: &cache,
            trees: &SessionTrees::new(&home, vec![git.parent().unwrap().to_owned()], &git),
            protected: &session_repo::protected_paths(
                &session.place.worktree,
                &session.place.git_dir,
            ),
        };
        let mut spec = SandboxSpec::for_session(&places, row, &SandboxConfig::default()).unwrap();
        spec.environment.retain(|(known, _)| known != "HOME");
        spec.environment.push(("HOME".into(), home.display().to_string()));
        SandboxedAgent { setting, spec }
    }

    fn sh(&self, line: &str) -> CommandRun {
        let studio = env!("CARGO_BIN_EXE_studio");
        let started =
            sandbox::prepare_job_with(studio.as_ref(), &self.spec, "sh", ["-c", line]).unwrap();
        let SandboxJob { command: job, lifeline: _lifeline, .. } = started;
        self.setting.env.run_command(job)
    }
}

#[test]
fn a_sandboxed_agent_uses_git_normally() {
    let s = setting();
    let session = s.session("task-abcd");
    let before = s.repo.everything();
    let row = AgentRow { command: vec!["sh".into()], ..AgentRow::default() };
    let agent = SandboxedAgent::new(&s, &session, Some(&row));
    for line in [
        "echo 1 > one && git add -A && git commit -qm one",
        "echo 2 >> one && git commit -qam two && git commit -q --amend -m 'two, better'",
        "echo 3 > three && git stash -qu && test ! -e three && git stash pop -q && test -e three",
        "git add -A && git commit -qm three && git rebase -q --onto HEAD~2 HEAD~1",
        "git checkout -q -b side && mkdir d && git mv one d/one && git commit -qm moved",
        "git checkout -q studio/task-abcd && git merge -q side && git tag v1",
        "git cherry-pick --allow-empty side~1 || git cherry-pick --skip",
        "git worktree add -q nested side~1 && git worktree remove nested",
        "git pack-refs --all && git gc -q --prune=now && git fsck --full",
        "git diff main --stat && git log --oneline main..",
    ] {
        agent.sh(line).ok();
    }
    assert_eq!(s.repo.everything(), before);
    assert_eq!(tampering_warning(&session.place), None);
    s.repo.is_sound();
    session.work.is_sound();
}

/// These tests need a separate mount namespace (unshare -rm).
mod needs_mount_namespace {
    use super::*;

    #[test]
    #[ignore = "needs a mount namespace of its own (unshare -rm)"]
    fn an_agent_cannot_change_what_git_obeys_in_its_session() {
        let s = setting();
        let session = s.session("task-abcd");
        let row = AgentRow { command: vec!["sh".into()], ..AgentRow::default() };
        let agent = SandboxedAgent::new(&s, &session, Some(&row));
        let git = session.place.git_dir.display().to_string();
        let before = tree(&session.place.git_dir);
        for attack in [
            "git config core.fsmonitor 'echo evil'".to_owned(),
            "git config user.name somebody".to_owned(),
            format!("echo '[core]' >> '{git}/config'"),
            format!("echo '[core]' > new && mv -f new '{git}/config'"),
            format!("rm -f '{git}/config'"),
            format!("mv '{git}' '{git}-old'"),
            format!("echo x > '{git}/hooks/post-checkout'"),
            format!("mv '{git}/hooks' '{git}/hooks-old' && mkdir '{git}/hooks'"),
            format!("rmdir '{git}/hooks' && ln -s /tmp '{git}/hooks'"),
            format!("echo '* filter=evil' > '{git}/info/attributes'"),
            "echo 'gitdir: /elsewhere' > .git".to_owned(),
            "rm -f .git && mkdir .git".to_owned(),
            "mv .git old".to_owned(),
            "umount .git".to_owned(),
        ] {
            assert_ne!(agent.sh(&attack).code, 0, "this worked: {attack}");
            agent.sh("rm -f new").ok();
        }
        assert_eq!(tree(&session.place.git_dir), before);
        assert_eq!(tampering_warning(&session.place), None);
        // Commits of the agent's git still belong to the session, even from a process that runs
        // during the import.
        agent.sh("echo 1 > one && git add -A && git commit -qm one").ok();
        s.home(&session);
        assert_eq!(s.repo.git(["log", "-1", "--format=%s", "studio/task-abcd"]), "one");
    }

    #[test]
    #[ignore = "needs a mount namespace of its own (unshare -rm)"]
    fn git_directories_stay_protected_after_an_import() {
        let s = setting();
        let session = s.session("task-abcd");
        let row = AgentRow { command: vec!["sh".into()], ..AgentRow::default() };
        let agent = SandboxedAgent::new(&s, &session, Some(&row));
        let studio = env!("CARGO_BIN_EXE_studio");
        let line = "echo 1 > one && git add -A && git commit -qm one && touch begun; \
                    while ! test -e go; do sleep 0.05; done; ! git config core.fsmonitor evil";
        let SandboxJob { command: job, lifeline: _lifeline, .. } =
            sandbox::prepare_job_with(studio.as_ref(), &agent.spec, "sh", ["-c", line]).unwrap();
        let mut running = job.spawn().unwrap();
        until("the commit", || session.work.path().join("begun").exists().then_some(()));
        s.home(&session);
        fs::write(session.work.path().join("go"), "").unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let status = running.wait_until(Some(end)).unwrap().expect("it ends");
        assert!(status.success(), "the configuration was changed");
        assert_eq!(tampering_warning(&session.place), None);
    }
}

#[test]
fn pain_18_a_sandboxed_agent_cannot_access_other_sessions_or_the_repository() {
    let s = setting();
    let own = s.session("own-abcd");
    let other = s.session("other-abcd");
    fs::write(s.repo.path().join(".git/studio/sessions/other-abcd/token"), "canary").unwrap();
    let main = s.repo.path().display().to_string();
    let agent = SandboxedAgent::new(&s, &own, None);
    let before = s.repo.everything();
    let git_before = tree(&s.repo.path().join(".git"));
    let attacks = [
        format!("echo x > '{main}'/README.md"),
        format!("echo x > '{main}'/new"),
        format!("rm '{main}'/README.md"),
        format!("git -C '{main}' checkout -q -b evil"),
        format!("git -C '{main}' commit -q --allow-empty -m evil"),
        format!(
            "git -C '{main}' update-ref refs/heads/main HEAD~0 && git -C '{main}' gc --prune=now"
        ),
        format!("git --git-dir='{main}'/.git config core.hooksPath /evil"),
        format!("echo x > '{main}'/.git/hooks/post-checkout"),
        format!("echo x > '{main}'/.git/info/attributes"),
        format!("rm -r '{main}'/.git/objects/*"),
        format!("echo x >> '{main}'/.git/packed-refs"),
        format!("echo x > '{main}'/.git/worktrees/own-abcd/HEAD"),
        format!("echo x > '{main}'.worktrees/other-abcd/README.md"),
        format!("rm -r '{main}'.worktrees/other-abcd"),
        format!("echo x > '{main}'/.git/studio/sessions/other-abcd/git/config"),
        format!("cat '{main}'/.git/studio/sessions/other-abcd/token"),
        format!("echo x > '{main}'/.git/studio/sessions/own-abcd/session.json"),
        format!("echo x > '{main}'/.git/studio/operations.jsonl"),
        format!("mv '{main}'.worktrees/own-abcd '{main}'.worktrees/stolen"),
        "cat ~/.config/g3/config.toml".to_owned(),
    ];
    fs::create_dir_all(s.env.home().join(".config/g3")).unwrap();
    fs::write(s.env.home().join(".config/g3/config.toml"), "# canary").unwrap();
    for attack in &attacks {
        let ran = agent.sh(attack);
        assert_ne!(ran.code, 0, "this worked: {attack}");
        ran.output_lacks("canary");
        assert_eq!(s.repo.everything(), before, "{attack}");
    }
    let git_after = tree(&s.repo.path().join(".git"));
    let changed: Vec<_> =
        git_after.iter().filter(|(k, v)| git_before.get(*k) != Some(*v)).collect();
    assert!(changed.is_empty() && git_after.len() == git_before.len(), "{changed:?}");
    assert_eq!(other.work.git(["status", "--porcelain"]), "");

    let mut open = agent;
    open.spec.confined = false;
    open.sh(&attacks[1]).ok();
    open.sh(&attacks[15]).output_contains("canary");
    open.sh(&attacks[19]).output_contains("canary");
}

#[test]
fn an_agents_entry_opens_its_paths_for_the_agent_and_not_for_checks() {
    let s = setting();
    let session = s.session("task-abcd");
    let home = s.env.home();
    fs::create_dir_all(home.join(".config/g3")).unwrap();
    fs::create_dir_all(home.join("state")).unwrap();
    fs::write(home.join(".config/g3/config.toml"), "# canary").unwrap();
    let row = AgentRow {
        read: vec![PathBuf::from("~/.config/g3")],
        write: vec![PathBuf::from("~/state")],
        ..AgentRow::default()
    };
    let line = "cat ~/.config/g3/config.toml && echo x > ~/state/f";
    SandboxedAgent::new(&s, &session, Some(&row)).sh(line).output_contains("canary").ok();
    fs::remove_file(home.join("state/f")).unwrap();
    assert_ne!(SandboxedAgent::new(&s, &session, None).sh(line).output_lacks("canary").code, 0);
    assert!(!home.join("state/f").exists());
}

#[test]
fn the_users_signing_and_hooks_do_not_affect_an_agent() {
    let s = setting();
    let hooks = s.env.home().join("hooks");
    fs::create_dir(&hooks).unwrap();
    let config = format!(
        "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n[core]\n\thooksPath = {}\n\
         [credential]\n\thelper = store\n[github]\n\ttoken = x\n",
        hooks.display()
    );
    fs::write(s.env.home().join(".gitconfig"), config).unwrap();
    let session = s.session("task-abcd");
    let agent = SandboxedAgent::new(&s, &session, None);
    agent.sh("git commit -q --allow-empty -m one && git log -1 --format=%an").ok();
    agent.sh("git init -q inner && git -C inner commit -q --allow-empty -m two").ok();
    agent.sh("cat ~/.gitconfig").output_lacks("token");
}

#[test]
fn build_caches_belong_to_studio_and_are_writable() {
    let s = setting();
    let session = s.session("task-abcd");
    let agent = SandboxedAgent::new(&s, &session, None);
    for variable in ["CARGO_HOME", "npm_config_cache", "PIP_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"]
    {
        agent.sh(&format!("echo x > \"${variable}/file\" && cat \"${variable}/file\"")).ok();
    }
    let cargo = s.repo.path().join(".git/studio/cache/cargo/file");
    assert_eq!(fs::read_to_string(cargo).unwrap(), "x\n");
}
