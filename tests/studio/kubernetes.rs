//! Sessions in jobs of Kubernetes. A cluster does not run here: a program in the place of `kubectl` keeps
//! what it is told, and runs the containers as processes of this machine.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use testkit::env::until;

use crate::fixtures::Scene;

/// A `kubectl` of one cluster. Each pod is a process with a directory of its own.
const KUBECTL: &str = r#"#!/usr/bin/env python3
import datetime, json, os, subprocess, sys
root, args = os.environ["HOME"] + "/cluster", sys.argv[1:]
if args[0] == "--namespace":
    args = args[2:]
jobs = lambda: [os.path.join(root, name) for name in sorted(os.listdir(root))]
def start(job):
    number = len([name for name in os.listdir(job) if name.startswith("pod")])
    pod = f"{job}/pod{number}"
    os.makedirs(pod)
    container = json.load(open(f"{job}/manifest"))["spec"]["template"]["spec"]["containers"][0]
    environment = {"PATH": os.environ["PATH"], "HOME": pod}
    child = subprocess.Popen(container["command"], cwd=pod, env=environment, start_new_session=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    open(f"{pod}/pid", "w").write(str(child.pid))
def is_alive(pod):
    try:
        return open(f"/proc/{open(f'{pod}/pid').read()}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
if args[0] == "create":
    manifest = json.load(sys.stdin)
    job = os.path.join(root, manifest["metadata"]["name"])
    os.makedirs(job)
    json.dump(manifest, open(f"{job}/manifest", "w"))
    start(job)
elif args[0] == "get":
    name = args[2].rsplit("=", 1)[1]
    items = []
    for job in jobs():
        if os.path.basename(job) == name:
            pods = sorted(path for path in os.listdir(job) if path.startswith("pod"))
            status = {}
            if not is_alive(f"{job}/{pods[-1]}"):
                if os.path.exists(f"{job}/lost"):
                    os.remove(f"{job}/lost")
                    start(job)
                    pods = sorted(path for path in os.listdir(job) if path.startswith("pod"))
                else:
                    status = {"conditions": [{"type": "Complete", "status": "True"}]}
            items.append({"kind": "Job", "metadata": {"name": name}, "status": status})
            for pod in pods:
                phase = "Running" if is_alive(f"{job}/{pod}") else "Failed"
                items.append({"kind": "Pod", "metadata": {"name": f"{name}.{pod}", "creationTimestamp": pod},
                              "spec": {"nodeName": f"node-{pod}"}, "status": {"phase": phase}})
    json.dump({"kind": "List", "items": items}, sys.stdout)
elif args[0] == "exec":
    pod = os.path.join(root, *args[2].split("."))
    if not is_alive(pod):
        sys.exit("Error from server (NotFound): pods not found")
    words = args[args.index("--") + 1:]
    try:
        os.chdir(pod)
        done = subprocess.run(words, env={"PATH": os.environ["PATH"], "HOME": pod})
    except FileNotFoundError:
        sys.stderr.write("exec failed: no such file or directory\n")
        sys.exit(1)
    if done.returncode:
        sys.stderr.write(f"command terminated with exit code {done.returncode}\n")
    sys.exit(done.returncode)
elif args[0] == "delete":
    for job in jobs():
        if os.path.basename(job) == args[2]:
            for pod in os.listdir(job):
                if pod.startswith("pod") and is_alive(f"{job}/{pod}"):
                    os.kill(int(open(f"{job}/{pod}/pid").read()), 15)
"#;

/// A scene with the place `farm`.
const PLACE: &str = "[studio.places.farm]\nengine = \"kubernetes\"\n\
    image = \"registry.example/agent:1\"\nnamespace = \"agents\"\nmemory = \"2Gi\"\nkeep_seconds = 1\n";

fn scene() -> Scene {
    let mut scene = Scene::new();
    let programs = scene.env.home().join("programs");
    fs::create_dir_all(&programs).unwrap();
    fs::create_dir_all(scene.env.home().join("cluster")).unwrap();
    fs::write(programs.join("kubectl"), KUBECTL).unwrap();
    fs::set_permissions(programs.join("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    scene.env.set("PATH", path);
    scene.configure(PLACE);
    scene
}

/// Returns the directory of the only job, once it was submitted.
fn job(scene: &Scene) -> PathBuf {
    let jobs = until("a job", || {
        let jobs = fs::read_dir(scene.env.home().join("cluster")).unwrap().flatten();
        let jobs: Vec<PathBuf> = jobs.map(|entry| entry.path()).collect();
        (!jobs.is_empty()).then_some(jobs)
    });
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    jobs[0].clone()
}

/// Waits until the agent has written a file in a pod, and returns it.
fn await_file(scene: &Scene, pod: &str, id: &str, name: &str) -> PathBuf {
    until("the agent to write", || {
        let repositories = fs::read_dir(job(scene).join(pod).join("studio/repos")).ok()?.flatten();
        let worktrees = repositories
            .map(|it| it.path())
            .filter(|it| it.to_string_lossy().ends_with(".worktrees"));
        worktrees.map(|it| it.join(id).join(name)).find(|file| file.exists())
    })
}

#[test]
fn a_session_in_a_pod_is_ready_and_landed_as_one_here() {
    let scene = scene();
    let script = "write a.txt one; commit first; write b.txt two; say done; gate go";
    let id = scene.exec(["--on", "farm", "--check", "test -e b.txt", script]);
    let file = await_file(&scene, "pod0", &id, "b.txt");
    let status = scene.await_state(&id, "working");
    assert_eq!(status["place"]["host"], "node-pod0");
    fs::write(file.with_file_name("go"), "").unwrap();
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["accept", &id, "--message", "Add both"]).exits(0);
    assert_eq!(scene.repo.show("main", "b.txt"), "two");
    let manifest = fs::read_to_string(job(&scene).join("manifest")).unwrap();
    assert!(manifest.contains("\"memory\": \"2Gi\""), "{manifest}");
    assert!(!manifest.contains("write") && !manifest.contains(&id), "{manifest}");
}

#[test]
fn the_checks_of_a_landing_run_in_a_pod() {
    let scene = scene();
    let id = scene.ready("write a.txt one");
    scene.await_free(&id);
    let check = "pwd | grep -q studio/repos";
    scene.configure(&format!("checks_on = \"farm\"\nchecks = {check:?}\n{PLACE}"));
    let accepted = scene.studio(["accept", &id, "--message", "Add a"]);
    accepted.exits(0).output_contains("on the merged tree at farm");
    assert_eq!(scene.repo.show("main", "a.txt"), "one");
}

#[test]
fn a_lost_pod_loses_nothing_that_was_kept() {
    let scene = scene();
    let script = "write a.txt one; gate go; write b.txt two";
    let id = scene.exec(["--agent", "loads", "--on", "farm", script]);
    await_file(&scene, "pod0", &id, "a.txt");
    until("the work to be kept", || (scene.status(&id)["files_changed"] == 1).then_some(()));
    fs::write(job(&scene).join("lost"), "").unwrap();
    let pod = fs::read_to_string(job(&scene).join("pod0/pid")).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pod).unwrap(), Signal::KILL).unwrap();
    let file = await_file(&scene, "pod1", &id, "a.txt");
    fs::write(file.with_file_name("go"), "").unwrap();
    scene.await_state(&id, "ready");
    assert_eq!(scene.status(&id)["place"]["attempt"], 2);
    scene.studio(["diff", &id]).output_contains("+one");
}

mod needs_kubernetes_validate {
    use super::*;

    #[test]
    #[ignore = "needs kubernetes-validate"]
    fn the_manifest_is_valid() {
        let scene = scene();
        let id = scene.exec(["--on", "farm", "write a.txt one"]);
        scene.await_state(&id, "ready");
        let manifest = job(&scene).join("manifest");
        let command = base::process::Command::new("kubernetes-validate", scene.env.home());
        let command = command.arg("--strict").arg(manifest);
        let output = command.output(base::process::OutputLimits::seconds(60)).unwrap();
        assert!(output.ok(), "{}{}", output.text(), output.error_text());
    }
}
