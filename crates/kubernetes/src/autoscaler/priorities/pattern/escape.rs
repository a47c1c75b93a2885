//! Escapes: a backslash and what follows it.

use super::Refusal::{Invalid, Unknown};
use super::ranges::{LAST, Range, complement, in_brackets, ranges_of, with_other_case};
use super::{Refusal, Translation};

pub(super) const UNICODE: Refusal = Unknown("it has a class of Unicode (\\p)");

impl Translation<'_> {
    /// Translates an escape outside of classes, after its backslash.
    pub(super) fn escape(&mut self) -> Result<(), Refusal> {
        match self.peek() {
            Some('A') => self.add(r"\A"),
            Some('z') => self.add(r"\z"),
            Some('b') => self.add(r"(?-u:\b)"),
            Some('B') => self.add(r"(?-u:\B)"),
            Some('Q') => {
                self.rest.next();
                return self.quoted();
            }
            Some('p' | 'P') => return Err(UNICODE),
            _ => {
                if let Some(ranges) = self.perl_class() {
                    self.add(&in_brackets(ranges));
                    return Ok(());
                }
                let code = self.character_escape()?;
                let ranges = self.folded(code..=code)?;
                self.add(&in_brackets(ranges));
                return Ok(());
            }
        }
        self.rest.next();
        Ok(())
    }

    /// Translates the characters between `\Q` and `\E` or the end.
    fn quoted(&mut self) -> Result<(), Refusal> {
        while !self.skip(r"\E") {
            let Some(character) = self.rest.next() else {
                break;
            };
            self.add_character(character)?;
        }
        Ok(())
    }

    /// Reads `d`, `s` or `w`, or the complement `D`, `S` or `W`.
    pub(super) fn perl_class(&mut self) -> Option<Vec<Range>> {
        let name = self.peek()?;
        let ranges = match name.to_ascii_lowercase() {
            'd' => ranges_of("09"),
            's' => ranges_of("\t\n\x0c\r  "),
            'w' => ranges_of("09AZaz__"),
            _ => return None,
        };
        self.rest.next();
        Some(self.ascii_class(ranges, name.is_ascii_uppercase()))
    }

    /// Returns a class of ASCII characters or its complement, with the other case of each character if case is ignored.
    pub(super) fn ascii_class(&self, ranges: Vec<Range>, is_negated: bool) -> Vec<Range> {
        let ranges = if self.flags.ignores_case {
            with_other_case(&ranges)
        } else {
            ranges
        };
        if is_negated {
            complement(ranges)
        } else {
            ranges
        }
    }

    /// Reads an escape of one character, after its backslash.
    pub(super) fn character_escape(&mut self) -> Result<u32, Refusal> {
        const NONE: Refusal =
            Invalid("a \\ with a character behind it that needs none, or a backreference");
        let Some(next) = self.rest.next() else {
            return Err(Invalid("a \\ at the end"));
        };
        let code = match next {
            'a' => 7,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '1'..='7' if self.peek_octal().is_none() => return Err(NONE),
            '0'..='7' => self.octal(next),
            'x' => self.hexadecimal().ok_or(NONE)?,
            _ if next.is_ascii() && !next.is_ascii_alphanumeric() => u32::from(next),
            _ => return Err(NONE),
        };
        Ok(code)
    }

    /// Reads an octal number of up to three digits.
    fn octal(&mut self, first: char) -> u32 {
        let mut code = first.to_digit(8).unwrap_or_default();
        for _digit in 0..2 {
            let Some(digit) = self.peek_octal() else {
                break;
            };
            code = code * 8 + digit;
            self.rest.next();
        }
        code
    }

    fn peek_octal(&self) -> Option<u32> {
        self.peek()?.to_digit(8)
    }

    /// Reads two hexadecimal digits, or any number of them in braces.
    fn hexadecimal(&mut self) -> Option<u32> {
        let first = self.rest.next()?;
        if first != '{' {
            let second = self.rest.next()?;
            return Some(first.to_digit(16)? * 16 + second.to_digit(16)?);
        }
        let text = self.rest.as_str();
        let end = text.find('}')?;
        if end == 0 {
            return None;
        }
        let mut code = 0;
        for digit in text[..end].chars() {
            code = code * 16 + digit.to_digit(16)?;
            if code > LAST {
                return None;
            }
        }
        self.rest = text[end + 1..].chars();
        Some(code)
    }
}
