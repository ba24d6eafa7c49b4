//! Embeddings: vectors of texts that are close for similar texts.

use futures_util::future::BoxFuture;

/// Computes vectors of texts.
pub trait Embedder: Send + Sync {
    /// Returns an identifier of its vectors; vectors of different embedders cannot be compared.
    fn name(&self) -> &str;

    /// Returns a vector of length 1 for each text. The error is a sentence.
    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, String>>;

    /// Returns the minimum cosine of similar texts.
    fn min_similarity(&self) -> f32;
}

/// The built-in embedder: hashes words and their trigrams into a few hundred signed dimensions. It
/// compares spelling, not meaning: `editor` is close to `editors` and far from `vim`.
#[derive(Debug)]
pub(crate) struct HashEmbedder {
    name: String,
    dimensions: usize,
}

/// Default number of dimensions.
const DIMENSIONS: u32 = 512;

impl HashEmbedder {
    /// Creates an embedder with vectors of this many dimensions.
    pub(crate) fn new(dimensions: Option<u32>) -> HashEmbedder {
        let dimensions = dimensions.unwrap_or(DIMENSIONS).clamp(64, 4_096) as usize;
        HashEmbedder { name: format!("hashed-1-{dimensions}"), dimensions }
    }

    /// Returns the vector of a text.
    fn vector(&self, text: &str) -> Vec<f32> {
        let mut sums = vec![0f32; self.dimensions];
        let mut add = |feature: &str, weight: f32| {
            let hash = fnv(feature.as_bytes());
            let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
            sums[(hash % self.dimensions as u64) as usize] += sign * weight;
        };
        let lower = text.to_lowercase();
        for word in lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            if STOP_WORDS.contains(&word) {
                continue;
            }
            add(word, 2.0);
            let padded: Vec<char> = format!("<{word}>").chars().collect();
            let parts = padded.windows(3).map(|part| part.iter().collect::<String>());
            parts.for_each(|part| add(&part, 1.0));
        }
        // Ten occurrences of a word do not count ten times as much.
        sums.iter_mut().for_each(|sum| *sum = sum.signum() * sum.abs().sqrt());
        normalize(sums)
    }
}

impl Embedder for HashEmbedder {
    fn name(&self) -> &str {
        &self.name
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Vec<Vec<f32>>, String>> {
        Box::pin(async { Ok(texts.iter().map(|text| self.vector(text)).collect()) })
    }

    fn min_similarity(&self) -> f32 {
        0.25
    }
}

/// English stop words.
pub(crate) const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "do", "does", "for", "from", "has", "have",
    "how", "i", "in", "is", "it", "my", "of", "on", "or", "s", "that", "the", "this", "to", "was",
    "what", "when", "where", "which", "who", "with",
];

fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    // The low bits alone are poorly mixed.
    hash ^ (hash >> 29)
}

/// Scales a vector to length 1. A zero vector is unchanged.
pub(crate) fn normalize(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 && length.is_finite() {
        vector.iter_mut().for_each(|value| *value /= length);
    }
    vector
}

/// Returns the cosine of two vectors of length 1; 0 if they cannot be compared.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_spellings_are_close_and_other_words_are_far() {
        let hashed = HashEmbedder::new(None);
        let near = |a: &str, b: &str| cosine(&hashed.vector(a), &hashed.vector(b));
        assert!((near("the same words", "the same words") - 1.0).abs() < 1e-5);
        assert!(near("preferred editors", "the preferred editor is vim") > hashed.min_similarity());
        assert!(near("database migrations", "the cat sleeps all day") < hashed.min_similarity());
        assert!(near("größe der datei", "dateigröße") > near("größe der datei", "wetter"));
        assert_eq!(near("", "x"), 0.0);
        assert_eq!(hashed.vector("stable"), HashEmbedder::new(None).vector("stable"));
        assert_eq!(cosine(&[1.0], &[1.0, 0.0]), 0.0);
    }
}
