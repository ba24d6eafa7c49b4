//! The review on a terminal: keys, state and view. It draws into a buffer and changes nothing outside
//! of the review; the command carries out what the user asks for.

pub mod keys;
pub mod rows;
pub mod screen;
pub mod styled_line;
pub mod view;
