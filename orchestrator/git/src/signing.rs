//! Signs commits as the user's own git configuration says: with GnuPG, its S/MIME program, or an SSH
//! key. The program is the user's and runs outside of all sandboxes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::failure::{Failure, OrFail, Result};
use base::git::user_setting_in;
use base::process::{Command, Output, OutputLimits, find_program_outside};

use crate::merge::{Candidate, MergeStrategy};
use crate::refs;
use crate::repo::Repository;

/// Timeout of one signature: the user may have to type a passphrase or touch a key.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Maximum size of a signature in bytes.
const MAX_SIGNATURE_BYTES: usize = 64 << 10;
/// The line with which GnuPG confirms a signature.
const CREATED: &str = "[GNUPG:] SIG_CREATED ";

/// The user's way to sign commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitSigner {
    format: SignatureFormat,
    program: PathBuf,
    /// `user.signingkey`; without it GnuPG selects the key of the committer.
    key: Option<String>,
}

/// The format of signatures, as `gpg.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SignatureFormat {
    OpenPgp,
    X509,
    Ssh,
}

impl SignatureFormat {
    /// Parses `gpg.format`.
    fn parse(name: &str) -> Option<SignatureFormat> {
        match name {
            "openpgp" => Some(SignatureFormat::OpenPgp),
            "x509" => Some(SignatureFormat::X509),
            "ssh" => Some(SignatureFormat::Ssh),
            _ => None,
        }
    }

    /// Returns the settings that name the program, by precedence, and the default program.
    fn program_settings(self) -> (&'static [&'static str], &'static str) {
        match self {
            SignatureFormat::OpenPgp => (&["gpg.openpgp.program", "gpg.program"], "gpg"),
            SignatureFormat::X509 => (&["gpg.x509.program"], "gpgsm"),
            SignatureFormat::Ssh => (&["gpg.ssh.program"], "ssh-keygen"),
        }
    }
}

impl CommitSigner {
    /// Reads how the user signs, from the user's and the system's git configuration only; conditional
    /// includes of these apply. A program without a path is searched for in `PATH` outside of
    /// `excluded`. Fails (2) if the configuration is incomplete.
    pub fn of_user(repository: &Repository, excluded: &[PathBuf]) -> Result<CommitSigner> {
        let setting = |key: &str| user_setting_in(&repository.common_dir, key);
        let format_name = setting("gpg.format").unwrap_or_else(|| "openpgp".to_owned());
        let format = SignatureFormat::parse(&format_name).ok_or_else(|| {
            Failure::usage(format!("invalid gpg.format: `{}`", base::text::printable(&format_name)))
                .hint("git config --global gpg.format openpgp    or x509, or ssh")
        })?;
        let key = setting("user.signingkey").filter(|key| !key.is_empty());
        if format == SignatureFormat::Ssh && key.is_none() {
            return Err(Failure::usage("no key to sign commits with")
                .because("user.signingkey is not set in your own git configuration")
                .hint("git config --global user.signingkey ~/.ssh/id_ed25519.pub"));
        }
        let (settings, default) = format.program_settings();
        let configured = settings.iter().find_map(|key| setting(key));
        let name = configured.as_deref().unwrap_or(default);
        let program = find_program(name, excluded).ok_or_else(|| {
            Failure::usage(format!(
                "cannot sign commits: `{}` was not found",
                base::text::printable(name)
            ))
            .because("[studio] sign = true")
            .hint(format!("install it, or: git config --global {} /path/to/{default}", settings[0]))
            .hint("or set `[studio] sign = false`")
        })?;
        Ok(CommitSigner { format, program, key })
    }

    /// Returns the signature of a commit's content. Fails (3) with the program's own reason.
    pub(crate) fn sign(&self, content: &str, committer: &str) -> Result<String> {
        let signature = match self.format {
            SignatureFormat::OpenPgp | SignatureFormat::X509 => {
                self.sign_with_gpg(content, committer)
            }
            SignatureFormat::Ssh => self.sign_with_ssh(content),
        }?;
        Ok(signature.replace("\r\n", "\n"))
    }

    /// Signs as git does: `gpg --status-fd=2 -bsau KEY`, the content on stdin.
    fn sign_with_gpg(&self, content: &str, committer: &str) -> Result<String> {
        let key = self.key.as_deref().unwrap_or(committer);
        let command = self.command().args(["--status-fd=2", "-bsau", key]).input(content);
        let output = self.run(command)?;
        let status = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.ok() || !status.lines().any(|line| line.starts_with(CREATED)) {
            let reason: Vec<&str> =
                status.lines().filter(|line| !line.starts_with("[GNUPG:]")).collect();
            return Err(self.failure(&reason.join("\n")));
        }
        text(output.stdout)
    }

