//! Partial clones: files that the clone lacks are fetched before a step that reads them, together.

use std::collections::BTreeSet;

use studio_git::replica;
use studio_git::repo::Repository;
use testkit::env::{TestEnv, until};
use testkit::repo::Repo;

use crate::fixtures::{Scene, studio};
use crate::git_command::{Attributes, Planted};

/// Creates a scene in a partial clone with all directories, and its origin, which `prepare` fills.
fn scene_of(prepare: impl Fn(&Repo), options: &[&str]) -> (Scene, Repo) {
    let env = TestEnv::new();
    let origin = env.repo_at("origin");
    origin.git(["config", "uploadpack.allowFilter", "true"]);
    origin.git(["config", "uploadpack.allowAnySHA1InWant", "true"]);
    prepare(&origin);
    let url = format!("file://{}", origin.path().display());
    let clone = ["-c", "protocol.file.allow=always", "clone", "-q", "--filter=blob:none"];
    let clone = clone.iter().chain(options);
    let done = origin
        .job()
        .args(clone.chain(&[url.as_str(), "../repo"]))
        .output(base::process::OutputLimits::seconds(60))
        .expect("git starts");
    assert!(done.ok(), "{}", done.error_text());
    let repo = Repo::at(&env.home().join("repo"));
    let scene = Scene { env, repo };
    scene.configure("");
    (scene, origin)
}

/// Returns the number of packs that were fetched with a filter: one for each connection.
fn fetched_packs(repo: &Repo) -> usize {
    let packs = repo.path().join(".git/objects/pack");
    let entries = std::fs::read_dir(packs).expect("the clone has packs").flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|it| it == "promisor")).count()
}

/// Returns how many objects of a revision and its history are missing.
fn missing(repo: &Repo, revision: &str) -> usize {
    let listed = repo.git(["rev-list", "--objects", "--missing=print", revision]);
    listed.lines().filter(|line| line.starts_with('?')).count()
}

#[test]
fn the_files_of_a_base_are_fetched_in_one_connection() {
    let fill = |origin: &Repo| {
        origin.git(["checkout", "-q", "-b", "next"]);
        for number in 0..20 {
            origin.write(&format!("part{}/file{number}", number % 3), format!("{number}\n"));
        }
        origin.git(["add", "."]);
        origin.git(["commit", "-q", "-m", "twenty files"]);
        origin.git(["checkout", "-q", "main"]);
    };
    let (scene, _origin) = scene_of(fill, &[]);
    assert_eq!(missing(&scene.repo, "origin/next"), 20);
    let before = fetched_packs(&scene.repo);

    let id = scene.exec(["--base", "origin/next", "write part1/file1 new; commit one"]);

    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(fetched_packs(&scene.repo), before + 1);
    assert_eq!(missing(&scene.repo, "origin/next"), 0);
    assert_eq!(scene.worktree(&id).read("part2/file2"), "2\n");
    assert_eq!(scene.status(&id)["files_changed"], 1);
    scene.repo.is_sound();
}

#[test]
fn a_merge_with_commits_whose_files_were_never_checked_out_fetches_what_it_reads() {
    let lines = |first: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    let fill = |origin: &Repo| {
        origin.commit_file("both", lines("1"));
        origin.commit_file("old-name", "a\nb\nc\nd\ne\nf\ng\n");
        origin.commit_file("other", "1\n");
    };
    let (scene, origin) = scene_of(fill, &[]);
    let task = "sh sed -i s/10/ten/ both; sh sed -i s/d/four/ old-name; commit the work";
    let id = scene.ready(task);
    scene.await_free(&id);
    origin.commit_file("both", lines("one"));
    origin.git(["mv", "old-name", "new-name"]);
    origin.commit_file("other", "2\n");
    // The branch moves, but no checkout of it reads the files.
    scene.repo.git(["checkout", "-q", "--detach"]);
    scene.repo.git(["fetch", "-q", "origin", "main:main"]);
    assert!(missing(&scene.repo, "main") > 0);

    scene.studio(["list"]).exits(0).output_contains("ready");
    scene.studio(["conflicts"]).exits(0);
    for strategy in ["rebase", "merge", "squash"] {
        let accept: &[&str] = match strategy {
            "rebase" => &["accept", &id, "--strategy", strategy],
            _ => &["accept", &id, "--strategy", strategy, "-m", "Land it"],
        };
        scene.env.run(studio(), scene.repo.path(), accept).exits(0);
        assert_eq!(scene.repo.show("main", "both"), lines("one").replace("10", "ten").trim_end());
        assert_eq!(scene.repo.show("main", "new-name"), "a\nb\nc\nfour\ne\nf\ng", "{strategy}");
        scene.repo.is_sound();
        scene.studio(["undo"]).exits(0);
        assert_eq!(scene.repo.rev("main"), scene.repo.rev("origin/main"));
    }
}

