//! Captures pixels of the screen, and of windows that are covered by others.

use std::time::Duration;

use base::desktop_protocol::Area;
use base::failure::{Failure, OrFail, Result};
use image::RgbImage;
use x11rb::connection::Connection;
use x11rb::image::{BitsPerPixel, Image, ImageOrder, PixelLayout};
use x11rb::protocol::composite::{ConnectionExt as _, Redirect};
use x11rb::protocol::xproto::ConnectionExt as _;

use super::{OpenWindow, X11Display};
use crate::cancel::pause;

/// Time for a covered window to draw its hidden parts.
const DRAW_TIME: Duration = Duration::from_millis(300);
/// The usual color masks: red, green and blue within 32 bits.
const RGB_MASKS: [u32; 3] = [0xff_0000, 0xff00, 0xff];

impl X11Display {
    /// Returns the pixels of an area, which must be within the screen.
    pub(crate) fn grab(&self, area: Area) -> Result<RgbImage> {
        self.pixels(self.screen.root, area, self.screen.root_visual)
    }

    /// Returns the pixels of a part of a window, even if others cover it.
    pub(crate) fn grab_window(&self, open: &OpenWindow, area: Area) -> Result<RgbImage> {
        if !self.is_covered(open)? {
            return self.grab(area);
        }
        // A redirected window is drawn completely, whatever is above it, as long as we are
        // connected.
        let what = || format!("`{}` is covered, and cannot be drawn aside", open.info.title);
        let frame = self.outermost(open.id);
        self.conn.composite_query_version(0, 4).or_fail(what)?.reply().or_fail(what)?;
        let redirect = self.conn.composite_redirect_window(frame, Redirect::AUTOMATIC);
        redirect.or_fail(what)?.check().or_fail(what)?;
        pause(DRAW_TIME)?;
        let pixmap = self.conn.generate_id().or_fail(what)?;
        let name_result = self.conn.composite_name_window_pixmap(frame, pixmap);
        name_result.or_fail(what)?.check().or_fail(what)?;
        let visual = self.conn.get_window_attributes(frame).or_fail(what)?.reply();
        let visual = visual.or_fail(what)?.visual;
        let Area { x, y, .. } = open.info.area;
        self.pixels(pixmap, Area { x: area.x - x, y: area.y - y, ..area }, visual)
    }

    /// Whether a window above it overlaps it.
    fn is_covered(&self, open: &OpenWindow) -> Result<bool> {
        let windows = self.windows()?;
        let windows_above = windows.iter().take_while(|other| other.id != open.id);
        let mut windows_above = windows_above.filter(|other| !other.info.minimized);
        Ok(windows_above.any(|other| meet(other.info.area, open.info.area)))
    }

    /// Returns the top-level ancestor of a window: its frame, or the window itself.
    fn outermost(&self, id: u32) -> u32 {
        let mut outermost = id;
        while let Some(tree) = self.conn.query_tree(outermost).ok().and_then(|it| it.reply().ok())
            && tree.parent != self.screen.root
            && tree.parent != x11rb::NONE
        {
            outermost = tree.parent;
        }
        outermost
    }

    fn pixels(&self, from: u32, area: Area, visual: u32) -> Result<RgbImage> {
        let what = || "the X server gives no picture of its screen";
        let to_u16 = |number: u32| u16::try_from(number).or_fail(what);
        let to_i16 = |number: i32| i16::try_from(number).or_fail(what);
        let (x, y) = (to_i16(area.x)?, to_i16(area.y)?);
        let (width, height) = (to_u16(area.width)?, to_u16(area.height)?);
        let (image, _) = Image::get(&self.conn, from, x, y, width, height).or_fail(what)?;
        let bytes = self.colours(&image, visual)?;
        let picture = RgbImage::from_raw(area.width, area.height, bytes);
        picture.ok_or_else(|| Failure::failed(what()))
    }

    /// Returns red, green and blue of each pixel.
    fn colours(&self, image: &Image<'_>, visual: u32) -> Result<Vec<u8>> {
        let mut visuals = self.screen.allowed_depths.iter().flat_map(|depth| &depth.visuals);
        let visual_type = visuals.find(|known_visual| known_visual.visual_id == visual).copied();
        let layout =
            visual_type.and_then(|known_visual| PixelLayout::from_visual_type(known_visual).ok());
        let (Some(known_visual), Some(layout)) = (visual_type, layout) else {
            let reason = "its colours are those of a palette, not red, green and blue";
            return Err(Failure::failed("this X screen cannot be read").because(reason));
        };
        let is_rgb = [known_visual.red_mask, known_visual.green_mask, known_visual.blue_mask]
            == RGB_MASKS
            && image.bits_per_pixel() == BitsPerPixel::B32
            && image.byte_order() == ImageOrder::LsbFirst;
        if is_rgb {
            let pixels = image.data().chunks_exact(4);
            return Ok(pixels.flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]).collect());
        }
        let rows = (0..image.height()).flat_map(|y| (0..image.width()).map(move |x| (x, y)));
        let colours = rows.flat_map(|(x, y)| {
            let (red, green, blue) = layout.decode(image.get_pixel(x, y));
            [red, green, blue].map(|value| (value >> 8) as u8)
        });
        Ok(colours.collect())
    }
}

/// Whether two areas overlap.
fn meet(a: Area, b: Area) -> bool {
    let overlaps_axis = |start: i32, length: u32, from: i32, other_length: u32| {
        i64::from(start) < i64::from(from) + i64::from(other_length)
            && i64::from(from) < i64::from(start) + i64::from(length)
    };
    overlaps_axis(a.x, a.width, b.x, b.width) && overlaps_axis(a.y, a.height, b.y, b.height)
}
