//! `studio serve`: pages in a browser to watch, review and land sessions, and the same as an API. The
//! server keeps nothing of its own: it reads git and the journals, and its actions are commands of
//! this program.

mod access;
mod answers;
mod api;
mod error_answer;
mod events;
mod file_events;
mod graph_layout;
mod openapi;
mod pages;
mod public_link;
mod review_cache;
mod routes;
mod server;
mod session_feed;

use std::net::Ipv4Addr;

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, Stream, find_program};
use tokio::net::TcpListener;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::watch::TerminationSignals;
use crate::report;
use crate::serve::access::{PageAccess, PublicUrl};
use crate::serve::server::PageServer;

/// Programs that open a URL in the user's browser.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// The command line of `serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Port on 127.0.0.1 (default: any free one)
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub port: u16,
    /// Open the link in your browser
    #[arg(long)]
    pub open: bool,
    /// Address at which a tunnel or proxy of yours makes the server reachable,
    /// e.g. https://box.example
    #[arg(long, value_name = "URL")]
    pub public_url: Option<PublicUrl>,
}

/// Runs the command until Ctrl-C.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    // Prints its notices, and fails outside of a repository.
    let context = CommandContext::open(common)?;
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let result = runtime.block_on(serve(common, context, args));
    // A request that still reads a repository does not delay the end.
    runtime.shutdown_background();
    result
}

async fn serve(common: &CommonArgs, context: CommandContext, args: &Args) -> Result<u8> {
    let mut signals = TerminationSignals::listen()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await.map_err(|error| {
        Failure::failed(format!("cannot listen on port {} of 127.0.0.1", args.port))
            .because(error)
            .hint("studio serve    uses any free port")
    })?;
    let port = listener.local_addr().or_fail(|| "cannot listen on 127.0.0.1")?.port();
    let public_url = args.public_url.clone();
    let access = PageAccess::new(port, public_url).or_fail(|| "cannot draw a random token")?;
    let (link, public_link) = (access.link(), access.public_link());
    let server = PageServer::new(common, context, access)?;
    report::out(&link);
    public_link.iter().for_each(|link| public_link::show(link, report::out));
    report::say("the link works once; Ctrl-C ends the server");
    if args.open {
        open_browser(&link)?;
    }
    let router = routes::router(server.clone());
    tokio::select! {
        result = axum::serve(listener, router) => {
            result.or_fail(|| "cannot answer requests")?;
            Ok(0)
        }
        () = server.feed().run() => Ok(0),
        () = signals.recv() => Ok(0),
    }
}

/// Opens a link in the user's browser.
fn open_browser(link: &str) -> Result<()> {
    let program = OPENERS.iter().find_map(|name| find_program(name)).ok_or_else(|| {
        Failure::failed("cannot open a browser")
            .because("neither `xdg-open` nor `open` was found")
            .hint("open the link yourself")
    })?;
    let directory = std::env::current_dir().or_fail(|| "cannot open a browser")?;
    let command = Command::new(program, &directory)
        .arg(link)
        .detached()
        .stdin(Stream::Null)
        .stdout(Stream::Null)
        .stderr(Stream::Null);
    command.spawn_forget().or_fail(|| "cannot open a browser").map(|_| ())
}
