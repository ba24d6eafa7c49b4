//! Tests of memories with embeddings of the local model: the real g3 with a scripted host.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use base::model_host::connection::lines;
use base::model_host::wire::{
    EmbedderId, Hello, HostFault, HostFaultKind, HostRequest, HostRequestLine, HostResponse,
    HostResponseLine, VERSION, Vectors,
};
use base::process::Command;
use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{G3, Stage};
use crate::tools_support::Bench;

const LOCAL: &str = "[memory]\nembedder = \"local\"\n";

/// A host that computes embeddings.
#[derive(Clone)]
struct Host {
    /// `None`: a host of an earlier version.
    embedder: Option<EmbedderId>,
    /// The response in place of embeddings.
    says: Option<HostResponse>,
    asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Host {
    fn named(name: &str, dimension: u32) -> Host {
        let embedder = Some(EmbedderId { name: name.into(), dimension });
        Host { embedder, says: None, asked: Arc::default() }
    }

    /// Returns the number of texts in each request.
    fn counts(&self) -> Vec<usize> {
        self.asked.lock().unwrap().iter().map(Vec::len).collect()
    }

    /// Passes a connection to the host to a g3 process.
    fn serves(&self, job: Command) -> Command {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let host = self.clone();
        std::thread::spawn(move || host.play(ours));
        job.env("G3_MODEL_HOST_FD", "5").descriptor(theirs.into(), 5)
    }

    fn play(&self, socket: UnixStream) {
        let mut writer = socket.try_clone().unwrap();
        for line in lines::<HostRequestLine>(socket) {
            let Ok(HostRequestLine { id, what }) = line else { return };
            let told = match what {
                HostRequest::Hello { .. } => {
                    HostResponseLine { id, what: HostResponse::Hello(self.hello()) }
                }
                HostRequest::Embed { texts } => HostResponseLine { id, what: self.vectors(texts) },
                HostRequest::Cancel { .. } => continue,
                other => panic!("unexpected request: {other:?}"),
            };
            let mut line = serde_json::to_value(&told).unwrap();
            if self.embedder.is_none() {
                // As before this field existed.
                line.as_object_mut().unwrap().remove("embedder");
            }
            writeln!(writer, "{line}").unwrap();
        }
    }

    fn hello(&self) -> Hello {
        let (model, embedder) = ("scripted".into(), self.embedder.clone());
        Hello { version: VERSION, model, parameters: 1, context: 512, pid: 4711, embedder }
    }

    fn vectors(&self, texts: Vec<String>) -> HostResponse {
        let embedder = self.embedder.clone().expect("a host of an earlier version is not asked");
        let vector = |text: &String| {
            let animal = ["dog", "cat", "pet"].iter().any(|word| text.contains(word));
            let mut vector = vec![0.0; embedder.dimension as usize];
            vector[usize::from(animal)] = 1.0;
            vector
        };
        let vectors = texts.iter().map(vector).collect();
        self.asked.lock().unwrap().push(texts);
        self.says.clone().unwrap_or(HostResponse::Vectors(Vectors { embedder, vectors }))
    }
}

/// Calls a tool with this host.
fn call(bench: &Bench, host: &Host, name: &str, args: Value) -> String {
    let args = args.to_string();
    let args = ["tool", "exec", "--profile", "g3", "--name", name, "--args", &args, "--json"];
    let ran = bench.env.run_command(host.serves(bench.env.command(G3, &bench.dir).args(args)));
    let said: Value = serde_json::from_str(&ran.out).unwrap_or_else(|why| panic!("{why}: {ran:?}"));
    assert_eq!(said["ok"], true, "{said}");
    said["text"].as_str().unwrap().to_owned()
}

#[test]
fn the_local_model_finds_by_meaning_and_replaces_other_vectors() {
    let bench = Bench::new("g3");
    let set =
        |key: &str, value: &str| bench.call("memory_set", json!({"key": key, "value": value}));
    set("companion", "a dog named Rex").works();
    set("weather", "it rains").works();
    let host = Host::named("m-1", 3);
    let asks = |host: &Host| call(&bench, host, "memory_search", json!({"query": "my pets"}));
    bench.env.config(LOCAL);
    assert_eq!(asks(&host), "Found 1 memory:\n1. [companion] 0.700\n   a dog named Rex");
    assert_eq!(host.counts(), [2, 1], "both old memories in one request, then the question");
    asks(&host);
    assert_eq!(host.counts(), [2, 1, 1], "they keep their vectors");
    let long = format!("a cat {}", "and more ".repeat(10_000));
    let stored = call(&bench, &host, "memory_set", json!({"key": "later", "value": long}));
    assert_eq!(stored, "Memory stored: later");
    let sent = host.asked.lock().unwrap().last().unwrap()[0].len();
    assert!((16_000..=16 << 10).contains(&sent), "{sent}");
    assert!(asks(&host).contains("[later] 0.700"));
    // Of the same dimension, but from another model.
    let other = Host::named("m-2", 3);
    assert!(asks(&other).starts_with("Found 2 memories"));
    assert_eq!(other.counts(), [3, 1]);
    bench.env.config("");
    assert_eq!(
        bench.call("memory_search", json!({"query": "my pets"})).works(),
        "No memories found"
    );
}

#[test]
fn an_older_host_is_not_used_and_this_is_reported_once() {
    let set = |key: &str| json!({"key": key, "value": "a preferred editor"});
    let stage = Stage::new([
        ScriptedReply::call("memory_set", set("one")),
        ScriptedReply::call("memory_set", set("two")),
        ScriptedReply::call("memory_search", json!({"query": "preferred editors"})),
        ScriptedReply::says("done"),
    ]);
    let config = stage.model.config_toml("anthropic");
    stage.env.config(&format!("{config}\n{LOCAL}"));
    let host = Host { embedder: None, says: None, asked: Arc::default() };
    stage.env.run_command(host.serves(stage.job(["remember it"]))).ok();
    let requests = stage.asked();
    let results = requests.last().unwrap().tool_results();
    let said: Vec<bool> =
        results.iter().map(|(_, text)| text.contains("of an earlier version")).collect();
    assert_eq!(said, [true, false, false], "{results:?}");
    assert!(results[0].1.contains("kill 4711"), "{results:?}");
    assert!(results[2].1.starts_with("Found 2 memories"), "the built-in one works: {results:?}");
}

#[test]
fn a_missing_model_or_invalid_configuration_gets_a_hint() {
    let bench = Bench::new("g3");
    for (config, says) in [
        ("embedder = \"local\"", "the local model `qwen2.5-coder-1.5b` is not on this machine"),
        ("embedder = \"local\"", "g3 model pull qwen2.5-coder-1.5b"),
        ("embedder = \"local\"", "leave `embedder` out"),
        ("embedder = \"local\"\nmodel = \"mine\"", "the local model `mine` is not on this machine"),
        ("embedder = \"local\"\ndimensions = 9", "leave `dimensions` out"),
        ("embedder = \"local\"\nembeddings_provider = \"openai.x\"", "embedder = \"server\""),
        ("embedder = \"built-in\"\nembeddings_provider = \"openai.x\"", "is not `server`"),
        ("embedder = \"server\"", "set `embeddings_endpoint`"),
    ] {
        bench.env.config(&format!("[memory]\n{config}\n"));
        let set = bench.call("memory_set", json!({"key": "k", "value": "a value"}));
        set.says("Memory stored").says(says).works();
    }
    let found = bench.call("memory_search", json!({"query": "value"}));
    assert!(found.works().contains("[k] 0.300"), "{found:?}");
    bench.env.config("[memory]\nembedder = \"locale\"\n");
    let args = ["tool", "exec", "--name", "memory_get", "--args", "{\"key\":\"k\"}"];
    let ran = bench.env.run(G3, &bench.dir, args);
    ran.exits(2).output_contains("memory.embedder").output_contains("local");
}

#[test]
fn a_memory_is_stored_without_a_vector_if_the_host_fails() {
    let bench = Bench::new("g3");
    bench.env.config(LOCAL);
    let embedder = || EmbedderId { name: "m".into(), dimension: 2 };
    let wrong = |embedder: EmbedderId, vector: Vec<f32>| {
        HostResponse::Vectors(Vectors { embedder, vectors: vec![vector] })
    };
    let fault = HostFault::new(HostFaultKind::Broken, "llama.cpp cannot read a text");
    let other = EmbedderId { name: "n".into(), dimension: 2 };
    for (says, told) in [
        (HostResponse::Error(fault), "llama.cpp cannot read a text"),
        (wrong(embedder(), vec![1.0]), "cannot be used"),
        (wrong(other, vec![1.0, 0.0]), "was restarted"),
        (HostResponse::Text { text: "what?".into() }, "another kind of message"),
    ] {
        let host = Host { says: Some(says), ..Host::named("m", 2) };
        let said = call(&bench, &host, "memory_set", json!({"key": "k", "value": "a pet"}));
        assert!(said.starts_with("Memory stored: k") && said.contains(told), "{said}");
    }
    let host = Host::named("m", 2);
    let found = call(&bench, &host, "memory_search", json!({"query": "cat"}));
    assert!(found.contains("[k] 0.700"), "it got its vector: {found}");
}
