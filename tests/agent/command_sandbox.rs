//! Tests of the command sandbox: what is accessible in it, what allows commands to leave it, and
//! what else runs in it.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::env::{processes_in, until};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::editor::Editor;
use crate::tools_support::{Bench, Called, G3};

fn shell(bench: &Bench, command: &str) -> Called {
    bench.call("shell", json!({ "command": command }))
}

/// All commands run without a sandbox.
const OPEN: &str =
    "[sandbox]\nenabled = false\n[[gate.rules]]\ntool = \"shell\"\naction = \"allow\"\n";

/// Lines that change something in `$HOME/out` (`OUT`) if unconfined. The working directory is a
/// repository next to it, with a link `link` to it.
const SPELLINGS: &[&str] = &[
    "touch OUT/m",
    "echo x > OUT/m",
    "echo x <> OUT/m >&0; : 1<>OUT/m",
    "$\"touch\" OUT/m",
    "tou\\\nch OUT/m",
    "trap 'touch OUT/m' EXIT",
    "eval eval eval eval eval eval eval eval eval eval touch OUT/m",
    "cp -t OUT a",
    "cp --target-directory=OUT a",
    "mv -t OUT a",
    "install -t OUT a",
    "ln -s -t OUT a",
    "touch \"$HOME/out/m\"",
    "D=$HOME/out; touch $D/m",
    "V=touch; $V OUT/m",
    "$(echo touch) OUT/m",
    "{touch,OUT/m}",
    "touch${IFS}OUT/m",
    "/usr/bin/touc? OUT/m",
    "touch ~+/../out/m",
    "cd OUT; cd - >/dev/null; touch ~-/m",
    "touch /dev/fd/../cwd/../out/m",
    "touch /proc/self/cwd/../out/m",
    "cd .. && touch out/m",
    "cd ~; touch out/m",
    "pushd OUT; touch m",
    "CDPATH=$HOME; cd out; touch m",
    "(cd OUT; touch m)",
    "touch link/m",
    "ln -s OUT here; touch here/m",
    "env -S 'touch OUT/m'",
    "env -C OUT touch m",
    "taskset 1 touch OUT/m",
    "setpriv touch OUT/m",
    "flock a touch OUT/m",
    "flock a -c 'touch OUT/m'",
    "chrt -o 0 touch OUT/m",
    "script -qc 'touch OUT/m' /dev/null",
    "$(ls /lib*/ld-linux*.so* /lib/*/ld-linux*.so* 2>/dev/null | head -1) /usr/bin/touch OUT/m",
    "unshare touch OUT/m",
    "shopt -s expand_aliases\nalias t=touch\nt OUT/m",
    "hash -p /usr/bin/touch t; t OUT/m",
    "f() { touch \"$1\"; }; f OUT/m",
    "mapfile -C 'touch OUT/m #' -c 1 x < a",
    "echo 'touch OUT/m' > s; BASH_ENV=s bash -c true",
    "echo 'touch OUT/m' > s; source ./s",
    "echo 'touch OUT/m' > s; sh s",
    "echo 'touch OUT/m' | sh",
    "bash <<E\ntouch OUT/m\nE",
    "bash <<< 'touch OUT/m'",
    "X='touch OUT/m'; bash -c \"$X\"",
    "X='touch OUT/m'; eval \"$X\"",
    "printf -v X %s 'touch OUT/m'; eval \"$X\"",
    "python3 -c 'open(\"OUT/m\",\"w\")'",
    "perl -e 'open(F,\">OUT/m\")'",
    "awk 'BEGIN{print > \"OUT/m\"}'",
    "sed -n 'w OUT/m' a",
    "sed -i s/x/y/ OUT/old",
    "perl -pi -e s/x/y/ OUT/old",
    "sort -o OUT/m a",
    "uniq a OUT/m",
    "split a OUT/m",
    "dd if=a of=OUT/m status=none",
    "tee OUT/m < a",
    "rsync -a a OUT/m || cp a OUT/m",
    "tar cf OUT/m a",
    "tar cf t.tar a; tar xf t.tar -C OUT",
    "tar cf t.tar a --checkpoint=1 --checkpoint-action=exec='touch OUT/m'",
    "tar cf t.tar a; tar xf t.tar --to-command='touch OUT/m'",
    "printf 'all:\\n\\ttouch OUT/m\\n' > Makefile; make -s || touch OUT/m",
    "find . -maxdepth 0 -fprint OUT/m",
    "find OUT -name old -delete",
    "find . -maxdepth 0 -exec touch OUT/m \\;",
    "mkfifo OUT/m",
    "mkdir OUT/m",
    "rm OUT/old",
    "unlink OUT/old",
    "truncate -s 0 OUT/old",
    "mv OUT/old .",
    "ln OUT/old hard; echo y >> hard",
    "git init -q OUT/m",
    "git clone -q . OUT/m",
    "git worktree add -q OUT/m",
    "git -c alias.x='!touch OUT/m' x",
    "git config --file OUT/m a.b c",
    "git diff --no-index --output=OUT/m a /dev/null",
    "git format-patch -q --root -o OUT HEAD",
    "git bundle create -q OUT/m HEAD",
    "git archive -o OUT/m.tar HEAD",
    "nohup touch OUT/m >/dev/null; setsid touch OUT/m",
    "xargs touch <<< OUT/m",
    "timeout 9 nice touch OUT/m",
    "command builtin eval touch OUT/m",
    "coproc touch OUT/m; wait",
    "cat a > >(tee OUT/m >/dev/null); sleep 0.2",
    "exec touch OUT/m",
    "cp a $(echo OUT/m)",
    "read p <<< OUT/m; cp a \"$p\"",
    "openssl rand -out OUT/m 4 || touch OUT/m",
    "curl -so OUT/m file://$PWD/a || touch OUT/m",
];

