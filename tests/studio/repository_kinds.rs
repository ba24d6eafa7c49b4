//! All kinds of repositories: run, diff, accept and undo work in them, or they are refused before
//! an agent starts.

use testkit::env::TestEnv;
use testkit::repo::Repo;

use crate::fixtures::Scene;

/// The expected result for a kind of repository.
enum Expect {
    /// Everything works.
    Works,
    /// `run` is refused (2) with this message.
    Refused(&'static str),
}
use Expect::{Refused, Works};

/// A kind of repository: its name, and how it is created.
type Shape = (&'static str, fn(&TestEnv) -> Repo, Expect);

const SHAPES: &[Shape] = &[
    ("plain", plain, Works),
    ("split index", |env| with(env, &["update-index", "--split-index"]), Works),
    (
        "split index by configuration",
        |env| {
            let repo = with(env, &["config", "core.splitIndex", "true"]);
            repo.commit_file("second", "2\n");
            repo
        },
        Works,
    ),
    ("sparse index", sparse_index, Works),
    ("sparse checkout", sparse, Works),
    ("file system monitor", |env| with(env, &["config", "core.fsmonitor", "exit 1"]), Works),
    ("untracked cache", |env| with(env, &["update-index", "--force-untracked-cache"]), Works),
    ("index version 4", |env| with(env, &["update-index", "--index-version", "4"]), Works),
    ("many files", many_files, Works),
    ("autocrlf", |env| line_ends(env, "core.autocrlf", "true"), Works),
    ("eol", |env| line_ends(env, "core.eol", "crlf"), Works),
    ("submodule", submodule, Works),
    ("shallow clone", shallow, Works),
    ("borrowed objects", borrowing, Works),
    ("name with quotes and a line break", |env| env.repo_at("a 'b\"; $x\n-c"), Works),
    ("core.worktree", |env| elsewhere(env, true), Works),
    ("separate git directory", |env| elsewhere(env, false), Works),
    (
        "worktree configuration",
        |env| with(env, &["config", "extensions.worktreeConfig", "true"]),
        Works,
    ),
    ("SHA-256", |env| init(env, "--object-format=sha256"), Works),
    ("reftable", |env| init(env, "--ref-format=reftable"), Works),
    ("partial clone", |env| partial(env, "blob:none"), Works),
    ("partial clone without large files", |env| partial(env, "blob:limit=3"), Works),
    ("partial clone without trees", |env| partial(env, "tree:0"), Refused("tree:0")),
];

fn plain(env: &TestEnv) -> Repo {
    env.repo_at("my repö")
}

fn with(env: &TestEnv, args: &[&str]) -> Repo {
    let repo = plain(env);
    let done = repo
        .job()
        .args(args)
        .output(base::process::OutputLimits::seconds(60))
        .expect("it works in a test");
    assert!(done.ok(), "git {args:?}: {}", done.error_text());
    repo
}

fn sparse(env: &TestEnv) -> Repo {
    let repo = plain(env);
    repo.commit_file("in/x", "x\n");
    repo.commit_file("out/y", "y\n");
    repo.git(["sparse-checkout", "init", "--cone"]);
    repo.git(["sparse-checkout", "set", "in", "new"]);
    assert!(!repo.path().join("out/y").exists());
    repo
}

fn sparse_index(env: &TestEnv) -> Repo {
    let repo = sparse(env);
    repo.git(["sparse-checkout", "reapply", "--sparse-index"]);
    assert!(repo.git(["ls-files", "--sparse"]).lines().any(|path| path == "out/"));
    repo
}

fn many_files(env: &TestEnv) -> Repo {
    let repo = with(env, &["config", "feature.manyFiles", "true"]);
    repo.git(["config", "index.skipHash", "true"]);
    repo.commit_file("second", "2\n");
    repo
}

fn line_ends(env: &TestEnv, key: &str, value: &str) -> Repo {
    let repo = with(env, &["config", key, value]);
    repo.commit_file(".gitattributes", "*.txt text\n*.dos text eol=crlf\n*.bin -text\n");
    repo.commit_file("a.txt", "a\r\nb\r\n");
    repo.commit_file("a.dos", "a\r\nb\r\n");
    repo.commit_file("a.bin", "a\r\nb\n");
    repo
}

fn submodule(env: &TestEnv) -> Repo {
    let (repo, part) = (plain(env), env.repo_at("part"));
    let url = part.path().to_str().expect("it works in a test");
    repo.git(["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "part"]);
    repo.git(["commit", "-q", "-m", "part"]);
    repo
}

fn shallow(env: &TestEnv) -> Repo {
    let origin = env.repo_at("origin");
    origin.commit_file("second", "2\n");
    let url = format!("file://{}", origin.path().display());
    origin.git(["clone", "-q", "--depth", "1", &url, "../my repö"]);
    Repo::at(&env.home().join("my repö"))
}

/// Creates a clone without objects of its own.
fn borrowing(env: &TestEnv) -> Repo {
    let origin = env.repo_at("origin");
    origin.git(["clone", "-q", "--shared", ".", "../my repö"]);
    let repo = Repo::at(&env.home().join("my repö"));
    assert!(repo.path().join(".git/objects/info/alternates").is_file());
    repo
}

fn partial(env: &TestEnv, filter: &str) -> Repo {
    let origin = env.repo_at("origin");
    origin.git(["config", "uploadpack.allowFilter", "true"]);
    origin.git(["config", "uploadpack.allowAnySHA1InWant", "true"]);
    origin.commit_file("README.md", "# A repository with a history\n");
    origin.commit_file("second", "2\n");
    let url = format!("file://{}", origin.path().display());
    origin.git(["clone", "-q", &format!("--filter={filter}"), &url, "../my repö"]);
    Repo::at(&env.home().join("my repö"))
}

/// Creates a repository whose git directory is outside the checkout.
fn elsewhere(env: &TestEnv, named: bool) -> Repo {
    let repo = plain(env);
    let git_dir = env.home().join("elsewhere.git");
    repo.git(["init", "-q", "--separate-git-dir", git_dir.to_str().expect("it works in a test")]);
    assert!(repo.path().join(".git").is_file());
    if named {
        repo.git(["config", "core.worktree", repo.path().to_str().expect("it works in a test")]);
    }
    repo
}

fn init(env: &TestEnv, flag: &str) -> Repo {
    let dir = env.home().join("my repö");
    std::fs::create_dir(&dir).expect("it works in a test");
    let repo = Repo::at(&dir);
    let (code, _, _) = repo.try_git(["init", "-q", "-b", "main", flag]);
    if code != 0 {
        // git may not know the format: the words in the configuration are enough.
        repo.git(["init", "-q", "-b", "main"]);
        repo.git(["config", "core.repositoryformatversion", "1"]);
        let (key, value) =
            flag.trim_start_matches('-').split_once('=').expect("it works in a test");
        let key = if key.starts_with("ref") { "refStorage" } else { "objectFormat" };
        repo.git(["config", &format!("extensions.{key}"), value]);
        return repo;
    }
    repo.commit_file("README.md", "# A repository\n");
    repo
}

const TASK: &str = "write README.md changed; write new/file.txt one; commit one; write more.dos two; \
     sh rm -f second; sh git cat-file -e HEAD:out/y 2>&1 && mkdir -p out && echo changed > out/y";

#[test]
fn every_kind_of_repository_works_or_is_refused_before_the_agent_starts() {
    let mut wrong = Vec::new();
    for (name, make, expect) in SHAPES {
        let env = TestEnv::new();
        let repo = make(&env);
        let scene = Scene { env, repo };
        scene.configure("");
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match expect {
            Works => works(&scene),
            Refused(words) => {
                scene.studio(["exec", TASK]).exits(2).output_contains(words);
                assert!(!scene.repo.worktrees().exists(), "no session was made");
            }
        }));
        if tried.is_err() {
            wrong.push(*name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Returns the state of a checkout, as git sees it.
fn seen(repo: &Repo) -> [String; 4] {
    [
        repo.git(["rev-parse", "main"]),
        repo.git(["status", "--porcelain"]),
        repo.git(["ls-files", "-s", "-t"]),
        repo.read("README.md").replace("\r\n", "\n"),
    ]
}

fn works(scene: &Scene) {
    let repo = &scene.repo;
    let before = seen(repo);
    assert_eq!(before[1], "");
    let id = scene.ready(TASK);
    scene.await_free(&id);
    let files = scene.status(&id)["files_changed"].as_u64().expect("it works in a test");
    let more = ["second", "out/y"].into_iter().filter(|name| before[2].contains(name)).count();
    assert_eq!(files, 3 + more as u64);
    scene
        .studio(["diff", &id])
        .exits(0)
        .output_contains("+changed")
        .output_contains("new/file.txt")
        .output_contains("more.dos");

    scene.studio(["try", &id, "--once"]).exits(0);
    assert_eq!(repo.read("new/file.txt").trim_end(), "one");
    scene.studio(["try", "--end"]).exits(0);
    assert_eq!(seen(repo), before);

    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);

    assert_eq!(repo.git(["status", "--porcelain"]), "");
    assert_eq!(repo.git(["diff", "--name-only", "HEAD"]), "");
    assert_eq!(repo.show("main", "new/file.txt"), "one");
    assert_eq!(repo.git(["cat-file", "-s", "main:more.dos"]), "4");
    assert_eq!(repo.read("README.md").trim_end(), "changed");
    assert!(!repo.path().join("second").exists());
    repo.is_sound();

    scene.studio(["undo"]).exits(0);

    assert_eq!(seen(repo), before);
    assert_eq!(scene.status(&id)["state"], "ready");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    repo.is_sound();
}
