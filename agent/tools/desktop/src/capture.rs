//! Screenshots. `take_screenshot` writes a file and supports windows; `screenshot` only shows an
//! image. The parameters distinguish the two.

use std::path::PathBuf;

use base::desktop_protocol::{Area, CaptureTarget};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::programs::{self, Shot};
use super::shown_screen::ShownScreen;
use super::{host, screen_call};
use gate::{Access, paths};
use provider::message::Image;
use tools::call::Invocation;
use tools::image::kind::ImageKind;
use tools::image::prepare;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, PathRule, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    path: Option<String>,
    #[serde(default)]
    window: String,
    display: Option<String>,
    region: Option<Value>,
}

/// The subject of a screenshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CaptureRequest {
    /// A window, by id, program or title.
    pub window: Option<String>,
    /// An X display or an output.
    pub display: Option<String>,
    /// A part of it.
    pub area: Option<Area>,
}

/// Maximum size in bytes of an image for a model.
const MAX_IMAGE_BYTES: usize = 3_000_000;
/// Hint for users if no screenshot can be taken.
const INSTALL_HINT: &str = "install grim (Wayland), scrot or maim (X11), or gnome-screenshot, or build \
                       g3-desktop (`cargo build --release -p desktop`)";

/// Returns the directory of images with a relative path: `$TMPDIR`, or `~/tmp`.
fn temp_dir() -> PathBuf {
    let configured = std::env::var_os("TMPDIR").map(PathBuf::from);
    configured.filter(|dir| dir.is_absolute()).unwrap_or_else(|| paths::expand_home("~/tmp"))
}

/// Returns the accesses: the screen, and the file if it is outside of that directory.
fn accesses(call: &Invocation<'_>) -> Vec<Access> {
    let mut access_list = vec![call.context.services.screen.access(false)];
    let temp_folder = paths::follow(&temp_dir()).ok();
    let is_in_temp_dir =
        temp_folder.is_some_and(|temp_folder| paths::is_inside(&call.path, &temp_folder));
    if !call.text("path").is_empty() && !is_in_temp_dir {
        access_list.push(Access::Write(call.path.clone()));
    }
    access_list
}

/// The tool that takes a screenshot.
pub(crate) struct ScreenCaptureTool;

impl Tool for ScreenCaptureTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("screen.capture", Effect::Looks).with_path(PathRule::RelativeTo(temp_dir))
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { access: accesses(call), ..screen_call::reads_screen(call) }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Takes a screenshot; with a path or a window, writes it to a file.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { path, window, display, region } = call.decode()?;
    let invalid =
        |reason: String| ToolError::invalid(format!("{}: {reason}", call.profile_tool.name));
    let area = region.as_ref().map(area).transpose().map_err(invalid)?;
    let window = Some(window.trim().to_owned()).filter(|window| !window.is_empty());
    let path = path.filter(|path| !path.trim().is_empty());
    if window.is_some() && path.is_none() {
        return Err(invalid("missing required parameter `path`: the file for the picture".into()));
    }
    let display = display.filter(|display| !display.trim().is_empty());
    let shot = shoot(call, &CaptureRequest { window, display, area }).await?;
    match path {
        Some(_) => save(call, shot).await,
        None => show(call, shot, String::new(), Value::Null).await,
    }
}

/// Parses a region: four numbers, possibly as strings.
fn area(region: &Value) -> Result<Area, String> {
    let number = |key: &str| {
        let value = &region[key];
        let text = value.as_str().and_then(|text| text.trim().parse::<f64>().ok());
        let number = value.as_f64().or(text).filter(|number| number.is_finite());
        number.ok_or_else(|| {
            format!("`region` needs a number `{key}`, as in {{x, y, width, height}}")
        })
    };
    let (x, y, width, height) = (number("x")?, number("y")?, number("width")?, number("height")?);
    if width < 1.0 || height < 1.0 {
        return Err("`region` must be at least one pixel wide and high".to_owned());
    }
    Ok(Area { x: x as i32, y: y as i32, width: width as u32, height: height as u32 })
}

