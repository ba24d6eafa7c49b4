//! Canaries: made-up keys in every place where a user keeps keys, an agent that looks for them, and
//! a search of everything that was written, sent or shown for them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base::process::OutputLimits;
use serde_json::json;
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

/// What the agent's command prints: its environment, that of its parents, and the usual files.
const SEARCH: &str = "env; cat /proc/self/environ; cat /proc/$PPID/environ; \
    cat ~/.ssh/id_ed25519 ~/.aws/credentials ~/.netrc ~/.config/gh/hosts.yml ~/.config/g3/config.toml; \
    git config --list; grep -rs canar[y]- ~; for p in /proc/[0-9]*; do cat $p/environ; done; echo searched";

/// A made-up key; no two places have the same one.
fn canary(place: &str) -> String {
    format!("canary-{place}-q7Zk2LmX9vTb4RwY")
}

/// Files in the home directory that hold a key each.
const FILES: &[(&str, &str)] = &[
    (".ssh/id_ed25519", "ssh"),
    (".aws/credentials", "aws"),
    (".netrc", "netrc"),
    (".config/gh/hosts.yml", "gh"),
];

/// Variables that hold a key each.
const VARIABLES: &[(&str, &str)] = &[
    ("GITHUB_TOKEN", "github"),
    ("AWS_SECRET_ACCESS_KEY", "awsenv"),
    ("OPENAI_API_KEY", "openai"),
    ("MY_DATABASE_PASSWORD", "database"),
];

fn plant(scene: &mut Scene) {
    for (file, place) in FILES {
        let path = scene.env.home().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("key = {}\n", canary(place))).unwrap();
    }
    for (name, place) in VARIABLES {
        scene.env.set(name, canary(place));
    }
    let config = scene.model.config_toml("anthropic").replace("test-key", &canary("provider"));
    scene.env.config(&config);
    let url = format!("https://ada:{}@git.example.org/x.git", canary("remote"));
    scene.repo.git(["config", "remote.origin.url", &url]);
}

/// Returns the files below a directory with their modes.
fn files(directory: &Path, found: &mut BTreeMap<PathBuf, u32>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            files(&entry.path(), found);
        } else if metadata.is_file() {
            found.insert(entry.path(), metadata.permissions().mode() & 0o777);
        }
    }
}

#[track_caller]
fn lacks_canaries(place: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let shown = text.find("canary-").map(|at| base::text::head(&text[at..], 60));
    assert_eq!(shown, None, "{place} has a key");
}

#[test]
fn no_key_is_written_sent_or_shown_anywhere() {
    let search = ScriptedReply::call("shell", json!({"command": SEARCH}));
    let work = ScriptedReply::call("write_file", json!({"file_path": "a.txt", "content": "1\n"}));
    let replies = vec![search, work, ScriptedReply::says("Done.")];
    let script = Script::by_task([("look around".to_owned(), replies)]).commit_message("Add a");
    let mut scene = Scene::new("anthropic", script);
    plant(&mut scene);

    // The control: the same search outside of the sandbox finds every key.
    let outside = scene.env.command("sh", scene.repo.path()).args(["-c", SEARCH]);
    let outside = outside.output(OutputLimits::seconds(60)).unwrap();
    for (_, place) in FILES.iter().chain(VARIABLES) {
        assert!(outside.text().contains(&canary(place)), "the search misses {place}");
    }

    let mut shown = vec![scene.studio(["run", "look around"])];
    let id = scene.id("look around");
    for args in [
        vec!["list", "--all", "--json"],
        vec!["status", &id, "--json"],
        vec!["logs", &id],
        vec!["logs", &id, "--json"],
        vec!["diff", &id],
        vec!["config", "show", "--origin"],
        vec!["config", "show", "--json"],
        vec!["doctor"],
        vec!["accept", &id],
        vec!["accept", "no-such-session"],
        vec!["list", "--all"],
    ] {
        shown.push(scene.studio(args));
    }
    for run in &shown {
        lacks_canaries("an output", format!("{}{}", run.out, run.err).as_bytes());
    }
    assert_eq!(scene.repo.read("a.txt"), "1\n");
    let requests = scene.model.requests();
    let results: String =
        requests.iter().flat_map(|it| it.tool_results()).map(|(_, text)| text).collect();
    assert!(results.contains("searched"), "{results}");
    for request in &requests {
        assert_eq!(request.header("x-api-key"), Some(canary("provider").as_str()));
        lacks_canaries("a request", request.body.to_string().as_bytes());
    }
    let planted: Vec<PathBuf> = FILES
        .iter()
        .map(|(file, _)| scene.env.home().join(file))
        .chain([
            scene.env.home().join(".config/g3/config.toml"),
            scene.repo.path().join(".git/config"),
        ])
        .collect();
    let mut written = BTreeMap::new();
    files(scene.env.home(), &mut written);
    assert!(written.len() > planted.len());
    for (path, mode) in written.iter().filter(|(path, _)| !planted.contains(path)) {
        lacks_canaries(&path.display().to_string(), &fs::read(path).unwrap_or_default());
        let is_private = ["journal.jsonl", "agent.log", "session.json", "status.json", "token"];
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if is_private.contains(&name.as_ref())
            && path.components().any(|it| it.as_os_str() == "studio")
        {
            assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        }
    }
    let objects = scene.repo.git(["cat-file", "--batch-all-objects", "--batch", "--buffer"]);
    lacks_canaries("an object of the repository", objects.as_bytes());
}

