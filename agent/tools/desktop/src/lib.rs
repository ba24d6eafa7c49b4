//! The screen tools: screenshots, mouse and keyboard, controls, windows. Screen access goes through
//! `g3-desktop`, one process per g3 process.

use futures_util::future::BoxFuture;
use tools::services::DesktopService;

use tools::tool::Tool;

pub mod accessible;
pub mod capture;
pub mod computer_use;
pub mod controls;
pub mod find;
pub mod gui;
pub mod host;
pub mod input;
pub mod keys;
pub mod observe;
pub mod programs;
pub mod roles;
pub mod screen_call;
pub mod screen_text;
pub mod shown_screen;
pub mod windows;

/// The tools of this crate.
pub const TOOLS: &[&dyn Tool] = &[
    &capture::ScreenCaptureTool,
    &observe::ObserveTool,
    &find::FindControlTool,
    &controls::ControlsTool,
    &accessible::ControlActionTool,
    &windows::WindowListTool,
    &windows::MaximizeTool,
    &input::ClickTool,
    &input::TypeTextTool,
    &gui::GuiTool,
    &computer_use::ComputerUseTool,
];

/// The desktop helper of this process.
pub struct DesktopHelper;

impl DesktopService for DesktopHelper {
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(host::close())
    }
}
