//! Prepares an image for sending: upright, not larger than a model can see, without metadata.
//!
//! Every image is decoded, so only valid images are sent. A file that already fits and contains
//! nothing else is sent byte for byte; any other file is re-encoded.

use std::io::Cursor;

use image::codecs::gif::GifDecoder;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngDecoder;
use image::codecs::webp::WebPDecoder;
use image::imageops::{FilterType, overlay};
use image::metadata::Orientation;
use image::{AnimationDecoder, DynamicImage, ImageDecoder, ImageReader, Limits, Rgba, RgbaImage};
use serde_json::{Value, json};

use super::kind::ImageKind;
use super::metadata;

/// Maximum length of a side in pixels. The Messages API scales larger images down itself (see its
/// documentation on vision, "Evaluate image size").
pub(crate) const MAX_SIDE: u32 = 1568;
/// Maximum size in bytes of an image that is sent: 5 MB as base64, the limit of the Messages API.
const MAX_SENT: usize = 3_750_000;
/// Maximum size in bytes of a decoded image: 64 million pixels of four bytes each.
const MAX_DECODED: u64 = 256 << 20;
/// Maximum memory in bytes of a decoder, including its own tables and copies.
const MAX_ALLOCATED: u64 = 768 << 20;
/// JPEG qualities, tried in order until the image fits.
const QUALITIES: [u8; 4] = [90, 75, 60, 40];

/// Width and height in pixels.
type Size = (u32, u32);

/// An image that can be sent.
pub struct ReadyImage {
    /// The encoded bytes.
    pub bytes: Vec<u8>,
    /// Its format.
    pub kind: ImageKind,
    size: Size,
    /// The file's format, its size when upright, and its size in bytes.
    file: (ImageKind, Size, usize),
    notes: Vec<&'static str>,
}

/// A decoded image.
struct Decoded {
    picture: DynamicImage,
    orientation: Orientation,
    is_animated: bool,
}

/// Prepares an image that may have at most `max_bytes` bytes. The error is a sentence.
pub fn prepare(kind: ImageKind, bytes: Vec<u8>, max_bytes: usize) -> Result<ReadyImage, String> {
    let max_bytes = max_bytes.min(MAX_SENT);
    let Decoded { mut picture, orientation, is_animated } = decode(kind, &bytes)?;
    let is_rotated = orientation != Orientation::NoTransforms;
    let size = upright_size((picture.width(), picture.height()), orientation);
    let is_small = size.0.max(size.1) <= MAX_SIDE;
    let mut notes = Vec::new();
    if is_rotated {
        notes.push("turned upright");
    }
    if is_animated {
        notes.push("only the first picture of an animation");
    }
    let file = (kind, size, bytes.len());
    if is_small
        && !is_rotated
        && !is_animated
        && bytes.len() <= max_bytes
        && metadata::is_clean(kind, &bytes)
    {
        return Ok(ReadyImage { bytes, kind, size, file, notes });
    }
    drop(bytes);
    if !is_small {
        picture = picture.resize(MAX_SIDE, MAX_SIDE, FilterType::CatmullRom);
    }
    picture.apply_orientation(orientation);
    let (kind, bytes) = encode(&picture, kind, max_bytes)?;
    Ok(ReadyImage { bytes, kind, size: (picture.width(), picture.height()), file, notes })
}

/// Returns the size of an image after it is rotated.
fn upright_size((width, height): Size, orientation: Orientation) -> Size {
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    match orientation {
        Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH => (height, width),
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => (width, height),
    }
}

fn decode(kind: ImageKind, bytes: &[u8]) -> Result<Decoded, String> {
    let damaged = |error: image::ImageError| format!("the {} is damaged: {error}", kind.name());
    let mut reader = ImageReader::with_format(Cursor::new(bytes), kind.format());
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_ALLOCATED);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    if decoder.total_bytes() > MAX_DECODED {
        return Err(format!(
            "it has {width}x{height} points, which needs {} of memory; at most {} are taken. Make \
             it smaller first, for example with `magick IN -resize {MAX_SIDE}x{MAX_SIDE} OUT.png`",
            format_bytes(decoder.total_bytes()),
            format_bytes(MAX_DECODED)
        ));
    }
    // An image with damaged metadata is still usable.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let picture = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok(Decoded { picture, orientation, is_animated: is_animated(kind, bytes) })
}

