//! Finds or starts the host for a model file, prints its process id, and waits for the end of
//! stdin.

use std::io::{Read, Write};

use base::model_host::find::{self, HostQuery};

fn main() {
    let mut args = std::env::args().skip(1);
    let model = args.next().expect("a model file");
    let idle = args.next().map(|text| text.parse().expect("seconds"));
    let wanted =
        HostQuery { idle, threads: Some(1), context: Some(2048), ..HostQuery::model(model) };
    let (_connection, hello) = find::open(&wanted).unwrap_or_else(|failure| panic!("{failure}"));
    writeln!(std::io::stdout(), "{}", hello.pid).expect("somebody reads it");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
