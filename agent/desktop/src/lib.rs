//! The desktop helper of g3: takes screenshots, controls pointer and keyboard, lists windows and
//! controls, and recognizes text in images.
//!
//! Start at [`serve::serve`], the loop. [`dispatch`] is the table of requests; [`window_system`]
//! detects the desktop. This is the only crate that links desktop libraries.

#[cfg(target_os = "linux")]
pub mod a11y;
pub mod cancel;
pub mod capture;
pub mod dispatch;
pub mod enigo;
pub mod input;
pub mod input_backend;
pub mod keys;
pub mod ocr;
pub mod picture;
#[cfg(target_os = "linux")]
pub mod portal;
pub mod serve;
#[cfg(target_os = "linux")]
pub mod typing;
pub mod window_search;
pub mod window_system;
#[cfg(target_os = "linux")]
pub mod x11;

/// The message of the program when it is started manually with arguments.
pub const USAGE: &str = "\
g3-desktop is started by g3 and takes no arguments: one JSON object a line on stdin, one answer
a line on stdout (docs/desktop.md). It ends with its stdin.
";
