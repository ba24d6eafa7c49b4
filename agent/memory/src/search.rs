//! Searches the memories by words and by vectors.
//!
//! A memory's score is 0.3 times its rank by words (1 for the first, decreasing in equal steps)
//! plus 0.7 times the cosine of its vector and the query's. Memories found by neither are not
//! returned.

use std::collections::BTreeMap;

use super::Memory;
use super::embed::{Embedder, STOP_WORDS, cosine};
use super::store::{Memo, MemoryStore};

const WORD_WEIGHT: f64 = 0.3;
const VECTOR_WEIGHT: f64 = 0.7;

/// Number of memories that get a new vector at once after the embedder changed.
const BATCH_SIZE: usize = 64;
/// Maximum number of such batches per search.
const MAX_BATCHES: usize = 8;
/// Maximum number of words of a query.
const MAX_WORDS: usize = 64;

/// A search result.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryHit {
    /// The memory.
    pub memory: Memo,
    /// The score, from 0 to 1.
    pub score: f64,
}

/// The results of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemorySearchResult {
    /// The memories, best first, then by key.
    pub hits: Vec<MemoryHit>,
    /// What failed.
    pub notes: Vec<String>,
}

/// Returns the text from which a memory's vector is computed.
pub fn text_of(key: &str, value: &str) -> String {
    format!("{}\n{value}", key.replace(['_', '-', '/', ':', '.'], " "))
}

/// Returns the words of a query. Stop words are used only if there are no others.
fn words(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let all: Vec<String> = words.take(MAX_WORDS).map(str::to_owned).collect();
    let is_significant = |word: &&String| !STOP_WORDS.contains(&word.to_lowercase().as_str());
    let significant: Vec<String> = all.iter().filter(is_significant).cloned().collect();
    if significant.is_empty() { all } else { significant }
}

impl Memory {
    /// Searches for memories. The error is a sentence.
    pub async fn search(&self, query: &str, limit: usize) -> Result<MemorySearchResult, String> {
        let mut notes = Vec::new();
        let mut query_vector = None;
        match self.embedder(&mut notes).await {
            Ok(embedder) => match self.vectors(embedder.as_ref(), query, &mut notes).await? {
                Ok(vector) => {
                    query_vector =
                        Some((embedder.name().to_owned(), vector, embedder.min_similarity()))
                }
                Err(error) => notes.push(format!("searched by words only: {error}")),
            },
            Err(error) => notes.push(format!("searched by words only: {error}")),
        }
        let words = words(query);
        let max_hits = limit.saturating_mul(2);
        let (hits, notice) = self
            .with_store(move |store| {
                let by_words = store.by_words(&words, max_hits)?;
                let by_vector = match &query_vector {
                    Some((name, vector, min_similarity)) => {
                        nearest(store, name, vector, *min_similarity, max_hits)?
                    }
                    None => Vec::new(),
                };
                let ranked = merge_rankings(&by_words, &by_vector, limit);
                ranked
                    .into_iter()
                    .map(|(key, score)| {
                        Ok(store.get(&key)?.map(|memory| MemoryHit { memory, score }))
                    })
                    .collect::<rusqlite::Result<Vec<_>>>()
            })
            .await?;
        notes.extend(notice);
        Ok(MemorySearchResult { hits: hits.into_iter().flatten().collect(), notes })
    }

    /// Returns the vector of a query, after updating the vectors of memories from another embedder.
    async fn vectors(
        &self,
        embedder: &dyn Embedder,
        query: &str,
        notes: &mut Vec<String>,
    ) -> Result<Result<Vec<f32>, String>, String> {
        for _ in 0..MAX_BATCHES {
            let name = embedder.name().to_owned();
            let (stale, notice) =
                self.with_store(move |store| store.stale(&name, BATCH_SIZE)).await?;
            notes.extend(notice);
            if stale.is_empty() {
                break;
            }
            let texts: Vec<String> = stale.iter().map(|(key, value)| text_of(key, value)).collect();
            let vectors = match embedder.embed(&texts).await {
                Ok(vectors) => vectors,
                Err(error) => return Ok(Err(error)),
            };
            let name = embedder.name().to_owned();
            let store = move |store: &mut MemoryStore| {
                let mut pairs = stale.iter().zip(&vectors);
                pairs.try_for_each(|(memory, vector)| store.set_vector(memory, &name, vector))
            };
            self.with_store(store).await?;
        }
        let vectors = embedder.embed(&[query.to_owned()]).await;
        Ok(vectors.map(|vectors| vectors.into_iter().next().unwrap_or_default()))
    }
}

/// Returns the memories closest to a vector, closest first.
fn nearest(
    store: &MemoryStore,
    embedder: &str,
    vector: &[f32],
    min_similarity: f32,
    max_hits: usize,
) -> rusqlite::Result<Vec<(String, f64)>> {
    let all = store.vectors(embedder)?.into_iter();
    let candidates = all.map(|(key, other)| (key, cosine(vector, &other)));
    let mut candidates: Vec<(String, f64)> = candidates
        .filter(|(_, similarity)| *similarity >= min_similarity)
        .map(|(key, similarity)| (key, f64::from(similarity)))
        .collect();
    candidates.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    candidates.truncate(max_hits);
    Ok(candidates)
}

/// Merges both rankings.
fn merge_rankings(
    by_words: &[String],
    by_vector: &[(String, f64)],
    limit: usize,
) -> Vec<(String, f64)> {
    let mut scores: BTreeMap<&str, f64> = BTreeMap::new();
    let count = by_words.len() as f64;
    for (rank, key) in by_words.iter().enumerate() {
        *scores.entry(key).or_default() += WORD_WEIGHT * (1.0 - rank as f64 / count);
    }
    for (key, similarity) in by_vector {
        *scores.entry(key).or_default() += VECTOR_WEIGHT * similarity.min(1.0);
    }
    let mut all: Vec<(String, f64)> =
        scores.into_iter().map(|(key, score)| (key.to_owned(), score)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(limit);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_is_the_weighted_sum_and_ties_are_sorted_by_key() {
        let words = ["b".to_owned(), "a".to_owned()];
        let vectors = [("c".to_owned(), 0.5), ("a".to_owned(), 0.5)];
        let all = merge_rankings(&words, &vectors, 10);
        let expected = [("a", 0.15 + 0.35), ("c", 0.35), ("b", 0.3)];
        for ((key, score), (name, wanted)) in all.iter().zip(expected) {
            assert!(key == name && (score - wanted).abs() < 1e-9, "{all:?}");
        }
        assert_eq!(merge_rankings(&words, &vectors, 1).len(), 1);
        let equal = merge_rankings(&[], &[("y".into(), 0.5), ("x".into(), 0.5)], 9);
        assert_eq!(equal[0].0, "x");
    }

    #[test]
    fn queries_are_split_into_words() {
        assert_eq!(words("user's \"x\" AND C++ -foo* größe"), ["user", "x", "C", "foo", "größe"]);
        assert_eq!(words("To be"), ["To", "be"]);
    }
}
