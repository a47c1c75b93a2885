//! A scanner of JSON (RFC 8259) that also skips values that are not needed.

use serde::de::IgnoredAny;
use wide::u8x16;

/// Error for a text that is not read here: it may be malformed, or only unusual, with blanks or nested deeply, which
/// the API server never sends. The scanner cannot be used after this error.
#[derive(Debug, thiserror::Error)]
#[error("not read here")]
pub struct NotRead;

/// Maximal levels of a skipped value: the bits beside the first one; Kubernetes' own objects have about twenty.
const DEPTH: u32 = u64::BITS - 1;
const BLOCK: usize = u64::BITS as usize;

/// A JSON text, and the position of the scanner.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    /// Position behind the part that has been passed.
    pub(super) at: usize,
    /// A bit for each quote and backslash, and all positions behind the end. Finding all at once, many bytes at a time,
    /// is much faster: the processor need not know where one string ends to begin with the next one.
    special: Vec<u64>,
    /// The block of the next bit, unless the block is over. `left` has the block's bits that have not been passed: all
    /// before `at` have been, as neither character may be outside of a string.
    block: usize,
    left: u64,
}

/// Position of a string, without its quotes.
pub(super) struct Characters {
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) has_escapes: bool,
}

impl<'a> Source<'a> {
    /// Scans the text. [`NotRead`] if there are control characters: to be escaped in a string, and blanks elsewhere.
    pub(super) fn new(text: &'a str) -> Result<Self, NotRead> {
        let (blocks, rest) = text.as_bytes().as_chunks();
        let mut last = [b'"'; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let mut least = u8x16::splat(u8::MAX);
        let special: Vec<u64> =
            blocks.iter().chain([&last]).map(|block| special(block, &mut least)).collect();
        let left = special[0];
        let fits = least.to_array().iter().all(|&byte| byte >= b' ');
        if fits { Ok(Self { text, at: 0, special, block: 0, left }) } else { Err(NotRead) }
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

    pub(super) fn value(&mut self) -> Result<(), NotRead> {
        // Open collections below the highest set bit: lists (0) and objects (1), the innermost in the lowest bit.
        let mut open = 1u64;
        loop {
            match self.next()? {
                b'"' => {
                    self.string()?;
                }
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    if self.next()? == bracket + 2 {
                        self.at += 1;
                    } else {
                        open = within(open, bracket == b'{')?;
                        if bracket == b'[' || !self.members(&mut open)? {
                            continue;
                        }
                    }
                }
                _ => self.scalar()?,
            }
            // After a value, either its collection ends as well, or the next value follows.
            loop {
                if open == 1 {
                    return Ok(());
                }
                let closing = if open & 1 == 1 { b'}' } else { b']' };
                let byte = self.next()?;
                self.at += 1;
                if byte == closing {
                    open >>= 1;
                } else if byte != b',' {
                    return Err(NotRead);
                } else if open & 1 == 0 || !self.members(&mut open)? {
                    break;
                }
            }
        }
    }

    /// Passes members, and enters objects, until the last member of one has been passed (true), or a value of another
    /// kind than most in `managedFields` and in specs begins (false).
    #[inline(always)]
    fn members(&mut self, open: &mut u64) -> Result<bool, NotRead> {
        loop {
            self.string()?;
            match self.text.as_bytes().get(self.at..).unwrap_or_default() {
                [b':', b'{', b'}', ..] => self.at += 3,
                [b':', b'{', b'"', ..] => {
                    *open = within(*open, true)?;
                    self.at += 2;
                    continue;
                }
                [b':', b'"', ..] => {
                    self.at += 1;
                    self.string()?;
                }
                [b':', ..] => {
                    self.at += 1;
                    return Ok(false);
                }
                _ => return Err(NotRead),
            }
            if self.next()? != b',' {
                return Ok(true);
            }
            self.at += 1;
        }
    }

    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<Characters, NotRead> {
        self.byte(b'"')?;
        let begin = self.at;
        let opening = self.next_special()?;
        debug_assert_eq!(opening + 1, begin, "none has been forgotten");
        self.at = self.next_special()? + 1;
        let has_escapes = self.text.as_bytes().get(self.at - 1) != Some(&b'"');
        if has_escapes {
            self.escapes()?;
        }
        Ok(Characters { begin, end: self.at - 1, has_escapes })
    }

    /// Passes the rest of a string, from behind a backslash.
    #[inline(never)]
    fn escapes(&mut self) -> Result<(), NotRead> {
        while self.byte_at(self.at - 1)? == b'\\' {
            let digits = self.text.as_bytes().get(self.at + 1..self.at + 5);
            match self.next()? {
                b'"' | b'\\' => {
                    self.next_special()?;
                }
                b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' if digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) => {}
                _ => return Err(NotRead),
            }
            self.at = self.next_special()? + 1;
        }
        Ok(())
    }

    /// Returns the position of the next quote or backslash, or one behind the end.
    #[inline(always)]
    fn next_special(&mut self) -> Result<usize, NotRead> {
        while self.left == 0 {
            self.block += 1;
            self.left = *self.special.get(self.block).ok_or(NotRead)?;
        }
        let place = self.block * BLOCK + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Ok(place)
    }

    #[inline(never)]
    fn scalar(&mut self) -> Result<(), NotRead> {
        match self.token()?.as_bytes() {
            b"true" | b"false" | b"null" | b"0" => Ok(()),
            [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => Ok(()),
            other => serde_json::from_slice(other).map(|IgnoredAny| ()).map_err(|_| NotRead),
        }
    }

    /// Passes a candidate for a number or a word.
    pub(super) fn token(&mut self) -> Result<&'a str, NotRead> {
        let rest = self.text.get(self.at..).ok_or(NotRead)?;
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
        let token = &rest[..rest.bytes().take_while(is_part).count()];
        self.at += token.len();
        Ok(token)
    }
}

/// Returns the open collections within another object or list; [`NotRead`] if they are too deep.
#[inline(always)]
fn within(open: u64, is_object: bool) -> Result<u64, NotRead> {
    if open >> DEPTH == 0 { Ok(open << 1 | u64::from(is_object)) } else { Err(NotRead) }
}

/// Returns a bit for each quote and each backslash, the lowest for the first byte, and lowers `least`.
fn special(block: &[u8; BLOCK], least: &mut u8x16) -> u64 {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().fold(0, |bits, part| {
        let part = u8x16::new(*part);
        *least = least.min(part);
        let special = part.simd_eq(u8x16::splat(b'"')) | part.simd_eq(u8x16::splat(b'\\'));
        bits << 16 | u64::from(special.to_bitmask())
    })
}
