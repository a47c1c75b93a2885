//! From an image reference to the platforms it runs on.
//!
//! [`resolver`] answers from its cache or waits for a lookup, one for each image, within deadlines and behind circuits. A
//! lookup asks the [`shared_cache`] of all replicas, if there is one, and then the [`registry`], with what [`credentials`]
//! finds for the image: files, helpers, plugins, and a Pod's pull secrets.

pub mod credentials;
mod meter;
pub mod registry;
pub mod resolver;
pub mod shared_cache;
mod ttl_cache;
