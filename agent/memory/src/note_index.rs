//! Indexes the notes of a workspace as user memories, one per topic, so that searches in other
//! workspaces find them. Synchronized with the file after each `remember`.

use std::collections::BTreeMap;
use std::path::Path;

use base::clock::Clock;
use base::user_dirs::name_for_path;

use super::Memory;
use super::notes::{parts, topics};
use super::search::text_of;
use super::store::{MemoryStore, NewMemory};

/// The memory category of notes.
const CATEGORY: &str = "project";

/// Maximum number of characters of a key.
pub const MAX_KEY: usize = 200;

/// The keys of a workspace's notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteNames {
    /// The prefix of every key: `workspace/NAME/`, with a name that is unique among workspaces.
    prefix: String,
    /// The prefix of keys in the old format, which contains only the last component of the path.
    old_prefix: String,
}

impl NoteNames {
    /// Returns the keys for a workspace: its root, or the notes file that the user named.
    pub fn new(workspace: &Path) -> NoteNames {
        let last = workspace.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let prefix_for = |name: &str| format!("workspace/{name}/");
        NoteNames { prefix: prefix_for(&name_for_path(workspace)), old_prefix: prefix_for(&last) }
    }

    /// Returns the key of a topic.
    fn key(&self, topic: &str) -> String {
        let max_chars = MAX_KEY.saturating_sub(self.prefix.chars().count());
        format!("{}{}", self.prefix, topic.chars().take(max_chars).collect::<String>())
    }

    /// Returns the current key for one in the old format.
    pub fn current_key(&self, key: &str) -> Option<String> {
        Some(self.key(key.strip_prefix(&self.old_prefix)?))
    }
}

