//! Scales an image down and encodes it as PNG or JPEG.

use std::io::Cursor;

use base::desktop_protocol::{Area, CaptureTarget, Picture};
use base::failure::{OrFail, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::FilterType;
use image::{DynamicImage, ImageFormat, RgbImage};

/// Returns the image as requested.
pub(crate) fn to_picture(
    pixels: RgbImage,
    shown_area: Area,
    target: &CaptureTarget,
    backend: &str,
) -> Result<Picture> {
    let (width, height) = fit_size((pixels.width(), pixels.height()), target.fit);
    let is_same_size = (width, height) == pixels.dimensions();
    let pixels = DynamicImage::from(pixels);
    let pixels = if is_same_size {
        pixels
    } else {
        pixels.resize_exact(width, height, FilterType::Triangle)
    };
    let (bytes, mime) = encode(&pixels, target.jpeg)?;
    Ok(Picture {
        data: STANDARD.encode(bytes),
        mime: mime.to_owned(),
        width,
        height,
        shows: shown_area,
        backend: backend.to_owned(),
    })
}

/// Returns the size that fits and keeps the aspect ratio; never larger.
fn fit_size((width, height): (u32, u32), fit: Option<(u32, u32)>) -> (u32, u32) {
    let Some((max_width, max_height)) = fit else { return (width, height) };
    let (max_width, max_height) = (max_width.max(1), max_height.max(1));
    if width <= max_width && height <= max_height {
        return (width, height);
    }
    // Scaled by the side that exceeds its limit more, in integers, so that this side is exact.
    let scaled_length = |a: u32, b: u32, by: u32| {
        u32::try_from(u64::from(a) * u64::from(b) / u64::from(by)).unwrap_or(u32::MAX).max(1)
    };
    if u64::from(width) * u64::from(max_height) >= u64::from(height) * u64::from(max_width) {
        (max_width, scaled_length(height, max_width, width))
    } else {
        (scaled_length(width, max_height, height), max_height)
    }
}

fn encode(pixels: &DynamicImage, jpeg: Option<u8>) -> Result<(Vec<u8>, &'static str)> {
    let what = || "the picture cannot be written";
    let mut bytes = Cursor::new(Vec::new());
    let mime = match jpeg {
        Some(quality) => {
            let encoder = JpegEncoder::new_with_quality(&mut bytes, quality.clamp(1, 100));
            pixels.write_with_encoder(encoder).or_fail(what)?;
            "image/jpeg"
        }
        None => {
            pixels.write_to(&mut bytes, ImageFormat::Png).or_fail(what)?;
            "image/png"
        }
    };
    Ok((bytes.into_inner(), mime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_only_scaled_down_and_keeps_its_aspect_ratio() {
        assert_eq!(fit_size((1280, 800), None), (1280, 800));
        assert_eq!(fit_size((1280, 800), Some((2000, 2000))), (1280, 800));
        assert_eq!(fit_size((2560, 1600), Some((1280, 10_000))), (1280, 800));
        assert_eq!(fit_size((1000, 3000), Some((1440, 900))), (300, 900));
        assert_eq!(fit_size((3000, 1), Some((300, 300))), (300, 1));
        assert_eq!(fit_size((10, 10), Some((0, 0))), (1, 1));
    }
}
