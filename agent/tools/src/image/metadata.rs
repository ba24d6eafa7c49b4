//! Checks whether a file contains only an image: no location, camera data, comments or trailing
//! data. Everything that is not known to be harmless counts as additional data.

use super::kind::ImageKind;

/// PNG chunks that only affect the appearance.
const PNG_CHUNKS: [&[u8; 4]; 11] = [
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"bKGD",
    b"pHYs",
];
/// WebP chunks that only affect the appearance.
const WEBP_CHUNKS: [&[u8; 4]; 4] = [b"VP8 ", b"VP8L", b"VP8X", b"ALPH"];

/// Whether the file can be sent unchanged. Never true for a GIF, since not every service accepts
/// it.
pub(crate) fn is_clean(kind: ImageKind, bytes: &[u8]) -> bool {
    let clean = match kind {
        ImageKind::Png => is_clean_png(bytes),
        ImageKind::Jpeg => is_clean_jpeg(bytes),
        ImageKind::Webp => is_clean_webp(bytes),
        ImageKind::Gif => None,
    };
    clean.unwrap_or(false)
}

fn is_clean_png(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes.get(8..)?;
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_first_chunk::<4>()?;
        if !PNG_CHUNKS.contains(&name) {
            return Some(false);
        }
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        rest = after.get(length.checked_add(4)?..)?;
        if name == b"IEND" {
            return Some(length == 0 && rest.is_empty());
        }
    }
}

fn is_clean_webp(bytes: &[u8]) -> Option<bool> {
    let (size, _) = bytes.get(4..)?.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*size) as usize + 8 != bytes.len() {
        return Some(false);
    }
    let mut rest = bytes.get(12..)?;
    while !rest.is_empty() {
        let (name, after) = rest.split_first_chunk::<4>()?;
        let (length, after) = after.split_first_chunk::<4>()?;
        if !WEBP_CHUNKS.contains(&name) {
            return Some(false);
        }
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        rest = after.get(length.checked_add(length % 2)?..)?;
    }
    Some(true)
}

fn is_clean_jpeg(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes.get(2..)?;
    loop {
        let (marker, after) = rest.split_first_chunk::<2>()?;
        let (length, body) = match marker {
            [0xff, 0xd9] => return Some(after.is_empty()),
            [0xff, _] => after.split_first_chunk::<2>()?,
            _ => return Some(false),
        };
        let length = usize::from(u16::from_be_bytes(*length)).checked_sub(2)?;
        let content = body.get(..length)?;
        rest = body.get(length..)?;
        match marker[1] {
            // The encoding of the image data.
            0xc0..=0xcf | 0xdb | 0xdd => {}
            // The header that every file has, without a thumbnail.
            0xe0 if content.starts_with(b"JFIF\0") && content.len() == 14 => {}
            // The color transform.
            0xee if content.starts_with(b"Adobe") && content.len() == 12 => {}
            // The image data, up to the next marker.
            0xda => rest = rest.get(scan_end(rest)?..)?,
            _ => return Some(false),
        }
    }
}

/// Returns the end of the image data: at a marker that is neither an escaped 255 byte nor a
/// restart.
fn scan_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xd0..=0xd7))
}