impl Memory {
    /// Synchronizes the memories of a workspace with its notes. The `changed_topics` get their
    /// vectors immediately, others when they are searched. Returns what failed.
    pub async fn index(
        &self,
        names: &NoteNames,
        text: &str,
        changed_topics: &[String],
    ) -> Result<Vec<String>, String> {
        let mut expected: BTreeMap<String, String> = BTreeMap::new();
        for (topic, value) in topics(text) {
            expected.entry(names.key(&topic)).or_default().push_str(&value);
        }
        let changed_topics: Vec<String> =
            changed_topics.iter().map(|topic| names.key(topic)).collect();
        let changed_entries: Vec<(String, String)> = expected
            .iter()
            .filter(|(key, _)| changed_topics.contains(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let (vectors, mut notes) = self.vectors_of(&changed_entries).await;
        for (key, value) in &changed_entries {
            self.log("SET", key, value);
        }
        let names = names.clone();
        let now = Clock::from_env().stamp();
        let (_, notice) = self
            .with_store(move |store| {
                store.replace_all(&names.prefix, CATEGORY, |stored| {
                    let changed =
                        expected.iter().filter(|(key, value)| stored.get(*key) != Some(value));
                    let new = |(key, value): (&String, &String)| NewMemory {
                        key: key.clone(),
                        value: value.clone(),
                        category: CATEGORY,
                        image: None,
                        vector: vectors.get(key).cloned(),
                        now: now.clone(),
                    };
                    let removed = stored.keys().filter(|key| !expected.contains_key(*key));
                    (changed.map(new).collect(), removed.cloned().collect())
                })?;
                remove_old(store, &names, &expected)
            })
            .await?;
        notes.extend(notice);
        Ok(notes)
    }

    /// Returns vectors by key, each with the name of its embedder.
    async fn vectors_of(
        &self,
        changed_entries: &[(String, String)],
    ) -> (BTreeMap<String, (String, Vec<f32>)>, Vec<String>) {
        let mut notes = Vec::new();
        let texts: Vec<String> =
            changed_entries.iter().map(|(key, value)| text_of(key, value)).collect();
        let result = match self.embedder(&mut notes).await {
            Ok(_) if texts.is_empty() => return (BTreeMap::new(), notes),
            Ok(embedder) => {
                let with_name = |vector| (embedder.name().to_owned(), vector);
                let result = embedder.embed(&texts).await;
                result.map(|vectors| vectors.into_iter().map(with_name).collect::<Vec<_>>())
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(vectors) => {
                let keys = changed_entries.iter().map(|(key, _)| key.clone());
                (keys.zip(vectors).collect(), notes)
            }
            Err(error) => {
                notes.push(format!("found by its words only: {error}"));
                (BTreeMap::new(), notes)
            }
        }
    }
}

/// Deletes memories with old keys whose notes are all in this workspace. Other old keys belong to
/// another workspace with the same directory name and are kept.
fn remove_old(
    store: &mut MemoryStore,
    names: &NoteNames,
    expected: &BTreeMap<String, String>,
) -> rusqlite::Result<()> {
    let own_entries: Vec<parts::NoteEntry> =
        expected.values().flat_map(|value| parts::entries(value)).collect();
    store.replace_all(&names.old_prefix, CATEGORY, |stored| {
        let is_ours = |value: &str| {
            parts::entries(value)
                .iter()
                .all(|entry| own_entries.iter().any(|own_entry| own_entry.is_same(entry)))
        };
        let removed = stored.iter().filter(|(_, value)| is_ours(value)).map(|(key, _)| key.clone());
        (Vec::new(), removed.collect())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::notes::merge;

    fn at_home(dir: &Path) -> Memory {
        Memory { home: Some(dir.to_owned()), ..Memory::default() }
    }

    fn stored(memory: &Memory, prefix: &str) -> BTreeMap<String, String> {
        let prefix = prefix.to_owned();
        let all = memory.with_store(move |store| store.with_prefix(&prefix, CATEGORY));
        runtime().block_on(all).unwrap().0
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    fn index(memory: &Memory, root: &str, text: &str) -> BTreeMap<String, String> {
        let names = NoteNames::new(Path::new(root));
        runtime().block_on(memory.index(&names, text, &[])).unwrap();
        let prefix = names.prefix.clone();
        let all = stored(memory, &prefix);
        all.into_iter().map(|(key, value)| (key[prefix.len()..].to_owned(), value)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_index_matches_the_file_after_any_sequence_of_notes(
            by_hand in "((#{1,3} [abc]|- [abc]|  [xy]|[abc ]{0,4})\n){0,8}",
            calls in prop::collection::vec("((#{1,3} [abc]|- [abc]{1,2}|[abc ]{0,4})\n){1,5}", 1..5),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let memory = at_home(dir.path());
            let mut text = by_hand;
            for notes in calls {
                text = merge(&text, &notes, "now").text;
                let mut expected: BTreeMap<String, String> = BTreeMap::new();
                for (topic, value) in topics(&text) {
                    expected.entry(topic).or_default().push_str(&value);
                }
                let all = index(&memory, "/a/proj", &text);
                prop_assert_eq!(&all, &expected, "{}", text);
                let said = |line: &&str| !line.starts_with(['#', '>']) && !line.trim().is_empty();
                for line in text.lines().filter(said) {
                    let found = all.values().any(|value| value.contains(line.trim()));
                    prop_assert!(found, "{:?} is in no memory\n{}", line, text);
                }
            }
        }
    }

    #[test]
    fn workspaces_with_the_same_directory_name_are_separate() {
        let dir = tempfile::tempdir().unwrap();
        let memory = at_home(dir.path());
        index(&memory, "/a/proj", "### Build\n- make\n");
        let b = index(&memory, "/b/proj", "### Build\n- bazel\n");
        assert_eq!(b["Build"], "- bazel\n");
        assert_eq!(stored(&memory, "workspace/").len(), 2);
    }

    #[test]
    fn old_keys_of_this_workspace_are_replaced_and_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let memory = at_home(dir.path());
        let old = |topic: &str, value: &str| NewMemory {
            key: format!("workspace/proj/{topic}"),
            value: value.to_owned(),
            category: CATEGORY,
            image: None,
            vector: None,
            now: "2026-01-02T10:00:00Z".to_owned(),
        };
        let all = [old("Build", "- make\n"), old("Test", "- elsewhere\n")];
        let put =
            memory.with_store(move |store| all.iter().try_for_each(|new| store.set(new).map(drop)));
        runtime().block_on(put).unwrap();
        index(&memory, "/a/proj", "### Build\n- clean\n- make\n");
        let left = stored(&memory, "workspace/proj/");
        assert_eq!(left.into_keys().collect::<Vec<_>>(), ["workspace/proj/Test"]);
        let names = NoteNames::new(Path::new("/a/proj"));
        assert_eq!(names.current_key("workspace/proj/Build"), Some(names.key("Build")));
        assert_eq!(names.current_key("workspace/other/Build"), None);
    }
}
