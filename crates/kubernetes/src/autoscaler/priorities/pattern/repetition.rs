//! Repetitions: `*`, `+`, `?` and `{n,m}`, with Go's limits on them.

use super::Refusal::{Invalid, Unknown};
use super::{Item, Refusal, Translation};

/// Maximum product of nested repetitions in Go.
const REPETITIONS: u64 = 1000;
/// Stands for numbers that are too large to read; from this one on, Go does not read them either.
const UNCOUNTED: u64 = 100_000_000;

/// Bounds of a repetition.
#[derive(Clone, Copy)]
pub(super) struct Count {
    minimum: u64,
    /// `None` for a repetition without an upper bound.
    maximum: Option<u64>,
}

impl Count {
    /// Returns whether Go accepts the bounds.
    fn is_valid(self) -> bool {
        if self.minimum > REPETITIONS {
            return false;
        }
        match self.maximum {
            Some(maximum) => (self.minimum..=REPETITIONS).contains(&maximum),
            None => true,
        }
    }

    /// Returns whether Go checks the product of nested repetitions for this one.
    fn is_checked(self) -> bool {
        self.maximum.unwrap_or(self.minimum) >= 2
    }

    /// Returns the product with the repetitions inside the repeated item.
    fn product(self, inner: u64) -> u64 {
        match self.maximum {
            Some(0) => 0,
            None if self.minimum == 0 => inner,
            maximum => maximum.unwrap_or(self.minimum) * inner.max(1),
        }
    }

    pub(super) fn written(self) -> String {
        match self.maximum {
            Some(maximum) => format!("{{{},{maximum}}}", self.minimum),
            None => format!("{{{},}}", self.minimum),
        }
    }
}

impl Translation<'_> {
    /// Repeats the last item.
    pub(super) fn repeat(
        &mut self,
        written: &str,
        count: Option<Count>,
        is_behind_repetition: bool,
    ) -> Result<(), Refusal> {
        if let Some(count) = count
            && !count.is_valid()
        {
            return Err(Invalid("a repetition of more than 1000"));
        }
        self.skip("?");
        if is_behind_repetition {
            return Err(Invalid("a repetition right behind another"));
        }
        let Some(item) = self.last else {
            return Err(Invalid("a repetition of nothing"));
        };
        if item.is_repeated {
            return Err(Unknown(
                "a repetition behind another, with flags between them",
            ));
        }
        let mut repetitions = item.repetitions;
        if let Some(count) = count {
            repetitions = count.product(repetitions);
            if count.is_checked() && repetitions > REPETITIONS {
                return Err(Invalid("nested repetitions of more than 1000"));
            }
        }
        self.written += written;
        self.last = Some(Item {
            repetitions,
            is_repeated: true,
        });
        Ok(())
    }

    /// Reads a count after its `{`. Without a valid count, `{` is a character, and nothing is read.
    pub(super) fn count(&mut self) -> Option<Count> {
        let start = self.rest.clone();
        let count = self.read_count();
        if count.is_none() {
            self.rest = start;
        }
        count
    }

    fn read_count(&mut self) -> Option<Count> {
        let minimum = self.number()?;
        let maximum = if !self.skip(",") {
            Some(minimum)
        } else if self.peek() == Some('}') {
            None
        } else {
            Some(self.number()?)
        };
        if self.skip("}") {
            Some(Count { minimum, maximum })
        } else {
            None
        }
    }

    /// Reads a number without leading zeros. [`UNCOUNTED`] if it is too large.
    fn number(&mut self) -> Option<u64> {
        let text = self.rest.as_str();
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &text[..text.len() - rest.len()];
        if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
            return None;
        }
        self.rest = rest.chars();
        Some(digits.parse().unwrap_or(UNCOUNTED))
    }
}