/// Creates a repository in the working directory, a directory next to it, and a link to that.
fn outside() -> Bench {
    let bench = Bench::new("g3");
    let out = bench.env.home().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("old"), "x\n").unwrap();
    let line = "git init -q . && git config user.name a && git config user.email a@b && echo x > a \
                && git add a && git commit -qm one && ln -s ../out link";
    bench.env.run("sh", &bench.dir, ["-c", line]).exits(0);
    bench
}

/// Returns the entries of a directory with the contents of files.
fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().unwrap().is_file();
        (name, if is_file { fs::read(entry.path()).unwrap() } else { Vec::new() })
    };
    let mut all: Vec<_> = entries.map(read).collect();
    all.sort();
    all
}

/// Returns the spellings that changed something outside.
fn escapes(config: &str) -> Vec<&'static str> {
    let work = |lines: &'static [&'static str]| {
        let mut out = Vec::new();
        for line in lines {
            let bench = outside();
            bench.env.config(config);
            let place = bench.env.home().canonicalize().unwrap().join("out");
            let before = content(&place);
            shell(&bench, &line.replace("OUT", &place.display().to_string()));
            if content(&place) != before {
                out.push(*line);
            }
        }
        out
    };
    let (one, two) = SPELLINGS.split_at(SPELLINGS.len() / 2);
    std::thread::scope(|scope| {
        let one = scope.spawn(|| work(one));
        let two = work(two);
        one.join().unwrap().into_iter().chain(two).collect()
    })
}

#[test]
fn no_spelling_of_a_command_changes_anything_outside() {
    assert_eq!(escapes(""), Vec::<&str>::new());
}

#[test]
fn every_spelling_changes_something_without_a_sandbox() {
    let escaped = escapes(OPEN);
    let held: Vec<_> = SPELLINGS.iter().filter(|line| !escaped.contains(line)).collect();
    // Otherwise the test above would prove less.
    assert!(held.len() <= 3, "{held:?}");
}

