//! A scanner of JSON (RFC 8259) that also skips values that are not needed.
//!
//! `None` is not JSON, nested too deep, or has blanks, as nothing has that the API server sends; then it is over.

use wide::u8x16;

/// Levels of a skipped value, as many as there are bits beside the first one; Kubernetes' own objects have about twenty.
const DEPTH: u32 = u64::BITS - 1;
const BLOCK: usize = u64::BITS as usize;

/// A JSON text, and how far it has been passed.
pub(super) struct Source<'a> {
    json: &'a [u8],
    /// Behind what has been passed.
    pub(super) at: usize,
    /// A bit for each quote and each backslash, and for all that is behind the end.
    ///
    /// To find them all at once, many bytes at a time, is much faster than to look for one after the other: the
    /// processor need not know where one string ends to begin with the next one.
    special: Vec<u64>,
    /// In which block the next of them is, unless the block is over, and the bits of those that have not been passed: all
    /// before `at` have been, as none may stand outside of a string.
    block: usize,
    left: u64,
}

/// Where a string is, without its quotes.
pub(super) struct Characters {
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) has_escapes: bool,
}

impl<'a> Source<'a> {
    /// `None` if there are control characters, which would have to be escaped in a string, and are blanks elsewhere.
    pub(super) fn new(json: &'a [u8]) -> Option<Self> {
        let (blocks, rest) = json.as_chunks();
        let mut last = [b'"'; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let mut least = u8x16::splat(u8::MAX);
        let special: Vec<u64> =
            blocks.iter().chain([&last]).map(|block| special(block, &mut least)).collect();
        let left = special[0];
        let fits = least.to_array().iter().all(|&byte| byte >= b' ');
        fits.then_some(Self { json, at: 0, special, block: 0, left })
    }

    #[inline]
    pub(super) fn next(&self) -> Option<u8> {
        self.json.get(self.at).copied()
    }

    pub(super) fn value(&mut self) -> Option<()> {
        // What is open, below the highest bit that is set: lists (0) and objects (1), the innermost in the lowest bit.
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
            // A value has ended: here ends what it is in as well, or comes the next one.
            loop {
                if open == 1 {
                    return Some(());
                }
                let closing = if open & 1 == 1 { b'}' } else { b']' };
                let byte = self.next()?;
                self.at += 1;
                if byte == closing {
                    open >>= 1;
                } else if byte != b',' {
                    return None;
                } else if open & 1 == 0 || !self.members(&mut open)? {
                    break;
                }
            }
        }
    }

    /// Passes members, and goes into objects, until the last member of one has been passed (true) or a value begins of another
    /// kind than most in `managedFields` and in specs (false).
    #[inline(always)]
    fn members(&mut self, open: &mut u64) -> Option<bool> {
        loop {
            self.string()?;
            match self.json.get(self.at..)? {
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
                    return Some(false);
                }
                _ => return None,
            }
            if self.next()? != b',' {
                return Some(true);
            }
            self.at += 1;
        }
    }

    #[inline(always)]
    pub(super) fn string(&mut self) -> Option<Characters> {
        if self.next()? != b'"' {
            return None;
        }
        let begin = self.at + 1;
        let opening = self.next_special()?;
        debug_assert_eq!(opening, self.at, "none has been forgotten");
        self.at = self.next_special()? + 1;
        let has_escapes = self.json.get(self.at - 1) != Some(&b'"');
        if has_escapes {
            self.escapes()?;
        }
        Some(Characters { begin, end: self.at - 1, has_escapes })
    }

    /// Passes the rest of a string, from behind a backslash.
    #[inline(never)]
    fn escapes(&mut self) -> Option<()> {
        while *self.json.get(self.at - 1)? == b'\\' {
            match self.next()? {
                b'"' | b'\\' => {
                    self.next_special()?;
                }
                b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                b'u' if self.json.get(self.at + 1..self.at + 5)?.iter().all(u8::is_ascii_hexdigit) => {}
                _ => return None,
            }
            self.at = self.next_special()? + 1;
        }
        Some(())
    }

    /// The place of the next quote or backslash, or one behind the end.
    #[inline(always)]
    fn next_special(&mut self) -> Option<usize> {
        while self.left == 0 {
            self.block += 1;
            self.left = *self.special.get(self.block)?;
        }
        let place = self.block * BLOCK + self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        Some(place)
    }

    #[inline(never)]
    fn scalar(&mut self) -> Option<()> {
        match self.next()? {
            b'n' => self.word("null"),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            _ => self.number(),
        }
    }

    #[inline]
    pub(super) fn byte(&mut self, expected: u8) -> Option<()> {
        let fits = self.next()? == expected;
        self.at += usize::from(fits);
        fits.then_some(())
    }

    pub(super) fn word(&mut self, word: &str) -> Option<()> {
        let fits = self.json.get(self.at..)?.starts_with(word.as_bytes());
        self.at += if fits { word.len() } else { 0 };
        fits.then_some(())
    }

    fn number(&mut self) -> Option<()> {
        self.integer()?;
        if self.next() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.next() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.next() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    pub(super) fn integer(&mut self) -> Option<()> {
        self.at += usize::from(self.next() == Some(b'-'));
        if self.next() == Some(b'0') {
            self.at += 1;
            return Some(());
        }
        self.digits()
    }

    /// Passes digits, of which there is one at least.
    fn digits(&mut self) -> Option<()> {
        let digits = self.json.get(self.at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }
}

/// What is open within another object, or another list; `None` where that is too deep.
#[inline(always)]
fn within(open: u64, is_object: bool) -> Option<u64> {
    (open >> DEPTH == 0).then_some(open << 1 | u64::from(is_object))
}

/// A bit for each quote and each backslash, the lowest for the first byte; and the least bytes so far.
fn special(block: &[u8; BLOCK], least: &mut u8x16) -> u64 {
    let (parts, _) = block.as_chunks();
    parts.iter().rev().fold(0, |bits, part| {
        let part = u8x16::new(*part);
        *least = least.min(part);
        let special = part.simd_eq(u8x16::splat(b'"')) | part.simd_eq(u8x16::splat(b'\\'));
        bits << 16 | u64::from(special.to_bitmask())
    })
}
