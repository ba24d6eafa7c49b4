//! Chooses the next token: the likeliest, or by chance, and within the grammar where there is one.

use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::sampling::LlamaSampler;
use llama_cpp_2::token::LlamaToken;
use llama_cpp_2::token::data::LlamaTokenData;
use llama_cpp_2::token::data_array::LlamaTokenDataArray;

/// By chance, only so many of the likeliest tokens are looked at.
const TOP: usize = 40;
/// When the first choice is refused, the grammar looks at so many tokens before it looks at all.
const NEAR: usize = 64;

/// Chooses tokens for one reply.
pub(crate) struct Sampler {
    grammar: Option<LlamaSampler>,
    temperature: f32,
    random: Random,
    /// How often the grammar had to look at the whole vocabulary.
    pub filtered: u64,
}

impl Sampler {
    /// A sampler without a grammar; temperature 0 takes the likeliest token.
    pub(crate) fn new(temperature: f32, seed: u64) -> Sampler {
        Sampler { grammar: None, temperature, random: Random(seed | 1), filtered: 0 }
    }

    /// From now on only what the grammar allows after what has `begun`.
    pub(crate) fn constrain(
        &mut self,
        model: &LlamaModel,
        grammar: &str,
        begun: &[LlamaToken],
    ) -> Result<(), String> {
        let mut grammar =
            LlamaSampler::grammar(model, grammar, "root").map_err(|e| e.to_string())?;
        for token in begun {
            if !allows(&mut grammar, *token) {
                return Err("it began otherwise".into());
            }
            grammar.accept(*token);
        }
        self.grammar = Some(grammar);
        Ok(())
    }

    /// From now on everything.
    pub(crate) fn release(&mut self) {
        self.grammar = None;
    }

    /// The next token. The grammar is asked about the chosen one first, since it is nearly always
    /// allowed and asking about all costs as much as the model itself.
    pub(crate) fn pick(&mut self, logits: &[f32]) -> LlamaToken {
        let first = self.choose(logits);
        let refused = self.grammar.as_mut().is_some_and(|grammar| !allows(grammar, first));
        let token = if refused { self.pick_allowed(logits) } else { first };
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token);
        }
        token
    }

    fn choose(&mut self, logits: &[f32]) -> LlamaToken {
        if self.temperature <= 0.0 {
            return likeliest(logits);
        }
        self.by_chance(&nearest(logits, TOP))
    }

    fn pick_allowed(&mut self, logits: &[f32]) -> LlamaToken {
        for count in [NEAR, logits.len()] {
            let mut candidates = nearest(logits, count);
            if count > NEAR {
                self.filtered += 1;
            }
            if let Some(grammar) = &mut self.grammar {
                candidates = allowed(grammar, &candidates);
            }
            if self.temperature > 0.0 && !candidates.is_empty() {
                candidates.truncate(TOP);
                return self.by_chance(&candidates);
            }
            if let Some(best) = candidates.first() {
                return best.id();
            }
        }
        // A grammar that allows nothing at all has ended; the likeliest token is as good as any.
        likeliest(logits)
    }

    /// One of these, the likelier the more often.
    fn by_chance(&mut self, candidates: &[LlamaTokenData]) -> LlamaToken {
        let best = candidates.first().map_or(0.0, LlamaTokenData::logit);
        let weight = |data: &LlamaTokenData| ((data.logit() - best) / self.temperature).exp();
        let total: f32 = candidates.iter().map(weight).sum();
        let mut at = self.random.next() * total;
        for data in candidates {
            at -= weight(data);
            if at <= 0.0 {
                return data.id();
            }
        }
        candidates.first().map_or(LlamaToken(0), LlamaTokenData::id)
    }
}

fn allows(grammar: &mut LlamaSampler, token: LlamaToken) -> bool {
    !allowed(grammar, &[LlamaTokenData::new(token, 1.0, 0.0)]).is_empty()
}

/// Those that the grammar allows, in their order.
fn allowed(grammar: &mut LlamaSampler, candidates: &[LlamaTokenData]) -> Vec<LlamaTokenData> {
    let mut array = LlamaTokenDataArray::new(candidates.to_vec(), false);
    // Applying a grammar changes nothing in it; only `accept` does.
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

/// So many of the likeliest tokens, likeliest first.
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

/// xorshift64*: good enough to choose words, and the same everywhere.
struct Random(u64);

impl Random {
    /// A number from 0 to 1.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40;
        bits as f32 / (1u32 << 24) as f32
    }
}
