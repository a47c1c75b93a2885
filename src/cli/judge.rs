//! Decides on all that was read from a cluster: once for each shape of its Pods, as the webhook would, within the webhook's
//! limits on lookups.

use futures_util::stream::{self, StreamExt};

use super::session::Session;
use super::survey::Survey;
use tolerarch_core::image::LookupError;
use tolerarch_engine::census::{Judgement, Shape};

/// Shapes that are decided on at a time. They wait for images, of which far fewer are looked up at a time; so many that those
/// whose registry is slow do not hold up the others. Each takes a few kilobytes.
const AT_A_TIME: usize = 2048;

/// What is known of each shape.
pub(super) struct Judged {
    /// One for each, in their order.
    pub(super) judgements: Vec<Judgement>,
    /// Whether the user has not interrupted.
    pub(super) is_complete: bool,
}

/// Decides until all are known, or until the user interrupts: what is not known by then counts as not waited for.
pub(super) async fn judge(session: &Session, survey: &Survey) -> Judged {
    let all = survey.shapes.len();
    let mut judgements: Vec<Option<Judgement>> = vec![None; all];
    let (mut done, mut is_complete) = (0, true);
    let Session { snapshot, limits, .. } = session;
    let one = async |(place, shape): (usize, &Shape)| {
        (place, shape.judge(snapshot, limits, survey.terms(&shape.namespace)).await)
    };
    let mut work = stream::iter(survey.shapes.iter().map(|shape| &**shape).enumerate())
        .map(one)
        .buffer_unordered(AT_A_TIME);
    while done < all {
        session.progress.show(&format!("looked up the images of {done} of {all} kinds of Pods"));
        tokio::select! {
            judged = work.next() => {
                let Some((place, judgement)) = judged else { break };
                judgements[place] = Some(judgement);
                done += 1;
            }
            () = session.interrupts.next() => {
                is_complete = false;
                break;
            }
        }
    }
    drop(work);
    session.interrupts.end();
    session.progress.show("");
    let judgements = judgements.into_iter().zip(&survey.shapes);
    let judgements = judgements.map(|(known, shape)| {
        known.unwrap_or_else(|| Judgement::not_known(&shape.pod, LookupError::BudgetExceeded))
    });
    Judged { judgements: judgements.collect(), is_complete }
}
