//! Tests of `read_image`: images reach the model upright, small enough and without metadata.

use std::io::Cursor;

use base64::Engine as _;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::tools_support::{Bench, Called};

const RED: Rgb<u8> = Rgb([255, 0, 0]);
const BLUE: Rgb<u8> = Rgb([0, 0, 255]);

/// Returns an image whose left half is red and whose right half is blue.
fn halves(width: u32, height: u32) -> DynamicImage {
    RgbImage::from_fn(width, height, |x, _| if x < width / 2 { RED } else { BLUE }).into()
}

fn written(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    picture.write_to(&mut Cursor::new(&mut bytes), format).unwrap();
    bytes
}

/// Returns a photo of a camera held upright: to be rotated by 90 degrees, with a location in its
/// metadata.
fn photo(picture: &DynamicImage) -> Vec<u8> {
    let jpeg = written(picture, ImageFormat::Jpeg);
    let mut exif =
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
    exif.extend(b"GPS 52.5163N 13.3777E");
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], b"\xff\xe1", &length, &exif, &jpeg[2..]].concat()
}

/// Returns a PNG that claims a size and has no data.
fn bomb(side: u32) -> Vec<u8> {
    let mut bytes = written(&halves(4, 4), ImageFormat::Png);
    bytes[16..20].copy_from_slice(&side.to_be_bytes());
    bytes[20..24].copy_from_slice(&side.to_be_bytes());
    let mut sum = u32::MAX;
    for byte in &bytes[12..29] {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    bytes[29..33].copy_from_slice(&(!sum).to_be_bytes());
    bytes
}

fn read(bench: &Bench, paths: &[&str]) -> Called {
    bench.call("read_image", json!({ "file_paths": paths }))
}

/// Returns the bytes of an attached image.
fn bytes(image: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(image["data"].as_str().unwrap()).unwrap()
}

#[test]
fn images_are_detected_by_content_and_attached_in_order() {
    let bench = Bench::new("g3");
    let picture = halves(40, 20);
    bench.write("a.txt", written(&picture, ImageFormat::Png));
    bench.write("b.png", written(&picture, ImageFormat::Jpeg));
    bench.write("c", written(&picture, ImageFormat::WebP));
    bench.write("d.jpg", written(&picture, ImageFormat::Gif));
    let called = read(&bench, &["a.txt", "b.png", "c", "d.jpg"]);
    called.says("Picture 1: a.txt: PNG 40x20").says("Picture 4: d.jpg: GIF 40x20").works();
    let kinds: Vec<&str> =
        called.images.iter().map(|image| image["media_type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["image/png", "image/jpeg", "image/webp", "image/png"]);
    assert_eq!(bytes(&called.images[0]), std::fs::read(bench.at("a.txt")).unwrap());
    for image in &called.images {
        let seen = image::load_from_memory(&bytes(image)).unwrap().to_rgb8();
        assert!(seen.get_pixel(5, 5).0[0] > 200 && seen.get_pixel(35, 5).0[2] > 200);
    }
    assert_eq!(called.metadata["pictures"][1]["width"], 40);
}

#[test]
fn a_single_path_is_accepted_and_two_different_ones_are_an_error() {
    let bench = Bench::new("g3");
    bench.write("a.png", written(&halves(4, 4), ImageFormat::Png));
    for key in ["file_path", "path", "filePath"] {
        assert_eq!(bench.call("read_image", json!({ key: "a.png" })).images.len(), 1);
    }
    let both = |list: &[&str]| {
        bench.call("read_image", json!({ "file_path": "a.png", "file_paths": list }))
    };
    assert_eq!(both(&["a.png"]).images.len(), 1);
    both(&["b.png"]).says("contradict").fails("validation");
    both(&["a.png", "a.png"]).says("contradict").fails("validation");
    read(&bench, &[]).says("missing required parameter `file_paths`").fails("validation");
    bench.call("read_image", json!({})).says("`file_paths`").fails("validation");
    read(&bench, &["a.png"; 11]).says("at most 10").fails("validation");
}

#[test]
fn a_photo_is_rotated_scaled_down_and_has_no_location() {
    let bench = Bench::new("g3");
    bench.write("photo.jpg", photo(&halves(3136, 1568)));
    bench.write("small.jpg", photo(&halves(40, 20)));
    let called = read(&bench, &["photo.jpg", "small.jpg"]);
    called.says("JPEG 1568x3136").says("sent as JPEG 784x1568").says("times 2.000");
    called.says("turned upright").works();
    for image in &called.images {
        let sent = bytes(image);
        assert!(!sent.windows(3).any(|three| three == b"GPS"), "the place was sent");
        assert!(!sent.windows(4).any(|four| four == b"Exif"));
        // The left side is now at the top.
        let seen = image::load_from_memory(&sent).unwrap().to_rgb8();
        let (width, height) = seen.dimensions();
        assert!(height == 2 * width && seen.get_pixel(width / 2, 4).0[0] > 200);
        assert!(seen.get_pixel(width / 2, height - 4).0[2] > 200);
    }
}

#[test]
fn an_animation_shows_its_first_frame_and_says_so() {
    let bench = Bench::new("g3");
    let mut gif = Vec::new();
    let mut encoder = image::codecs::gif::GifEncoder::new(&mut gif);
    for picture in [halves(8, 8), DynamicImage::new_rgb8(8, 8)] {
        encoder.encode_frame(image::Frame::new(picture.to_rgba8())).unwrap();
    }
    drop(encoder);
    bench.write("a.gif", gif);
    let called = read(&bench, &["a.gif"]);
    called.says("only the first picture of an animation").works();
    let seen = image::load_from_memory(&bytes(&called.images[0])).unwrap().to_rgb8();
    assert_eq!(seen.get_pixel(1, 1), &RED);
}

#[test]
fn unreadable_files_are_named_and_the_others_are_attached() {
    let bench = Bench::new("g3");
    let whole = written(&halves(64, 64), ImageFormat::Png);
    bench.write("good.png", &whole);
    bench.write("cut.png", &whole[..whole.len() / 2]);
    bench.write("bomb.png", bomb(50_000));
    bench.write("a.heic", b"\0\0\0\x18ftypheic\0\0\0\0heic");
    bench.write("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>");
    std::fs::create_dir(bench.at("dir")).unwrap();
    let all = ["cut.png", "bomb.png", "a.heic", "a.svg", "gone.png", "dir", "good.png"];
    let called = read(&bench, &all);
    called.says("Not given: cut.png: the PNG is damaged").says("bomb.png: it has 50000x50000");
    called.says("a.heic: it is HEIC").says("a.svg: it is SVG").says("gone.png").says("directory");
    called.says("Picture 1: good.png").works();
    assert_eq!(called.images.len(), 1);
    assert_eq!(called.metadata["failed"].as_array().unwrap().len(), 6);
    read(&bench, &["gone.png"]).fails("not_found");
    read(&bench, &["gone.png", "a.svg"]).fails("failed");
}

#[test]
fn each_path_is_checked_by_the_gate() {
    let bench = Bench::new("g3");
    let picture = written(&halves(4, 4), ImageFormat::Png);
    bench.write("in.png", &picture);
    std::fs::write(bench.env.home().join("out.png"), &picture).unwrap();
    std::os::unix::fs::symlink(bench.env.home().join("out.png"), bench.at("link.png")).unwrap();
    for outside in ["../out.png", "~/out.png", "link.png"] {
        let called = read(&bench, &["in.png", outside]);
        called.says("out.png").fails("denied");
        assert!(called.images.is_empty());
        bench.call("read_image", json!({ "file_path": outside })).fails("denied");
    }
}

#[test]
fn the_model_sees_the_requested_images() {
    let stage = Stage::new([
        ScriptedReply::call("read_image", json!({ "file_paths": ["photo.jpg", "gone.png"] })),
        ScriptedReply::says("It is red above."),
    ]);
    std::fs::write(stage.repo.path().join("photo.jpg"), photo(&halves(40, 20))).unwrap();
    assert_eq!(stage.g3(["what is on it?"]).ok(), "It is red above.");
    let asked = stage.asked();
    let content = &asked[1].messages().last().unwrap()["content"][0]["content"];
    assert!(content[0]["text"].as_str().unwrap().contains("Not given: gone.png"), "{content}");
    let source = &content[1]["source"];
    assert_eq!(source["media_type"], "image/jpeg");
    let seen = image::load_from_memory(&bytes(source)).unwrap();
    assert_eq!((seen.width(), seen.height()), (20, 40));
}
