//! A scanner of JSON (RFC 8259) that also skips values that are not needed.

use std::ops::Range;

use wide::u8x16;

/// Error for a text that is not read here: it may be malformed, or only unusual, with blanks, which the API server never
/// sends. The scanner cannot be used after this error.
#[derive(Debug, thiserror::Error)]
#[error("not read here")]
pub struct NotRead;

const BLOCK: usize = u64::BITS as usize;
type Block = [u8; BLOCK];

/// A JSON text, and the position of the scanner.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    /// Position behind the part that has been passed.
    pub(super) at: usize,
    /// Finding all marks at once, many bytes at a time, is much faster: the processor need not know where one string ends
    /// to begin with the next one.
    marks: Vec<Marks>,
    /// The block of the next special character, unless the block is over. `left` has those of the block that have not been
    /// passed: all before `at` have been, as none may be outside of a string.
    block: usize,
    left: u64,
}

/// Marks of a block of the text: a bit for each, the lowest for the first byte.
struct Marks {
    /// Quotes and backslashes that no backslash escapes, and all positions behind the end of the text.
    special: u64,
    /// Brackets outside of strings.
    opening: u64,
    closing: u64,
}

impl<'a> Source<'a> {
    /// Scans the text. [`NotRead`] if there are control characters, which in JSON are blanks at best.
    pub(super) fn new(text: &'a str) -> Result<Self, NotRead> {
        let (blocks, rest) = text.as_bytes().as_chunks();
        let mut last = [b'"'; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let mut least = u8x16::splat(u8::MAX);
        let mut is_escaped = false;
        let mut in_string = 0;
        let marks = |block: &Block| {
            least = parts(block).fold(least, u8x16::min);
            let quotes = places(block, b'"');
            let backslashes = places(block, b'\\');
            let special = (quotes | backslashes) & !escaped(backslashes, &mut is_escaped);
            let strings = parity(quotes & special) ^ in_string;
            in_string = if strings >> (BLOCK - 1) == 0 {
                0
            } else {
                u64::MAX
            };
            Marks {
                special,
                opening: brackets(block, b'{') & !strings,
                closing: brackets(block, b'}') & !strings,
            }
        };
        let marks: Vec<Marks> = blocks.iter().chain([&last]).map(marks).collect();
        if least.to_array().iter().any(|&byte| byte < b' ') {
            return Err(NotRead);
        }
        let left = marks[0].special;
        Ok(Self {
            text,
            at: 0,
            marks,
            block: 0,
            left,
        })
    }

    #[inline]
    pub(super) fn next(&self) -> Result<u8, NotRead> {
        self.byte_at(self.at)
    }

    #[inline(always)]
    fn byte_at(&self, place: usize) -> Result<u8, NotRead> {
        self.text.as_bytes().get(place).copied().ok_or(NotRead)
    }

    #[inline]
    pub(super) fn byte(&mut self, expected: u8) -> Result<(), NotRead> {
        if self.next()? != expected {
            return Err(NotRead);
        }
        self.at += 1;
        Ok(())
    }

    /// Passes a value, of which only the end is looked for: what is between its brackets may be no JSON.
    pub(super) fn value(&mut self) -> Result<(), NotRead> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.collection(),
            _ if self.token()?.is_empty() => Err(NotRead),
            _ => Ok(()),
        }
    }

    fn collection(&mut self) -> Result<(), NotRead> {
        let mut block = self.at / BLOCK;
        let mut depth = 0;
        let mut rest = u64::MAX << (self.at % BLOCK);
        loop {
            let Marks {
                special,
                opening,
                closing,
            } = *self.marks.get(block).ok_or(NotRead)?;
            let opening = opening & rest;
            let closing = closing & rest;
            if closing.count_ones() < depth {
                depth = depth + opening.count_ones() - closing.count_ones();
            } else {
                let mut brackets = opening | closing;
                while brackets != 0 {
                    let place = brackets.trailing_zeros();
                    if opening >> place & 1 == 1 {
                        depth += 1;
                    } else {
                        depth -= 1;
                    }
                    brackets &= brackets - 1;
                    if depth == 0 {
                        self.at = block * BLOCK + place as usize + 1;
                        self.block = block;
                        self.left = special & (u64::MAX << place);
                        return Ok(());
                    }
                }
            }
            block += 1;
            rest = u64::MAX;
        }
    }

    /// Passes a string. Returns its place, without its quotes, and whether it has escapes.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<(Range<usize>, bool), NotRead> {
        self.byte(b'"')?;
        let begin = self.at;
        let opening = self.next_special()?;
        debug_assert_eq!(opening + 1, begin, "none has been forgotten");
        let mut end = self.next_special()?;
        let mut has_escapes = false;
        while self.byte_at(end)? == b'\\' {
            end = self.next_special()?;
            has_escapes = true;
        }
        self.at = end + 1;
        Ok((begin..end, has_escapes))
    }

    /// Returns the position of the next special character, or one behind the end.
    #[inline(always)]
    fn next_special(&mut self) -> Result<usize, NotRead> {
        while self.left == 0 {
            self.block += 1;
            self.left = self.marks.get(self.block).ok_or(NotRead)?.special;
        }
        let place = self.block * BLOCK + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Ok(place)
    }

    /// Passes a candidate for a number or a word.
    pub(super) fn token(&mut self) -> Result<&'a str, NotRead> {
        let rest = self.text.get(self.at..).ok_or(NotRead)?;
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        let token = &rest[..rest.bytes().take_while(is_part).count()];
        self.at += token.len();
        Ok(token)
    }
}

/// Returns the parts of a block, the last one first.
#[inline(always)]
fn parts(block: &Block) -> impl Iterator<Item = u8x16> {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().map(|part| u8x16::new(*part))
}

#[inline(always)]
fn bits(block: &Block, find: impl Fn(u8x16) -> u8x16) -> u64 {
    parts(block).fold(0, |bits, part| {
        bits << 16 | u64::from(find(part).to_bitmask())
    })
}

#[inline(always)]
fn places(block: &Block, byte: u8) -> u64 {
    bits(block, |part| part.simd_eq(u8x16::splat(byte)))
}

/// Returns the places of a brace and of the bracket of lists that corresponds to it: one bit less.
#[inline(always)]
fn brackets(block: &Block, brace: u8) -> u64 {
    bits(block, |part| {
        (part | u8x16::splat(b'{' ^ b'[')).simd_eq(u8x16::splat(brace))
    })
}

/// Returns a bit for each character that a backslash escapes; `is_escaped` tells it of the first one of a block.
#[inline(always)]
fn escaped(backslashes: u64, is_escaped: &mut bool) -> u64 {
    let mut escaped = u64::from(*is_escaped);
    let mut left = backslashes & !escaped;
    *is_escaped = false;
    while left != 0 {
        let next = (left & left.wrapping_neg()) << 1;
        *is_escaped = next == 0;
        escaped |= next;
        left &= (left - 1) & !next;
    }
    escaped
}

/// Returns for each bit whether the number of set bits up to there, itself included, is odd.
#[inline(always)]
fn parity(bits: u64) -> u64 {
    (0..6).fold(bits, |bits, power| bits ^ bits << (1 << power))
}
