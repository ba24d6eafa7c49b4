//! The conventions of this project and the rules of docs/architecture.md, as tests of the source
//! code.

mod cycles;
mod dependencies;
mod documents;
mod files;
mod imports;
mod pages;
mod skips;
mod source;
mod test_hooks;
mod trace_fields;
mod type_names;
