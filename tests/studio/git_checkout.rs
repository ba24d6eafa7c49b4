//! The files of a new worktree: exactly what `git worktree add` writes, in less time.

use std::collections::BTreeMap;

use base::process::OutputLimits;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::repo::{Repo, tree};

use crate::git_fixtures::{Session, Setting, setting};

/// A file of a generated commit.
#[derive(Clone, Debug)]
struct GeneratedFile {
    mode: &'static str,
    content: Vec<u8>,
}

/// Commits exactly these files on a branch.
fn commit(repo: &Repo, branch: &str, files: &BTreeMap<Vec<u8>, GeneratedFile>) {
    let mut stream =
        format!("commit refs/heads/{branch}\ncommitter A <a@example.org> 0 +0000\ndata 2\nx\n\n")
            .into_bytes();
    stream.extend(b"deleteall\n");
    for (path, GeneratedFile { mode, content }) in files {
        let quoted: String = path.iter().map(|byte| format!("\\{byte:03o}")).collect();
        if *mode == "160000" {
            let commit = "1".repeat(repo.rev("HEAD").len());
            stream.extend(format!("M 160000 {commit} \"{quoted}\"\n").into_bytes());
            continue;
        }
        stream.extend(format!("M {mode} inline \"{quoted}\"\n").into_bytes());
        stream.extend(format!("data {}\n", content.len()).into_bytes());
        stream.extend(content);
        stream.extend(b"\n");
    }
    let job = repo.job().args(["fast-import", "--quiet", "--force"]).input(stream);
    let output = job.output(OutputLimits::seconds(120)).expect("git can be run");
    assert!(output.ok(), "{}", output.error_text());
}

/// Removes files that lie below another file.
fn without_conflicts(files: BTreeMap<Vec<u8>, GeneratedFile>) -> BTreeMap<Vec<u8>, GeneratedFile> {
    let is_below_file = |path: &[u8]| {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut parents = slashes.map(|(index, _)| &path[..index]);
        parents.any(|parent| files.contains_key(parent))
    };
    files
        .iter()
        .filter(|(path, _)| !is_below_file(path))
        .map(|(a, b)| (a.clone(), b.clone()))
        .collect()
}

/// Compares a new session of the branch with a worktree that git makes.
fn assert_same(s: &Setting, branch: &str, id: &str) -> Session {
    let plain = s.env.home().join(format!("plain-{id}"));
    let path = plain.to_str().expect("UTF-8");
    s.repo.git(["worktree", "add", "-q", "--detach", path, branch]);
    let mut order = s.order(id);
    order.base = s.repository.base(Some(branch)).unwrap_or_else(|failure| panic!("{failure}"));
    let session = s.session_of(&order);
    let files = |mut files: BTreeMap<String, String>| {
        files.remove(".git");
        files
    };
    assert_eq!(files(tree(session.work.path())), files(tree(&plain)));
    let plain = Repo::at(&plain);
    assert_eq!(session.work.git(["ls-files", "-s", "-z"]), plain.git(["ls-files", "-s", "-z"]));
    assert_eq!(session.work.git(["status", "--porcelain"]), "");
    assert_eq!(session.work.git(["diff-files"]), "", "the index knows the files");
    assert_eq!(session.work.git(["write-tree"]), s.repo.rev(&format!("{branch}^{{tree}}")));
    session
}

/// Returns whether git wrote files itself.
fn is_by_git(session: &Session) -> bool {
    session.place.git_dir.join("ORIG_HEAD").exists()
}

