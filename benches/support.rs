//! Support for benches that run the program as a process: the process, connections as API servers keep them, and a typical
//! review.

#![allow(dead_code, reason = "no bench uses all of it")]

pub(crate) mod connection;
pub(crate) mod server;
pub(crate) mod typical;

use std::error::Error;
use std::sync::Arc;

use tokio::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Name under which API servers reach the webhook.
pub(crate) const NAME: &str = "tolerarch.tolerarch.svc";

/// Returns the HTTP request with a review as an API server sends it.
pub(crate) fn request(review: &str) -> Arc<[u8]> {
    let request = format!(
        "POST /mutate?timeout=10s HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: kube-apiserver-admission\r\n\
         Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
         Accept-Encoding: gzip\r\n\r\n{review}",
        review.len(),
    );
    request.into_bytes().into()
}

/// Returns the value below which this percentage of the sorted values is.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted
        .get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}
