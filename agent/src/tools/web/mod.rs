//! The web: pages that are fetched, and services that search it.

pub mod address;
pub mod body;
pub mod door;
pub mod fetch;
pub mod html;
pub mod reply;
pub mod search;
pub mod shown;
