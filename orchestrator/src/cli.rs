//! The command line: its options, and the command for each verb.

use clap::{CommandFactory, Parser, Subcommand};

use base::failure::Result;

use crate::commands::context::CommonArgs;
use crate::commands::{
    accept, agents, answer, attach, check, compare, completions, config, conflicts, diff, discard,
    doctor, edit, explain, fork, gc, inbox, interactive, list, logs, man, mcp, open, operations,
    places, plan, pr, resume, review, run, sandbox, sdlc, selftest, send, shell, stats, status,
    stop, trace, trial, undo, verify,
};
use crate::dashboard;
use crate::serve;

/// Runs many coding agents on one git repository at once, each in a worktree of its own, and lands
/// or drops their work safely
#[derive(Parser)]
#[command(name = "studio", version, about, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    #[command(flatten)]
    common: CommonArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const EXAMPLES: &str = "\
Examples:
  studio run 'fix the flaky test' 'document the API'   two agents in parallel
  studio list                                          list the sessions
  studio diff fix-the                                  show the changes of one
  studio accept fix-the                                land it on its branch
  studio discard document                              discard the other
  studio undo                                          undo the last operation

Without a command, studio shows a dashboard on a terminal, with its keys on `?`.
Elsewhere it lists the sessions.";

#[derive(Subcommand)]
enum Verb {
    /// Start one session per task and wait for the results
    #[command(
        after_help = "Examples:\n  studio run 'fix the flaky test'\n  studio run --check 'cargo test' -j 4 --tasks TASKS.md\n  studio run --model claude-sonnet-5 --base develop 'add a changelog'\n  studio run --persona hopper 'test the parser'\n  studio run --network off 'sort the imports'\n  studio run --attempts 3 --agent g3,codex 'fix the parser'\n  studio run --detach - < task.txt"
    )]
    Run(run::Args),
    /// Start sessions without waiting for them, and print their ids
    #[command(
        after_help = "Examples:\n  id=$(studio exec 'fix the flaky test')\n  studio logs $id -f"
    )]
    Exec(run::Args),
    /// Work with g3 interactively in a new session
    #[command(
        after_help = "Examples:\n  studio cli\n  studio cli 'parser clean-up' --check 'cargo test'\n\nWhen you leave g3, the work is collected and checked; then diff, accept and discard apply."
    )]
    Cli(interactive::Args),
    /// Start a session from another one's current work, with its conversation where possible
    #[command(
        after_help = "Examples:\n  studio fork fix-the                              continues in a copy\n  studio fork fix-the 'try it without the cache'   another way\n  studio fork fix-the --agent codex"
    )]
    Fork(fork::Args),
    /// Publish a session as a pull request (GitHub) or merge request (GitLab)
    #[command(
        after_help = "Examples:\n  studio pr fix-the          pushes its branch and opens or updates the request\n  studio pr sync             brings review comments and failed checks to the agents\n  studio pr sync fix-the --json"
    )]
    Pr(pr::Args),
    /// List the sessions of this repository
    #[command(
        visible_alias = "ls",
        after_help = "Examples:\n  studio list\n  studio list --watch\n  studio list --disk\n  studio list --json | jq '.sessions[].state'"
    )]
    List(list::Args),
    /// Show which sessions change the same lines, and the order in which to land them
    #[command(
        after_help = "Examples:\n  studio conflicts\n  studio conflicts --patch\n  studio conflicts fix-the document     of these two\n  studio conflicts --json | jq -r '.order[].id'"
    )]
    Conflicts(conflicts::Args),
    /// Compare several attempts at one task, with the tests of each on the code of the others
    #[command(
        after_help = "Examples:\n  studio run --attempts 3 'fix the parser'\n  studio compare                   the only group of attempts\n  studio compare fix-the           the group of this session\n  studio compare fix-the other     these two\n  studio compare --judge           a model decides where tests do not"
    )]
    Compare(compare::Args),
    /// Show what needs you: permission requests, answered in place, and settled sessions
    #[command(
        after_help = "Examples:\n  studio inbox\n  studio inbox --json | jq -r '.questions[].answers[0]'"
    )]
    Inbox(inbox::Args),
    /// Show one session in full
    #[command(after_help = "Examples:\n  studio status fix-the\n  studio status @latest --json")]
    Status(status::Args),
    /// Show the facts that determine a session's state
    #[command(after_help = "Examples:\n  studio explain fix-the")]
    Explain(explain::Args),
    /// Show the journal of a session
    #[command(after_help = "Examples:\n  studio logs fix-the -f\n  studio logs fix-the --raw")]
    Logs(logs::Args),
    /// Join the live conversation of a session; detaching leaves it running
    #[command(
        after_help = "Examples:\n  studio attach fix-the\n\nWhat you type is sent to the agent at the end of its turn. Ctrl-D, Ctrl-C or /detach leaves."
    )]
    Attach(attach::Args),
    /// Show what a session changed
    #[command(
        after_help = "Examples:\n  studio diff fix-the\n  studio diff fix-the --stat\n  studio diff fix-the -- src docs/guide.md\n  studio diff fix-the > fix.patch      a patch for `git apply`\n  studio diff fix-the --tool=meld"
    )]
    Diff(diff::Args),
    /// Review sessions: accept or return hunks, comment on lines, send or land the result
    #[command(
        after_help = "Examples:\n  studio review                          all ready sessions, one after the other\n  studio review fix-the --since last     only what is new since your last look\n  studio review fix-the --edit           in your editor\n  studio review fix-the --plain | less\n  studio review fix-the --apply my-review --send"
    )]
    Review(review::Args),
    /// Run a session's checks again, without its agent
    #[command(
        after_help = "Examples:\n  studio check fix-the\n  studio check fix-the --check 'cargo test --doc'\n\nExit code 1: a check failed"
    )]
    Check(check::Args),
    /// Change the checks of a session
    #[command(
        after_help = "Examples:\n  studio edit fix-the --check 'cargo test'\n  studio edit fix-the --add-check 'cargo clippy'\n  studio edit fix-the --no-checks"
    )]
    Edit(edit::Args),
    /// Send a message to a session's agent
    #[command(after_help = "Examples:\n  studio send fix-the 'also update the changelog'")]
    Send(send::Args),
    /// Answer an agent's permission request
    #[command(
        after_help = "Examples:\n  studio answer fix-the allow\n  studio answer fix-the allow --always\n  studio answer fix-the 2 deny"
    )]
    Answer(answer::Args),
    /// Stop sessions; their work is kept
    #[command(after_help = "Examples:\n  studio stop fix-the document")]
    Stop(stop::Args),
    /// Resume stopped, failed or crashed sessions
    #[command(
        after_help = "Examples:\n  studio resume fix-the\n  studio resume fix-the --budget 5 --max-turns 200\n  studio resume fix-the --ask\n  studio resume fix-the --interactive      work with g3 yourself\n  studio resume --crashed -A               after a reboot, in all repositories"
    )]
    Resume(resume::Args),
    /// Land the work of sessions on its branch, with checks on the merged tree
    #[command(
        after_help = "Examples:\n  studio accept fix-the\n  studio accept fix-the --strategy merge --onto develop\n  studio accept fix-the -m 'Fix the flaky test'\n  studio accept fix-the --dry-run\n  studio accept fix-the --hunks 34ead8,8e88a0   lands two of its hunks\n  studio accept fix-the --include data/model.bin\n  studio accept fix-the --drop-others      discards the other attempts\n  studio accept fix-the --no-checks        lands it without checks\n  studio accept --all                      lands what is ready and passes together\n  studio accept --all --resolve            lets agents resolve conflicts"
    )]
    Accept(accept::Args),
    /// Try a session's work in this checkout, and follow it
    #[command(
        after_help = "Examples:\n  studio try fix-the           puts its files here and follows the session\n  studio try fix-the --once    puts them here once\n  studio try                   shows what is being tried\n  studio try --end             puts your files back"
    )]
    Try(trial::Args),
    /// Discard sessions; `undo` restores them
    #[command(after_help = "Examples:\n  studio discard document\n  studio discard --yes fix-the")]
    Discard(discard::Args),
    /// Undo the last accept, discard or try, or a given one
    #[command(after_help = "Examples:\n  studio undo\n  studio undo op3")]
    Undo(undo::Args),
    /// List accepts, discards, tries and undos
    #[command(after_help = "Examples:\n  studio operations\n  studio operations --json")]
    Operations,
    /// Plan a feature: refine it, split it into tasks, run them and land the results
    #[command(
        after_help = "Examples:\n  studio plan feature.md   refine, approve, split, run, land\n  studio plan              continue, also after editing g3-plan/\n  studio plan --yes --json feature.md"
    )]
    Plan(plan::Args),
    /// Let seven personas work on recent commits, one after the other, on one stack of sessions
    #[command(
        after_help = "Examples:\n  studio sdlc run            starts the pipeline, or continues it\n  studio sdlc status\n  studio sdlc run --detach   continues in the background"
    )]
    Sdlc(sdlc::Args),
    /// Report which commit landed each requirement, with its checks, verdicts and cost
    #[command(
        after_help = "Examples:\n  studio trace\n  studio trace R2\n  studio trace --file features.md --since v1.0 --json\n  studio trace --markdown > report.md\n\nExit code 1: a requirement has not landed, or has no passing check"
    )]
    Trace(trace::Args),
    /// Re-run the checks recorded for landed requirements
    #[command(
        after_help = "Examples:\n  studio verify\n  studio verify R2 --since v1.0\n  studio verify --each\n  studio verify --markdown > proof.md\n\nExit code 0: every requirement has landed with a check and every recorded check passes; 1 otherwise"
    )]
    Verify(verify::Args),
    /// Count sessions, landings, tokens and cost, by agent, by model and over time
    #[command(
        after_help = "Examples:\n  studio stats\n  studio stats --days 30\n  studio stats --json | jq '.agents'"
    )]
    Stats(stats::Args),
    /// Open a shell, or run a command, in a session's worktree and sandbox
    #[command(
        after_help = "Examples:\n  studio shell fix-the\n  studio shell fix-the -- cargo test"
    )]
    Shell(shell::Args),
    /// Run any program in the sandbox of a session's checks, in this directory
    #[command(
        after_help = "Examples:\n  studio sandbox -- make test\n  studio sandbox --write ../out -- sh -c 'make install DESTDIR=../out'\n\nThe exit code is that of the program; 137 at a limit ([studio.limits])."
    )]
    Sandbox(sandbox::Args),
    /// Open a session's worktree in your editor
    #[command(
        after_help = "Examples:\n  studio open fix-the\n  EDITOR='code --wait' studio open fix-the"
    )]
    Open(open::Args),
    /// Find and repair leftovers of crashes
    #[command(after_help = "Examples:\n  studio doctor\n  studio doctor --move-worktrees")]
    Doctor(doctor::Args),
    /// Test studio on this machine: random operations on a scratch repository, with a scripted agent
    #[command(
        after_help = "Examples:\n  studio selftest\n  studio selftest --chaos --minutes 10      with kill -9 at random moments\n  studio selftest --chaos --rounds 3 --seed 7\n\nExit code 1: work was lost, a ref or the main checkout was damaged, or a process was left"
    )]
    Selftest(selftest::Args),
    /// Delete the data of sessions discarded or accepted a week ago
    #[command(
        after_help = "Examples:\n  studio gc --dry-run\n  studio gc --older 1\n  studio gc --max-size 2G"
    )]
    Gc(gc::Args),
    /// List the agents: installed, version, protocol, login, and how to install the others
    #[command(
        after_help = "Examples:\n  studio agents\n  studio run --agent claude,codex 'one task' 'another'"
    )]
    Agents,
    /// List the places where sessions run, and try one out
    #[command(
        after_help = "Examples:\n  studio places\n  studio places check farm\n  studio run --on farm 'one task' 'another'"
    )]
    Places(places::Args),
    /// Show the configuration and the origin of each value
    #[command(after_help = "Examples:\n  studio config show --origin")]
    Config(config::Args),
    /// Watch, review and land sessions in a browser, on this machine
    #[command(
        after_help = "Examples:\n  studio serve                 prints a link that works once\n  studio serve --open\n  studio serve --port 8765\n\nThe server listens on 127.0.0.1 only, until Ctrl-C.\nThe API is described by /api/v1/openapi.json."
    )]
    Serve(serve::Args),
    /// Serve studio to other agents and editors over the Model Context Protocol
    #[command(after_help = "Examples:\n  claude mcp add studio -- studio -C ~/src/repo mcp serve")]
    Mcp(mcp::Args),
    /// Show the manual of a command
    #[command(
        after_help = "Examples:\n  studio man run\n  studio man --write ~/.local/share/man/man1"
    )]
    Man(man::Args),
    /// Print a shell completion script
    #[command(
        after_help = "Examples:\n  studio completions bash > ~/.local/share/bash-completion/completions/studio"
    )]
    Completions(completions::Args),
}