#[test]
fn every_generated_tree_is_checked_out_as_git_does() {
    let s = setting();
    let name = prop_oneof![
        "[a-zA-Z0-9._-]{1,9}",
        "[ \"'ä*?\\t\\n]{1,4}",
        Just("A".to_owned()),
        Just("a".to_owned()),
        Just(".gitignore".to_owned()),
        Just("-rf".to_owned()),
        Just("x~1".to_owned()),
        Just("back\\slash".to_owned()),
    ];
    let is_valid = |name: &String| name != "." && name != ".." && !name.starts_with(".git.");
    let name = name.prop_filter("git refuses it", is_valid);
    let name = prop_oneof![
        9 => name.prop_map(String::into_bytes),
        1 => prop::collection::vec(128u8..=255, 1..4),
    ];
    let path = prop::collection::vec(name, 1..5).prop_map(|parts| parts.join(&b'/'));
    let text = prop::collection::vec(prop_oneof!["[a-z]{0,5}\n", "[a-z]{0,5}\r\n"], 0..9);
    let content = prop_oneof![
        4 => text.prop_map(|lines| lines.concat().into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..300),
        1 => Just(vec![b'x'; 200_000]),
    ];
    let file =
        (prop_oneof![6 => Just("100644"), 2 => Just("100755"), 1 => Just("160000")], content)
            .prop_map(|(mode, content)| GeneratedFile { mode, content });
    let link = path.clone().prop_map(|content| GeneratedFile { mode: "120000", content });
    let entry = (path, prop_oneof![6 => file, 1 => link]);
    let attributes = prop_oneof![
        3 => Just(None),
        1 => Just(Some("* text=auto\n*.z -text\n")),
        1 => Just(Some("*.a eol=crlf\na* text eol=crlf\n")),
        1 => Just(Some("[attr]dos eol=crlf\nA dos\n*b* ident\n")),
    ];
    let files = (
        prop::collection::btree_map(
            entry.clone().prop_map(|it| it.0),
            entry.prop_map(|it| it.1),
            1..40,
        ),
        attributes,
    );
    let mut runner = TestRunner::new(Config {
        cases: 20,
        failure_persistence: None,
        max_shrink_iters: 40,
        ..Config::default()
    });
    let case = std::cell::Cell::new(0);
    let result = runner.run(&files, |(files, attributes)| {
        let mut files: BTreeMap<_, _> = files;
        files.retain(|path, file| {
            let is_own = path.split(|byte| *byte == b'/').any(|name| name == b".gitignore");
            !is_own || file.mode == "100644"
        });
        if let Some(text) = attributes {
            // Git shows committed line endings as changes where it converts them.
            files.values_mut().for_each(|file| file.content.retain(|byte| *byte != b'\r'));
            let content = text.as_bytes().to_vec();
            files.insert(b".gitattributes".to_vec(), GeneratedFile { mode: "100644", content });
        }
        let files = without_conflicts(files);
        case.set(case.get() + 1);
        let name = format!("case-{}", case.get());
        commit(&s.repo, &name, &files);
        assert_same(&s, &name, &name);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn plain_files_are_written_without_git_and_converted_ones_by_git() {
    let s = setting();
    for number in 0..700 {
        s.repo.write(&format!("many/{number}"), format!("{number}\n"));
    }
    s.repo.write(".gitattributes", "* text=auto\n*.sh eol=lf\n");
    s.repo.write("a/b/run.sh", "true\n");
    std::os::unix::fs::symlink("a/b/run.sh", s.repo.path().join("link")).unwrap();
    s.repo.git(["add", "-A"]);
    s.repo.git(["commit", "-q", "-m", "plain"]);
    assert!(!is_by_git(&assert_same(&s, "main", "plain")), "git is not needed");
    s.repo.write(".gitattributes", "*.bat eol=crlf\nkey ident\n*.sh eol=lf\n");
    s.repo.write("a/run.bat", "exit\n");
    s.repo.write("key", "$Id$\n");
    s.repo.git(["add", "-A"]);
    s.repo.git(["commit", "-q", "-m", "converted"]);
    let session = assert_same(&s, "main", "converted");
    assert!(is_by_git(&session));
    assert_eq!(session.work.read("a/run.bat"), "exit\r\n");
    assert!(session.work.read("key").starts_with("$Id: "));
    for (key, value) in
        [("core.autocrlf", "true"), ("core.eol", "crlf"), ("core.symlinks", "false")]
    {
        s.repo.git(["config", key, value]);
        let id = key.replace('.', "-");
        assert!(is_by_git(&assert_same(&s, "main", &id)), "{key}");
        s.repo.git(["config", "--unset", key]);
    }
}

#[test]
fn a_change_right_after_the_checkout_is_seen() {
    let s = setting();
    let session = s.session("task-abcd");
    let old = session.work.read("README.md");
    let new = old.replace('A', "B");
    assert_eq!(old.len(), new.len());
    session.work.write("README.md", &new);
    assert_eq!(session.work.git(["diff-files", "--name-only"]), "README.md");
    assert_eq!(session.work.git(["status", "--porcelain"]).trim(), "M README.md");
}

#[test]
fn a_blob_with_other_content_than_its_id_says_is_not_checked_out() {
    let s = setting();
    let object = |id: &str| {
        let (directory, name) = id.split_at(2);
        s.repo.path().join(".git/objects").join(directory).join(name)
    };
    s.repo.write("other", "evil\n");
    let (id, other) =
        (s.repo.git(["rev-parse", "HEAD:README.md"]), s.repo.git(["hash-object", "-w", "other"]));
    std::fs::remove_file(object(&id)).unwrap();
    std::fs::copy(object(&other), object(&id)).unwrap();
    let failure = studio_git::worktree::create(&s.repository, &s.order("task-abcd")).unwrap_err();
    let text = failure.full_text();
    assert!(text.contains(&format!("the content of the object {id} is damaged")), "{text}");
    assert!(text.contains("git fsck"), "{text}");
}

#[test]
fn a_tree_with_a_file_and_a_directory_of_one_name_writes_nothing_outside() {
    let s = setting();
    let outside = s.env.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let object = |kind: &str, input: Vec<u8>| {
        let args = ["hash-object", "-t", kind, "-w", "--literally", "--stdin"];
        let output = s.repo.job().args(args).input(input).output(OutputLimits::seconds(60));
        let output = output.expect("git can be run");
        assert!(output.ok(), "{}", output.error_text());
        output.text().trim().to_owned()
    };
    let bytes = |id: &str| -> Vec<u8> {
        let digits = id.as_bytes().chunks(2);
        digits
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    };
    let blob = object("blob", b"evil\n".to_vec());
    let link = object("blob", outside.to_str().unwrap().as_bytes().to_vec());
    let inner = object("tree", [b"100644 file\0".to_vec(), bytes(&blob)].concat());
    let entries = [b"120000 a\0".to_vec(), bytes(&link), b"40000 a\0".to_vec(), bytes(&inner)];
    let tree = object("tree", entries.concat());
    let commit = s.repo.git(["commit-tree", "-m", "evil", &tree]);
    s.repo.git(["branch", "evil", &commit]);
    let mut order = s.order("evil-abcd");
    order.base = s.repository.base(Some("evil")).unwrap();
    let _ = studio_git::worktree::create(&s.repository, &order);
    assert_eq!(
        std::fs::read_dir(&outside).unwrap().count(),
        0,
        "nothing was written through the link"
    );
}
