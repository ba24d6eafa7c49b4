//! The hash function of a repository's object ids: SHA-1, with 40 digits, or SHA-256, with 64
//! (`extensions.objectFormat`). The checksum of an index is made by the same function. libgit2 leaves the
//! end of a SHA-1 id unset, which `Hash` reads: ids are keys of a `BTreeMap`, never of a `HashMap`.

use git2::{ObjectFormat, ObjectType, Oid};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The number of hexadecimal digits of an id, and the lengths in bytes.
const SHA1_DIGITS: usize = 40;
const SHA1_BYTES: usize = 20;
const SHA256_BYTES: usize = 32;

/// Parses a complete object id of either kind.
pub fn parse_id(text: &str) -> Result<Oid, git2::Error> {
    Oid::from_str_ext(text, of_id(text))
}

/// Returns the kind of a complete object id.
pub fn of_id(text: &str) -> ObjectFormat {
    match text.len() {
        ..=SHA1_DIGITS => ObjectFormat::Sha1,
        _ => ObjectFormat::Sha256,
    }
}

/// Returns the length of an id in bytes.
pub(crate) fn id_length(format: ObjectFormat) -> usize {
    match format {
        ObjectFormat::Sha1 => SHA1_BYTES,
        ObjectFormat::Sha256 => SHA256_BYTES,
    }
}

/// Returns the id that a repository of this format gives to a blob.
pub fn hash_blob(content: &[u8], format: ObjectFormat) -> Result<Oid, git2::Error> {
    Oid::hash_object_ext(ObjectType::Blob, content, format)
}

/// Returns the id of the empty tree, which git knows in every repository.
pub(crate) fn empty_tree(format: ObjectFormat) -> String {
    base::text::hex(&digest(format, &[b"tree 0\0"]))
}

/// Returns the digest of the parts, one after the other.
pub(crate) fn digest(format: ObjectFormat, parts: &[&[u8]]) -> Vec<u8> {
    match format {
        ObjectFormat::Sha1 => digest_with::<Sha1>(parts),
        ObjectFormat::Sha256 => digest_with::<Sha256>(parts),
    }
}

fn digest_with<D: Digest>(parts: &[&[u8]]) -> Vec<u8> {
    let mut digest = D::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().to_vec()
}

/// Returns the beginning of the configuration of a repository of this format.
pub(crate) fn config(format: ObjectFormat) -> &'static str {
    match format {
        ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n",
        ObjectFormat::Sha256 => {
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = sha256\n"
        }
    }
}
