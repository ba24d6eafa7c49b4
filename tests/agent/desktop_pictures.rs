//! Tests of screenshots: programs, files, windows, and observers.

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;

use image::{ImageFormat, Rgb, RgbImage};
use serde_json::json;
use testkit::desktop::Desktop;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;

use crate::desktop_support::{Screen, control, lead, pixels};
use crate::tools_support::{Bench, Called};
use crate::web_support::{Site, answer};

const RED: Rgb<u8> = Rgb([255, 0, 0]);

/// Returns an image whose pixels encode their positions.
fn picture(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, 7]))
}

/// Creates a bench whose `PATH` has only basic shell tools and these programs. Each records its
/// arguments and display; those that work write a 60x40 image to their last argument.
fn programs(all: &[(&str, bool)]) -> Bench {
    let mut bench = Bench::new("egirl");
    let bin = bench.env.home().join("bin");
    fs::create_dir(&bin).unwrap();
    let mut bytes = Cursor::new(Vec::new());
    picture(60, 40).write_to(&mut bytes, ImageFormat::Png).unwrap();
    let source = bench.env.home().join("source.png");
    fs::write(&source, bytes.into_inner()).unwrap();
    let log = bench.env.home().join("log");
    for (name, works) in all {
        let act = if *works {
            format!("/bin/cp {} \"$last\"", source.display())
        } else {
            "echo no >&2; exit 3".into()
        };
        let script = format!(
            "#!/bin/sh\nfor last; do :; done\necho \"{name} $DISPLAY $*\" >> {}\n{act}\n",
            log.display()
        );
        let path = bin.join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    bench.env.set("PATH", bin.display());
    bench.env.set("DISPLAY", ":7");
    bench
}

/// Returns what the programs recorded, without the file names.
fn log(bench: &Bench) -> Vec<String> {
    let text = fs::read_to_string(bench.env.home().join("log")).unwrap_or_default();
    let short = |line: &str| line.rsplit_once(' ').unwrap_or_default().0.to_owned();
    text.lines().map(short).collect()
}

/// Asserts that the directory of temporary files is empty.
fn tidy(bench: &Bench) {
    let left: Vec<_> = fs::read_dir(bench.env.home().join("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

fn size(called: &Called) -> (u32, u32) {
    assert_eq!(called.images[0]["media_type"], "image/png");
    pixels(called.images[0]["data"].as_str().unwrap()).dimensions()
}

#[test]
fn divergence_31_the_programs_are_tried_in_order() {
    let all = ["grim", "scrot", "maim", "gnome-screenshot"];
    for first in 0..all.len() {
        let there: Vec<(&str, bool)> =
            all.iter().enumerate().map(|(at, name)| (*name, at >= first)).collect();
        let bench = programs(&there);
        let taken = bench.call("screenshot", json!({}));
        taken.says(all[first]).works();
        assert_eq!((size(&taken), &taken.metadata["isImage"]), ((60, 40), &json!(true)));
        let asked: Vec<String> =
            log(&bench).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(asked, all[..=first], "one after the other, until one works");
        tidy(&bench);
    }
    let none = programs(&all.map(|name| (name, false)));
    let failed = none.call("screenshot", json!({}));
    failed.says("Screenshot failed").says("install").says("code 3: no").fails("failed");
    tidy(&none);
    let missing = programs(&[]);
    missing.call("screenshot", json!({})).says("Screenshot failed").says("scrot").fails("failed");
}

#[test]
fn divergence_15_every_program_respects_display_and_region() {
    let region = json!({ "x": 10, "y": 5, "width": 20, "height": 15 });
    for (name, told) in [
        ("grim", "grim :7 -g 10,5 20x15"),
        ("scrot", "scrot :7 -a 10,5,20,15"),
        ("maim", "maim :7 -g 20x15+10+5"),
    ] {
        let bench = programs(&[(name, true)]);
        bench.call("screenshot", json!({ "region": region })).works();
        assert_eq!(log(&bench), [told]);
    }
    // This program captures everything, so the image is cropped.
    let bench = programs(&[("gnome-screenshot", true)]);
    let cut = bench.call("screenshot", json!({ "region": region }));
    assert_eq!(size(&cut), (20, 15));
    let shown = pixels(cut.images[0]["data"].as_str().unwrap());
    assert_eq!(
        (shown.get_pixel(0, 0), shown.get_pixel(19, 14)),
        (&Rgb([10, 5, 7]), &Rgb([29, 19, 7]))
    );
    let beside = json!({ "region": { "x": 100, "y": 0, "width": 5, "height": 5 } });
    bench.call("screenshot", beside).says("outside the screen").fails("failed");
    bench.call("screenshot", json!({ "region": { "x": 1 } })).says("`region`").fails("validation");
    // grim has no X displays, the others have no outputs.
    let both = programs(&[("grim", true), ("maim", true)]);
    both.call("screenshot", json!({ "display": ":9" })).works();
    both.call("screenshot", json!({ "display": "HDMI-1" })).works();
    assert_eq!(log(&both), ["maim :9", "grim :7 -o HDMI-1"]);
}

#[test]
fn a_program_that_hangs_or_writes_garbage_is_skipped() {
    let bench = programs(&[("scrot", false), ("maim", true)]);
    let path = bench.env.home().join("bin/scrot");
    fs::write(path, "#!/bin/sh\nfor last; do :; done\necho rubbish > \"$last\"\n").unwrap();
    bench.call("screenshot", json!({})).says("maim").works();
    tidy(&bench);
}

#[test]
fn without_programs_the_helper_takes_the_screenshot() {
    let screen = Screen::new("egirl");
    let canvas = screen.program.place("Canvas");
    let region = json!({ "x": canvas.x, "y": canvas.y, "width": 30, "height": 20 });
    let taken = screen.call("screenshot", json!({ "region": region }));
    taken.works();
    let shown = pixels(taken.images[0]["data"].as_str().unwrap());
    assert_eq!(shown.dimensions(), (30, 20));
    assert!(shown.pixels().all(|pixel| *pixel == RED), "the canvas is red");
}

#[test]
fn divergence_28_images_go_to_the_temporary_directory_and_windows_have_names_and_ids() {
    let screen = Screen::new("g3");
    let take = |path: &str, window: &str| {
        screen.call("take_screenshot", json!({ "path": path, "window_id": window }))
    };
    let taken = take("shots/fixture.png", "fixture");
    taken.says("saved").says("shots/fixture.png").works();
    let file = screen.bench.env.home().join("tmp/shots/fixture.png");
    let saved = image::open(&file).unwrap().to_rgb8();
    let shows = &taken.metadata["shows"];
    let of = |key: &str| u32::try_from(shows[key].as_i64().unwrap()).unwrap();
    assert_eq!(saved.dimensions(), (of("width"), of("height")));
    let (x, y) = screen.middle("Canvas");
    let inside = (x.unsigned_abs() - of("x"), y.unsigned_abs() - of("y"));
    assert_eq!(saved.get_pixel(inside.0, inside.1), &RED);
    assert_eq!(taken.images.len(), 1, "the model sees it");
    let windows = screen.call("list_windows", json!({})).metadata;
    let id = windows["windows"][0]["id"].as_str().unwrap().to_owned();
    let by_id = take("two.png", &id);
    by_id.works();
    assert_eq!(&by_id.metadata["shows"], shows);
    let whole = screen.call("take_screenshot", json!({ "path": "all.png" }));
    whole.works();
    assert_eq!(whole.metadata["shows"]["width"], 1280);
    let unknown = take("no.png", "Safari");
    unknown.says("Screenshot failed").says("list_windows shows the windows").fails("failed");
    assert!(!unknown.text.contains("install"), "the helper works: {}", unknown.text);
    assert!(!screen.bench.env.home().join("tmp/no.png").exists());
    // Writing to the working directory does not ask, writing elsewhere does.
    take(&screen.bench.at("here.png"), "fixture").works();
    assert!(screen.bench.has("here.png"));
    take("/etc/g3-no.png", "fixture").says("outside").fails("denied");
    take("../../g3-no.png", "fixture").fails("denied");
}

#[test]
fn without_a_temporary_directory_images_go_to_tmp_in_the_home_directory() {
    let mut screen = Screen::new("g3");
    screen.bench.env.set("TMPDIR", "");
    screen.call("take_screenshot", json!({ "path": "a.png", "window_id": "" })).works();
    // The test's home directory already has one, as a user's may.
    assert!(screen.bench.env.home().join("tmp/a.png").is_file());
}

#[test]
fn collision_screenshot_is_identified_by_its_parameters() {
    let screen = Screen::new("egirl");
    let shown = screen.call("screenshot", json!({}));
    assert!(shown.works().contains("Screenshot with") && !shown.text.contains("saved"));
    let saved = screen.call("screenshot", json!({ "path": "x.png", "window_id": "fixture" }));
    saved.says("saved").works();
    assert!(screen.bench.env.home().join("tmp/x.png").is_file());
    let half = screen.call("screenshot", json!({ "window_id": "fixture" }));
    half.says("`path`").fails("validation");
}

#[test]
fn a_vision_model_describes_the_screen_and_its_elements_can_be_clicked() {
    let listed = json!([{ "content": "Knopf", "type": "button", "x": 640, "y": 400, "width": 20,
        "height": 10 }]);
    let model = ModelServer::start([
        ScriptedReply::says(format!("```json\n{listed}\n```")),
        ScriptedReply::says("A window with a red field."),
    ]);
    let screen = Screen::with("core", "vision_provider = \"openai.eyes\"");
    let provider = format!(
        "\n[providers.openai.eyes]\nmodel = \"scripted\"\napi_key = \"k\"\nbase_url = \"{}\"\n",
        model.openai_url()
    );
    let section = crate::desktop_support::control("vision_provider = \"openai.eyes\"");
    screen.bench.env.config(&format!("{section}{provider}"));
    let seen = screen.call("observe_screen", json!({ "intent": "the button" }));
    seen.works();
    assert_eq!(seen.metadata["actual_backend"], "vision");
    assert!(seen.metadata["stdout"].as_str().unwrap().contains("button \"Knopf\" at 640,400"));
    let asked = model.requests();
    assert!(asked[0].text().contains("the button"), "the intent is told");
    assert!(
        String::from_utf8_lossy(&asked[0].raw).contains("image/jpeg;base64"),
        "and the picture"
    );
    assert!(
        asked[0].body["max_tokens"]
            .as_u64()
            .or(asked[0].body["max_completion_tokens"].as_u64())
            .unwrap()
            <= 1024
    );
    let click = json!({ "action": "click", "element_id": "0" });
    let clicked = screen.call("execute_gui", click);
    assert_eq!(clicked.metadata["coordinates"], json!({ "x": 640, "y": 400 }));
    let told = screen.call("observe_screen", json!({ "mode": "understanding" }));
    assert_eq!(told.metadata["stdout"], "A window with a red field.");
    // If it fails, the next observer is used, and the result says why the first one failed.
    let next = screen.call("observe_screen", json!({}));
    assert_eq!(next.metadata["actual_backend"], "accessibility");
    assert!(next.metadata["notes"][0].as_str().unwrap().starts_with("vision: "), "{next:?}");
}

#[test]
fn an_omniparser_server_is_used_and_an_image_is_the_last_resort() {
    let site = Site::new();
    let list = json!({ "parsed_content_list": [
        { "type": "icon", "bbox": [0.5, 0.5, 0.5, 0.5], "interactivity": true, "content": "here" },
    ] });
    site.has("/parse/", answer("200 OK", &["content-type: application/json"], list.to_string()));
    let url = site.url("");
    let screen =
        Screen::with("core", &format!("omniparser_url = \"{url}\"\nobserve = [\"omniparser\"]"));
    let seen = screen.call("observe_screen", json!({}));
    seen.works();
    assert_eq!(seen.metadata["actual_backend"], "omniparser");
    assert!(seen.metadata["stdout"].as_str().unwrap().contains("icon \"here\" at 640,400"));
    assert!(site.asked()[0].body.contains("base64_image"));
    // It only lists elements: to understand the screen, the model must look at the image itself.
    let bare = screen.call("observe_screen", json!({ "mode": "understanding" }));
    bare.works();
    let told = &bare.metadata;
    assert_eq!(
        (&told["actual_backend"], &told["needs_llm_vision"]),
        (&json!("llm_vision"), &json!(true))
    );
    assert_eq!(bare.images[0]["media_type"], "image/jpeg");
    let shown = pixels(bare.images[0]["data"].as_str().unwrap());
    let (x, y) = screen.middle("Canvas");
    let [red, green, _] = shown.get_pixel(x.unsigned_abs(), y.unsigned_abs()).0;
    assert!(red > 240 && green < 20, "{red} {green}");
    site.has("/parse/", answer("500 Oops", &[], "broken"));
    let failed = screen.call("observe_screen", json!({}));
    assert_eq!(failed.metadata["actual_backend"], "llm_vision");
    assert!(failed.metadata["notes"][0].as_str().unwrap().contains("omniparser: it answers 500"));
}

#[test]
fn text_is_recognized_if_no_program_exposes_controls() {
    let screen = Screen::with("core", "observe = [\"ocr\"]");
    let seen = screen.call("observe_screen", json!({}));
    seen.works();
    assert_eq!(seen.metadata["actual_backend"], "ocr");
    assert!(
        seen.metadata["stdout"].as_str().unwrap().contains("quiet"),
        "{}",
        seen.metadata["stdout"]
    );
}

#[test]
fn small_text_in_a_window_on_a_dark_screen_is_recognized() {
    let mut desktop = Desktop::bare();
    desktop.start_manager();
    let program = desktop.script("small_text.py", "small", &["Invoice Total 42"]);
    program.saw("shown");
    let mut bench = Bench::new("g3");
    lead(&mut bench.env, &desktop);
    bench.env.config(&control(""));
    let found = bench.call("find_element", json!({ "text": "Invoice Total" }));
    found.says("(read)").works();
    let place = &found.metadata["elements"][0]["bounds"];
    let (x, y) = (place["x"].as_i64().unwrap(), place["y"].as_i64().unwrap());
    assert!((195..400).contains(&x) && (145..250).contains(&y), "{place}");
}
