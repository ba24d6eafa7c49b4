//! A desktop with a program on it, and the tools that see and use it.

use base64::Engine as _;
use image::RgbImage;
use serde_json::{Value, json};
use testkit::desktop::{Desktop, DesktopProgram};
use testkit::env::{TestEnv, built};

use crate::tools_support::{Bench, Called};

/// A desktop, a program, and a directory from which tools are called.
pub struct Screen {
    pub bench: Bench,
    pub program: DesktopProgram,
    // Dropped last.
    _desktop: Desktop,
}

/// The switch, and where the helper is; `more` are further keys of that section.
pub fn control(more: &str) -> String {
    let program = built("g3-desktop");
    format!(
        "[computer_control]\nenabled = true\nprogram = {:?}\nmax_actions_per_second = 0\n{more}\n",
        program.display().to_string()
    )
}

/// Leads all that an environment starts to this desktop.
pub fn lead(env: &mut TestEnv, desktop: &Desktop) {
    for (key, value) in desktop.variables() {
        env.set(&key, value);
    }
}

impl Screen {
    /// A desktop whose program is shown and has the focus.
    pub fn new(profile: &'static str) -> Screen {
        Screen::with(profile, "")
    }

    /// The same with more configured.
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

    /// The same place with the names of another profile.
    pub fn of(mut self, profile: &'static str) -> Screen {
        self.bench.profile = profile;
        self
    }

    /// The middle of a widget.
    pub fn middle(&self, name: &str) -> (i32, i32) {
        self.program.place(name).middle()
    }

    /// A click there, as arguments.
    pub fn at(&self, name: &str, more: Value) -> Value {
        let (x, y) = self.middle(name);
        let mut args = json!({ "x": x, "y": y });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        args
    }
}

/// The pixels of a picture in base64.
pub fn pixels(data: &str) -> RgbImage {
    let bytes = base64::engine::general_purpose::STANDARD.decode(data).unwrap();
    image::load_from_memory(&bytes).unwrap().to_rgb8()
}