/// Whether the file contains more than one frame.
fn is_animated(kind: ImageKind, bytes: &[u8]) -> bool {
    let bytes = Cursor::new(bytes);
    match kind {
        ImageKind::Png => PngDecoder::new(bytes).and_then(|it| it.is_apng()).unwrap_or(false),
        ImageKind::Gif => GifDecoder::new(bytes).is_ok_and(|it| it.into_frames().nth(1).is_some()),
        ImageKind::Webp => WebPDecoder::new(bytes).is_ok_and(|it| it.has_animation()),
        ImageKind::Jpeg => false,
    }
}

/// Re-encodes an image: a photo as JPEG, any other losslessly if that fits.
fn encode(
    picture: &DynamicImage,
    from: ImageKind,
    max_bytes: usize,
) -> Result<(ImageKind, Vec<u8>), String> {
    let failed = |error: image::ImageError| format!("it cannot be re-encoded: {error}");
    if from != ImageKind::Jpeg {
        let mut bytes = Vec::new();
        to_eight_bits(picture)
            .write_to(&mut Cursor::new(&mut bytes), image::ImageFormat::Png)
            .map_err(failed)?;
        if bytes.len() <= max_bytes {
            return Ok((ImageKind::Png, bytes));
        }
    }
    let flat = DynamicImage::ImageRgb8(flatten_on_white(picture).to_rgb8());
    for quality in QUALITIES {
        let mut bytes = Vec::new();
        let encoder = JpegEncoder::new_with_quality(&mut bytes, quality);
        flat.write_with_encoder(encoder).map_err(failed)?;
        if bytes.len() <= max_bytes {
            return Ok((ImageKind::Jpeg, bytes));
        }
    }
    Err("too large together with the images before it: read it in a separate call".to_owned())
}

/// Reduces the image to eight bits per channel.
fn to_eight_bits(picture: &DynamicImage) -> DynamicImage {
    match picture.color().has_alpha() {
        true => DynamicImage::ImageRgba8(picture.to_rgba8()),
        false if picture.color().has_color() => DynamicImage::ImageRgb8(picture.to_rgb8()),
        false => DynamicImage::ImageLuma8(picture.to_luma8()),
    }
}

/// Renders transparent pixels on a white background.
fn flatten_on_white(picture: &DynamicImage) -> DynamicImage {
    if !picture.color().has_alpha() {
        return picture.clone();
    }
    let white = Rgba([255, 255, 255, 255]);
    let mut canvas = RgbaImage::from_pixel(picture.width(), picture.height(), white);
    overlay(&mut canvas, &picture.to_rgba8(), 0, 0);
    DynamicImage::ImageRgba8(canvas)
}

impl ReadyImage {
    /// Returns the size of the sent image in pixels.
    pub fn size(&self) -> (u32, u32) {
        self.size
    }

    /// Describes the image for the model.
    pub fn describe(&self) -> String {
        let (kind, (width, height), bytes) = self.file;
        let mut text = format!("{} {width}x{height}, {}", kind.name(), format_bytes(bytes as u64));
        let (sent_width, sent_height) = self.size;
        let sent = format_bytes(self.bytes.len() as u64);
        text.push_str(&format!(
            "; sent as {} {sent_width}x{sent_height}, {sent}",
            self.kind.name()
        ));
        if width > sent_width {
            let factor = f64::from(width.max(height)) / f64::from(sent_width.max(sent_height));
            text.push_str(&format!(
                " (made smaller: a point of it times {factor:.3} is the point of the file)"
            ));
        }
        self.notes.iter().for_each(|note| text.push_str(&format!(" ({note})")));
        text
    }

    /// Returns the description as JSON.
    pub(crate) fn to_json(&self, path: &str) -> Value {
        let (kind, (width, height), bytes) = self.file;
        let (sent_width, sent_height) = self.size;
        json!({
            "path": path, "type": kind.media_type(), "width": width, "height": height,
            "bytes": bytes,
            "sent": {
                "type": self.kind.media_type(), "width": sent_width, "height": sent_height,
                "bytes": self.bytes.len(),
            },
            "notes": self.notes,
        })
    }
}

fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=999_999 => format!("{} kB", bytes / 1000),
        1_000_000.. => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
#[path = "prepare_tests.rs"]
mod tests;
