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
    cuts: bool,
    args: fn(&CaptureRequest, &str) -> Vec<String>,
}

/// Timeout of a program.
const TIME: Duration = Duration::from_secs(15);
/// The session's services, which a program of the user's desktop may access.
const SERVICES: [&str; 2] = ["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"];

/// The programs, in order.
static PROGRAMS: [CaptureProgram; 4] = [
    CaptureProgram { name: "grim", wayland: true, cuts: true, args: grim },
    CaptureProgram { name: "scrot", wayland: false, cuts: true, args: scrot },
    CaptureProgram { name: "maim", wayland: false, cuts: true, args: maim },
    CaptureProgram {
        name: "gnome-screenshot",
        wayland: false,
        cuts: false,
        args: |_, file| vec!["-f".into(), file.into()],
    },
];

fn grim(wish: &CaptureRequest, file: &str) -> Vec<String> {
    let mut args = Vec::new();
    if let Some(output) = &wish.display {
        args.extend(["-o".to_owned(), output.clone()]);
    }
    if let Some(Area { x, y, width, height }) = wish.area {
        args.extend(["-g".to_owned(), format!("{x},{y} {width}x{height}")]);
    }
    args.push(file.to_owned());
    args
}

fn scrot(wish: &CaptureRequest, file: &str) -> Vec<String> {
    let region = |Area { x, y, width, height }| ["-a".into(), format!("{x},{y},{width},{height}")];
    wish.area.map(region).into_iter().flatten().chain([file.to_owned()]).collect()
}

fn maim(wish: &CaptureRequest, file: &str) -> Vec<String> {
    let region = |Area { x, y, width, height }| ["-g".into(), format!("{width}x{height}+{x}+{y}")];
    wish.area.map(region).into_iter().flatten().chain([file.to_owned()]).collect()
}

/// Whether this names an X display, not an output.
fn is_x(display: &str) -> bool {
    display.contains(':')
}

/// Takes a screenshot with the first program that works. Returns `None` if none does, and notes the
/// failures.
pub(crate) async fn shoot(
    at: &ToolContext,
    wish: &CaptureRequest,
    tried: &mut Vec<String>,
) -> Result<Option<Shot>, ToolError> {
    for row in &PROGRAMS {
        let Some(program) = find_program(row.name) else { continue };
        if wish.display.as_deref().is_some_and(|display| is_x(display) == row.wayland) {
            continue;
        }
        let work = tokio::time::timeout(TIME, one(at, row, &program, wish));
        match at.cancel.run_until_cancelled(work).await {
            Some(Ok(Ok(shot))) => return Ok(Some(shot)),
            Some(Ok(Err(why))) => tried.push(format!("{}: {why}", row.name)),
            Some(Err(_)) => tried.push(format!("{}: no end after {} s", row.name, TIME.as_secs())),
            None => return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")),
        }
    }
    Ok(None)
}

/// Lets one program write a file in a temporary directory.
async fn one(
    at: &ToolContext,
    row: &CaptureProgram,
    program: &Path,
    wish: &CaptureRequest,
) -> Result<Shot, String> {
    let dir = tempfile::Builder::new().prefix("g3-screen-").tempdir();
    let dir = dir.map_err(|why| format!("no temporary directory: {why}"))?;
    let file = dir.path().join("screen.png");
    run(at, row, program, wish, &file).await?;
    let bytes = std::fs::read(&file).map_err(|_| "it wrote no picture".to_owned())?;
    let cut = wish.area.filter(|_| !row.cuts);
    let ready = tokio::task::spawn_blocking(move || checked(bytes, cut)).await;
    let (bytes, (width, height)) = ready.map_err(|_| "its picture is damaged".to_owned())??;
    let (x, y) = wish.area.map_or((0, 0), |area| (area.x, area.y));
    Ok(Shot { bytes, shows: Area { x, y, width, height }, backend: row.name.to_owned() })
}

async fn run(
    at: &ToolContext,
    row: &CaptureProgram,
    program: &Path,
    wish: &CaptureRequest,
    file: &Path,
) -> Result<(), String> {
    let mut job = Command::new(program, &at.cwd).env_clear().kill_on_parent_death();
    for (key, value) in child_env(std::env::vars_os(), &[], ChildKind::Tool) {
        job = job.env(key, value);
    }
    for name in SERVICES {
        if let Some(value) = std::env::var_os(name) {
            job = job.env(name, value);
        }
    }
    if let Some(display) = wish.display.as_ref().filter(|_| !row.wayland) {
        job = job.env("DISPLAY", display);
    }
    let job = job.args((row.args)(wish, &file.to_string_lossy()));
    let mut running = job.spawn_async().map_err(|why| why.to_string())?;
    let mut said = Vec::new();
    if let Some(stderr) = running.child.stderr.take() {
        // The stderr of an exited program may be held open by others, so only the exit counts.
        let mut stderr = stderr.take(2_000);
        let read = stderr.read_to_end(&mut said);
        let status = tokio::select! {
            status = running.child.wait() => status,
            _ = read => running.child.wait().await,
        };
        let status = status.map_err(|why| why.to_string())?;
        if !status.success() {
            let said = base::text::printable_output(&String::from_utf8_lossy(&said));
            return Err(format!("it ended with code {}: {}", exit_code(status), said.trim()));
        }
    }
    Ok(())
}

/// Checks that the image can be decoded, and crops it if necessary.
fn checked(bytes: Vec<u8>, cut: Option<Area>) -> Result<(Vec<u8>, (u32, u32)), String> {
    let damaged = |why: image::ImageError| format!("its picture is damaged: {why}");
    let picture = image::load_from_memory_with_format(&bytes, ImageFormat::Png).map_err(damaged)?;
    let Some(area) = cut else { return Ok((bytes, (picture.width(), picture.height()))) };
    let part = inside(area, (picture.width(), picture.height()))
        .ok_or_else(|| "the region is outside the screen".to_owned())?;
    let picture = picture.crop_imm(part.0, part.1, part.2, part.3);
    let mut bytes = Vec::new();
    picture.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(damaged)?;
    Ok((bytes, (picture.width(), picture.height())))
}

/// Returns the part of an area within an image of this size.
fn inside(area: Area, (width, height): (u32, u32)) -> Option<(u32, u32, u32, u32)> {
    let along = |from: i32, length: u32, all: u32| {
        let first = i64::from(from).clamp(0, i64::from(all));
        let last = (i64::from(from) + i64::from(length)).clamp(0, i64::from(all));
        let (first, length) = (u32::try_from(first).ok()?, u32::try_from(last - first).ok()?);
        (length > 0).then_some((first, length))
    };
    let (x, width) = along(area.x, area.width, width)?;
    let (y, height) = along(area.y, area.height, height)?;
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
        assert!(is_x(":1") && is_x("host:0.0") && !is_x("HDMI-1"));
    }

    #[test]
    fn cropping_stays_within_the_image() {
        let area = |x, y, width, height| Area { x, y, width, height };
        assert_eq!(inside(area(-5, 10, 20, 500), (100, 50)), Some((0, 10, 15, 40)));
        assert_eq!(inside(area(100, 0, 5, 5), (100, 50)), None);
        assert_eq!(inside(area(-9, 0, 5, 5), (100, 50)), None);
    }
}
