//! The house rules of docs/architecture.md, as tests on the source text.

mod dependencies;
mod documents;
mod files;
mod imports;
mod skips;
mod source;
mod test_hooks;