    /// Signs as git does: `ssh-keygen -Y sign -n git -f KEY FILE`, which writes `FILE.sig`.
    fn sign_with_ssh(&self, content: &str) -> Result<String> {
        let dir = tempfile::Builder::new().prefix("studio-sign-").tempdir().or_fail(cannot)?;
        let file = dir.path().join("commit");
        std::fs::write(&file, content).or_fail(cannot)?;
        let key = self.key.as_deref().unwrap_or_default();
        let mut command = self.command().args(["-Y", "sign", "-n", "git", "-f"]);
        command = match literal_key(key) {
            Some(public_key) => {
                let key_file = dir.path().join("key.pub");
                std::fs::write(&key_file, format!("{public_key}\n")).or_fail(cannot)?;
                // The private key is in the agent.
                command.arg(key_file).arg("-U")
            }
            None => command.arg(expand(key)),
        };
        let output = self.run(command.arg(&file))?;
        if !output.ok() {
            return Err(self.failure(&output.error_text()));
        }
        let signature =
            base::files::read_bounded(&file.with_extension("sig"), MAX_SIGNATURE_BYTES as u64);
        text(signature.or_fail(cannot)?)
    }

    /// Returns the program in a process session without a terminal: agents ask for passphrases, and
    /// a program that would ask here fails in place of waiting.
    fn command(&self) -> Command {
        Command::new(&self.program, "/").detached().kill_on_parent_death()
    }

    fn run(&self, command: Command) -> Result<Output> {
        let limits = OutputLimits { time: Some(TIMEOUT), bytes: MAX_SIGNATURE_BYTES };
        let output = command.output(limits).map_err(|error| self.failure(&error.to_string()))?;
        match output.timed_out {
            true => Err(self.failure(&format!("timed out after {} s", TIMEOUT.as_secs()))),
            false => Ok(output),
        }
    }

    /// Returns the refusal of a landing that could not be signed.
    fn failure(&self, reason: &str) -> Failure {
        let reason = base::text::printable_output(base::text::tail(reason.trim(), 1500));
        let program = self.program.display();
        let failure = Failure::refused(cannot()).because(match reason.as_str() {
            "" => format!("{program} failed without a message"),
            reason => format!("{program}: {reason}"),
        });
        let failure = match self.format {
            SignatureFormat::OpenPgp => failure
                .hint("gpg --list-secret-keys    shows your keys")
                .hint("git config --global user.signingkey KEY"),
            SignatureFormat::X509 => failure
                .hint("gpgsm --list-secret-keys    shows your keys")
                .hint("git config --global user.signingkey KEY"),
            SignatureFormat::Ssh => failure
                .hint("ssh-add    adds a key with a passphrase to the agent")
                .hint("git config --global user.signingkey ~/.ssh/id_ed25519.pub"),
        };
        failure.hint("or land unsigned: `[studio] sign = false`")
    }
}

/// Returns the name of the header of a commit that has its signature; `None` for the usual one.
fn header(repo: &git2::Repository) -> Option<&'static str> {
    match repo.object_format() {
        git2::ObjectFormat::Sha1 => None,
        git2::ObjectFormat::Sha256 => Some("gpgsig-sha256"),
    }
}

/// Refuses (3) work whose landing keeps commits of the session as they are, and unsigned.
pub fn refuse_unsigned(repository: &Repository, candidate: &Candidate) -> Result<()> {
    if candidate.strategy != MergeStrategy::Ff {
        return Ok(());
    }
    let repo = repository.open()?;
    let unsigned = |id: &git2::Oid| repo.extract_signature(id, header(&repo)).is_err();
    let commits = commits_since(&repo, &candidate.target_tip, &candidate.head)?;
    let count = commits.iter().filter(|id| unsigned(id)).count();
    if count == 0 {
        return Ok(());
    }
    Err(Failure::refused("the session's own commits are not signed")
        .because(format!(
            "`ff` lands {} as they are, and `[studio] sign = true`",
            base::text::count(count, "unsigned commit")
        ))
        .hint("studio accept --strategy rebase    signs each commit")
        .hint("studio accept --strategy squash"))
}

/// Creates a commit, with a signature if there is a signer.
pub(crate) fn create_commit(
    repo: &git2::Repository,
    commit: &NewCommit<'_, '_>,
    signer: Option<&CommitSigner>,
) -> Result<git2::Oid> {
    let NewCommit { author, committer, message, tree, parents } = commit;
    let Some(signer) = signer else {
        let id = repo.commit(None, author, committer, message, tree, parents);
        return id.or_fail(|| "cannot make the commit");
    };
    let content = repo
        .commit_create_buffer(author, committer, message, tree, parents)
        .or_fail(|| "cannot make the commit")?;
    let content = content.as_str().or_fail(|| "the commit is not UTF-8")?;
    let identity = String::from_utf8_lossy(committer.name_bytes()).into_owned();
    let identity = format!("{identity} <{}>", String::from_utf8_lossy(committer.email_bytes()));
    let signature = signer.sign(content, &identity)?;
    repo.commit_signed(content, &signature, header(repo)).or_fail(|| "cannot make the commit")
}

