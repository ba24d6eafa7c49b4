//! A screenshot through the portal.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use image::RgbImage;
use zbus::Variant;

use super::Portal;

impl Portal {
    /// Returns the pixels of the whole desktop.
    pub(crate) fn picture(&self) -> Result<RgbImage> {
        let interface = "org.freedesktop.portal.Screenshot";
        let results = self.request(interface, "Screenshot", |mut options| {
            options.insert("interactive", Variant::from(false));
            ("", options)
        })?;
        let what = || "the portal's picture cannot be read";
        let place = results.get("uri").and_then(|uri| <&str>::try_from(uri).ok());
        let file = place.and_then(file).ok_or_else(|| Failure::failed(what()))?;
        let picture = image::open(&file).or_fail(what);
        // The portal saves the screenshot among the user's images, where it is not wanted.
        let _ = std::fs::remove_file(&file);
        Ok(picture?.to_rgb8())
    }
}

/// Returns the path of a `file:` URL.
fn file(address: &str) -> Option<PathBuf> {
    let path = address.strip_prefix("file://")?;
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => bytes.push(*first),
        }
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_url_is_converted_to_its_path() {
        let of = |address| file(address).map(|path| path.display().to_string());
        assert_eq!(of("file:///tmp/a%20b%C5%BC.png").as_deref(), Some("/tmp/a bż.png"));
        assert_eq!(of("file:///tmp/100%").as_deref(), Some("/tmp/100%"));
        assert_eq!(of("https://example.com/a.png"), None);
        assert_eq!(of("file://host/a.png"), None);
    }
}
