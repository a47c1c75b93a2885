//! Where a JSON value ends, and whether it is one (RFC 8259): for values that nobody needs.
//!
//! Each function looks at the text from a place on and gives the place behind what it looked for; `None` is not JSON,
//! nested too deep, or has blanks, as nothing has that the API server sends.

use wide::u8x16;

/// Levels of a skipped value, as many as there are bits beside the first one; Kubernetes' own objects have about twenty.
const DEPTH: u32 = u64::BITS - 1;
/// Bytes that are looked at together.
const BLOCK: usize = u64::BITS as usize;

/// What follows the key of a member that is an empty object, and not the last one.
const EMPTY_MEMBER: u32 = u32::from_le_bytes(*b":{},");

/// A JSON text, and where its strings may end.
pub(super) struct Source<'a> {
    pub(super) json: &'a [u8],
    /// A bit for each quote and each backslash, and for all that is behind the end.
    ///
    /// To find them all at once, many bytes at a time, is much faster than to look for one after the other: the
    /// processor need not know where one string ends to begin with the next one.
    special: Vec<u8>,
}

impl<'a> Source<'a> {
    /// `None` if there are control characters, which would have to be escaped in a string, and are blanks elsewhere.
    pub(super) fn new(json: &'a [u8]) -> Option<Self> {
        let (blocks, rest) = json.as_chunks();
        let mut last = [b'"'; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        let mut bits = vec![u8::MAX; (blocks.len() + 2) * size_of::<u64>()];
        let mut least = u8x16::splat(u8::MAX);
        for (bits, block) in bits.as_chunks_mut().0.iter_mut().zip(blocks.iter().chain([&last])) {
            *bits = special(block, &mut least).to_le_bytes();
        }
        least.to_array().iter().all(|&byte| byte >= b' ').then_some(Self { json, special: bits })
    }

    /// Behind the value that begins at `at`.
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
                _ => self.scalar(at)?,
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
                    _ => return None,
                }
            }
            at = if open & 1 == 1 { self.key(at + 1)? } else { at + 1 };
        }
    }

    /// Behind a member's key and its colon, and before that behind members that are empty objects: most of
    /// `managedFields` are such.
    #[inline(always)]
    fn key(&self, mut at: usize) -> Option<usize> {
        loop {
            at = self.string(self.byte(at, b'"')?)?.0;
            let next = self.json.get(at..)?.first_chunk().map(|next| u32::from_le_bytes(*next));
            if next != Some(EMPTY_MEMBER) {
                return self.byte(at, b':');
            }
            at += size_of_val(&EMPTY_MEMBER);
        }
    }

    #[inline(never)]
    fn scalar(&self, at: usize) -> Option<usize> {
        match *self.json.get(at)? {
            b'n' => self.word(at, "null"),
            b't' => self.word(at, "true"),
            b'f' => self.word(at, "false"),
            _ => self.number(at),
        }
    }

    /// Behind this byte, if it stands at `at`.
    #[inline]
    pub(super) fn byte(&self, at: usize, expected: u8) -> Option<usize> {
        (*self.json.get(at)? == expected).then_some(at + 1)
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

    /// The place of the first quote or backslash from `at` on, or one behind the end.
    #[inline(always)]
    fn next_special(&self, at: usize) -> Option<usize> {
        let byte = at / 8;
        let bits = u64::from_le_bytes(self.special.get(byte..byte + 8)?.try_into().ok()?) >> (at % 8);
        if bits != 0 { Some(at + bits.trailing_zeros() as usize) } else { self.special_far_away(at) }
    }

    #[inline(never)]
    fn special_far_away(&self, at: usize) -> Option<usize> {
        let next = at / 8 + 1;
        let byte = next + self.special.get(next..)?.iter().position(|bits| *bits != 0)?;
        Some(byte * 8 + self.special.get(byte)?.trailing_zeros() as usize)
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

    /// Behind the digits, of which there is one at least.
    fn digits(&self, at: usize) -> Option<usize> {
        let digits = self.json.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (digits > 0).then_some(at + digits)
    }
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
