//! The tasks that producer and worker share: a library crate with nothing but them. The compiler
//! checks that what the one sends is what the other takes.

use serde::{Deserialize, Serialize};

/// What is to be resized, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Size {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
}

/// Resizes an image.
#[dtq::task(name = "images.resize", queue = "images", max_attempts = 3, timeout = "1m")]
pub async fn resize(image: String, size: Size) -> String {
    format!("{image} at {}x{}", size.width, size.height)
}