/// Returns what the processes of g3 in sessions have of a key: variables, open files, memory.
fn places_with_key(home: &Path, key: &str) -> Vec<String> {
    let mut places = Vec::new();
    let mut is_g3_running = false;
    for process in fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()) {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let is_of_scene = environment.contains(&format!("HOME={}\0", home.display()));
        let program = fs::read_link(process.join("exe")).unwrap_or_default();
        if !is_of_scene || !program.ends_with("g3") {
            continue;
        }
        is_g3_running = true;
        if environment.contains(key) {
            places.push("environment".to_owned());
        }
        for file in fs::read_dir(process.join("fd")).unwrap().flatten() {
            let is_regular = fs::metadata(file.path()).is_ok_and(|it| it.is_file());
            if is_regular && String::from_utf8_lossy(&fs::read(file.path()).unwrap()).contains(key)
            {
                places.push("file".to_owned());
            }
        }
        if is_in_memory(&process, key) {
            places.push("memory".to_owned());
        }
    }
    assert!(is_g3_running);
    places
}

/// Returns whether the writable memory of a process contains a text.
fn is_in_memory(process: &Path, text: &str) -> bool {
    let memory = fs::File::open(process.join("mem")).unwrap();
    let maps = fs::read_to_string(process.join("maps")).unwrap();
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let address = |text| u64::from_str_radix(text, 16).unwrap();
        let mut bytes = vec![0; usize::try_from(address(end) - address(start)).unwrap()];
        // Some regions cannot be read.
        let read = memory.read_at(&mut bytes, address(start)).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).contains(text)
    })
}

mod needs_process_memory {
    use super::*;

    #[test]
    #[ignore = "needs to read the memory of programs in a sandbox"]
    fn no_key_of_the_configuration_is_in_the_process_of_g3() {
        for wire in ["anthropic", "openai", "responses", "gemini", "databricks"] {
            let (inside, outside) = (ReplyGate::new(), ReplyGate::new());
            let gates = [inside.clone(), outside.clone()];
            let script = Script::by(move |request| {
                let gate = &gates[usize::from(request.text().contains("outside"))];
                ScriptedReply::says("Done.").gate(gate)
            });
            let scene = Scene::new(wire, script);
            let command = format!("api_key_command = \"echo {}\"", canary("provider"));
            let config = scene.model.config_toml(wire);
            let config = match wire {
                "responses" => config.replace("api_key = \"test-key\"", &command),
                _ => config.replace("test-key", &canary("provider")),
            };
            scene.env.config(&config);
            let places = |args: &[&str], gate: &ReplyGate| {
                let all = ["run", "--detach"].into_iter().chain(args.iter().copied());
                scene.studio(all).exits(0);
                gate.wait_until_reached(1);
                let places = places_with_key(scene.env.home(), &canary("provider"));
                gate.open_all();
                let is_over = || scene.sessions().iter().all(|session| session["state"] == "empty");
                until("the end of the session", || is_over().then_some(()));
                places
            };
            assert_eq!(places(&["work inside"], &inside), Vec::<String>::new(), "{wire}");
            // The control: without a sandbox, g3 has the key.
            let control = places(&["--sandbox", "off", "work outside"], &outside);
            assert!(control.contains(&"memory".to_owned()), "{wire}: {control:?}");
            let requests = scene.model.requests();
            assert!(requests.len() > 1);
            for request in requests {
                let headers = ["x-api-key", "authorization", "x-goog-api-key"];
                let keys: Vec<&str> = headers.iter().filter_map(|it| request.header(it)).collect();
                assert!(
                    keys.len() == 1 && keys[0].ends_with(&canary("provider")),
                    "{wire}: {keys:?}"
                );
            }
        }
    }
}
