//! Stores logins on disk: one file per workspace and client in `~/.g3/oauth`, readable and writable
//! only by the user.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::{self, DiskReservation};
use base::lock::Lock;
use base::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::service::CLIENT_ID;

/// Size in bytes reserved for a login; tokens take a few kB.
const RESERVED_SIZE: usize = 32 << 10;

/// The tokens that a service issued.
#[derive(Clone, Debug)]
pub(crate) struct OauthTokens {
    /// The access token, sent with every request.
    pub access: Secret,
    /// The refresh token, exchanged for the next tokens.
    pub refresh: Option<Secret>,
    /// When `access` expires; `None` if unknown.
    pub expires: Option<Timestamp>,
}

/// The file of one login.
#[derive(Clone, Debug)]
pub struct TokenStore {
    host: String,
    file: PathBuf,
}

/// The file's content. It has no `Debug`, which would print the tokens.
#[derive(Serialize, Deserialize)]
struct Content {
    schema: u32,
    host: String,
    client: String,
    access_token: String,
    refresh_token: Option<String>,
    /// RFC 3339.
    expires_at: Option<String>,
}

impl TokenStore {
    /// Returns the store for a workspace's login. The file name is a SHA-256, so that a host cannot
    /// choose a path.
    pub fn of(host: &str) -> Result<TokenStore> {
        let home = base::user_dirs::home_dir();
        let home =
            home.ok_or_else(|| Failure::usage("no home directory for the login").hint("set HOME"))?;
        Ok(TokenStore::in_directory(&home.join(".g3/oauth"), host))
    }

    /// Like [`TokenStore::of`], in this directory.
    fn in_directory(directory: &Path, host: &str) -> TokenStore {
        let file_stem = base::text::hex(&Sha256::digest(format!("{host}\n{CLIENT_ID}")));
        TokenStore { host: host.to_owned(), file: directory.join(format!("{file_stem}.json")) }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Reads the login. Returns `None` if there is none. Fails if other users can read the file.
    pub(crate) fn read(&self) -> Result<Option<OauthTokens>> {
        let what = || format!("cannot read the login in {}", self.file.display());
        let meta = match fs::symlink_metadata(&self.file) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).or_fail(what),
        };
        let own_uid = rustix::process::geteuid().as_raw();
        if !meta.is_file() || meta.uid() != own_uid || meta.mode() & 0o077 != 0 {
            return Err(Failure::refused(what())
                .because("it must be your own file, readable only by you")
                .hint(format!("chmod 600 {}", self.file.display())));
        }
        let content: Content =
            serde_json::from_slice(&fs::read(&self.file).or_fail(what)?).or_fail(what)?;
        Ok(Some(OauthTokens {
            access: Secret::new(content.access_token),
            refresh: content.refresh_token.map(Secret::new),
            expires: content.expires_at.and_then(|text| text.parse().ok()),
        }))
    }

    /// Waits for the lock on the login.
    pub(crate) fn take_lock(&self) -> Result<Lock> {
        let what = || format!("cannot use {}", self.file.display());
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(directory).or_fail(what)?;
        // The home directory may be a git repository.
        let ignored = directory.join(".gitignore");
        if !ignored.exists() {
            files::replace(&ignored, b"*\n").or_fail(what)?;
        }
        Lock::take(&self.file.with_extension("lock")).or_fail(what)
    }

    /// Reserves disk space for the next login before the service is asked for it. A refresh token
    /// is invalid after use, so there must be space to save the new one.
    pub(crate) fn reserve(&self, _lock: &Lock) -> Result<DiskReservation> {
        let reserved = DiskReservation::create(&self.file, RESERVED_SIZE);
        reserved.or_fail(|| format!("cannot write the login to {}", self.file.display()))
    }

    /// Replaces the login.
    pub(crate) fn write(&self, tokens: &OauthTokens, lock: &Lock) -> Result<()> {
        self.write_reserved(self.reserve(lock)?, tokens)
    }

    /// Replaces the login, using the reserved space.
    pub(crate) fn write_reserved(
        &self,
        reserved: DiskReservation,
        tokens: &OauthTokens,
    ) -> Result<()> {
        let content = Content {
            schema: 1,
            host: self.host.clone(),
            client: CLIENT_ID.to_owned(),
            access_token: tokens.access.reveal().to_owned(),
            refresh_token: tokens.refresh.as_ref().map(|token| token.reveal().to_owned()),
            expires_at: tokens.expires.map(|end| end.to_string()),
        };
        let what = || format!("cannot write the login to {}", self.file.display());
        let mut text = serde_json::to_vec_pretty(&content).or_fail(what)?;
        text.push(b'\n');
        reserved.fill(&text).or_fail(what)
    }

    /// Removes the login. Returns whether there was one.
    pub fn remove(&self) -> Result<bool> {
        if !self.file.exists() {
            return Ok(false);
        }
        let _lock = self.take_lock()?;
        match fs::remove_file(&self.file) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e).or_fail(|| format!("cannot remove {}", self.file.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn tokens(access: &str) -> OauthTokens {
        OauthTokens { access: Secret::new(access), refresh: Some(Secret::new("r")), expires: None }
    }

    #[test]
    fn a_login_is_private_and_each_workspace_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("oauth");
        let (one, two) = (
            TokenStore::in_directory(&dir, "https://one"),
            TokenStore::in_directory(&dir, "https://../two"),
        );
        one.write(&tokens("a"), &one.take_lock().unwrap()).unwrap();
        assert_eq!(one.read().unwrap().unwrap().access.reveal(), "a");
        assert!(two.read().unwrap().is_none());
        assert_eq!(two.path().parent(), Some(dir.as_path()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(one.path()), mode(&dir)), (0o600, 0o700));
        assert_eq!(fs::read_to_string(dir.join(".gitignore")).unwrap(), "*\n");
        assert!(one.remove().unwrap() && !one.remove().unwrap());
    }

    #[test]
    fn an_unused_reservation_leaves_the_login_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let store = TokenStore::in_directory(dir.path(), "https://one");
        let lock = store.take_lock().unwrap();
        store.write(&tokens("a"), &lock).unwrap();
        drop(store.reserve(&lock).unwrap());
        assert_eq!(store.read().unwrap().unwrap().access.reveal(), "a");
        let long = "b".repeat(3 * RESERVED_SIZE);
        store.write_reserved(store.reserve(&lock).unwrap(), &tokens(&long)).unwrap();
        assert_eq!(store.read().unwrap().unwrap().access.reveal(), long);
        store.write(&tokens("c"), &lock).unwrap();
        assert!(fs::read_to_string(store.path()).unwrap().ends_with("}\n"));
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 3, "the login, its lock and the .gitignore");
    }

    #[test]
    fn a_login_that_others_can_read_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let store = TokenStore::in_directory(dir.path(), "https://one");
        store.write(&tokens("a"), &store.take_lock().unwrap()).unwrap();
        fs::set_permissions(store.path(), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(store.read().unwrap_err().to_string().contains("chmod 600"));
    }
}
