//! Detects the type of a file by its first bytes, never by its name.

use image::ImageFormat;

/// An image format that models accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageKind {
    /// PNG, including animated ones.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

/// Known formats that are not accepted: offset, bytes and name.
const UNSUPPORTED: [(usize, &[u8], &str); 18] = [
    (4, b"ftypheic", "HEIC"),
    (4, b"ftypheix", "HEIC"),
    (4, b"ftypmif1", "HEIF"),
    (4, b"ftypmsf1", "HEIF"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftypavis", "AVIF"),
    (4, b"ftyp", "a video (MP4 or alike)"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"BM", "BMP"),
    (0, b"\0\0\x01\0", "ICO"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"8BPS", "Photoshop"),
    (0, b"%PDF-", "PDF"),
    (0, b"\x1aE\xdf\xa3", "a video (Matroska or WebM)"),
    (0, b"\x7fELF", "a program"),
];

/// Number of bytes of a text that are searched for the start of an SVG.
const MAX_PROBED: usize = 4096;

impl ImageKind {
    /// Returns the format of a file, or a sentence that says what it is instead and what to do.
    pub fn of(bytes: &[u8]) -> Result<ImageKind, String> {
        let has =
            |offset: usize, magic: &[u8]| bytes.get(offset..).is_some_and(|b| b.starts_with(magic));
        if has(0, b"\x89PNG\r\n\x1a\n") {
            return Ok(ImageKind::Png);
        }
        if has(0, b"\xff\xd8\xff") {
            return Ok(ImageKind::Jpeg);
        }
        if has(0, b"GIF87a") || has(0, b"GIF89a") {
            return Ok(ImageKind::Gif);
        }
        if has(0, b"RIFF") && has(8, b"WEBP") {
            return Ok(ImageKind::Webp);
        }
        if bytes.is_empty() {
            return Err("the file is empty".to_owned());
        }
        let unsupported = UNSUPPORTED.iter().find(|(offset, magic, _)| has(*offset, magic));
        Err(match unsupported {
            Some((_, _, "PDF")) => "it is PDF, not a picture; turn its pages into PNG first, for \
                                    example with `pdftoppm -png -r 100`"
                .to_owned(),
            Some((_, _, name)) => format!(
                "it is {name}; PNG, JPEG, GIF and WebP can be read. Convert it to PNG first, for \
                 example with `magick IN OUT.png` or `ffmpeg -i IN -frames:v 1 OUT.png`"
            ),
            None => describe_unsupported(bytes),
        })
    }

    /// Returns the format's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ImageKind::Png => "PNG",
            ImageKind::Jpeg => "JPEG",
            ImageKind::Gif => "GIF",
            ImageKind::Webp => "WebP",
        }
    }

    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        self.format().to_mime_type()
    }

    /// Returns the decoder's format.
    pub(crate) fn format(self) -> ImageFormat {
        match self {
            ImageKind::Png => ImageFormat::Png,
            ImageKind::Jpeg => ImageFormat::Jpeg,
            ImageKind::Gif => ImageFormat::Gif,
            ImageKind::Webp => ImageFormat::WebP,
        }
    }
}

/// Describes a file that is not a supported image: an SVG, other text, or an unknown format.
fn describe_unsupported(bytes: &[u8]) -> String {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_PROBED)]).to_lowercase();
    let start = start.trim_start_matches('\u{feff}').trim_start();
    let kinds = "PNG, JPEG, GIF and WebP can be read";
    if start.starts_with('<') && start.contains("<svg") {
        return "it is SVG, which is text: read it as a text file, or draw it as PNG first, for \
                example with `rsvg-convert IN -o OUT.png`"
            .to_owned();
    }
    if start.contains('\0') || start.contains('\u{fffd}') {
        return format!("unknown image format; {kinds}");
    }
    format!("it is text, not a picture; {kinds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_files_are_named_with_a_hint() {
        let why = |bytes: &[u8]| ImageKind::of(bytes).unwrap_err();
        assert!(why(b"\0\0\0\x18ftypheic\0\0\0\0").contains("it is HEIC"));
        assert!(why(b"\0\0\0\x18ftypisom\0\0\0\0").contains("video"));
        assert!(why(b"<?xml version=\"1.0\"?>\n<SVG/>").contains("rsvg-convert"));
        assert!(why(b"\xef\xbb\xbf<svg xmlns=\"\"/>").contains("SVG"));
        assert!(why(b"%PDF-1.7").contains("pdftoppm"));
        assert!(why(b"hello").contains("it is text"));
        assert!(why(b"\x01\0\x02").contains("unknown image format"));
        assert!(why(b"").contains("empty"));
        // Truncated within the magic bytes.
        assert!(why(b"\x89PN").contains("unknown image format"));
    }
}