/// Takes a screenshot with the first backend that works: external programs in order, then
/// g3-desktop. Only g3-desktop supports windows.
async fn shoot(call: &Invocation<'_>, request: &CaptureRequest) -> Result<Shot, ToolError> {
    let mut tried = Vec::new();
    if request.window.is_none() {
        match programs::shoot(call.context, request, &mut tried).await? {
            Some(shot) => return Ok(shot),
            None => tracing::debug!(target: "g3::desktop", "no program takes a picture"),
        }
    }
    let capture_error = |error: ToolError| {
        // Only g3-desktop supports windows, so no other program would help.
        if request.window.is_some() {
            let hint = "list_windows shows the windows that are open";
            return ToolError::new(
                error.kind,
                format!("Screenshot failed: {}. {hint}", error.text),
            );
        }
        let tried: String = tried.iter().map(|line| format!("{line}; ")).collect();
        let text =
            format!("Screenshot failed: {tried}{}. To take pictures, {INSTALL_HINT}", error.text);
        ToolError::new(error.kind, text)
    };
    capture_with_host(call, request).await.map_err(capture_error)
}

async fn capture_with_host(
    call: &Invocation<'_>,
    request: &CaptureRequest,
) -> Result<Shot, ToolError> {
    let CaptureRequest { window, display, area } = request.clone();
    let picture = host::capture(
        call.context,
        CaptureTarget { window, display, area, ..CaptureTarget::default() },
    );
    let picture = picture.await?;
    let bytes = STANDARD.decode(&picture.data);
    let bytes =
        bytes.map_err(|error| ToolError::failed(format!("the picture is damaged: {error}")))?;
    Ok(Shot { bytes, shows: picture.shows, backend: picture.backend })
}

async fn save(call: &Invocation<'_>, shot: Shot) -> Result<ToolOutput, ToolError> {
    let path = &call.path;
    let write_error =
        |error: std::io::Error| ToolError::io(&format!("cannot write {}", path.display()), &error);
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(write_error)?;
    base::files::replace(path, &shot.bytes).map_err(write_error)?;
    let (name, shows) = (path.display().to_string(), shot.shows);
    let message = format!(
        "saved {name}: {}x{} pixels of the screen at {},{}\n",
        shows.width, shows.height, shows.x, shows.y
    );
    show(call, shot, message, json!({ "path": name })).await
}

/// Scales the image to fit and attaches it for the model.
async fn show(
    call: &Invocation<'_>,
    shot: Shot,
    message: String,
    extra_fields: Value,
) -> Result<ToolOutput, ToolError> {
    let Shot { bytes, shows, backend } = shot;
    let prepare_image = move || prepare::prepare(ImageKind::of(&bytes)?, bytes, MAX_IMAGE_BYTES);
    let prepared = tokio::task::spawn_blocking(prepare_image).await;
    let prepared = prepared.unwrap_or_else(|_| Err("its decoder broke".to_owned()));
    let prepared = prepared
        .map_err(|error| ToolError::failed(format!("Screenshot failed: the picture: {error}")))?;
    let (width, height) = prepared.size();
    ShownScreen { width, height, shows, elements: Vec::new() }.save(call.context);
    let image = Image {
        media_type: prepared.kind.media_type().into(),
        data: STANDARD.encode(&prepared.bytes),
    };
    let text = format!("{message}Screenshot with {backend}: {}", prepared.describe());
    let mut metadata = json!({
        "isImage": true, "backend": backend, "shows": shows, "width": width, "height": height,
    });
    if let (Some(object), Value::Object(extra_fields)) = (metadata.as_object_mut(), extra_fields) {
        object.extend(extra_fields);
    }
    let output = ToolOutput::success(text).with(metadata).titled("took a screenshot");
    Ok(ToolOutput { images: vec![image], ..output })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_has_four_numbers_and_is_not_empty() {
        let given = json!({ "x": "3", "y": -4.0, "width": 10, "height": 20.9 });
        let expected = Area { x: 3, y: -4, width: 10, height: 20 };
        assert_eq!(area(&given), Ok(expected));
        for (bad, why) in [
            (json!({ "x": 1, "y": 1, "width": 5 }), "`height`"),
            (json!({ "x": 1, "y": 1, "width": 0, "height": 5 }), "one pixel"),
            (json!([1, 2, 3, 4]), "`x`"),
        ] {
            assert!(area(&bad).unwrap_err().contains(why), "{bad}");
        }
    }
}
