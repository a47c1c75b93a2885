use std::io::ErrorKind;

use bytes::Bytes;
use futures_util::FutureExt;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{advance, sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(180);

/// Returns a stream and its client. At most one byte is on the way.
fn stream_to_client(
    activity: &Arc<Activity>,
) -> (impl AsyncRead + AsyncWrite + Unpin + use<>, DuplexStream) {
    let (server, client) = duplex(1);
    (watched(server, Arc::clone(activity)), client)
}

#[tokio::test(start_paused = true)]
async fn idle_client_does_not_count_as_stalled() {
    let activity = Activity::new();
    let overdue = || activity.overdue(FIRST, IDLE);
    activity.bytes_arrived();
    activity.head_complete();
    activity.body_complete();
    advance(CLIENT_TIME + SECOND).await;
    assert_eq!(
        (overdue(), activity.waiting()),
        (None, None),
        "it is still being answered"
    );

    activity.answer_complete();
    assert_eq!(
        (overdue(), activity.waiting()),
        (None, Some((true, Instant::now())))
    );
    advance(IDLE).await;
    assert_eq!(overdue(), None);
    advance(SECOND).await;
    assert_eq!(overdue(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_no_answer_times_out() {
    let (mut server, mut client) = stream_to_client(&Activity::new());
    for _ in 0..3 {
        // The client takes each part in time, although all of them take longer.
        let takes = async {
            sleep(CLIENT_TIME - SECOND).await;
            client.read_u8().await.unwrap();
        };
        tokio::join!(async { server.write_all(b"x").await.unwrap() }, takes);
    }
    server.write_all(b"x").await.unwrap();
    let begun = Instant::now();
    assert_eq!(
        server.write_all(b"x").await.unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    assert!(begun.elapsed() >= CLIENT_TIME && begun.elapsed() < CLIENT_TIME + SECOND);
}

#[tokio::test(start_paused = true)]
async fn incomplete_head_is_overdue() {
    let activity = Activity::new();
    let (mut server, mut client) = stream_to_client(&activity);
    let overdue = || activity.overdue(FIRST, IDLE);
    advance(FIRST).await;
    assert_eq!(overdue(), None);
    advance(SECOND).await;
    assert_eq!(overdue(), Some(false));
    activity.bytes_arrived();
    for _ in 0..5 {
        assert_eq!(overdue(), None);
        advance(2 * SECOND).await;
        client.write_all(b"x").await.unwrap();
        server.read_u8().await.unwrap();
        server.write_all(b"x").await.unwrap();
        client.read_u8().await.unwrap();
    }
    advance(SECOND).await;
    assert_eq!(overdue(), Some(true));
    let begun = Instant::now() - 11 * SECOND;
    activity.head_complete();
    advance(IDLE).await;
    assert_eq!(overdue(), None, "the body's reader enforces its pace");
    assert_eq!(
        activity.waiting(),
        Some((false, begun)),
        "but it makes room for others"
    );
    activity.body_complete();
    assert_eq!(activity.waiting(), None);
}

#[tokio::test(start_paused = true)]
async fn body_is_complete_once_it_is_dropped() {
    let activity = Activity::new();
    activity.bytes_arrived();
    activity.head_complete();
    let mut body = arriving(Full::new(Bytes::from_static(b"x")), Arc::clone(&activity));
    body.frame().await.unwrap().unwrap();
    assert!(activity.waiting().is_some());
    drop(body);
    assert_eq!(activity.waiting(), None);
}

/// Otherwise answers would be buffered for as long as the client sends requests.
#[tokio::test(start_paused = true)]
async fn further_requests_do_not_extend_the_write_timeout() {
    let activity = Activity::new();
    let (mut server, mut client) = stream_to_client(&activity);
    server.write_all(b"x").await.unwrap();
    for _ in 0..10 {
        client.write_all(b"x").await.unwrap();
        server.read_u8().await.unwrap();
        activity.head_complete();
        activity.body_complete();
        activity.answer_complete();
        assert!(server.write_all(b"x").now_or_never().is_none());
        advance(SECOND).await;
    }
    let written = server.write_all(b"x").now_or_never().unwrap();
    assert_eq!(written.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn body_keeps_its_announced_length() {
    let body = arriving(Full::new(Bytes::from_static(b"abc")), Activity::new());
    assert_eq!(body.size_hint().exact(), Some(3));
}
