//! Ranges of characters, and how Rust's syntax writes them.

use std::ops::RangeInclusive;

pub(super) const LAST: u32 = char::MAX as u32;

pub(super) type Range = RangeInclusive<u32>;

/// Returns ranges, given as pairs of their first and last characters.
pub(super) fn ranges_of(pairs: &str) -> Vec<Range> {
    let mut ranges = Vec::new();
    for pair in pairs.as_bytes().chunks_exact(2) {
        ranges.push(u32::from(pair[0])..=u32::from(pair[1]));
    }
    ranges
}

/// Adds the other case of each letter to ranges of ASCII characters. `k` and `s` also have a variant beyond ASCII each.
pub(super) fn with_other_case(ranges: &[Range]) -> Vec<Range> {
    const KELVIN: u32 = 0x212a;
    const LONG_S: u32 = 0x17f;
    let mut folded = Vec::new();
    for range in ranges {
        folded.push(range.clone());
        for letter in 'a'..='z' {
            let lower = u32::from(letter);
            let upper = u32::from(letter.to_ascii_uppercase());
            if !range.contains(&lower) && !range.contains(&upper) {
                continue;
            }
            folded.push(lower..=lower);
            folded.push(upper..=upper);
            match letter {
                'k' => folded.push(KELVIN..=KELVIN),
                's' => folded.push(LONG_S..=LONG_S),
                _ => {}
            }
        }
    }
    folded
}

/// Returns all characters that are in none of the ranges.
pub(super) fn complement(ranges: Vec<Range>) -> Vec<Range> {
    let mut complement = Vec::new();
    let mut next = 0;
    for range in merged(ranges) {
        if next < *range.start() {
            complement.push(next..=*range.start() - 1);
        }
        next = *range.end() + 1;
    }
    if next <= LAST {
        complement.push(next..=LAST);
    }
    complement
}

/// Sorts the ranges, and joins those that overlap or touch.
fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_by_key(|range| *range.start());
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if *range.start() <= *last.end() + 1 => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => merged.push(range),
        }
    }
    merged
}

/// Returns a class in Rust's syntax. Surrogates are left out: no text has any.
pub(super) fn in_brackets(ranges: Vec<Range>) -> String {
    const SURROGATES: Range = 0xd800..=0xdfff;
    let mut class = String::new();
    for range in merged(ranges) {
        let low = *range.start();
        let high = *range.end();
        let parts = [
            low..=high.min(SURROGATES.start() - 1),
            low.max(SURROGATES.end() + 1)..=high,
        ];
        for part in parts {
            if !part.is_empty() {
                class += &format!("\\x{{{:X}}}-\\x{{{:X}}}", part.start(), part.end());
            }
        }
    }
    if class.is_empty() {
        r"[^\x{0}-\x{10FFFF}]".to_owned()
    } else {
        format!("[{class}]")
    }
}
