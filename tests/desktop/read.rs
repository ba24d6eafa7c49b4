//! Tests of text recognition: on a real screen with the real program, and errors without it.

use base::desktop_protocol::{Area, CaptureTarget, DesktopRequest, DesktopResponse, OcrWord};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use testkit::desktop::Desktop;

use crate::support::Helper;

fn words(helper: &mut Helper, picture: String) -> Vec<OcrWord> {
    match helper.ask(DesktopRequest::Read { picture }) {
        DesktopResponse::Words { words } => words,
        other => panic!("{other:?}: `./setup --tests` installs tesseract"),
    }
}

#[test]
fn words_on_the_screen_are_recognized_with_their_positions() {
    let desktop = Desktop::start();
    let program = desktop.program("Fixture");
    let mut helper = Helper::on(&desktop);
    let press = program.place("Press_me");
    let found = words(&mut helper, helper_picture(&desktop));
    let heading: Vec<&str> = found.iter().map(|word| word.text.as_str()).collect();
    let at = heading
        .iter()
        .position(|word| *word == "Quarterly")
        .unwrap_or_else(|| panic!("{heading:?}"));
    assert_eq!(heading[at..at + 3], ["Quarterly", "Report", "2031"]);
    assert!(found[at].sure > 60, "{:?}", found[at]);
    // In native pixels, although the image was scaled up for recognition.
    let word =
        found.iter().find(|word| word.text == "Press").unwrap_or_else(|| panic!("{heading:?}"));
    let Area { x, y, .. } = word.area;
    assert!((press.x..press.x + press.width).contains(&x), "{word:?} {press:?}");
    assert!((press.y..press.y + press.height).contains(&y), "{word:?} {press:?}");
}

fn helper_picture(desktop: &Desktop) -> String {
    let (picture, _) = Helper::on(desktop).captures(CaptureTarget::default());
    picture.data
}

#[test]
fn an_invalid_image_and_a_missing_program_are_faults() {
    let path = std::env::var("PATH").unwrap();
    let mut helper = Helper::nowhere(&[("PATH", &path)]);
    for picture in [String::new(), "%%%".to_owned(), STANDARD.encode("no picture")] {
        let fault = helper.fault(DesktopRequest::Read { picture });
        assert_eq!(fault.what, "the picture cannot be read");
    }
    let mut helper = Helper::nowhere(&[("PATH", "/nonexistent")]);
    let fault = helper.fault(DesktopRequest::Read { picture: String::new() });
    assert!(fault.why.unwrap().contains("tesseract") && fault.next[0].contains("tesseract-ocr"));
}
