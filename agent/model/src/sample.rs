//! Samples the next token: greedily or at random, and within the grammar if there is one.

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;

/// Number of likeliest tokens considered for random sampling.
const TOP_K: usize = 40;
/// Number of likeliest tokens checked against the grammar before the whole vocabulary.
const CANDIDATES: usize = 64;

/// Samples the tokens of one reply.
pub(crate) struct Sampler {
    grammar: Option<LlamaSampler>,
    temperature: f32,
    random: Random,
    /// Number of times that the grammar was applied to the whole vocabulary.
    pub filtered: u64,
}

impl Sampler {
    /// Creates a sampler without a grammar. Temperature 0 selects the likeliest token.
    pub(crate) fn new(temperature: f32, seed: u64) -> Sampler {
        Sampler { grammar: None, temperature, random: Random(seed | 1), filtered: 0 }
    }

    /// Restricts tokens to what the grammar allows after the text in `call_text`.
    pub(crate) fn constrain(
        &mut self,
        model: &LlamaModel,
        grammar: &str,
        call_text: &[LlamaToken],
    ) -> Result<(), String> {
        let mut grammar =
            LlamaSampler::grammar(model, grammar, "root").map_err(|e| e.to_string())?;
        for token in call_text {
            if !allows(&mut grammar, *token) {
                return Err("it began otherwise".into());
            }
            grammar.accept(*token);
        }
        self.grammar = Some(grammar);
        Ok(())
    }

    /// Removes the restriction.
    pub(crate) fn release(&mut self) {
        self.grammar = None;
    }

    /// Returns the next token. The sampled token is checked against the grammar first, since it is
    /// nearly always allowed and checking all tokens costs as much as the model itself.
    pub(crate) fn pick(&mut self, logits: &[f32]) -> LlamaToken {
        let first = self.choose(logits);
        let is_refused = self.grammar.as_mut().is_some_and(|grammar| !allows(grammar, first));
        let token = if is_refused { self.pick_allowed(logits) } else { first };
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token);
        }
        token
    }

    fn choose(&mut self, logits: &[f32]) -> LlamaToken {
        if self.temperature <= 0.0 {
            return likeliest(logits);
        }
        self.by_chance(&nearest(logits, TOP_K))
    }

    fn pick_allowed(&mut self, logits: &[f32]) -> LlamaToken {
        for count in [CANDIDATES, logits.len()] {
            let mut candidates = nearest(logits, count);
            if count > CANDIDATES {
                self.filtered += 1;
            }
            if let Some(grammar) = &mut self.grammar {
                candidates = allowed(grammar, &candidates);
            }
            if self.temperature > 0.0 && !candidates.is_empty() {
                candidates.truncate(TOP_K);
                return self.by_chance(&candidates);
            }
            if let Some(best) = candidates.first() {
                return best.id();
            }
        }
        // A grammar that allows nothing has ended; the likeliest token is as good as any. llama.cpp
        // aborts the process if a grammar accepts what it does not allow.
        self.release();
        likeliest(logits)
    }

    /// Returns one of these at random, weighted by probability.
    fn by_chance(&mut self, candidates: &[LlamaTokenData]) -> LlamaToken {
        let best = candidates.first().map_or(0.0, LlamaTokenData::logit);
        let weight = |data: &LlamaTokenData| ((data.logit() - best) / self.temperature).exp();
        let total: f32 = candidates.iter().map(weight).sum();
        let mut threshold = self.random.next() * total;
        for data in candidates {
            threshold -= weight(data);
            if threshold <= 0.0 {
                return data.id();
            }
        }
        candidates.first().map_or(LlamaToken(0), LlamaTokenData::id)
    }
}

fn allows(grammar: &mut LlamaSampler, token: LlamaToken) -> bool {
    !allowed(grammar, &[LlamaTokenData::new(token, 1.0, 0.0)]).is_empty()
}

/// Returns the candidates that the grammar allows, in order.
fn allowed(grammar: &mut LlamaSampler, candidates: &[LlamaTokenData]) -> Vec<LlamaTokenData> {
    let mut array = LlamaTokenDataArray::new(candidates.to_vec(), false);
    // Applying a grammar does not change its state; only `accept` does.
    array.apply_sampler(grammar);
    array.data.into_iter().filter(|data| data.logit() > f32::NEG_INFINITY).collect()
}

fn likeliest(logits: &[f32]) -> LlamaToken {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, logit) in (0i32..).zip(logits) {
        if *logit > best.1 {
            best = (id, *logit);
        }
    }
    LlamaToken(best.0)
}

/// Returns the `count` likeliest tokens, likeliest first.
fn nearest(logits: &[f32], count: usize) -> Vec<LlamaTokenData> {
    let mut ids: Vec<i32> = (0i32..).take(logits.len()).collect();
    let logit = |id: &i32| logits[usize::try_from(*id).unwrap_or(0)];
    let order = |a: &i32, b: &i32| logit(b).total_cmp(&logit(a));
    if count < ids.len() {
        ids.select_nth_unstable_by(count, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
    ids.iter().map(|id| LlamaTokenData::new(LlamaToken(*id), logit(id), 0.0)).collect()
}

/// xorshift64*: good enough to sample tokens, and deterministic on all platforms.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40;
        bits as f32 / (1u32 << 24) as f32
    }
}
