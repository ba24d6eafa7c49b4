//! A session's worktree, as git, the agent and the user see it.

use std::fs;
use std::os::unix::fs::symlink;

use base::failure::FailureKind;
use base::id::Id;
use studio_git::names::{BranchTemplate, WorktreeTemplate};
use studio_git::repo::{Base, Repository};
use studio_git::worktree;
use testkit::repo::{Repo, tree};

use crate::git_fixtures::{order, setting};

#[test]
fn a_worktree_is_registered_and_has_its_own_git_directory() {
    let s = setting();
    let session = s.session("fix-login-7k3f");
    let place = &session.place;
    assert_eq!(place.worktree, s.repo.worktrees().join("fix-login-7k3f"));
    let list = s.repo.git(["worktree", "list", "--porcelain"]);
    assert!(list.contains("refs/heads/studio/fix-login-7k3f"), "{list}");
    assert_eq!(session.work.read("README.md"), "# A repository\n");
    assert_eq!(session.work.git(["status", "--porcelain"]), "");
    assert_eq!(session.work.git(["branch", "--show-current"]), "studio/fix-login-7k3f");
    assert_eq!(session.work.git(["diff", "--stat", "main"]), "");
    let dir = session.work.git(["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    assert_eq!(dir, place.git_dir.to_str().unwrap());
    assert_eq!(
        session.work.read(".git"),
        "gitdir: ../../my repö/.git/studio/sessions/fix-login-7k3f/git\n"
    );
    assert_eq!(s.repo.git(["status", "--porcelain"]), "", "nothing shows up in the user's tree");
    session.work.is_sound();
    s.repo.is_sound();
}

#[test]
fn commits_of_an_agent_stay_in_its_git_directory() {
    let s = setting();
    let session = s.session("task-abcd");
    let before = s.repo.everything();
    session.work.commit_file("new", "work");
    session.work.write("README.md", "changed");
    session.work.git(["stash"]);
    session.work.git(["config", "core.hooksPath", "/evil"]);
    session.work.git(["branch", "agents-own"]);
    session.work.git(["gc", "--prune=now", "-q"]);
    assert_eq!(s.repo.everything(), before);
    s.repo.is_sound();
}

#[test]
fn git_itself_protects_a_session() {
    let s = setting();
    let session = s.session("task-abcd");
    assert_ne!(s.repo.try_git(["branch", "-D", "studio/task-abcd"]).0, 0);
    assert_ne!(s.repo.try_git(["checkout", "-q", "studio/task-abcd"]).0, 0);
    let worktree = session.work.path().to_str().unwrap();
    let (code, _, _) = s.repo.try_git(["worktree", "remove", "--force", worktree]);
    assert_ne!(code, 0);
    s.repo.git(["worktree", "prune"]);
    s.repo.git(["gc", "--prune=now", "-q"]);
    assert!(worktree::admin_dir_of(&s.repository, &session.place.worktree).unwrap().is_some());
    session.work.is_sound();
}

#[test]
fn twenty_sessions_can_be_created_concurrently() {
    let s = setting();
    let ids: Vec<String> = (0..20).map(|n| format!("task-{n}")).collect();
    std::thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| s.session(id));
        }
    });
    for id in &ids {
        let work = Repo::at(&s.repo.worktrees().join(id));
        assert_eq!(work.git(["status", "--porcelain"]), "");
    }
    assert_eq!(s.repo.git(["worktree", "list"]).lines().count(), 21);
    s.repo.is_sound();
}

#[test]
fn line_endings_modes_links_and_unusual_names_are_checked_out_like_in_git() {
    let s = setting();
    s.repo.commit_file(".gitattributes", "*.crlf eol=crlf\n");
    s.repo.commit_file("dos.crlf", "a\r\nb\r\n");
    s.repo.commit_file("new\nline \u{e9}", "odd");
    s.repo.write("run.sh", "#!/bin/sh\n");
    s.repo.git(["add", "run.sh"]);
    s.repo.git(["update-index", "--chmod=+x", "run.sh"]);
    symlink("run.sh", s.repo.path().join("link")).unwrap();
    s.repo.git(["add", "link"]);
    s.repo.git(["commit", "-q", "-m", "kinds"]);
    s.repo.git(["checkout", "-q", "--force", "HEAD"]);
    s.repo.git(["worktree", "add", "-q", "--detach", "../plain"]);
    let session = s.session("task-abcd");
    let drop_git = |path: &std::path::Path| {
        let mut all = tree(path);
        all.remove(".git");
        all
    };
    assert_eq!(drop_git(session.work.path()), drop_git(&s.env.home().join("plain")));
    assert_eq!(session.work.git(["status", "--porcelain"]), "");
    assert!(session.work.read("dos.crlf").contains('\r'));
}

#[test]
fn a_branch_named_studio_is_refused_with_the_setting_to_change() {
    let s = setting();
    s.repo.git(["branch", "studio"]);
    let before = s.repo.everything();
    let failure = worktree::create(&s.repository, &s.order("task-abcd")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Usage);
    assert!(failure.to_string().contains("[studio] branch"), "{failure}");
    assert_eq!(s.repo.everything(), before);
    let mut other = s.order("task-abcd");
    other.branch = BranchTemplate::parse("agents/{id}").unwrap();
    let session = s.session_of(&other);
    assert_eq!(session.work.git(["branch", "--show-current"]), "agents/task-abcd");
}

