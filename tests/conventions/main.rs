//! The conventions of this project and the rules of docs/architecture.md, as tests on the source.

mod cycles;
mod dependencies;
mod documents;
mod files;
mod imports;
mod skips;
mod source;
mod test_hooks;
mod type_names;
