//! External screenshot programs, in the order in which they are tried.

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use base::desktop_protocol::Area;
use base::process::{Command, exit_code, find_program};
use base::sandbox::environment::{ChildKind, child_env};
use image::ImageFormat;
use tokio::io::AsyncReadExt;

use super::capture::CaptureRequest;
use tools::context::ToolContext;
use tools::output::{ToolError, ToolErrorKind};

/// A screenshot.
#[derive(Debug)]
pub(crate) struct Shot {
    /// The image as PNG.
    pub bytes: Vec<u8>,
    /// The area of the screen that it shows.
    pub shows: Area,
    /// The program that took it.
    pub backend: String,
}

/// A program and how its arguments are built.
struct CaptureProgram {
    name: &'static str,
    /// Whether it uses Wayland, which has outputs; the others use X, which has displays.
    wayland: bool,
    /// Whether it captures only the region; otherwise the image is cropped.
    crops: bool,
    args: fn(&CaptureRequest, &str) -> Vec<String>,
}

/// How long what an exited program wrote to stderr is read.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// Timeout of a program.
const TIMEOUT: Duration = Duration::from_secs(15);
/// The session's services, which a program of the user's desktop may access.
const SERVICES: [&str; 2] = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// The programs, in order.
static PROGRAMS: [CaptureProgram; 4] = [
    CaptureProgram { name: "grim", wayland: true, crops: true, args: grim },
    CaptureProgram { name: "scrot", wayland: false, crops: true, args: scrot },
    CaptureProgram { name: "maim", wayland: false, crops: true, args: maim },
    CaptureProgram {
        name: "gnome-screenshot",
        wayland: false,
        crops: false,
        args: |_, file| vec!["-f".into(), file.into()],
    },
];

fn grim(request: &CaptureRequest, file: &str) -> Vec<String> {
    let mut args = Vec::new();
    if let Some(output) = &request.display {
        args.extend(["-o".to_owned(), output.clone()]);
    }
    if let Some(Area { x, y, width, height }) = request.area {
        args.extend(["-g".to_owned(), format!("{x},{y} {width}x{height}")]);
    }
    args.push(file.to_owned());
    args
}

fn scrot(request: &CaptureRequest, file: &str) -> Vec<String> {
    let region = |Area { x, y, width, height }| ["-a".into(), format!("{x},{y},{width},{height}")];
    request.area.map(region).into_iter().flatten().chain([file.to_owned()]).collect()
}

fn maim(request: &CaptureRequest, file: &str) -> Vec<String> {
    let region = |Area { x, y, width, height }| ["-g".into(), format!("{width}x{height}+{x}+{y}")];
    request.area.map(region).into_iter().flatten().chain([file.to_owned()]).collect()
}

/// Whether this names an X display, not an output.
fn is_x11(display: &str) -> bool {
    display.contains(':')
}

/// Takes a screenshot with the first program that works. Returns `None` if none does, and notes the
/// failures.
pub(crate) async fn shoot(
    context: &ToolContext,
    request: &CaptureRequest,
    tried: &mut Vec<String>,
) -> Result<Option<Shot>, ToolError> {
    for row in &PROGRAMS {
        let Some(program) = find_program(row.name) else { continue };
        if request.display.as_deref().is_some_and(|display| is_x11(display) == row.wayland) {
            continue;
        }
        let capture = tokio::time::timeout(TIMEOUT, run_program(context, row, &program, request));
        match context.cancel.run_until_cancelled(capture).await {
            Some(Ok(Ok(shot))) => return Ok(Some(shot)),
            Some(Ok(Err(error))) => tried.push(format!("{}: {error}", row.name)),
            Some(Err(_)) => {
                tried.push(format!("{}: no end after {} s", row.name, TIMEOUT.as_secs()))
            }
            None => return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
        }
    }
    Ok(None)
}

/// Lets one program write a file in a temporary directory.
async fn run_program(
    context: &ToolContext,
    row: &CaptureProgram,
    program: &Path,
    request: &CaptureRequest,
) -> Result<Shot, String> {
    let dir = tempfile::Builder::new().prefix("g3-screen-").tempdir();
    let dir = dir.map_err(|error| format!("no temporary directory: {error}"))?;
    let file = dir.path().join("screen.png");
    run(context, row, program, request, &file).await?;
    let bytes = std::fs::read(&file).map_err(|_| "it wrote no picture".to_owned())?;
    let crop = request.area.filter(|_| !row.crops);
    let checked = tokio::task::spawn_blocking(move || check_picture(bytes, crop)).await;
    let (bytes, (width, height)) = checked.map_err(|_| "its picture is damaged".to_owned())??;
    let (x, y) = request.area.map_or((0, 0), |area| (area.x, area.y));
    Ok(Shot { bytes, shows: Area { x, y, width, height }, backend: row.name.to_owned() })
}

