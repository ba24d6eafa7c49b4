//! The command-line options of the host.

use std::path::PathBuf;

use clap::Parser;

/// The local model host: loads one model file and answers every g3 of this user.
#[derive(Clone, Debug, Parser)]
#[command(name = "g3-model", version, args_override_self = true)]
#[command(after_help = "g3-model bench --model FILE measures it against llama.cpp alone.")]
pub struct Options {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub serve: Serve,
}

/// How to serve a model.
#[derive(Clone, Debug, clap::Args)]
pub struct Serve {
    /// The model file (GGUF)
    #[arg(long, required = true, value_name = "FILE")]
    pub model: PathBuf,
    /// Tokens of one conversation, input and output together
    #[arg(long, default_value_t = 16_384, value_name = "N", value_parser = clap::value_parser!(u32).range(512..))]
    pub context: u32,
    /// Conversations that are answered at the same time
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub parallel: u32,
    /// Threads that compute [default: physical cores, fewer while other programs use them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    pub threads: Option<u32>,
    /// End after so many seconds without a request; 0: when the last connection closes
    #[arg(long, default_value_t = 300, value_name = "SECS")]
    pub idle: u64,
    /// Memory for conversations; what is past it waits on disk
    #[arg(long, default_value_t = 768, value_name = "MIB")]
    pub memory: u64,
    /// Listen here instead of at the place where g3 looks
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Refuse a file with another SHA-256
    #[arg(long, value_name = "HEX")]
    pub sha256: Option<String>,
}
