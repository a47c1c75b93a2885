//! A scanner of JSON (RFC 8259) that can skip values.

use std::ops::Range;

use wide::u8x16;

/// Error for a text that the scanner does not support. The text may be malformed, or only unusual: the API server never
/// sends blanks. The scanner cannot be used after this error.
#[derive(Debug, thiserror::Error)]
#[error("unsupported JSON")]
pub struct Unsupported;

const BLOCK: usize = u64::BITS as usize;
type Block = [u8; BLOCK];

/// A JSON text, and the position of the scanner.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    /// Position after the part that has been read.
    pub(super) at: usize,
    /// The marks of all blocks. They are found in one pass, many bytes at a time, which is much faster: the processor need
    /// not wait for the end of one string to search for the next.
    marks: Vec<Marks>,
    /// The block of the next special character, unless the rest of the block has none.
    block: usize,
    /// Special characters of the block that have not been read. Those before `at` have, as none may be outside of a string.
    left: u64,
}

/// The marks of a block of the text: a bit for each byte, the lowest for the first.
struct Marks {
    /// Quotes and backslashes that no backslash escapes, and all positions after the end of the text.
    special: u64,
    /// Opening brackets outside of strings.
    opening: u64,
    /// Closing brackets outside of strings.
    closing: u64,
}

impl<'a> Source<'a> {
    /// Finds the marks of the text. [`Unsupported`] if it has control characters: outside of strings they would be blanks.
    pub(super) fn new(text: &'a str) -> Result<Self, Unsupported> {
        let (blocks, rest) = text.as_bytes().as_chunks();
        let mut last = [b'"'; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let mut least = u8x16::splat(u8::MAX);
        let mut is_escaped = false;
        let mut in_string = 0;
        let marks_of = |block: &Block| {
            least = parts(block).fold(least, u8x16::min);
            let quotes = positions(block, b'"');
            let backslashes = positions(block, b'\\');
            let escaped = escaped(backslashes, &mut is_escaped);
            let special = (quotes | backslashes) & !escaped;
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
        let blocks = blocks.iter().chain([&last]);
        let marks: Vec<Marks> = blocks.map(marks_of).collect();
        let has_control = least.to_array().iter().any(|&byte| byte < b' ');
        if has_control {
            return Err(Unsupported);
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
    pub(super) fn next(&self) -> Result<u8, Unsupported> {
        self.byte_at(self.at)
    }

    #[inline(always)]
    fn byte_at(&self, position: usize) -> Result<u8, Unsupported> {
        match self.text.as_bytes().get(position) {
            Some(byte) => Ok(*byte),
            None => Err(Unsupported),
        }
    }

    /// Moves past the next byte, which must be the expected one.
    #[inline]
    pub(super) fn byte(&mut self, expected: u8) -> Result<(), Unsupported> {
        if self.next()? != expected {
            return Err(Unsupported);
        }
        self.at += 1;
        Ok(())
    }

    /// Moves past a value. Only the end is looked for: the text between its brackets may be no JSON.
    pub(super) fn value(&mut self) -> Result<(), Unsupported> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'{' | b'[' => self.collection(),
            _ if self.token()?.is_empty() => Err(Unsupported),
            _ => Ok(()),
        }
    }

    /// Moves past an object or a list.
    fn collection(&mut self) -> Result<(), Unsupported> {
        let mut block = self.at / BLOCK;
        let mut depth = 0;
        // The bits of the block from the first bracket on.
        let mut rest = u64::MAX << (self.at % BLOCK);
        loop {
            let Marks {
                special,
                opening,
                closing,
            } = *self.marks.get(block).ok_or(Unsupported)?;
            let opening = opening & rest;
            let closing = closing & rest;
            if closing.count_ones() < depth {
                // The collection cannot end in this block.
                depth = depth + opening.count_ones() - closing.count_ones();
            } else {
                let mut brackets = opening | closing;
                while brackets != 0 {
                    let position = brackets.trailing_zeros();
                    if opening >> position & 1 == 1 {
                        depth += 1;
                    } else {
                        depth -= 1;
                    }
                    brackets &= brackets - 1;
                    if depth == 0 {
                        self.at = block * BLOCK + position as usize + 1;
                        self.block = block;
                        self.left = special & (u64::MAX << position);
                        return Ok(());
                    }
                }
            }
            block += 1;
            rest = u64::MAX;
        }
    }

    /// Moves past a string. Returns the range between its quotes, and whether it has escapes.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<(Range<usize>, bool), Unsupported> {
        self.byte(b'"')?;
        let begin = self.at;
        let opening = self.next_special()?;
        debug_assert_eq!(opening + 1, begin, "`left` has the opening quote");
        let mut end = self.next_special()?;
        let mut has_escapes = false;
        while self.byte_at(end)? == b'\\' {
            end = self.next_special()?;
            has_escapes = true;
        }
        self.at = end + 1;
        Ok((begin..end, has_escapes))
    }

    /// Returns the position of the next special character, or a position after the end.
    #[inline(always)]
    fn next_special(&mut self) -> Result<usize, Unsupported> {
        while self.left == 0 {
            self.block += 1;
            self.left = self.marks.get(self.block).ok_or(Unsupported)?.special;
        }
        let position = self.block * BLOCK + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Ok(position)
    }

    /// Moves past a text that may be a number or a word, and returns it.
    pub(super) fn token(&mut self) -> Result<&'a str, Unsupported> {
        let rest = self.text.get(self.at..).ok_or(Unsupported)?;
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        let length = rest.bytes().take_while(is_part).count();
        self.at += length;
        Ok(&rest[..length])
    }
}

/// Returns the parts of a block, the last part first.
#[inline(always)]
fn parts(block: &Block) -> impl Iterator<Item = u8x16> {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().map(|part| u8x16::new(*part))
}

/// Returns a bit for each byte for which `find` sets all bits.
#[inline(always)]
fn bits(block: &Block, find: impl Fn(u8x16) -> u8x16) -> u64 {
    parts(block).fold(0, |bits, part| {
        let mask = find(part).to_bitmask();
        bits << 16 | u64::from(mask)
    })
}

/// Returns the positions of a byte in a block.
#[inline(always)]
fn positions(block: &Block, byte: u8) -> u64 {
    bits(block, |part| part.simd_eq(u8x16::splat(byte)))
}

/// Returns the positions of a brace, and of the corresponding bracket of lists, which lacks one bit of the brace.
#[inline(always)]
fn brackets(block: &Block, brace: u8) -> u64 {
    bits(block, |part| {
        let braces = part | u8x16::splat(b'{' ^ b'[');
        braces.simd_eq(u8x16::splat(brace))
    })
}

/// Returns a bit for each character that a backslash escapes. `is_escaped`: whether the first character of the block is
/// escaped, and afterwards, whether that of the next block is.
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

/// Returns for each bit whether the number of set bits up to and including this bit is odd.
#[inline(always)]
fn parity(bits: u64) -> u64 {
    (0..6).fold(bits, |bits, power| bits ^ bits << (1 << power))
}
