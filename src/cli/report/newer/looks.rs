//! Search for the nearest and the newest tag of an image that have certain platforms, in few lookups. Pure.
//!
//! First it looks up the newest tags downwards until one has the platforms, then the nearest tags upwards. Between them it
//! bisects, because later tags mostly keep a platform.

use tolerarch_core::reason::LookupError;

/// Maximum number of tags that are looked up one after the other at either end.
const AT_AN_END: usize = 8;

/// Result of the lookup of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Has,
    Lacks,
    Unknown(LookupError),
}

/// Search among tags, which are numbered from the nearest on.
pub(super) struct TagSearch {
    answers: Vec<Option<Answer>>,
}

impl TagSearch {
    pub(super) fn among(tags: usize) -> Self {
        Self {
            answers: vec![None; tags],
        }
    }

    /// Returns the tag to look up next; `None` at the end.
    pub(super) fn next(&self) -> Option<usize> {
        let count = self.answers.len();
        for tag in (count.saturating_sub(AT_AN_END)..count).rev() {
            match self.answers[tag] {
                None => return Some(tag),
                Some(Answer::Has) => break,
                Some(_) => {}
            }
        }
        let nearest = self.nearest()?;
        for tag in 0..nearest.min(AT_AN_END) {
            if self.answers[tag].is_none() {
                return Some(tag);
            }
        }
        let mut below = self.answers[..nearest].iter();
        let first_between = below.rposition(Option::is_some).map_or(0, |last| last + 1);
        if first_between == nearest {
            return None;
        }
        Some(first_between.midpoint(nearest - 1))
    }

    pub(super) fn record(&mut self, tag: usize, answer: Answer) {
        self.answers[tag] = Some(answer);
    }

    pub(super) fn nearest(&self) -> Option<usize> {
        self.answers.iter().position(has)
    }

    pub(super) fn newest(&self) -> Option<usize> {
        self.answers.iter().rposition(has)
    }

    /// Returns whether each tag before this one is known to lack a platform.
    pub(super) fn is_first(&self, tag: usize) -> bool {
        let mut before = self.answers[..tag].iter();
        before.all(|answer| *answer == Some(Answer::Lacks))
    }

    pub(super) fn looked_up(&self) -> usize {
        self.answers.iter().flatten().count()
    }

    /// Returns the number of failed lookups, and the reason of one of them.
    pub(super) fn failed(&self) -> Option<(usize, LookupError)> {
        let mut errors = Vec::new();
        for answer in self.answers.iter().flatten() {
            if let Answer::Unknown(error) = answer {
                errors.push(*error);
            }
        }
        Some((errors.len(), *errors.last()?))
    }
}

fn has(answer: &Option<Answer>) -> bool {
    *answer == Some(Answer::Has)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches among tags with these answers. Returns the search and the tags in the order of their lookups.
    fn searched(tags: usize, answer: impl Fn(usize) -> Answer) -> (TagSearch, Vec<usize>) {
        let mut search = TagSearch::among(tags);
        let mut lookups = Vec::new();
        while let Some(tag) = search.next() {
            assert!(!lookups.contains(&tag), "{tag} again, after {lookups:?}");
            lookups.push(tag);
            search.record(tag, answer(tag));
        }
        (search, lookups)
    }

    /// Returns the answers if the platforms exist from this tag on.
    fn from(first: usize) -> impl Fn(usize) -> Answer {
        move |tag| {
            if tag >= first {
                Answer::Has
            } else {
                Answer::Lacks
            }
        }
    }

    #[test]
    fn nearest_and_newest_are_found_in_few_lookups() {
        for (tags, first, expected) in [
            (1, 0, vec![0]),
            (2, 0, vec![1, 0]),
            (5, 3, vec![4, 0, 1, 2, 3]),
            (100, 0, vec![99, 0]),
            (100, 7, vec![99, 0, 1, 2, 3, 4, 5, 6, 7]),
            (10, 9, vec![9, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ] {
            let (search, lookups) = searched(tags, from(first));
            assert_eq!(lookups, expected, "{first} of {tags}");
            assert_eq!(search.newest(), Some(tags - 1));
            assert_eq!(search.nearest(), Some(first));
            assert!(search.is_first(first), "{first} of {tags}");
        }
        for first in 8..2000 {
            let (search, lookups) = searched(2000, from(first));
            assert_eq!(search.nearest(), Some(first));
            assert!(
                lookups.len() <= 1 + AT_AN_END + 11,
                "{first}: {}",
                lookups.len()
            );
            let before = lookups.iter().filter(|tag| **tag < first);
            assert_eq!(search.is_first(first), before.count() == first, "{first}");
        }
    }

    #[test]
    fn search_ends_without_a_match_among_the_newest() {
        let (search, lookups) = searched(2000, |_| Answer::Lacks);
        assert_eq!(lookups, (1992..2000).rev().collect::<Vec<_>>());
        assert_eq!((search.nearest(), search.newest()), (None, None));
        assert_eq!(searched(3, |_| Answer::Lacks).1, [2, 1, 0]);
        assert_eq!(searched(0, |_| Answer::Has).1, [0; 0]);
        // The newest tags have lost the platform again.
        let (search, lookups) = searched(20, |tag| from(5)(tag).has_until(tag, 17));
        assert_eq!(search.newest(), Some(16));
        assert_eq!(search.nearest(), Some(5));
        assert_eq!(lookups, [19, 18, 17, 16, 0, 1, 2, 3, 4, 5]);
    }

    impl Answer {
        fn has_until(self, tag: usize, end: usize) -> Self {
            if tag < end { self } else { Self::Lacks }
        }
    }

    #[test]
    fn failed_lookup_does_not_count_as_lacking() {
        let failing = |tag| match tag {
            1 => Answer::Unknown(LookupError::Timeout),
            _ => from(3)(tag),
        };
        let (search, lookups) = searched(6, failing);
        assert_eq!(lookups, [5, 0, 1, 2, 3]);
        assert_eq!(search.nearest(), Some(3));
        assert!(!search.is_first(3));
        assert_eq!(search.failed(), Some((1, LookupError::Timeout)));
        let (search, _) = searched(6, |_| Answer::Unknown(LookupError::Denied));
        assert_eq!(search.newest(), None);
        assert_eq!(search.failed(), Some((6, LookupError::Denied)));
        assert_eq!(searched(6, |_| Answer::Has).0.failed(), None);
    }
}