#[test]
fn git_works_in_the_sandbox_and_its_configuration_is_unchanged() {
    let bench = outside();
    let line = "echo y > a && git commit -qam two && git checkout -qb side && git branch -d main 2>&1; \
                git stash list; git tag t && git gc -q && git log --oneline | wc -l";
    shell(&bench, line).says("2\n").works();
    let config = bench.read(".git/config");
    for line in [
        "git config core.fsmonitor ./x",
        "echo x >> .git/config",
        "printf '#!/bin/sh\\n' > .git/hooks/pre-commit",
        "rm -rf .git/hooks; mkdir .git/hooks; touch .git/hooks/post-checkout",
        "mv .git/config .git/c; cp .git/c .git/config; echo x >> .git/config",
        "mv .git .g; cp -r .g .git; echo x >> .git/config",
    ] {
        shell(&bench, line);
        assert_eq!(bench.read(".git/config"), config, "{line}");
        let hooks = fs::read_dir(bench.dir.join(".git/hooks")).unwrap().flatten();
        let hooks: Vec<_> = hooks.map(|it| it.file_name()).collect();
        assert!(hooks.iter().all(|it| it.to_string_lossy().ends_with(".sample")), "{line}");
    }
    shell(&bench, "git config core.fsmonitor ./x")
        .says("protects git's configuration")
        .fails("failed");
    // The repository of a linked working tree is elsewhere.
    bench.env.run("git", &bench.dir, ["worktree", "add", "-q", "../linked"]).exits(0);
    let linked = Bench { dir: bench.env.home().join("linked").canonicalize().unwrap(), ..bench };
    shell(&linked, "echo z > z && git add z && git commit -qm three && git log --oneline | wc -l")
        .says("3\n")
        .works();
    shell(&linked, "git config core.fsmonitor ./x; echo gitdir: /x > .git; git status").works();
    assert_eq!(fs::read_to_string(linked.env.home().join("work/.git/config")).unwrap(), config);
}

#[test]
fn git_works_in_a_studio_repository_and_its_sessions_are_unchanged() {
    let bench = outside();
    let common = bench.dir.join(".git").canonicalize().unwrap();
    let session = common.join("studio/sessions/one");
    fs::create_dir_all(&session).unwrap();
    fs::write(session.join("journal.jsonl"), "{}\n").unwrap();
    let known = bench.env.home().join(".local/state/studio/work");
    fs::create_dir_all(&known).unwrap();
    fs::write(known.join("repository"), common.display().to_string()).unwrap();
    let line =
        "ls && echo new > new && git add new && git commit -qm two && git log --oneline | wc -l";
    shell(&bench, line).says("2\n").works();
    shell(&bench, "echo x >> .git/studio/sessions/one/journal.jsonl").fails("failed");
    shell(&bench, "rm -rf .git/studio; mv .git/studio .git/other");
    assert_eq!(fs::read_to_string(session.join("journal.jsonl")).unwrap(), "{}\n");
}

#[test]
fn a_denial_names_the_path_and_the_rule_that_allows_it() {
    let bench = outside();
    let out = bench.env.home().canonicalize().unwrap().join("out");
    let line = "P=$(dirname \"$PWD\"); touch \"$P/out/m\"";
    let denied = shell(&bench, line);
    denied
        .says("the sandbox does not let commands write")
        .says("[sandbox] write = [")
        .fails("failed");
    denied.says(&out.join("m").display().to_string()).says("action = \"allow\"");
    assert_eq!(denied.metadata["box_denied"], json!(out.join("m")));
    bench.env.config(&format!("[sandbox]\nwrite = [\"{}\"]\n", out.display()));
    shell(&bench, line).works();
    fs::remove_file(out.join("m")).unwrap();
    bench
        .env
        .config("[[gate.rules]]\ntool = \"shell\"\ncommand = \"*touch*\"\naction = \"allow\"\n");
    shell(&bench, "V=touch; touch ../out/n").works();
    assert!(out.join("n").exists(), "what a rule allows runs outside of the box");
    let core = Bench { profile: "core", ..bench };
    core.env.config("");
    let told = core.call("execute_cli", json!({ "command": line }));
    assert!(told.metadata["box"].as_str().unwrap().contains("[sandbox] write"), "{told:?}");
}

