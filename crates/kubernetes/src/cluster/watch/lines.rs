//! The lines of a watch, each within a bound.

use http_body_util::BodyExt;
use kube::client::Body;

/// Bytes of a longer one that are kept: how it begins says which object it is about.
const BEGIN: usize = 4096;

/// The rest of a body, line by line.
pub(super) struct Lines {
    body: Body,
    /// Bytes of a line at most.
    most: usize,
    read: Vec<u8>,
    /// How much of it is known to have no end of a line.
    seen: usize,
    /// Whether it goes on in the middle of a line that was too long.
    is_within: bool,
}

pub(super) enum Line {
    Whole(Vec<u8>),
    /// How one begins that is too long.
    Begin(Vec<u8>),
}

impl Lines {
    pub(super) fn of(body: Body, most: usize) -> Self {
        Self { body, most, read: Vec::new(), seen: 0, is_within: false }
    }

    /// The next line; `None` where the body ends or breaks off. What has no end of a line there is dropped.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(end) = self.read[self.seen..].iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(self.seen + end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                self.seen = 0;
                if std::mem::take(&mut self.is_within) {
                    continue;
                }
                return Some(match line.len() > self.most {
                    true => Line::Begin(line[..line.len().min(BEGIN)].to_vec()),
                    false => Line::Whole(line),
                });
            }
            self.seen = self.read.len();
            if self.is_within || self.seen > self.most {
                let begin = self.read[..self.seen.min(BEGIN)].to_vec();
                (self.read, self.seen) = (Vec::new(), 0);
                if !std::mem::replace(&mut self.is_within, true) {
                    return Some(Line::Begin(begin));
                }
            }
            if let Ok(data) = self.body.frame().await?.ok()?.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }
}
