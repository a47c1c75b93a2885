//! The lines of a watch, each within a bound.

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;

/// A body that is read line by line.
pub(super) struct Lines {
    body: Body,
    /// Maximum bytes of a line.
    limit: usize,
    /// Bytes after the last line.
    rest: Bytes,
}

impl Lines {
    pub(super) fn of(body: Body, limit: usize) -> Self {
        Self {
            body,
            limit,
            rest: Bytes::new(),
        }
    }

    /// Returns the next line, truncated to the bound, and whether it is whole. An unterminated last line is dropped.
    pub(super) async fn next(&mut self) -> Option<(Vec<u8>, bool)> {
        let mut line = Vec::new();
        let mut is_whole = true;
        loop {
            let end = self.rest.iter().position(|&byte| byte == b'\n');
            let length = end.map_or(self.rest.len(), |end| end + 1);
            let part = self.rest.split_to(length);
            let room = self.limit - line.len();
            line.extend_from_slice(&part[..part.len().min(room)]);
            is_whole &= part.len() <= room;
            if end.is_some() {
                return Some((line, is_whole));
            }
            let frame = self.body.frame().await?.ok()?;
            self.rest = frame.into_data().unwrap_or_default();
        }
    }
}
