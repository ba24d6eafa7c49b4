//! What the states of all texts have in common, and what is left of one without it.
//!
//! A model that was made to write puts all texts close together: a few of its numbers are large
//! whatever a text says. What plain sentences have on average is taken away, and each number is
//! measured by how far it swings among them. Pure.

/// Plain sentences about many things, in the manner of what is remembered. A change of them changes
/// every vector.
pub const SENTENCES: [&str; 12] = [
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

/// Added to every swing, as a part of the average one: a number that hardly swings says little.
const CALM: f32 = 0.3;

/// What the sentences have in common, as soon as all are read.
#[derive(Debug)]
pub enum Usual {
    /// The states of the first sentences.
    Reading(Vec<Vec<f32>>),
    /// All were read.
    Known {
        /// The average.
        mean: Vec<f32>,
        /// How far each number swings.
        swing: Vec<f32>,
    },
}

impl Default for Usual {
    fn default() -> Usual {
        Usual::Reading(Vec::new())
    }
}

impl Usual {
    /// The sentence that is to be read next.
    pub fn wants(&self) -> Option<&'static str> {
        match self {
            Usual::Reading(states) => SENTENCES.get(states.len()).copied(),
            Usual::Known { .. } => None,
        }
    }

    /// Takes the state of the sentence that was wanted.
    pub fn take(&mut self, state: Vec<f32>) {
        let Usual::Reading(states) = self else { return };
        states.push(unit(state));
        if states.len() == SENTENCES.len() {
            *self = known(states);
        }
    }

    /// The vector of a text, from its state: of length 1, the state itself before all is known.
    pub fn vector(&self, state: &[f32]) -> Vec<f32> {
        let state = unit(state.to_vec());
        match self {
            Usual::Reading(_) => state,
            Usual::Known { mean, swing } => {
                let parts = state.iter().zip(mean).zip(swing);
                unit(parts.map(|((x, mean), swing)| (x - mean) / swing).collect())
            }
        }
    }
}

fn known(states: &[Vec<f32>]) -> Usual {
    let count = states.len() as f32;
    let length = states.iter().map(Vec::len).min().unwrap_or(0);
    let average = |of: &dyn Fn(&[f32]) -> f32| states.iter().map(|s| of(s)).sum::<f32>() / count;
    let mean: Vec<f32> = (0..length).map(|at| average(&|state| state[at])).collect();
    let swing = |at: usize| average(&|state| (state[at] - mean[at]).powi(2)).sqrt();
    let swing: Vec<f32> = (0..length).map(swing).collect();
    let calm = (CALM * swing.iter().sum::<f32>() / length.max(1) as f32).max(f32::MIN_POSITIVE);
    Usual::Known { mean, swing: swing.into_iter().map(|swing| swing + calm).collect() }
}

/// The vector with length 1; one without direction stays as it is.
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
    fn what_all_have_in_common_tells_nothing() {
        let mut usual = Usual::default();
        let mut sign = 1.0;
        let mut read = 0;
        while let Some(sentence) = usual.wants() {
            assert_eq!(sentence, SENTENCES[read]);
            sign = -sign;
            usual.take(vec![10.0, sign, 0.1 * sign, 0.0]);
            read += 1;
        }
        assert_eq!(read, SENTENCES.len());
        let (a, b) = ([10.0, 1.0, 0.0, 0.0], [10.0, -1.0, 0.0, 0.0]);
        assert!(cosine(&unit(a.to_vec()), &unit(b.to_vec())) > 0.9);
        let (a, b) = (usual.vector(&a), usual.vector(&b));
        assert!(cosine(&a, &b) < -0.9, "{a:?} {b:?}");
        assert!((cosine(&a, &a) - 1.0).abs() < 1e-6);
        assert!(usual.vector(&[10.0, 1.0, 0.0, 5.0]).iter().all(|x| x.is_finite()));
    }
}
