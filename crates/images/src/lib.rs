//! From an image reference to its platforms.

pub mod credentials;
pub mod registry;
pub mod resolver;
pub mod shared_cache;