impl Cli {
    /// Returns whether the output is JSON, for a script.
    pub fn json(&self) -> bool {
        self.common.json
    }

    /// Runs the command and returns the exit code.
    pub fn run(self) -> Result<u8> {
        let common = &self.common;
        match self.verb {
            None if dashboard::is_available(common) => dashboard::run(common),
            None => list::run(common, &list::Args::default()),
            Some(Verb::Run(args)) => run::run(common, &args),
            Some(Verb::Exec(mut args)) => {
                args.detach = true;
                run::run(common, &args)
            }
            Some(Verb::Cli(args)) => interactive::run(common, &args),
            Some(Verb::Fork(args)) => fork::run(common, &args),
            Some(Verb::Pr(args)) => pr::run(common, &args),
            Some(Verb::List(args)) => list::run(common, &args),
            Some(Verb::Conflicts(args)) => conflicts::run(common, &args),
            Some(Verb::Compare(args)) => compare::run(common, &args),
            Some(Verb::Inbox(args)) => inbox::run(common, args),
            Some(Verb::Status(args)) => status::run(common, &args),
            Some(Verb::Explain(args)) => explain::run(common, &args),
            Some(Verb::Logs(args)) => logs::run(common, &args),
            Some(Verb::Attach(args)) => attach::run(common, &args),
            Some(Verb::Diff(args)) => diff::run(common, &args),
            Some(Verb::Review(args)) => review::run(common, &args),
            Some(Verb::Check(args)) => check::run(common, &args),
            Some(Verb::Edit(args)) => edit::run(common, &args),
            Some(Verb::Send(args)) => send::run(common, &args),
            Some(Verb::Answer(args)) => answer::run(common, &args),
            Some(Verb::Stop(args)) => stop::run(common, &args),
            Some(Verb::Plan(args)) => plan::run(common, &args),
            Some(Verb::Sdlc(args)) => sdlc::run(common, &args),
            Some(Verb::Trace(args)) => trace::run(common, &args),
            Some(Verb::Verify(args)) => verify::run(common, &args),
            Some(Verb::Resume(args)) => resume::run(common, &args),
            Some(Verb::Accept(args)) => accept::run(common, &args),
            Some(Verb::Try(args)) => trial::run(common, &args),
            Some(Verb::Discard(args)) => discard::run(common, &args),
            Some(Verb::Undo(args)) => undo::run(common, &args),
            Some(Verb::Operations) => operations::run(common),
            Some(Verb::Stats(args)) => stats::run(common, &args),
            Some(Verb::Shell(args)) => shell::run(common, &args),
            Some(Verb::Sandbox(args)) => sandbox::run(common, &args),
            Some(Verb::Open(args)) => open::run(common, &args),
            Some(Verb::Doctor(args)) => doctor::run(common, &args),
            Some(Verb::Selftest(args)) => selftest::run(common, &args),
            Some(Verb::Gc(args)) => gc::run(common, &args),
            Some(Verb::Agents) => agents::run(common),
            Some(Verb::Places(args)) => places::run(common, &args),
            Some(Verb::Config(args)) => config::run(common, &args),
            Some(Verb::Serve(args)) => serve::run(common, &args),
            Some(Verb::Mcp(args)) => mcp::run(common, &args),
            Some(Verb::Man(args)) => man::run(&args, Cli::command()),
            Some(Verb::Completions(args)) => completions::run(&args),
        }
    }
}