/// Runs one command, about which the editor is asked.
fn asked(line: &str, option: &str) -> (Stage, String) {
    let call = ScriptedReply::call("shell", json!({ "command": line }));
    let stage = Stage::new([call, ScriptedReply::says("done")]);
    fs::create_dir(stage.env.home().join("out")).unwrap();
    let mut editor = Editor::open(&stage);
    let session = editor.new_session(stage.repo.path());
    let id = editor.prompt(&session, "do it");
    let asks = editor.wait("question", |m| m["method"] == "session/request_permission");
    editor.send(json!({"jsonrpc": "2.0", "id": asks["id"], "result":
        {"outcome": {"outcome": "selected", "optionId": option}}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    let told = stage.asked()[1].tool_results()[0].1.clone();
    (stage, told)
}

#[test]
fn permission_lets_a_command_leave_the_sandbox() {
    for line in ["touch ../out/m", "cd ~ && touch out/m", "touch \"$(dirname $PWD)/out/m\""] {
        let (stage, told) = asked(line, "once");
        assert!(stage.env.home().join("out/m").exists(), "{line}: {told}");
        let (stage, told) = asked(line, "no");
        assert!(!stage.env.home().join("out/m").exists(), "{line}: {told}");
        assert!(told.contains("denied by the user"), "{told}");
    }
}

#[test]
fn commands_cannot_access_configuration_keys_state_and_secrets() {
    let mut bench = outside();
    bench.env.config("[agent]\nmax_turns = 7\n");
    bench.env.set("ANTHROPIC_API_KEY", "sk-secret-1");
    bench.env.set("DATABASE_URL", "postgres://me:hunter2@db/x");
    bench.env.set("HARMLESS_URL", "https://db/x");
    fs::create_dir(bench.env.home().join(".ssh")).unwrap();
    fs::write(bench.env.home().join(".ssh/id_rsa"), "key-secret-2").unwrap();
    shell(&bench, "true").works();
    let state = bench.session();
    let line = format!(
        "cat ~/.ssh/id_rsa ~/.config/g3/config.toml /proc/$PPID/environ; tr '\\0' '\\n' < \
         /proc/$PPID/environ; ls -R {0} ~/.local/state; S=$(echo {0}); echo x > \"$S/inbox\"; env; :",
        state.display()
    );
    let told = shell(&bench, &line);
    for secret in ["sk-secret-1", "key-secret-2", "max_turns", "hunter2", "session.jsonl"] {
        assert!(!told.text.contains(secret), "{secret}: {}", told.text);
    }
    assert!(told.text.contains("HARMLESS_URL"));
    assert!(!state.join("inbox").exists(), "no command speaks with the user's voice");
    bench.env.set("MY_DSN", "mysql://root:hunter2@db/x");
    assert!(!shell(&bench, "env").text.contains("hunter2"));
}

#[test]
fn a_hidden_file_is_named_with_the_key_that_opens_it() {
    let bench = outside();
    let old = bench.env.home().canonicalize().unwrap().join("out/old");
    let line = "V=../out; cat $V/old";
    let denied = shell(&bench, line);
    denied.says("the sandbox does not let commands read").says("[sandbox] read = [");
    denied.says(&old.display().to_string());
    bench.env.config(&format!("[sandbox]\nread = [\"{}\"]\n", old.display()));
    assert!(shell(&bench, line).text.contains('x'));
    let missing = shell(&bench, "V=sub; cat $V/missing");
    assert!(!missing.text.contains("[sandbox]"), "{}", missing.text);
}

#[test]
fn a_command_reaches_no_server_of_the_user() {
    let bench = outside();
    let socket = bench.env.home().canonicalize().unwrap().join("out/s");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let program = "import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])\n";
    fs::write(bench.dir.join("connect.py"), program).unwrap();
    let line = format!("python3 connect.py {} && echo connected-$((1 + 1))", socket.display());
    assert!(!shell(&bench, &line).text.contains("connected-2"));
    bench.env.config(&format!("[sandbox]\nsockets = [\"{}\"]\n", socket.display()));
    assert!(shell(&bench, &line).text.contains("connected-2"));
    bench.env.config(OPEN);
    assert!(shell(&bench, &line).text.contains("connected-2"), "the control");
}

#[test]
fn killing_g3_kills_its_command() {
    let bench = outside();
    let line = json!({ "command": "sleep 300 & echo $! > pid; wait" }).to_string();
    let args = ["tool", "exec", "--name", "shell", "--args", &line];
    let mut running = bench.env.start(G3, &bench.dir, args);
    let pid = until("the command", || {
        fs::read_to_string(bench.dir.join("pid")).ok()?.trim().parse::<u32>().ok()
    });
    assert!(base::process::is_alive(pid));
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    until("the command to end", || (!base::process::is_alive(pid)).then_some(()));
}

#[test]
fn with_gpus_a_command_can_name_its_threads_and_ends_with_its_processes() {
    let name = "echo renamed > /proc/self/task/$$/comm; read name < /proc/self/comm; echo $name";
    let bench = Bench::new("g3");
    assert!(!shell(&bench, name).text.contains("renamed"));
    bench.env.config("[sandbox]\ngpu = true\n");
    assert!(shell(&bench, name).works().contains("renamed"));
    bench.call("shell", json!({ "command": "sleep 300 & sleep 300", "timeout": 1 }));
    until("its processes to end", || processes_in(&bench.dir).is_empty().then_some(()));
}

#[test]
fn hooks_and_servers_run_in_the_sandbox_unless_configured_otherwise() {
    let reach = "touch \"$HOME/out/$1\"; cat ~/.config/g3/config.toml; exit 0";
    for (key, escapes) in [("", false), ("sandbox = false\n", true)] {
        let stage = Stage::new([ScriptedReply::says("done")]);
        let out = stage.env.home().join("out");
        fs::create_dir(&out).unwrap();
        let provider = stage.model.config_toml("anthropic");
        let line = json!(["sh", "-c", reach, "x", "hook"]);
        let server = json!(["sh", "-c", reach, "x", "server"]);
        stage.env.config(&format!(
            "{provider}\n[[hooks]]\nevent = \"user_prompt\"\ncommand = {line}\n{key}\n\
             [mcp.one]\ncommand = {server}\n{key}"
        ));
        stage.g3(["hello"]).ok();
        if escapes {
            until("the server", || out.join("server").exists().then_some(()));
        }
        let made: Vec<String> = content(&out).into_iter().map(|(name, _)| name).collect();
        let expected: &[&str] = if escapes { &["hook", "server"] } else { &[] };
        assert_eq!(made, expected);
        let told = stage.asked()[0].body.to_string();
        assert_eq!(told.contains("[[hooks]]"), escapes, "{told}");
    }
}

#[test]
fn sessions_from_a_repository_are_not_the_users() {
    let stage = Stage::new([ScriptedReply::says("one"), ScriptedReply::says("two")]);
    stage.g3(["remember the word plum"]).ok();
    let own = stage.session_dir();
    let brought = stage.repo.path().join(".g3/sessions").join(own.file_name().unwrap());
    fs::create_dir_all(brought.parent().unwrap()).unwrap();
    fs::rename(&own, &brought).unwrap();
    assert!(!own.exists());
    stage.g3(["--resume", "--", "which word?"]).exits(2).output_contains("g3 sessions import");
    stage.repo.git(["add", "-f", ".g3"]);
    stage.g3(["sessions", "import"]).exits(3).output_contains("git tracks");
    stage.repo.git(["rm", "-rq", "--cached", ".g3"]);
    fs::create_dir_all(brought.join("checkpoints.git")).unwrap();
    fs::create_dir_all(brought.join("inbox")).unwrap();
    stage.g3(["sessions", "import"]).ok();
    assert!(own.join("session.jsonl").exists());
    assert!(!own.join("checkpoints.git").exists() && !own.join("inbox").exists());
    stage.g3(["--resume", "--", "which word?"]).ok();
    assert!(stage.asked()[1].body.to_string().contains("plum"));
}

#[test]
fn plain_git_runs_nothing_that_a_command_planted() {
    let setup = "git config extensions.worktreeConfig true && mkdir e && \
                 cp -r .git/objects .git/refs .git/HEAD e/ && printf '[core]\n\tbare = false\n\t\
                 repositoryformatversion = 1\n\tfsmonitor = touch %s/ran\n' \"$HOME\" > evil";
    for line in [
        "cp evil e/config; pwd | sed 's:$:/e:' > .git/commondir",
        "cp evil .git/config.worktree",
        "mv .git old; cp -r old .git; cat evil >> .git/config",
    ] {
        let bench = outside();
        bench.env.run("sh", &bench.dir, ["-c", setup]).exits(0);
        let has_run = || {
            bench.env.run("git", &bench.dir, ["status"]);
            bench.env.home().join("ran").exists()
        };
        shell(&bench, line);
        bench.env.run(G3, &bench.dir, ["sandbox", "--", "sh", "-c", line]);
        assert!(!has_run(), "{line}");
        bench.env.run("sh", &bench.dir, ["-c", line]);
        assert!(has_run(), "the control: {line}");
    }
}

#[test]
fn borrowed_objects_are_readable_and_a_command_cannot_borrow_others() {
    let borrow = "git clone -q --bare . ../origin.git && rm -r .git/objects/* && \
                  mkdir .git/objects/info .git/objects/pack && \
                  echo ../../../origin.git/objects > .git/objects/info/alternates";
    for setup in ["true", borrow] {
        let bench = outside();
        bench.env.run("sh", &bench.dir, ["-c", setup]).exits(0);
        let commit = "git log --oneline && git commit -q --allow-empty -m more && echo 'do''ne'";
        let told = shell(&bench, commit);
        assert!(told.text.contains("done"), "{setup}: {told:?}");
        let secret = "git init -q ../secret && cd ../secret && echo canary > x && \
                      git hash-object -w x";
        let made = bench.env.run("sh", &bench.dir, ["-c", secret]);
        let read = format!("git cat-file -p {}", made.exits(0).out.trim());
        shell(&bench, "echo ../../../secret/.git/objects >> .git/objects/info/alternates");
        let told = shell(&bench, &read);
        assert!(!told.text.contains("canary"), "{setup}: {told:?}");
        let line =
            format!("echo ../../../secret/.git/objects >> .git/objects/info/alternates; {read}");
        bench.env.run("sh", &bench.dir, ["-c", &line]).output_contains("canary");
    }
}

#[test]
fn a_git_directory_elsewhere_is_opened_once_it_names_the_working_tree() {
    let link = "mv .git ../elsewhere && ln -s ../elsewhere .git";
    for move_away in ["git init -q --separate-git-dir ../elsewhere", link] {
        let bench = outside();
        bench.env.run("sh", &bench.dir, ["-c", move_away]).exits(0);
        let line = "git commit -q --allow-empty -m more && echo 'do''ne'";
        let told = shell(&bench, line);
        assert!(told.text.contains("config core.worktree DIRECTORY"), "{told:?}");
        bench.env.run("sh", &bench.dir, ["-c", "git config core.worktree \"$PWD\""]).exits(0);
        let told = shell(&bench, line);
        assert!(told.text.contains("done"), "{told:?}");
        let told = shell(&bench, "git config core.fsmonitor 'touch ran'");
        assert!(!told.ok, "{told:?}");
        bench.env.run("git", &bench.dir, ["status"]).exits(0);
        assert!(!bench.dir.join("ran").exists(), "{move_away}");
    }
}

#[test]
fn a_command_sees_no_login_in_gits_configuration_and_reaches_no_abstract_socket() {
    use std::os::linux::net::SocketAddrExt;
    let bench = outside();
    let url = "https://me:canary@example.com/a.git";
    bench.env.run("git", &bench.dir, ["config", "remote.o.url", url]).exits(0);
    let name = format!("g3-test-{}", base::random::hex::<8>().unwrap());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let program = format!(
        "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0{name}')\nprint('reach' + 'ed')\n"
    );
    fs::write(bench.dir.join("connect.py"), program).unwrap();
    let line = "cat .git/config; git config remote.o.url; python3 connect.py";
    let told = shell(&bench, line);
    assert!(told.text.contains("https://example.com/a.git"), "{}", told.text);
    assert!(!told.text.contains("canary") && !told.text.contains("reached"), "{}", told.text);
    let outside = bench.env.run("sh", &bench.dir, ["-c", line]);
    outside.output_contains("canary").output_contains("reached");
}

#[test]
fn g3_sandbox_runs_any_program_as_a_command_of_g3() {
    let bench = Bench::new("g3");
    let home = bench.env.home().canonicalize().unwrap();
    for name in [".ssh", "out"] {
        fs::create_dir(home.join(name)).unwrap();
    }
    fs::write(home.join(".ssh/id"), "canary").unwrap();
    let line = "cat ~/.ssh/id; touch ~/out/m; touch here; exit 7";
    let sandboxed = bench.env.run(G3, &bench.dir, ["sandbox", "--", "sh", "-c", line]);
    sandboxed.exits(7).output_lacks("canary");
    let is_there = |name: &str| home.join(name).exists();
    assert!(is_there("work/here") && !is_there("out/m"));
    let called = shell(&bench, line);
    assert!(!called.text.contains("canary") && !is_there("out/m"), "{called:?}");
    // The control: the same line outside.
    let outside = bench.env.run("sh", &bench.dir, ["-c", line]);
    outside.exits(7).output_contains("canary");
    assert!(is_there("out/m"));
    bench.env.run(G3, &bench.dir, ["sandbox"]).exits(2);
    let missing = bench.env.run(G3, &bench.dir, ["sandbox", "--", "no-such-program"]);
    missing.output_contains("cannot start `no-such-program`");
    bench.env.config("[sandbox]\nenabled = false\n");
    let refused = bench.env.run(G3, &bench.dir, ["sandbox", "--", "true"]);
    assert_ne!(refused.code, 0);
    refused.output_contains("`[sandbox] enabled = false` is configured");
}