async fn run(
    context: &ToolContext,
    row: &CaptureProgram,
    program: &Path,
    request: &CaptureRequest,
    file: &Path,
) -> Result<(), String> {
    let mut command = Command::new(program, &context.cwd).env_clear().kill_on_parent_death();
    for (key, value) in child_env(std::env::vars_os(), &[], ChildKind::Tool) {
        command = command.env(key, value);
    }
    for name in SERVICES {
        if let Some(value) = std::env::var_os(name) {
            command = command.env(name, value);
        }
    }
    if let Some(display) = request.display.as_ref().filter(|_| !row.wayland) {
        command = command.env("DISPLAY", display);
    }
    let command = command.args((row.args)(request, &file.to_string_lossy()));
    let mut running = command.spawn_async().map_err(|error| error.to_string())?;
    let mut error_output = Vec::new();
    if let Some(stderr) = running.child.stderr.take() {
        let mut stderr = stderr.take(2_000);
        let mut read = std::pin::pin!(stderr.read_to_end(&mut error_output));
        let status = tokio::select! {
            status = running.child.wait() => {
                // Others may hold the stderr of an exited program open.
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut read).await;
                status
            }
            _ = &mut read => running.child.wait().await,
        };
        let status = status.map_err(|error| error.to_string())?;
        if !status.success() {
            let error_output =
                base::text::printable_output(&String::from_utf8_lossy(&error_output));
            return Err(format!(
                "it ended with code {}: {}",
                exit_code(status),
                error_output.trim()
            ));
        }
    }
    Ok(())
}

/// Checks that the image can be decoded, and crops it if necessary.
fn check_picture(bytes: Vec<u8>, crop: Option<Area>) -> Result<(Vec<u8>, (u32, u32)), String> {
    let damaged_error = |error: image::ImageError| format!("its picture is damaged: {error}");
    let picture =
        image::load_from_memory_with_format(&bytes, ImageFormat::Png).map_err(damaged_error)?;
    let Some(area) = crop else { return Ok((bytes, (picture.width(), picture.height()))) };
    let part = clip(area, (picture.width(), picture.height()))
        .ok_or_else(|| "the region is outside the screen".to_owned())?;
    let picture = picture.crop_imm(part.0, part.1, part.2, part.3);
    let mut bytes = Vec::new();
    picture.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(damaged_error)?;
    Ok((bytes, (picture.width(), picture.height())))
}

/// Returns the part of an area within an image of this size.
fn clip(area: Area, (width, height): (u32, u32)) -> Option<(u32, u32, u32, u32)> {
    let clip_axis = |start: i32, length: u32, total: u32| {
        let first = i64::from(start).clamp(0, i64::from(total));
        let last = (i64::from(start) + i64::from(length)).clamp(0, i64::from(total));
        let (first, length) = (u32::try_from(first).ok()?, u32::try_from(last - first).ok()?);
        (length > 0).then_some((first, length))
    };
    let (x, width) = clip_axis(area.x, area.width, width)?;
    let (y, height) = clip_axis(area.y, area.height, height)?;
    Some((x, y, width, height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_receives_the_region_in_its_own_format() {
        let area = Some(Area { x: 1, y: 2, width: 30, height: 40 });
        let wish = CaptureRequest { area, display: Some("HDMI-1".into()), window: None };
        let told = |row: &CaptureProgram| (row.args)(&wish, "f.png").join(" ");
        let all: Vec<String> = PROGRAMS.iter().map(told).collect();
        assert_eq!(
            all,
            [
                "-o HDMI-1 -g 1,2 30x40 f.png",
                "-a 1,2,30,40 f.png",
                "-g 30x40+1+2 f.png",
                "-f f.png"
            ]
        );
    }

    #[test]
    fn displays_and_outputs_are_distinguished() {
        assert!(is_x11(":1") && is_x11("host:0.0") && !is_x11("HDMI-1"));
    }

    #[test]
    fn cropping_stays_within_the_image() {
        let area = |x, y, width, height| Area { x, y, width, height };
        assert_eq!(clip(area(-5, 10, 20, 500), (100, 50)), Some((0, 10, 15, 40)));
        assert_eq!(clip(area(100, 0, 5, 5), (100, 50)), None);
        assert_eq!(clip(area(-9, 0, 5, 5), (100, 50)), None);
    }
}
