//! GUI programs. They exit when the user closes the window, so a command that starts one runs in
//! the background and is reported as launched.

use std::time::Duration;

use serde_json::{Value, json};

use super::background;
use gate::shell_parse;
use tools::call::Invocation;
use tools::output::{ToolError, ToolOutput};

/// Programs that open a window and stay open regardless of their arguments.
const PROGRAMS: &[&str] = &[
    "alacritty",
    "atril",
    "audacity",
    "baobab",
    "blender",
    "brave-browser",
    "caja",
    "cheese",
    "chromium",
    "chromium-browser",
    "code",
    "darktable",
    "dolphin",
    "eog",
    "evince",
    "falkon",
    "feh",
    "firefox",
    "firefox-esr",
    "foot",
    "galculator",
    "geany",
    "gedit",
    "gimp",
    "gnome-calculator",
    "gnome-control-center",
    "gnome-system-monitor",
    "gnome-terminal",
    "gnome-text-editor",
    "google-chrome",
    "gthumb",
    "gvim",
    "inkscape",
    "kate",
    "kcalc",
    "kitty",
    "konsole",
    "krita",
    "kwrite",
    "leafpad",
    "libreoffice",
    "localc",
    "lowriter",
    "mate-terminal",
    "meld",
    "mousepad",
    "mpv",
    "nautilus",
    "nemo",
    "obs",
    "okular",
    "pavucontrol",
    "pcmanfm",
    "pluma",
    "ristretto",
    "shotwell",
    "simple-scan",
    "soffice",
    "spectacle",
    "terminator",
    "thunar",
    "thunderbird",
    "totem",
    "transmission-gtk",
    "urxvt",
    "virt-manager",
    "vlc",
    "wireshark",
    "xcalc",
    "xclock",
    "xdg-open",
    "xed",
    "xeyes",
    "xfce4-terminal",
    "xlogo",
    "xreader",
    "xterm",
    "xviewer",
    "zathura",
];
/// Arguments with which such a program prints something and exits.
const PRINT_FLAGS: &[&str] = &[
    "--dump-dom",
    "--headless",
    "--help",
    "--list-extensions",
    "--screenshot",
    "--version",
    "-h",
    "-help",
    "-v",
    "-version",
];
/// Time within which a program may fail immediately.
const START_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of bytes shown of the log of such a program.
const MAX_LOG: usize = 4 << 10;

/// Whether a command line is a single GUI program that stays open.
pub(crate) fn is_windowed(line: &str) -> bool {
    let commands = shell_parse::parse(line);
    let [command] = commands.as_slice() else { return false };
    let program =
        command.words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let prints_only = command.words.iter().any(|word| {
        PRINT_FLAGS.iter().any(|flag| word == flag || word.starts_with(&format!("{flag}=")))
    });
    let is_simple =
        command.redirect_targets.is_empty() && !line.contains(['|', '&', ';', '<', '>']);
    PROGRAMS.contains(&program) && !prints_only && is_simple
}

/// Launches the program.
pub(crate) async fn launch(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let started = background::run(call).await?;
    tokio::time::sleep(START_TIMEOUT).await;
    let metadata_text = |key: &str| started.metadata[key].as_str().unwrap_or_default().to_owned();
    let record =
        background::directory(call.context).join(format!("{}.json", metadata_text("name")));
    let is_running =
        background::load(&record).is_some_and(|record| background::is_running(&record));
    let log = metadata_text("log");
    let text = match is_running {
        true => format!("launched (pid {}); its output goes to {log}", started.metadata["pid"]),
        false => {
            let log_text = std::fs::read_to_string(&log).unwrap_or_default();
            let log_text = log_text.split_once("\n\n").map_or("", |(_, log_text)| log_text);
            format!("launched; it has ended already\n{}", base::text::tail(log_text, MAX_LOG))
        }
    };
    let text = text.trim_end();
    let mut metadata = json!({
        "status": "success", "stdout": text, "stderr": "", "exit_code": 0,
        "duration_ms": START_TIMEOUT.as_millis() as u64, "voice_message": "I launched the program.",
    });
    if let (Some(object), Value::Object(started_metadata)) =
        (metadata.as_object_mut(), started.metadata.clone())
    {
        for (key, value) in started_metadata {
            object.entry(key).or_insert(value);
        }
    }
    Ok(ToolOutput::success(text).with(metadata).titled("launched"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_open_a_window_and_stay_open_are_launched() {
        for line in ["xterm", "/usr/bin/xeyes", "firefox https://a.example", "DISPLAY=:1 xclock"] {
            assert!(is_windowed(line), "{line}");
        }
        for line in [
            "xterm -version",
            "ls",
            "xterm &",
            "xterm; ls",
            "chromium --headless x",
            "firefox --screenshot=a.png x",
            "echo xterm",
            "xterm > log",
        ] {
            assert!(!is_windowed(line), "{line}");
        }
    }
}