#[test]
fn worktrees_never_follow_a_symlink_of_the_repository() {
    let s = setting();
    let outside = s.env.home().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, s.repo.worktrees()).unwrap();
    let failure = worktree::create(&s.repository, &s.order("task-abcd")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(s.repo.git(["branch", "--list", "studio/*"]), "");
}

#[test]
fn an_incomplete_worktree_is_removed() {
    let s = setting();
    s.repo.write("blocked", "x");
    let before = s.repo.everything();
    let mut order = s.order("task-abcd");
    order.base = Base { branch: None, commit: "1".repeat(40) };
    assert!(worktree::create(&s.repository, &order).is_err());
    assert_eq!(s.repo.everything(), before);
    let place = order.session_repo(&s.repository).unwrap();
    assert!(!place.git_dir.exists() && !place.worktree.exists());
    s.session("task-abcd");
    let finished = worktree::remove_incomplete(&s.repository, &place).unwrap_err();
    assert_eq!(finished.kind, FailureKind::Refused);
}

#[test]
fn a_session_can_start_from_a_tag_in_a_detached_checkout_of_a_bare_repository() {
    let s = setting();
    s.repo.git(["tag", "-a", "-m", "one", "v1"]);
    let bare = s.env.home().join("bare.git");
    s.repo.git(["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let repository = Repository::discover(&bare).unwrap();
    let mut order = order(&repository, "task-abcd");
    order.base = repository.base(Some("v1")).unwrap();
    let made = worktree::create(&repository, &order).unwrap();
    assert_eq!(made.session_repo.worktree, s.env.home().join("bare.git.worktrees/task-abcd"));
    let work = Repo::at(&made.session_repo.worktree);
    assert_eq!(work.git(["describe", "--tags"]), "v1");
    assert_eq!(work.git(["status", "--porcelain"]), "");
}

#[test]
fn worktrees_may_be_outside_the_default_directory() {
    let s = setting();
    let mut order = s.order("task-abcd");
    let template = format!("{}/trees/{{repository}}-{{id}}", s.env.home().display());
    order.worktree = WorktreeTemplate::parse(&template).unwrap();
    let session = s.session_of(&order);
    assert_eq!(session.place.worktree, s.env.home().join("trees/my repö-task-abcd"));
    assert_eq!(session.work.git(["status", "--porcelain"]), "");
}

#[test]
fn hooks_and_drivers_of_the_repository_do_not_run() {
    let s = setting();
    let marker = s.env.home().join("marker");
    let touch = format!("touch '{}'", marker.display());
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        let path = s.repo.path().join(".git/hooks").join(hook);
        fs::write(&path, format!("#!/bin/sh\n{touch}\n")).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    s.repo.git(["config", "filter.evil.smudge", &touch]);
    s.repo.git(["config", "filter.evil.clean", &touch]);
    s.repo.git(["config", "core.fsmonitor", &touch]);
    s.repo.write(".git/info/attributes", "* filter=evil\n");
    s.session("task-abcd");
    assert!(!marker.exists());
    s.repo.git(["checkout", "-q", "-b", "control"]);
    assert!(marker.exists(), "the planted hooks do run for the user");
}

#[test]
fn listed_untracked_files_are_copied() {
    let s = setting();
    s.repo.write(".gitignore", ".env\nlocal/\n");
    s.repo.write(".worktreeinclude", ".env\nlocal/\n*.md\n");
    s.repo.write(".env", "KEY=1");
    s.repo.write("local/server.pem", "KEY=2");
    s.repo.write("local/a/settings", "2");
    s.repo.write("notes.md", "untracked");
    s.repo.write("other", "not named");
    symlink("/etc/passwd", s.repo.path().join("local/link")).unwrap();
    s.repo.write("README.md", "changed here");
    let made = worktree::create(&s.repository, &s.order("task-abcd")).unwrap();
    let names: Vec<&str> = made.included.iter().map(|p| p.to_str().unwrap()).collect();
    assert_eq!(names, [".env", "local/a/settings", "local/link", "local/server.pem", "notes.md"]);
    let work = Repo::at(&made.session_repo.worktree);
    assert_eq!(work.read(".env"), "KEY=1");
    assert_eq!(work.read("README.md"), "# A repository\n");
    assert!(fs::symlink_metadata(work.path().join("local/link")).unwrap().is_symlink());

    // A list that came with the repository is not trusted.
    s.repo.git(["add", ".worktreeinclude"]);
    s.repo.git(["commit", "-q", "-m", "list"]);
    let made = worktree::create(&s.repository, &s.order("other-abcd")).unwrap();
    let names: Vec<&str> = made.included.iter().map(|p| p.to_str().unwrap()).collect();
    assert_eq!(names, ["local/a/settings", "local/link", "notes.md"]);
}

#[test]
fn a_duplicate_id_is_refused() {
    let s = setting();
    s.session("task-abcd");
    let failure = worktree::create(&s.repository, &s.order("task-abcd")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(worktree::is_finished(&s.order("task-abcd").session_repo(&s.repository).unwrap()));
    assert!(Id::parse("task-abcd").is_ok());
}
