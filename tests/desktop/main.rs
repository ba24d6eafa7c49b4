//! Tests of the desktop helper on a separate desktop, with a real GTK program.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

mod controls;
mod input;
mod protocol;
mod read;
mod screen;
mod support;
mod wayland;
