//! Tests of embeddings: their quality, and that chats are not delayed by them.

use base::model_host::connection::Connection;
use base::model_host::wire::{HostChat, HostFaultKind, HostRequest, HostResponse, Vectors};
use testkit::env::{TestEnv, until};

use crate::{Host, chat, hear};

/// Pairs of sentences with the same meaning in different words.
const PAIRS: [(&str, &str); 8] = [
    (
        "The user prefers dark themes in the editor.",
        "He likes his code window with light text on a black background.",
    ),
    (
        "The build fails when the disk is full.",
        "Compilation breaks if there is no space left on the drive.",
    ),
    ("Call the customer back on Monday morning.", "Phone the client at the start of next week."),
    (
        "The function sorts a list of numbers in place.",
        "This routine orders an array of integers without copying it.",
    ),
    ("The cat sleeps on the warm windowsill.", "A kitten is napping by the sunny window."),
    (
        "Database passwords are rotated every ninety days.",
        "Credentials of the SQL server change once a quarter.",
    ),
    (
        "The train to Berlin leaves at noon.",
        "At twelve o'clock the railway connection departs for the German capital.",
    ),
    ("Unit tests must not use the network.", "No internet access is allowed in automated checks."),
];
/// The minimum cosine of texts that g3 treats as similar.
const FLOOR: f32 = 0.25;

fn embed(connection: &Connection, texts: &[&str]) -> Vectors {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    match connection.ask(HostRequest::Embed { texts }).wait() {
        HostResponse::Vectors(vectors) => vectors,
        other => panic!("{other:?}"),
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn paraphrases_are_close_and_other_texts_are_far() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let texts: Vec<&str> = PAIRS.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let known = host.connection.hello().unwrap().embedder.unwrap();
    let started = std::time::Instant::now();
    let made = embed(&host.connection, &texts);
    println!("{} texts in {:?}", texts.len(), started.elapsed());
    assert_eq!((made.embedder, made.vectors.len()), (known.clone(), 16));
    for vector in &made.vectors {
        assert_eq!(vector.len(), known.dimension as usize);
        assert!((cosine(vector, vector) - 1.0).abs() < 1e-4);
    }
    let near = |a: usize, b: usize| cosine(&made.vectors[2 * a], &made.vectors[2 * b + 1]);
    let same: Vec<f32> = (0..8).map(|at| near(at, at)).collect();
    let others = (0..8).flat_map(|a| (0..8).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let others: Vec<f32> = others.map(|(a, b)| near(a, b)).collect();
    println!("same {same:.2?}\nothers {others:.2?}");
    let mean = |all: &[f32]| all.iter().sum::<f32>() / all.len() as f32;
    assert!(mean(&same) > 0.4 && mean(&others) < 0.15, "{} {}", mean(&same), mean(&others));
    assert!(same.iter().filter(|near| **near >= FLOOR).count() >= 6, "{same:?}");
    assert!(others.iter().filter(|near| **near < FLOOR).count() >= 50, "{others:?}");
    let nearest = |a: usize| (0..8).max_by(|b, c| near(a, *b).total_cmp(&near(a, *c)));
    assert!((0..8).filter(|a| nearest(*a) == Some(*a)).count() >= 7);
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn vectors_do_not_depend_on_other_requests_and_do_not_affect_chats() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let ask = |name: &str| HostChat { max_tokens: 40, ..chat(name, "Count from one to forty.") };
    let wanted = host.hear(ask("alone")).text;
    let long = "One more word about the same thing. ".repeat(10);
    let special = "<|im_start|>system\nonly words<|im_end|>";
    let texts = ["notes about the build", long.as_str(), special, "größe der datei"];
    let alone: Vec<Vec<f32>> =
        texts.iter().map(|text| embed(&host.connection, &[text]).vectors.remove(0)).collect();
    let other = host.connect();
    let (beside, heard) = std::thread::scope(|scope| {
        let vectors = scope.spawn(|| embed(&other, &texts).vectors);
        let heard = hear(&host.connection, ask("beside")).text;
        (vectors.join().unwrap(), heard)
    });
    assert_eq!(heard, wanted, "the chat was changed");
    for (alone, beside) in alone.iter().zip(&beside) {
        assert!(cosine(alone, beside) > 0.9999, "{}", cosine(alone, beside));
    }
    assert!(cosine(&alone[0], &alone[2]) < 0.9);
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_busy_machine_uses_fewer_threads_and_computes_the_same_vectors() {
    let mut env = TestEnv::new();
    let busy = env.home().join("busy");
    env.set("G3_TEST_BUSY", busy.display());
    std::fs::write(&busy, "0").unwrap();
    let host = Host::start_with(&env, &[]);
    let text = "notes about the build";
    let quiet = embed(&host.connection, &[text]).vectors.remove(0);
    std::fs::write(&busy, "999").unwrap();
    let busy = embed(&host.connection, &[text]).vectors.remove(0);
    assert_eq!(host.status().threads, 1);
    assert!(cosine(&quiet, &busy) > 0.999, "{}", cosine(&quiet, &busy));
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn texts_of_disconnected_or_cancelled_clients_are_not_read() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let much =
        || HostRequest::Embed { texts: vec!["word after word after word ".repeat(100); 256] };
    let cancelled = host.connection.ask(much());
    until("it waits", || (host.status().embeds == 1).then_some(()));
    drop(cancelled);
    until("it was cancelled", || (host.status().embeds == 0).then_some(()));
    let other = host.connect();
    let left = other.ask(much());
    until("it waits", || (host.status().embeds == 1).then_some(()));
    drop((other, left));
    until("the host notices", || (host.status().embeds == 0).then_some(()));
    let refused = host.connection.ask(HostRequest::Embed { texts: vec![String::new()] }).wait();
    assert!(matches!(refused, HostResponse::Error(fault) if fault.kind == HostFaultKind::Rejected));
    let unknown = host.connection.ask(HostRequest::Unknown).wait();
    assert!(matches!(unknown, HostResponse::Error(fault) if fault.what.contains("does not know")));
    assert_eq!(embed(&host.connection, &["still here"]).vectors.len(), 1);
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn memory_is_allocated_with_the_first_request_and_long_texts_are_truncated() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let kib = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", host.running.id()));
        let status = status.unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    host.hear(chat("warm", "Say yes."));
    let before = kib();
    let started = std::time::Instant::now();
    let long = "word after word ".repeat(200);
    let made = embed(&host.connection, &[&long]).vectors.remove(0);
    let first = started.elapsed();
    let after = kib();
    println!("{} MiB for vectors; 512 tokens and the sentences: {first:?}", (after - before) >> 10);
    // Text beyond the limit is ignored.
    let longer = embed(&host.connection, &[&format!("{long} And something else.")]);
    assert!(cosine(&longer.vectors[0], &made) > 0.9999);
    assert!(after > before, "nothing was made");
    assert!((after - before) >> 10 < 200, "{} KiB", after - before);
}
