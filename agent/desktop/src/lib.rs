//! The desktop helper of g3: it looks at a screen, moves pointer and keys, knows windows and
//! controls, and reads words in a picture.
//!
//! Start at [`serve::serve`], the loop. [`answer`] is the table of what can be asked;
//! [`system`] says which desktop this is. It is the only crate that links desktop libraries.

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

/// What the program says when it is started by hand with arguments.
pub const USAGE: &str = "\
g3-desktop is started by g3 and takes no arguments: one JSON object a line on stdin, one answer
a line on stdout (docs/desktop.md). It ends with its stdin.
";
