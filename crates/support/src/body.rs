//! Reads bodies within bounds: on the size of each, on the bytes of all together, and on the time that each takes.
//!
//! One budget of bytes is for all bodies, or all reviews, that are in memory at a time. Nothing waits for a reservation.
//! When the budget is used up, the holders that occupy the most, in bytes times seconds, are evicted: large and slow ones
//! long before one that arrives, and is answered, at once.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep_until};

use crate::sync::Mutex;

/// Size up to which a body in one piece is not charged: the connection's read buffer has that size and holds the body.
pub const FREE: usize = 8 << 10;
/// Bytes charged for any other body in addition to its size: the connection's buffers, in use while the body arrives.
const CONNECTION: usize = 32 << 10;
/// Fraction of a used-up budget that is cleared at once, so that holders are not compared for every single byte.
const CLEARED: usize = 16;

#[derive(Clone, Copy)]
pub struct Pace {
    /// Time from the start for which a body may be slower than `rate`.
    pub grace: Duration,
    /// Bytes per second that have to arrive after `grace`, on average.
    pub rate: u32,
}

/// A body that has been read, and its reservation in the budget for as long as it is kept.
pub struct Read {
    pub bytes: Bytes,
    pub reservation: Reservation,
}

pub enum ReadError<E> {
    TooLarge,
    TooSlow,
    /// The budget is used up, and the body is among those that occupy the most of it: large or slow ones.
    BudgetExhausted,
    Broken(E),
}

impl<E> From<Evicted> for ReadError<E> {
    fn from(Evicted: Evicted) -> Self {
        Self::BudgetExhausted
    }
}

/// Bytes that bodies or reviews may hold together. Clones share them.
#[derive(Clone)]
pub struct Budget(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    total: usize,
    used: usize,
    next: u64,
    holders: HashMap<u64, Holder>,
}

struct Holder {
    bytes: usize,
    since: Instant,
    evicted: Arc<Notify>,
}

/// Reservation of one body or review in a budget, until it is dropped.
pub struct Reservation {
    since: Instant,
    /// Absent while no bytes are reserved, as for most: no count of the budget's owners changes that all threads share.
    place: Option<Place>,
}

/// Place of a holder in the budget.
struct Place {
    budget: Budget,
    id: u64,
    evicted: Arc<Notify>,
}

/// The budget is used up, and this holder is among those that occupy the most of it.
#[derive(Debug)]
pub struct Evicted;

impl Budget {
    pub fn new(total: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            total,
            ..State::default()
        })))
    }

    /// Makes a reservation of no bytes yet; `since` is when the holder began to occupy the budget.
    pub fn reserve(&self, since: Instant) -> Reservation {
        Reservation { since, place: None }
    }

    /// Changes a reservation of this budget to this many bytes.
    pub fn resize(&self, reservation: &mut Reservation, bytes: usize) -> Result<(), Evicted> {
        let mut state = self.0.lock();
        let since = reservation.since;
        let place = reservation.place.get_or_insert_with(|| {
            let id = state.next;
            let evicted = Arc::new(Notify::new());
            let holder = Holder {
                bytes: 0,
                since,
                evicted: Arc::clone(&evicted),
            };
            state.next += 1;
            state.holders.insert(id, holder);
            Place {
                budget: self.clone(),
                id,
                evicted,
            }
        });
        debug_assert!(Arc::ptr_eq(&place.budget.0, &self.0), "of another budget");
        let holder = state.holders.get_mut(&place.id).ok_or(Evicted)?;
        let before = std::mem::replace(&mut holder.bytes, bytes);
        state.used = state.used + bytes - before;
        if state.used > state.total {
            state.clear();
        }
        if !state.holders.contains_key(&place.id) {
            return Err(Evicted);
        }
        Ok(())
    }

    /// Reads at most `limit` bytes, arriving since `begun`. The buffer grows as bytes arrive, to twice as many at most.
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
        let announced = hint.upper().map_or(limit, |upper| {
            usize::try_from(upper).unwrap_or(limit).min(limit)
        });
        let mut reservation = self.reserve(begun);
        let mut first = Bytes::new();
        let mut all: Vec<u8> = Vec::new();
        while !body.is_end_stream() {
            let arrived = first.len() + all.len();
            let next = tokio::select! {
                biased;
                // First: a body that always has a frame would be read to its end without a reservation.
                () = reservation.evicted() => return Err(ReadError::BudgetExhausted),
                next = body.frame() => next,
                () = too_late(begun, arrived, pace) => return Err(ReadError::TooSlow),
            };
            let Some(frame) = next else { break };
            let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else {
                continue;
            };
            let length = arrived + data.len();
            if length > limit {
                return Err(ReadError::TooLarge);
            }
            if arrived == 0 {
                // Most bodies come in one piece, which needs no copy.
                if length > FREE || !body.is_end_stream() {
                    self.resize(&mut reservation, CONNECTION + length)?;
                }
                first = data;
                continue;
            }
            if all.capacity() < length {
                let capacity = length.max((2 * arrived).min(announced)).max(FREE);
                self.resize(&mut reservation, CONNECTION + capacity)?;
                all.reserve_exact(capacity - all.len());
                all.extend_from_slice(&std::mem::take(&mut first));
            }
            all.extend_from_slice(&data);
        }
        let bytes = if all.is_empty() { first } else { all.into() };
        Ok(Read { bytes, reservation })
    }
}

impl Reservation {
    /// Returns when the reservation is evicted in favour of others.
    pub async fn evicted(&self) {
        match &self.place {
            Some(place) => place.evicted.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl State {
    fn clear(&mut self) {
        let left = self.total - self.total / CLEARED;
        let now = Instant::now();
        let occupied = |holder: &Holder| {
            holder.bytes as u128 * (now.saturating_duration_since(holder.since).as_micros() + 1)
        };
        let holders = self.holders.iter();
        let mut most: Vec<_> = holders
            .map(|(id, holder)| (occupied(holder), *id))
            .collect();
        most.sort_unstable();
        while self.used > left
            && let Some((_, id)) = most.pop()
        {
            if let Some(holder) = self.holders.remove(&id) {
                self.used -= holder.bytes;
                holder.evicted.notify_one();
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            let mut state = place.budget.0.lock();
            if let Some(holder) = state.holders.remove(&place.id) {
                state.used -= holder.bytes;
            }
        }
    }
}

/// Completes when more than `arrived` bytes should have arrived; never without a pace.
async fn too_late(begun: Instant, arrived: usize, pace: Option<Pace>) {
    let Some(Pace { grace, rate }) = pace else {
        return std::future::pending().await;
    };
    let earned = Duration::from_secs_f64(arrived as f64 / f64::from(rate));
    sleep_until(begun + grace + earned).await;
}

#[cfg(test)]
mod tests;
