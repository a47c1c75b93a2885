//! Bodies, read within bounds: of one body, of all bodies together, and of the time that they take.

mod budget;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::{Duration, Instant, sleep_until};

pub use budget::{Budget, Room};

/// Bytes up to which a body in one piece is not charged: it is in the connection's buffer, which reads as much.
pub const FREE: usize = 8 << 10;
/// Bytes that each other body is charged beside its own: the connection's buffers, in use while the body arrives.
const CONNECTION: usize = 32 << 10;

#[derive(Clone, Copy)]
pub struct Pace {
    /// Time in which a body may be slower.
    pub grace: Duration,
    /// Bytes per second after that, on average.
    pub rate: u32,
}

/// A body that has been read, and its reservation in the budget for as long as it is kept.
pub struct Read {
    pub bytes: Bytes,
    pub room: Room,
}

pub enum ReadError<E> {
    TooLarge,
    TooSlow,
    /// The budget is used up, and other bodies are smaller and faster.
    BudgetExhausted,
    Broken(E),
}

impl Budget {
    pub fn nothing(&self) -> Read {
        Read { bytes: Bytes::new(), room: self.room(Instant::now()) }
    }

    /// Reads up to `limit` bytes, arriving since `begun`. The buffer grows with them, at most twofold at a time.
    pub async fn read<B>(
        &self,
        mut body: B,
        limit: usize,
        begun: Instant,
        pace: Option<Pace>,
    ) -> Result<Read, ReadError<B::Error>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let hint = body.size_hint();
        if hint.lower() > limit as u64 {
            return Err(ReadError::TooLarge);
        }
        let announced =
            hint.upper().map_or(limit, |upper| usize::try_from(upper).unwrap_or(limit).min(limit));
        let mut room = self.room(begun);
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while !body.is_end_stream() {
            let arrived = first.len() + all.len();
            let next = tokio::select! {
                biased;
                next = body.frame() => next,
                () = room.evicted() => return Err(ReadError::BudgetExhausted),
                () = too_late(begun, arrived, pace) => return Err(ReadError::TooSlow),
            };
            let Some(frame) = next else { break };
            let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else { continue };
            let length = arrived + data.len();
            if length > limit {
                return Err(ReadError::TooLarge);
            }
            if arrived == 0 {
                // Most bodies come in one piece, which needs no copy.
                if length > FREE || !body.is_end_stream() {
                    charge(&mut room, length)?;
                }
                first = data;
                continue;
            }
            if all.capacity() < length {
                let capacity = length.max((2 * arrived).min(announced)).max(FREE);
                charge(&mut room, capacity)?;
                all.reserve(capacity - all.len());
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
        let bytes = if all.is_empty() { first } else { all.freeze() };
        Ok(Read { bytes, room })
    }
}

fn charge<E>(room: &mut Room, bytes: usize) -> Result<(), ReadError<E>> {
    room.hold(CONNECTION + bytes).map_err(|_| ReadError::BudgetExhausted)
}

/// Returns when more bytes than `arrived` should have arrived.
async fn too_late(begun: Instant, arrived: usize, pace: Option<Pace>) {
    let Some(Pace { grace, rate }) = pace else { return std::future::pending().await };
    let earned = Duration::from_secs_f64(arrived as f64 / f64::from(rate));
    sleep_until(begun + grace + earned).await;
}

#[cfg(test)]
mod tests;
