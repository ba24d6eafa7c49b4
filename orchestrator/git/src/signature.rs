//! Whose name commits carry: the user's, as the repository's configuration has it.

/// Returns the user's name and the given time, in UTC. The scratch directories' configuration
/// always has a name.
pub(crate) fn of(
    repo: &git2::Repository,
    now: jiff::Timestamp,
) -> std::result::Result<git2::Signature<'static>, git2::Error> {
    let config = repo.config()?.snapshot()?;
    let time = git2::Time::new(now.as_second(), 0);
    git2::Signature::new(config.get_str("user.name")?, config.get_str("user.email")?, &time)
}
