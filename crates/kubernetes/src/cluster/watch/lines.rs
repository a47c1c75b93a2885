//! The lines of a watch, each within a bound.

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;

/// The rest of a body, line by line.
pub(super) struct Lines {
    body: Body,
    /// Bytes of a line at most.
    most: usize,
    /// What came behind the last line.
    rest: Bytes,
}

impl Lines {
    pub(super) fn of(body: Body, most: usize) -> Self {
        Self { body, most, rest: Bytes::new() }
    }

    /// The next line, or how it begins, and whether it is whole; `None` where the body ends or breaks off. What has no end of
    /// a line there is dropped.
    pub(super) async fn next(&mut self) -> Option<(Vec<u8>, bool)> {
        let (mut line, mut is_whole) = (Vec::new(), true);
        loop {
            let end = self.rest.iter().position(|&byte| byte == b'\n');
            let part = self.rest.split_to(end.map_or(self.rest.len(), |end| end + 1));
            let room = self.most - line.len();
            line.extend_from_slice(&part[..part.len().min(room)]);
            is_whole &= part.len() <= room;
            if end.is_some() {
                return Some((line, is_whole));
            }
            self.rest = self.body.frame().await?.ok()?.into_data().unwrap_or_default();
        }
    }
}
