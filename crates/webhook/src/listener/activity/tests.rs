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
    activity.head_complete();
    activity.body_complete();
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
    let rests_since = Instant::now();
    write(Poll::Pending);
    advance(CLIENT_TIME + SECOND).await;
    assert_eq!(overdue(), Some(true));
    write(Poll::Ready(()));
    assert_eq!((overdue(), activity.waiting()), (None, Some((true, rests_since))));
    advance(IDLE - rests_since.elapsed()).await;
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
    let begun = Instant::now() - 11 * SECOND;
    activity.head_complete();
    advance(IDLE).await;
    assert_eq!(overdue(), None, "how fast a body arrives is its reader's business");
    assert_eq!(activity.waiting(), Some((false, begun)), "but it makes room for others");
    activity.body_complete();
    assert_eq!(activity.waiting(), None);
}

/// Its answers would be kept for as long as it goes on asking.
#[tokio::test(start_paused = true)]
async fn further_requests_give_no_time_to_take_the_answers() {
    let activity = Activity::new();
    for _ in 0..11 {
        assert_eq!(activity.overdue(FIRST, IDLE), None);
        activity.bytes_arrived();
        activity.head_complete();
        activity.body_complete();
        activity.at_rest();
        let _ = activity.written(Poll::<()>::Pending);
        advance(SECOND).await;
    }
    assert_eq!(activity.overdue(FIRST, IDLE), Some(true));
}
