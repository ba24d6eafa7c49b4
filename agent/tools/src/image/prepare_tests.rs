//! Tests of preparing images.

use image::{ImageEncoder, ImageFormat, Rgb, RgbImage};
use proptest::prelude::*;

use super::*;

fn png(width: u32, height: u32) -> Vec<u8> {
    written(
        &RgbImage::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, 9])).into(),
        ImageFormat::Png,
    )
}

fn written(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    picture.write_to(&mut Cursor::new(&mut bytes), format).unwrap();
    bytes
}

/// Inserts a chunk before the end of a PNG.
fn with_chunk(png: &[u8], name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let end = png.len() - 12;
    let mut bytes = png[..end].to_vec();
    bytes.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
    bytes.extend(name);
    bytes.extend(content);
    // The checksum is not verified; only the presence of the chunk matters.
    bytes.extend([0; 4]);
    bytes.extend(&png[end..]);
    bytes
}

#[test]
fn clean_files_are_sent_unchanged_and_others_are_re_encoded() {
    let plain = png(20, 10);
    assert_eq!(prepare(ImageKind::Png, plain.clone(), usize::MAX).unwrap().bytes, plain);
    assert!(!metadata::is_clean(ImageKind::Png, &with_chunk(&plain, b"tEXt", b"Author\0me")));
    assert!(!metadata::is_clean(ImageKind::Png, &[plain.as_slice(), b"behind the end"].concat()));
    let small = DynamicImage::from(RgbImage::new(8, 8));
    let jpeg = written(&small, ImageFormat::Jpeg);
    assert_eq!(prepare(ImageKind::Jpeg, jpeg.clone(), usize::MAX).unwrap().bytes, jpeg);
    assert!(!metadata::is_clean(ImageKind::Jpeg, &[jpeg.as_slice(), b"a film"].concat()));
    let comment = [&jpeg[..2], b"\xff\xfe\x00\x04me", &jpeg[2..]].concat();
    let sent = prepare(ImageKind::Jpeg, comment, usize::MAX).unwrap();
    assert!(metadata::is_clean(ImageKind::Jpeg, &sent.bytes));
    let webp = written(&small, ImageFormat::WebP);
    assert_eq!(prepare(ImageKind::Webp, webp.clone(), usize::MAX).unwrap().bytes, webp);
}

#[test]
fn large_images_are_scaled_down_until_they_fit() {
    let noise = |x: u32, y: u32| {
        let n =
            (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)).wrapping_mul(2_246_822_519);
        Rgb([(n >> 8) as u8, (n >> 16) as u8, (n >> 24) as u8])
    };
    let bytes = written(&RgbImage::from_fn(400, 400, noise).into(), ImageFormat::Png);
    let sent = prepare(ImageKind::Png, bytes.clone(), bytes.len() / 2).unwrap();
    assert!(sent.kind == ImageKind::Jpeg && sent.bytes.len() <= bytes.len() / 2);
    let why = prepare(ImageKind::Png, bytes, 500).err().unwrap();
    assert!(why.contains("too large together"), "{why}");
}

#[test]
fn transparent_pixels_are_white_in_a_jpeg() {
    let clear = DynamicImage::from(RgbaImage::from_pixel(4, 4, Rgba([0, 0, 0, 0])));
    assert_eq!(flatten_on_white(&clear).to_rgb8().get_pixel(1, 1), &Rgb([255, 255, 255]));
}

#[test]
fn sixteen_bit_and_grey_images_are_scaled_down_as_well() {
    let mut bytes = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    let points = vec![7; 2000 * 4 * 2];
    encoder.write_image(&points, 2000, 4, image::ExtendedColorType::L16).unwrap();
    let sent = prepare(ImageKind::Png, bytes, usize::MAX).unwrap();
    assert_eq!((sent.kind, sent.size), (ImageKind::Png, (MAX_SIDE, 3)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_files_do_not_panic(at in 0usize..2000, to: u8, cut in 0usize..2000, kind in 0usize..4) {
        let formats = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
        let picture = DynamicImage::from(RgbImage::from_fn(16, 16, |x, y| Rgb([x as u8, y as u8, 3])));
        let mut bytes = written(&picture, formats[kind]);
        let place = at % bytes.len();
        bytes[place] = to;
        bytes.truncate(bytes.len() - cut % bytes.len());
        if let Ok(kind) = ImageKind::of(&bytes) {
            // Everything that is sent can be decoded.
            if let Ok(sent) = prepare(kind, bytes, usize::MAX) {
                prop_assert!(decode(sent.kind, &sent.bytes).is_ok());
            }
        }
    }
}
