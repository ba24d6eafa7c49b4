//! Mean centering: the mean and deviation of all states, which are removed from the state of a
//! text.
//!
//! A generative model maps all texts close together, because a few dimensions are large for every
//! text. The mean over plain sentences is subtracted, and each dimension is scaled by its deviation
//! among them. Both are stored on disk, since reading the sentences takes seconds.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Plain sentences on many topics, in the style of memories. Changing them changes every vector.
const SENTENCES: [&str; 12] = [
    "The meeting was moved to Thursday because the room is taken.",
    "Run the tests before you push, and read what they say.",
    "She lives in a small town by the sea and works as a teacher.",
    "The function returns an error when the file cannot be opened.",
    "Prefer short sentences and plain words in the documentation.",
    "The train was late, so we took a taxi to the airport.",
    "The server listens on a local port and answers requests in JSON.",
    "He likes coffee in the morning and tea in the afternoon.",
    "Which version of the library does the project use?",
    "The price went up last year and has been stable since.",
    "Two values are compared by their hash, not by their name.",
    "The garden needs water in summer; the roses bloom in June.",
];

/// Added to every deviation, as a fraction of the average one: a dimension with a small deviation
/// carries little information.
const SWING_FLOOR: f32 = 0.3;

/// The mean state, once all sentences have been read.
#[derive(Debug)]
pub(crate) enum MeanState {
    /// The states of the first sentences.
    Reading(Vec<Vec<f32>>),
    /// All sentences have been read.
    Known(Mean),
}

/// The mean and deviation of states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mean {
    /// The mean.
    mean: Vec<f32>,
    /// The deviation of each dimension.
    swing: Vec<f32>,
}

impl Default for MeanState {
    fn default() -> MeanState {
        MeanState::Reading(Vec::new())
    }
}

impl MeanState {
    /// Loads the values that an earlier host stored in this file, if they are valid; otherwise the
    /// sentences are read.
    pub(crate) fn load(path: &Path, dimension: u32) -> MeanState {
        let bytes = std::fs::read(path).ok();
        let mean = bytes.and_then(|bytes| serde_json::from_slice::<Mean>(&bytes).ok());
        let is_valid = |common: &Mean| {
            let length = dimension as usize;
            let has_swing = common.swing.iter().all(|swing| *swing > 0.0);
            common.mean.len() == length && common.swing.len() == length && has_swing
        };
        mean.filter(is_valid).map_or_else(MeanState::default, MeanState::Known)
    }

    /// Returns the next sentence to read.
    pub(crate) fn wants(&self) -> Option<&'static str> {
        match self {
            MeanState::Reading(states) => SENTENCES.get(states.len()).copied(),
            MeanState::Known(_) => None,
        }
    }

    /// Adds the state of the requested sentence. After the last one, the result is stored in a
    /// file.
    pub(crate) fn take(&mut self, state: Vec<f32>, path: &Path) {
        let MeanState::Reading(states) = self else { return };
        states.push(unit(state));
        if states.len() == SENTENCES.len() {
            let common = common(states);
            // If it cannot be stored, it is computed again next time.
            let _ = base::files::replace_json(path, &common);
            *self = MeanState::Known(common);
        }
    }

    /// Returns the vector of a text from its state, scaled to length 1. Before the mean is known,
    /// it is the state itself.
    pub(crate) fn vector(&self, state: &[f32]) -> Vec<f32> {
        let state = unit(state.to_vec());
        match self {
            MeanState::Reading(_) => state,
            MeanState::Known(Mean { mean, swing }) => {
                let parts = state.iter().zip(mean).zip(swing);
                unit(parts.map(|((x, mean), swing)| (x - mean) / swing).collect())
            }
        }
    }
}

fn common(states: &[Vec<f32>]) -> Mean {
    let count = states.len() as f32;
    let length = states.iter().map(Vec::len).min().unwrap_or(0);
    let average =
        |value_of: &dyn Fn(&[f32]) -> f32| states.iter().map(|s| value_of(s)).sum::<f32>() / count;
    let mean: Vec<f32> = (0..length).map(|index| average(&|state| state[index])).collect();
    let swing = |index: usize| average(&|state| (state[index] - mean[index]).powi(2)).sqrt();
    let swing: Vec<f32> = (0..length).map(swing).collect();
    let floor =
        (SWING_FLOOR * swing.iter().sum::<f32>() / length.max(1) as f32).max(f32::MIN_POSITIVE);
    Mean { mean, swing: swing.into_iter().map(|swing| swing + floor).collect() }
}

/// Scales a vector to length 1. A zero vector is unchanged.
fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() as f32;
    if length > 0.0 && length.is_finite() {
        vector.iter_mut().for_each(|x| *x /= length);
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn the_common_component_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("usual.json");
        let mut usual = MeanState::load(&path, 4);
        let mut sign = 1.0;
        let mut read = 0;
        while let Some(sentence) = usual.wants() {
            assert_eq!(sentence, SENTENCES[read]);
            sign = -sign;
            usual.take(vec![10.0, sign, 0.1 * sign, 0.0], &path);
            read += 1;
        }
        assert_eq!(read, SENTENCES.len());
        let (a, b) = ([10.0, 1.0, 0.0, 0.0], [10.0, -1.0, 0.0, 0.0]);
        assert!(cosine(&unit(a.to_vec()), &unit(b.to_vec())) > 0.9);
        let again = MeanState::load(&path, 4);
        assert!(again.wants().is_none() && again.vector(&a) == usual.vector(&a));
        assert!(MeanState::load(&path, 5).wants().is_some(), "of another length");
        std::fs::write(&path, "{\"mean\":[0,0,0,0],\"swing\":[1,1,0,1]}").unwrap();
        assert!(MeanState::load(&path, 4).wants().is_some(), "divides by zero");
        let (a, b) = (usual.vector(&a), usual.vector(&b));
        assert!(cosine(&a, &b) < -0.9, "{a:?} {b:?}");
        assert!((cosine(&a, &a) - 1.0).abs() < 1e-6);
        assert!(usual.vector(&[10.0, 1.0, 0.0, 5.0]).iter().all(|x| x.is_finite()));
    }
}
