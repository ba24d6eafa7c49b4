//! `scripted-model SCRIPT.json`: a scripted model server for benchmarks and demos. It prints its
//! URL and serves until its standard input ends or it is killed.

#![allow(clippy::print_stdout, reason = "the URL on stdout is what this program is for")]

use std::io::{Read, Write};

use testkit::model_server::ModelServer;
use testkit::model_server::script::Script;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: scripted-model SCRIPT.json")?;
    let script = Script::from_json(&std::fs::read_to_string(path)?)?;
    let server = ModelServer::start(script);
    println!("{}", server.url());
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
