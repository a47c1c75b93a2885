use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::advance;

use super::*;

mod budget;

const PACE: Option<Pace> = Some(Pace {
    grace: Duration::from_secs(2),
    rate: 1000,
});

fn body(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = &'static str> + Unpin + use<> {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))
        .collect();
    StreamBody::new(stream::iter(pieces))
}

async fn read(pieces: &[&'static str]) -> Option<String> {
    let read = Budget::new(1 << 20)
        .read(body(pieces), 8, Instant::now(), None)
        .await
        .ok()?;
    Some(String::from_utf8(read.bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn body_is_read_up_to_the_limit() {
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
    assert!(matches!(
        Budget::new(1 << 20)
            .read(broken, 8, Instant::now(), None)
            .await,
        Err(ReadError::Broken("broken"))
    ));
}

/// A body whose pieces arrive when they are sent.
fn arriving() -> (
    mpsc::UnboundedSender<usize>,
    impl Body<Data = Bytes, Error = Infallible> + Unpin,
) {
    let (sender, mut pieces) = mpsc::unbounded_channel();
    let pieces = stream::poll_fn(move |context| pieces.poll_recv(context));
    let frame = |length| Ok(Frame::data(Bytes::from(vec![b'x'; length])));
    (
        sender,
        StreamBody::new(futures_util::StreamExt::map(pieces, frame)),
    )
}

#[tokio::test(start_paused = true)]
async fn body_below_the_pace_is_too_slow() {
    let budget = Budget::new(1 << 20);
    let (sender, drips) = arriving();
    let begun = Instant::now();
    let reading = tokio::spawn(async move {
        budget
            .read(drips, 1 << 20, Instant::now(), PACE)
            .await
            .err()
    });
    for _ in 0..3 {
        sender.send(1000).unwrap();
        tokio::task::yield_now().await;
    }
    assert!(matches!(reading.await.unwrap(), Some(ReadError::TooSlow)));
    assert_eq!(
        begun.elapsed().as_secs(),
        5,
        "two seconds, and three for as many thousand bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn slow_bodies_are_evicted_before_fast_ones() {
    let budget = Budget::new(1 << 20);
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let (sender, body) = arriving();
            for _ in 0..3 {
                sender.send(21 << 10).unwrap();
            }
            let budget = budget.clone();
            (
                sender,
                tokio::spawn(async move {
                    budget.read(body, 8 << 20, Instant::now(), PACE).await.err()
                }),
            )
        })
        .collect();
    tokio::task::yield_now().await;
    for size in [15 << 10, 20 << 10, 400 << 10] {
        advance(Duration::from_millis(100)).await;
        let (sender, body) = arriving();
        sender.send(size - 1000).unwrap();
        sender.send(1000).unwrap();
        drop(sender);
        let read = budget.read(body, 8 << 20, Instant::now(), PACE).await;
        assert!(read.is_ok_and(|read| read.bytes.len() == size));
    }
    let mut evicted = 0;
    for (_sender, reading) in slow {
        let read = reading.await;
        evicted += usize::from(matches!(read, Ok(Some(ReadError::BudgetExhausted))));
    }
    assert!(evicted >= 84, "{evicted}");
}

/// As many bodies as there may be connections, each with 63 KB of a large body.
#[tokio::test(start_paused = true)]
async fn thousands_of_unfinished_bodies_stay_within_the_budget() {
    const TOTAL: usize = 4 << 20;
    let budget = Budget::new(TOTAL);
    let mut unfinished = Vec::new();
    for _ in 0..4000 {
        let (sender, body) = arriving();
        let budget = budget.clone();
        (0..9).for_each(|_| sender.send(7000).unwrap());
        unfinished.push((
            sender,
            tokio::spawn(
                async move { budget.read(body, 8 << 20, Instant::now(), None).await.err() },
            ),
        ));
        tokio::task::yield_now().await;
    }
    advance(Duration::from_secs(1)).await;
    let held = unfinished
        .iter()
        .filter(|(_, read)| !read.is_finished())
        .count();
    assert!(
        held * (CONNECTION + 63_000) <= TOTAL && held > TOTAL / (CONNECTION + (128 << 10)),
        "{held}"
    );
    let (sender, body) = arriving();
    (0..10).for_each(|_| sender.send(7000).unwrap());
    drop(sender);
    assert!(
        budget
            .read(body, 8 << 20, Instant::now(), PACE)
            .await
            .is_ok_and(|read| read.bytes.len() == 70_000)
    );
}

/// A body that announces its size and must not be read.
struct Announced(u64);

impl Body for Announced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body is read");
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0)
    }
}

#[tokio::test]
async fn announced_size_is_not_charged() {
    let budget = Budget::new(FREE + 1);
    let announced = http_body_util::Full::new(Bytes::from(vec![b'x'; FREE]));
    assert!(
        budget
            .read(announced, 8 << 20, Instant::now(), None)
            .await
            .is_ok()
    );
    let too_large = Announced(9);
    assert!(matches!(
        budget.read(too_large, 8, Instant::now(), None).await,
        Err(ReadError::TooLarge)
    ));
}

#[tokio::test(start_paused = true)]
async fn evicted_body_is_not_read_to_its_end() {
    let budget = Budget::new(128 << 10);
    let begun = Instant::now();
    advance(Duration::from_secs(9)).await;
    let mut other = budget.reserve(Instant::now());
    // The buffer has 32 KiB after the 17th piece, which is enough for all pieces.
    let pieces = (0..30).map(|piece| {
        if piece == 20 {
            budget.resize(&mut other, 100 << 10).unwrap();
        }
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; 1 << 10])))
    });
    let read = budget
        .read(StreamBody::new(stream::iter(pieces)), 1 << 20, begun, None)
        .await;
    assert!(matches!(read, Err(ReadError::BudgetExhausted)));
}
