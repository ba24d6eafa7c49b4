//! The link for another device, such as a phone.

use std::io::IsTerminal;

use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;

use crate::report;

/// Prints the link, on a terminal also as a picture for a camera.
pub(crate) fn show(link: &str, print: fn(&str)) {
    print(link);
    if std::io::stderr().is_terminal()
        && let Ok(code) = QrCode::new(link)
    {
        // Most terminals are dark: what is light on paper is drawn.
        let mut picture = code.render::<Dense1x2>();
        picture.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark);
        report::say(&picture.build());
    }
}
