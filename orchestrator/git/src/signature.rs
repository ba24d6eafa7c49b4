//! The author of studio's commits: the user, from the repository's configuration.

/// Returns a signature with the user's name and the given time in UTC. The configuration of scratch
/// directories always has a name.
pub(crate) fn of(
    repo: &git2::Repository,
    now: jiff::Timestamp,
) -> std::result::Result<git2::Signature<'static>, git2::Error> {
    let config = repo.config()?.snapshot()?;
    let time = git2::Time::new(now.as_second(), 0);
    git2::Signature::new(config.get_str("user.name")?, config.get_str("user.email")?, &time)
}