/// The content of a new commit.
pub(crate) struct NewCommit<'a, 'repo> {
    pub author: git2::Signature<'a>,
    pub committer: git2::Signature<'a>,
    pub message: &'a str,
    pub tree: git2::Tree<'repo>,
    pub parents: Vec<&'a git2::Commit<'repo>>,
}

/// Signs the commits that studio made for a landing, except for the last one, and returns the
/// parents of that: rebased commits, and the commit with uncommitted changes of a merge.
pub(crate) fn sign_parents(
    repo: &git2::Repository,
    candidate: &Candidate,
    signer: &CommitSigner,
) -> Result<Vec<String>> {
    let mut parents = candidate.parents.clone();
    match candidate.strategy {
        MergeStrategy::Squash | MergeStrategy::Ff => {}
        MergeStrategy::Rebase => {
            let mut last = None;
            for id in commits_since(repo, &candidate.target_tip, &parents[0])? {
                last = Some(sign_again(repo, id, last, signer)?);
            }
            if let Some(last) = last {
                parents[0] = last.to_string();
            }
        }
        MergeStrategy::Merge => {
            if let Some(parent) = parents.get_mut(1).filter(|id| **id != candidate.head) {
                *parent = sign_again(repo, refs::oid(parent)?, None, signer)?.to_string();
            }
        }
    }
    Ok(parents)
}

/// Creates a commit again with a signature, on another parent if one is given.
fn sign_again(
    repo: &git2::Repository,
    id: git2::Oid,
    parent: Option<git2::Oid>,
    signer: &CommitSigner,
) -> Result<git2::Oid> {
    let cannot = || "cannot read the commit to sign";
    let commit = repo.find_commit(id).or_fail(cannot)?;
    let parents: Vec<git2::Commit<'_>> = match parent {
        Some(parent) => vec![repo.find_commit(parent).or_fail(cannot)?],
        None => commit.parents().collect(),
    };
    let new = NewCommit {
        author: commit.author(),
        committer: commit.committer(),
        message: &String::from_utf8_lossy(commit.message_bytes()),
        tree: commit.tree().or_fail(cannot)?,
        parents: parents.iter().collect(),
    };
    create_commit(repo, &new, Some(signer))
}

/// Returns the commits that are reachable from `head` and not from `base`, oldest first.
fn commits_since(repo: &git2::Repository, base: &str, head: &str) -> Result<Vec<git2::Oid>> {
    let (base, head) = (refs::oid(base)?, refs::oid(head)?);
    let list = || -> std::result::Result<Vec<git2::Oid>, git2::Error> {
        let mut walk = repo.revwalk()?;
        walk.set_sorting(git2::Sort::TOPOLOGICAL | git2::Sort::REVERSE)?;
        walk.push(head)?;
        walk.hide(base)?;
        walk.collect()
    };
    list().or_fail(|| "cannot list the commits to sign")
}

/// Returns the public key of a `user.signingkey` that is not a path: `ssh-…` or `key::…`.
fn literal_key(key: &str) -> Option<&str> {
    key.strip_prefix("key::").or_else(|| key.starts_with("ssh-").then_some(key))
}

/// Finds a program: an absolute path, or a name in `PATH` outside of the excluded directories.
fn find_program(name: &str, excluded: &[PathBuf]) -> Option<PathBuf> {
    if name.contains('/') {
        let path = expand(name);
        return (path.is_absolute() && path.is_file()).then_some(path);
    }
    find_program_outside(name, excluded)
}

/// Replaces a leading `~/` by the home directory.
fn expand(path: &str) -> PathBuf {
    let home = base::user_dirs::home_dir().unwrap_or_else(|| PathBuf::from("/"));
    base::config::studio::expand_tilde(Path::new(path), &home)
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).or_fail(|| "the signature is not text")
}

fn cannot() -> &'static str {
    "cannot sign the commit"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signing_key_is_a_path_unless_it_is_a_public_key() {
        assert_eq!(literal_key("ssh-ed25519 AAAA"), Some("ssh-ed25519 AAAA"));
        assert_eq!(literal_key("key::ecdsa-sha2-nistp256 AAAA"), Some("ecdsa-sha2-nistp256 AAAA"));
        assert_eq!(literal_key("~/.ssh/id_ed25519.pub"), None);
    }
}