#[test]
fn a_sparse_partial_clone_fetches_what_its_patterns_select_and_what_changes_beside_it() {
    let fill = |origin: &Repo| {
        for name in ["in/x", "out/y", "out/z", "far/w"] {
            origin.commit_file(name, format!("{name}\n"));
        }
    };
    let (scene, _origin) = scene_of(fill, &["--sparse"]);
    scene.repo.git(["sparse-checkout", "set", "in"]);
    scene.configure(r#"checks = ["test -f in/x && test ! -e far"]"#);
    assert_eq!(missing(&scene.repo, "HEAD"), 3);
    let task = "sh mkdir out && echo changed > out/y && git add --sparse out/y; commit outside; \
                write in/x new; sh git status --porcelain=v1 > status.txt";

    let id = scene.ready(task);

    scene.await_free(&id);
    assert_eq!(scene.status(&id)["files_changed"], 3);
    scene.studio(["diff", &id]).exits(0).output_contains("-out/y").output_contains("+changed");
    // `far/w` is in no directory with a change.
    assert_eq!(missing(&scene.repo, "HEAD"), 1);
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    assert_eq!(scene.repo.show("main", "out/y"), "changed");
    assert_eq!(scene.repo.show("main", "out/z"), "out/z");
    assert!(!scene.repo.path().join("far").exists());
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    scene.repo.is_sound();
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");

    // Beside a missing file, without a commit, and while the agent works.
    scene.configure("");
    let id = scene.exec(["sh mkdir far && echo new > far/v; gate go"]);
    let far = scene.worktree(&id).path().join("far/v");
    until("the file", || far.exists().then_some(()));
    scene.studio(["diff", &id]).exits(0).output_contains("+new").output_lacks("deleted");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    scene.studio(["accept", &id, "-m", "Land it too"]).exits(0);
    assert_eq!(scene.repo.show("main", "far/w"), "far/w");
    assert_eq!(scene.repo.show("main", "far/v"), "new");
}

#[test]
fn prepared_worktrees_have_the_files_too() {
    let (scene, _origin) = scene_of(|origin| origin.commit_file("a", "1\n"), &[]);
    scene.configure("pool = 1");
    for number in 0..3 {
        let id = scene.ready(&format!("sh cp a copy{number}"));
        scene.await_free(&id);
        assert_eq!(scene.worktree(&id).read(&format!("copy{number}")), "1\n");
    }
}

#[test]
fn the_hints_of_what_is_refused_lead_out_of_it() {
    let fill = |origin: &Repo| {
        origin.commit_file("dir/a", "first\n");
        origin.commit_file("dir/a", "second\n");
    };
    let (scene, _origin) = scene_of(fill, &["--filter=tree:0"]);
    scene
        .studio(["exec", "write b 1"])
        .exits(2)
        .output_contains("git fetch --refetch --filter=blob");
    scene.repo.git(["fetch", "-q", "--refetch", "--filter=blob:none", "origin"]);
    scene.repo.git(["config", "remote.origin.partialclonefilter", "blob:none"]);
    scene.ready("write b 1");

    // For another machine, all files are packed.
    let repository = Repository::discover(scene.repo.path()).expect("it is supported now");
    let head = [scene.repo.rev("HEAD")];
    let failure = replica::pack(&repository, &head, &[]).expect_err("a file is missing");
    assert!(failure.hints[0].starts_with("git fetch --refetch --no-filter"), "{failure}");
    scene.repo.git(["fetch", "-q", "--refetch", "--no-filter", "origin"]);
    replica::pack(&repository, &head, &[]).expect("nothing is missing");
}

#[test]
fn a_remote_that_cannot_be_reached_fails_the_start_and_says_why() {
    let fill = |origin: &Repo| {
        origin.git(["checkout", "-q", "-b", "next"]);
        origin.commit_file("more", "1\n");
        origin.git(["checkout", "-q", "main"]);
    };
    let (scene, origin) = scene_of(fill, &[]);
    let away = scene.env.home().join("away");
    std::fs::rename(origin.path(), &away).expect("it can be renamed");

    let id = scene.exec(["--base", "origin/next", "write more 2"]);
    scene.await_state(&id, "failed");
    scene
        .studio(["status", &id])
        .output_contains("cannot fetch 1 file that this clone lacks")
        .output_contains("git fetch origin");

    // What needs no fetch still works; and everything does when the remote is back.
    scene.ready("write new one");
    std::fs::rename(&away, origin.path()).expect("it can be renamed");
    scene.studio(["resume", &id]).exits(0);
    scene.await_state(&id, "ready");
    scene.repo.is_sound();
}

#[test]
fn a_submodule_that_is_a_partial_clone_has_the_files_of_its_commit() {
    let fill = |origin: &Repo| {
        let part = Repo::make(&origin.path().with_file_name("part"));
        part.git(["config", "uploadpack.allowFilter", "true"]);
        part.git(["config", "uploadpack.allowAnySHA1InWant", "true"]);
        part.commit_file("same", "one\n");
        let url = format!("file://{}", part.path().display());
        origin.git(["-c", "protocol.file.allow=always", "submodule", "-q", "add", &url, "part"]);
        origin.git(["commit", "-q", "-m", "part"]);
        part.commit_file("same", "two\n");
        let inside = Repo::at(&origin.path().join("part"));
        inside.git(["-c", "protocol.file.allow=always", "pull", "-q"]);
        origin.git(["commit", "-q", "-a", "-m", "the next part"]);
    };
    let options = ["--recurse-submodules", "--also-filter-submodules"];
    let (scene, _origin) = scene_of(fill, &options);
    let part = Repo::at(&scene.repo.path().join("part"));
    assert!(missing(&part, "HEAD") > 0);

    let base = scene.repo.rev("HEAD~1");
    let id = scene.exec(["--base", &base, "sh cp part/same seen; write part/new 1"]);

    scene.await_state(&id, "ready");
    assert_eq!(scene.worktree(&id).read("seen"), "one\n");
    assert_eq!(part.read("same"), "two\n", "the checkout is as it was");
}

#[test]
fn no_file_is_fetched_that_only_an_agent_names() {
    let fill = |origin: &Repo| {
        origin.git(["checkout", "-q", "-b", "hidden"]);
        origin.commit_file("secret", "of this clone alone\n");
        origin.git(["checkout", "-q", "main"]);
    };
    let (scene, _origin) = scene_of(fill, &[]);
    let secret = scene.repo.git(["ls-tree", "--object-only", "origin/hidden", "secret"]);
    let staged = format!("git update-index --add --cacheinfo 100644,{secret},taken");
    let committed = format!(
        "{staged} && git reset -q --soft $(git commit-tree -p HEAD -m x $(git write-tree --missing-ok))"
    );
    let hidden = format!("{staged} && git update-index --skip-worktree taken");
    for script in [committed, staged, hidden] {
        let id = scene.exec([&format!("write b 1; sh {script}")]);
        scene.await_end(&id);
        for args in [["diff", &id], ["status", &id], ["try", &id], ["accept", &id]] {
            scene.studio(args);
        }
        assert_eq!(missing(&scene.repo, "origin/hidden"), 1, "{script}");
        scene.repo.is_sound();
    }
}

#[test]
fn no_program_of_the_repository_runs_when_files_are_fetched() {
    let fill = |origin: &Repo| {
        origin.git(["checkout", "-q", "-b", "next"]);
        origin.commit_file("more", "1\n");
        origin.git(["checkout", "-q", "main"]);
    };
    let (scene, _origin) = scene_of(fill, &[]);
    let markers = scene.env.home().join("markers");
    std::fs::create_dir(&markers).expect("the home is writable");
    let planted = Planted::in_repository(Repo::at(scene.repo.path()), markers);
    planted.plant(Attributes::InfoFile);
    for (key, value) in [
        ("remote.origin.uploadpack", planted.script("upload-pack")),
        ("core.sshCommand", planted.script("ssh")),
        ("core.askPass", planted.script("askpass")),
        ("core.gitProxy", planted.script("proxy")),
        ("core.alternateRefsCommand", planted.script("alternates")),
        ("credential.helper", planted.script("credential")),
        ("hook.x.command", planted.script("configured-hook")),
    ] {
        scene.repo.git(["config", key, &value]);
    }
    planted.forget();

    let id = scene.exec(["--base", "origin/next", "write more 2"]);

    scene.await_state(&id, "ready");
    assert_eq!(planted.found(), BTreeSet::new());
}
