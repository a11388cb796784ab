//! Calls as text and JSON: arguments decoded, objects labelled, images and launches described.

pub(crate) mod images;
pub(crate) mod labels;
mod launch;
pub(crate) mod notes;
mod renderer;

pub(crate) use self::renderer::{Known, Limits, RenderedCall, Renderer};
