//! What became of the last requests to a mirror, and whether to ask it last for a while. Pure but for the clock.
//!
//! Images are named by strangers, so a fault for one of them says little about a mirror that all share: it rests for that
//! image, and for all images of that registry once different ones fail without any success between. Only where there is
//! no connection at all does it rest for everybody.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::limits;
use crate::image::ImageRef;

/// The state of one mirror.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Until when it rests for everybody.
    unreachable_until: Option<Instant>,
    /// At most one for each repository, the oldest first.
    faults: VecDeque<Fault>,
}

#[derive(Debug)]
struct Fault {
    registry: String,
    repository: String,
    until: Instant,
    /// Whether nothing of this registry has worked since.
    in_a_row: bool,
}

impl Fault {
    fn is_of(&self, image: &ImageRef) -> bool {
        self.registry == image.host() && self.repository == image.repository()
    }
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No connection could be made.
    pub(super) fn note_unreachable(&self) {
        self.state().unreachable_until = Some(Instant::now() + limits::MIRROR_REST);
    }

    /// It answered for this image.
    pub(super) fn works(&self, image: &ImageRef) {
        let mut state = self.state();
        state.unreachable_until = None;
        state.faults.retain(|fault| !fault.is_of(image));
        let of_registry = state.faults.iter_mut().filter(|fault| fault.registry == image.host());
        of_registry.for_each(|fault| fault.in_a_row = false);
    }

    /// It broke off, took too long or had an error of its own for this image.
    pub(super) fn failed(&self, image: &ImageRef) {
        let (mut state, now) = (self.state(), Instant::now());
        state.faults.retain(|fault| now < fault.until && !fault.is_of(image));
        if state.faults.len() == limits::MIRROR_FAULTS {
            state.faults.pop_front();
        }
        state.faults.push_back(Fault {
            registry: image.host().to_owned(),
            repository: image.repository().to_owned(),
            until: now + limits::MIRROR_REST,
            in_a_row: true,
        });
    }

    /// Whether it had better be asked last for this image.
    pub(super) fn rests(&self, image: &ImageRef) -> bool {
        let (state, now) = (self.state(), Instant::now());
        let faults = || state.faults.iter().filter(|fault| now < fault.until);
        let in_a_row = faults().filter(|fault| fault.in_a_row && fault.registry == image.host());
        state.unreachable_until.is_some_and(|until| now < until)
            || faults().any(|fault| fault.is_of(image))
            || in_a_row.count() >= limits::MIRROR_FAULTS_IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> ImageRef {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_image_says_nothing_of_the_others() {
        let health = Health::default();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(image);
        for _ in 0..5 {
            health.failed(&a);
        }
        health.failed(&b);
        assert!(health.rests(&image("a:other")) && health.rests(&b) && !health.rests(&d));
        health.works(&d);
        health.failed(&c);
        assert!(health.rests(&a) && !health.rests(&d), "something worked between");
        health.failed(&a);
        health.failed(&b);
        assert!(health.rests(&d), "three in a row");
        assert!(!health.rests(&image("e.f/d")), "of that registry only");
        health.works(&a);
        assert!(!health.rests(&a) && !health.rests(&d));
        tokio::time::advance(limits::MIRROR_REST).await;
        assert!(!health.rests(&b));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_connection_it_rests_for_everybody() {
        let health = Health::default();
        health.note_unreachable();
        assert!(health.rests(&image("a")) && health.rests(&image("e.f/d")));
        health.works(&image("a"));
        assert!(!health.rests(&image("e.f/d")));
        health.note_unreachable();
        tokio::time::advance(limits::MIRROR_REST).await;
        assert!(!health.rests(&image("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_cannot_make_it_remember_more_and_more() {
        let health = Health::default();
        for number in 0..2 * limits::MIRROR_FAULTS {
            health.failed(&image(&format!("r{number}.test/x")));
        }
        assert_eq!(health.state().faults.len(), limits::MIRROR_FAULTS);
    }
}
