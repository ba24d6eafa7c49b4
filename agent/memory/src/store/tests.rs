//! Tests of the file: contents, permissions and corruption.

use super::*;

fn new(key: &str, value: &str) -> NewMemory {
    let vector = Some(("e".to_owned(), vec![0.5, -1.0]));
    let (key, value) = (key.to_owned(), value.to_owned());
    NewMemory {
        key,
        value,
        category: "general",
        image: None,
        vector,
        now: "2026-01-02T10:00:00Z".to_owned(),
    }
}

#[test]
fn a_replaced_memory_keeps_its_creation_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = MemoryStore::open(dir.path()).unwrap();
    assert!(store.set(&new("a/b c", "die größe ist rot")).unwrap());
    let later = NewMemory { now: "2026-01-03T10:00:00Z".to_owned(), ..new("a/b c", "blue") };
    assert!(!store.set(&later).unwrap());
    let memo = store.get("a/b c").unwrap().unwrap();
    assert_eq!((memo.value.as_str(), &memo.created_at[..10]), ("blue", "2026-01-02"));
    assert_eq!(&memo.updated_at[..10], "2026-01-03");
    assert_eq!(store.get("a/b").unwrap(), None);
    let found = |word: &str| store.by_words(&[word.to_owned()], 9).unwrap().len();
    assert_eq!((found("grosse"), found("rot"), found("blue")), (0, 0, 1), "the index follows");
    assert_eq!(store.vectors("e").unwrap(), [("a/b c".to_owned(), vec![0.5, -1.0])]);
    assert_eq!(store.stale("e", 9).unwrap(), []);
    assert_eq!(store.stale("other", 9).unwrap().len(), 1);
}

#[test]
fn other_processes_see_changes_and_other_users_have_no_access() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("g3");
    let mut one = MemoryStore::open(&home).unwrap();
    let two = MemoryStore::open(&home).unwrap();
    one.set(&new("k", "v")).unwrap();
    assert_eq!(two.get("k").unwrap().unwrap().value, "v");
    for file in fs::read_dir(&home).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}

#[test]
fn concurrent_writers_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    MemoryStore::open(dir.path()).unwrap();
    let write = |n: usize| {
        let dir = dir.path().to_owned();
        std::thread::spawn(move || {
            let mut store = MemoryStore::open(&dir).unwrap();
            for m in 0..10 {
                store.set(&new(&format!("{n}/{m}"), "v")).unwrap();
            }
        })
    };
    let all: Vec<_> = (0..6).map(write).collect();
    all.into_iter().for_each(|one| one.join().unwrap());
    let store = MemoryStore::open(dir.path()).unwrap();
    assert_eq!(store.vectors("e").unwrap().len(), 60);
}

#[test]
fn only_a_corrupt_file_is_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::fixed("2026-01-02T10:00:00Z".parse().unwrap());
    let mut store = MemoryStore::open(dir.path()).unwrap();
    store.set(&new("k", "v")).unwrap();
    assert_eq!(rename_corrupt(dir.path(), &clock).unwrap(), None, "there is nothing wrong with it");
    drop(store);
    fs::write(dir.path().join(FILE_NAME), "no database, but something that a person may want")
        .unwrap();
    let why = MemoryStore::open(dir.path()).unwrap_err();
    assert!(is_corrupt(&why), "{why}");
    let notice = rename_corrupt(dir.path(), &clock).unwrap().unwrap();
    let kept = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
    let kept: Vec<_> = kept.filter(|p| p.to_string_lossy().contains("broken")).collect();
    assert!(notice.contains(&*kept[0].to_string_lossy()), "{notice}");
    assert!(fs::read_to_string(&kept[0]).unwrap().contains("a person may want"));
    assert!(MemoryStore::open(dir.path()).unwrap().get("k").unwrap().is_none());
}
