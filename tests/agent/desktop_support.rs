//! A desktop with a program, and the tools that use it.

use base64::Engine as _;
use image::RgbImage;
use serde_json::{Value, json};
use testkit::desktop::{Desktop, DesktopProgram};
use testkit::env::{TestEnv, built};

use crate::tools_support::{Bench, Called};

/// A desktop, a program, and a bench for calling tools.
pub struct Screen {
    pub bench: Bench,
    pub program: DesktopProgram,
    // Dropped last.
    _desktop: Desktop,
}

/// Returns a configuration that enables the tools and names the helper; `more` adds keys to that
/// section.
pub fn control(more: &str) -> String {
    let program = built("g3-desktop");
    format!(
        "[computer_control]\nenabled = true\nprogram = {:?}\nmax_actions_per_second = 0\n{more}\n",
        program.display().to_string()
    )
}

/// Makes all programs of an environment use this desktop.
pub fn lead(env: &mut TestEnv, desktop: &Desktop) {
    for (key, value) in desktop.variables() {
        env.set(&key, value);
    }
}

impl Screen {
    /// Creates a desktop whose program is visible and focused.
    pub fn new(profile: &'static str) -> Screen {
        Screen::with(profile, "")
    }

    /// Like [`Screen::new`], with additional configuration.
    pub fn with(profile: &'static str, more: &str) -> Screen {
        let desktop = Desktop::start();
        let program = desktop.program("Fixture");
        let mut bench = Bench::new(profile);
        lead(&mut bench.env, &desktop);
        bench.env.config(&control(more));
        Screen { bench, program, _desktop: desktop }
    }

    pub fn call(&self, name: &str, args: Value) -> Called {
        self.bench.call(name, args)
    }

    /// Returns the same screen with another profile.
    pub fn of(mut self, profile: &'static str) -> Screen {
        self.bench.profile = profile;
        self
    }

    /// Returns the center of a widget.
    pub fn middle(&self, name: &str) -> (i32, i32) {
        self.program.place(name).middle()
    }

    /// Returns the arguments of a click at the center of a widget.
    pub fn at(&self, name: &str, more: Value) -> Value {
        let (x, y) = self.middle(name);
        let mut args = json!({ "x": x, "y": y });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    }
}

/// Decodes a base64 image.
pub fn pixels(data: &str) -> RgbImage {
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    image::load_from_memory(&bytes).unwrap().to_rgb8()
}
