use tokio::time::advance;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(180);

#[tokio::test(start_paused = true)]
async fn a_client_has_to_take_its_answer_and_a_resting_one_does_not_count_as_stalled() {
    let activity = Activity::new();
    let overdue = || activity.overdue(FIRST, IDLE);
    let write = |outcome: Poll<()>| {
        let _ = activity.written(outcome);
    };
    activity.bytes_arrived();
    activity.answering();
    // A further request is in hand, which is not answered before this is taken.
    write(Poll::Pending);
    advance(CLIENT_TIME).await;
    write(Poll::Pending);
    assert_eq!((overdue(), activity.waiting()), (None, None));
    advance(SECOND).await;
    assert_eq!(overdue(), Some(true));
    write(Poll::Ready(()));
    assert_eq!((overdue(), activity.waiting()), (None, None), "it is still being answered");

    activity.at_rest();
    write(Poll::Pending);
    advance(CLIENT_TIME + SECOND).await;
    assert_eq!(overdue(), Some(true));
    write(Poll::Ready(()));
    assert_eq!(overdue(), None);
    assert_eq!(activity.waiting(), Some((true, Instant::now())));
    advance(IDLE).await;
    assert_eq!(overdue(), None);
    advance(SECOND).await;
    assert_eq!(overdue(), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_head_has_to_be_complete_in_time_whatever_is_written() {
    let activity = Activity::new();
    let overdue = || activity.overdue(FIRST, IDLE);
    advance(FIRST).await;
    assert_eq!(overdue(), None);
    advance(SECOND).await;
    assert_eq!(overdue(), Some(false));
    activity.bytes_arrived();
    for _ in 0..5 {
        assert_eq!(overdue(), None);
        advance(2 * SECOND).await;
        activity.bytes_arrived();
        let _ = activity.written(Poll::<()>::Pending);
        let _ = activity.written(Poll::Ready(()));
    }
    advance(SECOND).await;
    assert_eq!(overdue(), Some(true));
    activity.answering();
    advance(IDLE).await;
    assert_eq!(overdue(), None, "how fast a body arrives is its reader's business");
}
