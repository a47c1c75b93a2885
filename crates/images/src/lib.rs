//! Finds the platforms on which an image runs.
//!
//! [`resolver`] answers from its cache or waits for a lookup, one for each image, within deadlines and behind circuit
//! breakers. A lookup reads the [`shared_cache`] of all replicas, if there is one, and then queries the [`registry`].
//! [`credentials`] finds the credentials for the query in files, helpers, plugins and the Pod's pull secrets.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod credentials;
mod meter;
pub mod registry;
pub mod resolver;
pub mod shared_cache;
mod ttl_cache;
