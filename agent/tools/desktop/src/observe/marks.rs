//! Draws frames around elements, for people who look at the image.

use std::io::Cursor;

use base::desktop_protocol::Picture;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::{Rgb, RgbImage};

use crate::shown_screen::Element;

/// Colors of interactive and other elements.
const COLOURS: [Rgb<u8>; 2] = [Rgb([230, 30, 30]), Rgb([40, 90, 230])];

/// Returns the image with a frame around each element, or `None` if it cannot be drawn or there are
/// no elements.
pub(crate) fn draw_marks(picture: &Picture, elements: &[Element]) -> Option<String> {
    if elements.is_empty() {
        return None;
    }
    let bytes = STANDARD.decode(&picture.data).ok()?;
    let mut canvas = image::load_from_memory(&bytes).ok()?.to_rgb8();
    for element in elements {
        draw_frame(&mut canvas, element);
    }
    let mut bytes = Vec::new();
    let encoder = JpegEncoder::new_with_quality(Cursor::new(&mut bytes), super::JPEG_QUALITY);
    canvas.write_with_encoder(encoder).ok()?;
    Some(STANDARD.encode(bytes))
}

fn draw_frame(picture: &mut RgbImage, element: &Element) {
    let colour = COLOURS[usize::from(!element.interactive)];
    let (width, height) = picture.dimensions();
    let to_pixels = |fraction: f64, total: u32| {
        ((fraction * f64::from(total)) as u32).min(total.saturating_sub(1))
    };
    let [left, top, right, bottom] = element.bbox;
    let (left, right) = (to_pixels(left, width), to_pixels(right, width));
    let (top, bottom) = (to_pixels(top, height), to_pixels(bottom, height));
    for x in left..=right {
        picture.put_pixel(x, top, colour);
        picture.put_pixel(x, bottom, colour);
    }
    for y in top..=bottom {
        picture.put_pixel(left, y, colour);
        picture.put_pixel(right, y, colour);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_drawn_on_element_edges_up_to_the_image_border() {
        let mut picture = RgbImage::new(20, 10);
        let element = |bbox| Element { bbox, interactive: true, ..Element::default() };
        draw_frame(&mut picture, &element([0.5, 0.5, 1.0, 1.0]));
        assert_eq!(picture.get_pixel(10, 5), &COLOURS[0]);
        assert_eq!(picture.get_pixel(19, 9), &COLOURS[0]);
        assert_eq!(picture.get_pixel(12, 7), &Rgb([0, 0, 0]));
        draw_frame(&mut RgbImage::new(1, 1), &element([0.0, 0.0, 1.0, 1.0]));
    }
}
