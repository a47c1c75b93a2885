//! Classes of characters in brackets, and the other case of a character.

use super::Refusal::{Invalid, Unknown};
use super::escape::UNICODE;
use super::ranges::{Range, complement, in_brackets, ranges_of, with_other_case};
use super::{Refusal, Translation};

impl Translation<'_> {
    /// Translates a class after its `[`.
    pub(super) fn class(&mut self) -> Result<(), Refusal> {
        let is_negated = self.skip("^");
        // A `]` at the beginning is a character of the class.
        let mut ranges = self.class_item()?;
        while !self.skip("]") {
            ranges.extend(self.class_item()?);
        }
        if is_negated {
            ranges = complement(ranges);
        }
        self.add(&in_brackets(ranges));
        Ok(())
    }

    /// Reads a named class, a character, or a range of characters.
    fn class_item(&mut self) -> Result<Vec<Range>, Refusal> {
        if let Some(named) = self.named_class()? {
            return Ok(named);
        }
        let start = self.rest.clone();
        if self.skip("\\") {
            if matches!(self.peek(), Some('p' | 'P')) {
                return Err(UNICODE);
            }
            if let Some(perl) = self.perl_class() {
                return Ok(perl);
            }
            self.rest = start;
        }
        let low = self.class_character()?;
        let mut high = low;
        if self.is_before_end_of_range() {
            self.skip("-");
            high = self.class_character()?;
        }
        if high < low {
            return Err(Invalid("a range whose end is before its beginning"));
        }
        self.folded(low..=high)
    }

    /// Returns whether a `-` comes next that is not the last character of the class.
    fn is_before_end_of_range(&self) -> bool {
        let mut rest = self.rest.clone();
        rest.next() == Some('-') && !matches!(rest.next(), None | Some(']'))
    }

    fn class_character(&mut self) -> Result<u32, Refusal> {
        match self.rest.next() {
            None => Err(Invalid("a ] is missing")),
            Some('\\') => self.character_escape(),
            Some(character) => Ok(u32::from(character)),
        }
    }

    /// Reads `[:name:]`.
    fn named_class(&mut self) -> Result<Option<Vec<Range>>, Refusal> {
        let Some(text) = self.rest.as_str().strip_prefix("[:") else {
            return Ok(None);
        };
        let Some(end) = text.find(":]") else {
            return Ok(None);
        };
        let name = &text[..end];
        let bare_name = name.strip_prefix('^').unwrap_or(name);
        let ranges = ranges_of(match bare_name {
            "alnum" => "09AZaz",
            "alpha" => "AZaz",
            "ascii" => "\x00\x7f",
            "blank" => "\t\t  ",
            "cntrl" => "\x00\x1f\x7f\x7f",
            "digit" => "09",
            "graph" => "!~",
            "lower" => "az",
            "print" => " ~",
            "punct" => "!/:@[`{~",
            "space" => "\t\r  ",
            "upper" => "AZ",
            "word" => "09AZaz__",
            "xdigit" => "09AFaf",
            _ => return Err(Invalid("a class of a name that there is not")),
        });
        self.rest = text[end + 2..].chars();
        Ok(Some(self.ascii_class(ranges, bare_name != name)))
    }

    /// Returns the range, with the other case of its characters if case is ignored.
    pub(super) fn folded(&self, range: Range) -> Result<Vec<Range>, Refusal> {
        if !self.flags.ignores_case {
            return Ok(vec![range]);
        }
        if *range.end() > 0x7f {
            return Err(Unknown(
                "it ignores the case of other characters than those of ASCII",
            ));
        }
        Ok(with_other_case(&[range]))
    }
}
