//! Where a JSON value ends, and whether it is one (RFC 8259): for values that nobody needs.
//!
//! Each function looks at the text from a place on and gives the place behind what it looked for; `None` is not JSON,
//! or nested too deep. What the API server sends has no blanks, so blanks are looked for only where something else was
//! expected.

use wide::u8x16;

/// Levels of a skipped value, as many as there are bits beside the first one; Kubernetes' own objects have about twenty.
const DEPTH: u32 = u64::BITS - 1;

/// A JSON text, and where its strings may end.
pub(super) struct Source<'a> {
    pub(super) json: &'a [u8],
    /// A bit for each byte that does not stand for itself in a string: quotes, backslashes, control characters. Behind the
    /// end, there are only such bytes.
    ///
    /// To find them all at once, many bytes at a time, is much faster than to look for one after the other: the
    /// processor need not know where one string ends to begin with the next one.
    special: Vec<u64>,
}

impl<'a> Source<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        let (blocks, rest) = json.as_chunks();
        let mut last = [0; 64];
        last[..rest.len()].copy_from_slice(rest);
        Self { json, special: blocks.iter().chain([&last, &[0; 64]]).map(special).collect() }
    }

    /// Behind the value that begins at `at`, or after blanks.
    pub(super) fn value(&self, mut at: usize) -> Option<usize> {
        // What is open, below the highest bit that is set: lists (0) and objects (1), the innermost in the lowest bit.
        let mut open = 1u64;
        loop {
            at = match *self.json.get(at)? {
                b'"' => self.string(at + 1)?.0,
                bracket @ (b'{' | b'[') => {
                    let is_object = bracket == b'{';
                    if let Some(end) = self.byte(at + 1, bracket + 2) {
                        end
                    } else if open >> DEPTH != 0 {
                        return None;
                    } else {
                        open = open << 1 | u64::from(is_object);
                        at = if is_object { self.key(at + 1)? } else { at + 1 };
                        continue;
                    }
                }
                b'-' | b'0'..=b'9' => self.number(at)?,
                b'n' => self.word(at, "null")?,
                b't' => self.word(at, "true")?,
                b'f' => self.word(at, "false")?,
                _ => {
                    at = self.blanks(at)?;
                    continue;
                }
            };
            // A value has ended: here ends what it is in as well, or comes the next one.
            loop {
                if open == 1 {
                    return Some(at);
                }
                let closing = if open & 1 == 1 { b'}' } else { b']' };
                match *self.json.get(at)? {
                    b',' => break,
                    byte if byte == closing => (open, at) = (open >> 1, at + 1),
                    _ => at = self.blanks(at)?,
                }
            }
            at = if open & 1 == 1 { self.key(at + 1)? } else { at + 1 };
        }
    }

    /// Behind a member's key and its colon.
    #[inline(always)]
    fn key(&self, at: usize) -> Option<usize> {
        let begun = self.byte(at, b'"')?;
        self.byte(self.string(begun)?.0, b':')
    }

    /// Behind this byte, which stands at `at` or after blanks.
    #[inline]
    pub(super) fn byte(&self, at: usize, expected: u8) -> Option<usize> {
        match *self.json.get(at)? {
            found if found == expected => Some(at + 1),
            b' ' | b'\t' | b'\n' | b'\r' => self.byte_after_blanks(at, expected),
            _ => None,
        }
    }

    #[cold]
    fn byte_after_blanks(&self, at: usize, expected: u8) -> Option<usize> {
        let at = self.blanks(at)?;
        (*self.json.get(at)? == expected).then_some(at + 1)
    }

    /// Behind the blanks, of which there is one at least.
    #[cold]
    pub(super) fn blanks(&self, at: usize) -> Option<usize> {
        self.many(at, |b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
    }

    /// Behind the closing quote of the string whose first character is at `at`, and whether there are escapes in it.
    #[inline]
    pub(super) fn string(&self, at: usize) -> Option<(usize, bool)> {
        let at = self.next_special(at)?;
        if self.json.get(at) == Some(&b'"') { Some((at + 1, false)) } else { self.string_with_escapes(at) }
    }

    #[inline(never)]
    fn string_with_escapes(&self, mut at: usize) -> Option<(usize, bool)> {
        loop {
            at = match *self.json.get(at)? {
                b'"' => return Some((at + 1, true)),
                b'\\' => self.next_special(self.escape(at)?)?,
                _ => return None,
            };
        }
    }

    /// The place of the first such byte from `at` on.
    #[inline(always)]
    fn next_special(&self, at: usize) -> Option<usize> {
        let [here, next] = *self.special.get(at / 64..)?.first_chunk()?;
        // The 64 bytes from `at` on.
        let bits = here >> (at % 64) | next << 1 << (63 - at % 64);
        if bits != 0 { Some(at + bits.trailing_zeros() as usize) } else { self.special_in_later_block(at) }
    }

    #[inline(never)]
    fn special_in_later_block(&self, at: usize) -> Option<usize> {
        let next = at / 64 + 1;
        let block = next + self.special.get(next..)?.iter().position(|bits| *bits != 0)?;
        Some(block * 64 + self.special.get(block)?.trailing_zeros() as usize)
    }

    /// Behind the escape that begins at `at`.
    fn escape(&self, at: usize) -> Option<usize> {
        match self.json.get(at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
            b'u' if self.json.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) => Some(at + 6),
            _ => None,
        }
    }

    /// Behind this word.
    pub(super) fn word(&self, at: usize, word: &str) -> Option<usize> {
        self.json.get(at..)?.starts_with(word.as_bytes()).then_some(at + word.len())
    }

    /// Behind the number that begins at `at`.
    fn number(&self, at: usize) -> Option<usize> {
        let at = self.integer(at)?;
        let at = if self.json.get(at) == Some(&b'.') { self.digits(at + 1)? } else { at };
        match (self.json.get(at), self.json.get(at + 1)) {
            (Some(b'e' | b'E'), Some(b'+' | b'-')) => self.digits(at + 2),
            (Some(b'e' | b'E'), _) => self.digits(at + 1),
            _ => Some(at),
        }
    }

    /// Behind the integer that begins at `at`.
    pub(super) fn integer(&self, at: usize) -> Option<usize> {
        let at = at + usize::from(self.json.get(at) == Some(&b'-'));
        if self.json.get(at) == Some(&b'0') { Some(at + 1) } else { self.digits(at) }
    }

    fn digits(&self, at: usize) -> Option<usize> {
        self.many(at, u8::is_ascii_digit)
    }

    /// Behind the bytes of a kind, of which there is one at least.
    fn many(&self, at: usize, is: impl Fn(&u8) -> bool) -> Option<usize> {
        let many = self.json.get(at..)?.iter().take_while(|b| is(b)).count();
        (many > 0).then_some(at + many)
    }
}

/// A bit for each byte that does not stand for itself in a string, the lowest for the first.
fn special(block: &[u8; 64]) -> u64 {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().fold(0, |bits, part| {
        let part = u8x16::new(*part);
        let control = part.min(u8x16::splat(0x1f)).simd_eq(part);
        let special = control | part.simd_eq(u8x16::splat(b'"')) | part.simd_eq(u8x16::splat(b'\\'));
        bits << 16 | u64::from(special.to_bitmask())
    })
}
