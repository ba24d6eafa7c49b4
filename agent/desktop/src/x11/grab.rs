//! Pixels of the screen.

use base::desktop::Area;
use base::failure::{Failure, OrFail, Result};
use image::RgbImage;
use x11rb::image::{Image, PixelLayout};

use super::Desk;

impl Desk {
    /// The pixels of a part of the screen; the part must lie within it.
    pub fn grab(&self, area: Area) -> Result<RgbImage> {
        let what = || "the X server gives no picture of its screen";
        let small = |number: u32| u16::try_from(number).or_fail(what);
        let near = |number: i32| i16::try_from(number).or_fail(what);
        let (x, y) = (near(area.x)?, near(area.y)?);
        let (width, height) = (small(area.width)?, small(area.height)?);
        let root = self.screen.root;
        let (image, visual) = Image::get(&self.conn, root, x, y, width, height).or_fail(what)?;
        let layout = self.layout(visual)?;
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let bytes = pixels.flat_map(|(x, y)| {
            let (red, green, blue) = layout.decode(image.get_pixel(x, y));
            [red, green, blue].map(|value| (value >> 8) as u8)
        });
        let picture = RgbImage::from_raw(width.into(), height.into(), bytes.collect());
        picture.ok_or_else(|| Failure::failed(what()))
    }

    /// Where the colours are in a pixel.
    fn layout(&self, visual: u32) -> Result<PixelLayout> {
        let mut visuals = self.screen.allowed_depths.iter().flat_map(|depth| &depth.visuals);
        let found = visuals.find(|known| known.visual_id == visual);
        let layout = found.and_then(|known| PixelLayout::from_visual_type(*known).ok());
        let why = "its colours are those of a palette, not red, green and blue";
        layout.ok_or_else(|| Failure::failed("this X screen cannot be read").because(why))
    }
}
