//! Tests of eviction and of the files of killed hosts.

use super::*;

#[test]
fn the_oldest_conversations_are_deleted_beyond_the_limit() {
    let spilled = |used_at: u64, length: usize| {
        let tokens = vec![LlamaToken(0); length];
        ((used_at, String::new()), Spilled { path: PathBuf::new(), tokens, used_at })
    };
    let all = HashMap::from([spilled(3, 50), spilled(1, 1), spilled(2, 40), spilled(4, 10)]);
    let forgotten = |bound| -> Vec<u64> {
        surplus(&all, 10, bound).into_iter().map(|(used_at, _)| used_at).collect()
    };
    assert_eq!(forgotten(1010), [0; 0]);
    assert_eq!(forgotten(1009), [1]);
    assert_eq!(forgotten(999), [1, 2]);
    assert_eq!(forgotten(0), [1, 2, 3, 4]);
}

#[test]
fn files_of_killed_hosts_are_removed_and_those_in_use_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let own = std::process::id();
    for pid in [own, i32::MAX.cast_unsigned()] {
        fs::create_dir(dir.path().join(format!("spill-{pid}"))).unwrap();
        fs::write(dir.path().join(format!("spill-{pid}/1-1.kv")), "x").unwrap();
        fs::write(dir.path().join(format!("{PARTIAL_PREFIX}{pid}")), "x").unwrap();
    }
    fs::write(dir.path().join("a.kv"), "x").unwrap();
    remove_left_behind(dir.path());
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [format!("{PARTIAL_PREFIX}{own}"), "a.kv".into(), format!("spill-{own}")]);
}
