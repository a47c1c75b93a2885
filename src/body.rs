//! Reading bodies within bounds: of one body, and of all large ones together.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What may be read.
#[derive(Clone)]
pub(crate) struct Bounds {
    /// Bytes above which a body counts as large.
    small: usize,
    /// A permit for each large body.
    large: Arc<Semaphore>,
}

/// A body that has been read; as long as it is kept, a large one takes room from others.
pub(crate) struct Read {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why a body cannot be read.
pub(crate) enum ReadError<E> {
    /// It is larger than its limit.
    TooLarge,
    /// It broke off.
    Broken(E),
}

impl Read {
    pub(crate) fn nothing() -> Self {
        Self { bytes: Bytes::new(), _room: None }
    }
}

impl Bounds {
    /// So many bodies of more than `small` bytes at a time.
    pub(crate) fn new(small: usize, large: usize) -> Self {
        Self { small, large: Arc::new(Semaphore::new(large)) }
    }

    /// Reads a body of `limit` bytes at most. A large one waits for room once that shows, so whoever calls has a timeout.
    pub(crate) async fn read<B>(&self, mut body: B, limit: usize) -> Result<Read, ReadError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let mut room = None;
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else { continue };
            let length = first.len() + all.len() + data.len();
            if length > limit {
                return Err(ReadError::TooLarge);
            }
            if room.is_none() && length > self.small {
                // Never closed; if it were, the body would be read without its room.
                room = Arc::clone(&self.large).acquire_owned().await.ok();
            }
            if first.is_empty() && all.is_empty() {
                // Most bodies come in one piece, which needs no copy.
                first = data;
            } else {
                if all.is_empty() {
                    all.extend_from_slice(&std::mem::take(&mut first));
                }
                all.extend_from_slice(&data);
            }
        }
        let bytes = if all.is_empty() { first } else { all.freeze() };
        Ok(Read { bytes, _room: room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    fn body(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = &'static str> + Unpin + use<> {
        let pieces: Vec<_> =
            pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))).collect();
        StreamBody::new(stream::iter(pieces))
    }

    async fn read(pieces: &[&'static str]) -> Option<String> {
        let read = Bounds::new(4, 1).read(body(pieces), 8).await.ok()?;
        Some(String::from_utf8(read.bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn reads_to_the_limit() {
        for (pieces, expected) in [
            (&[][..], Some("")),
            (&["ab"], Some("ab")),
            (&["ab", "", "cd", "efgh"], Some("abcdefgh")),
            (&["", "ab"], Some("ab")),
            (&["abcdefghi"], None),
            (&["abcd", "efghi"], None),
        ] {
            assert_eq!(read(pieces).await.as_deref(), expected, "{pieces:?}");
        }
        let broken = StreamBody::new(stream::iter([Err::<Frame<Bytes>, _>("broken")]));
        assert!(matches!(Bounds::new(4, 1).read(broken, 8).await, Err(ReadError::Broken("broken"))));
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_nobody() {
        let bounds = Bounds::new(4, 1);
        let first = bounds.read(body(&["abcde"]), 8).await;
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, bounds.read(body(&["ab", "cde"]), 8)).await.is_err());
        assert!(bounds.read(body(&["abcd"]), 8).await.is_ok());
        drop(first);
        assert!(bounds.read(body(&["ab", "cde"]), 8).await.is_ok());
    }
}
