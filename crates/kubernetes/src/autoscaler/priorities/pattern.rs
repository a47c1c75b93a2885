//! Patterns of Go's `regexp`, written in the syntax of Rust's so that they match the same names. Both have what follows
//! from RE2, but differ in many details: in classes of characters, repetitions, flags and escapes.
//!
//! Groups capture nothing here, and repetitions are greedy: neither decides whether a name matches.

use std::ops::RangeInclusive;
use std::str::Chars;

/// Maximum nesting of groups, by which the depth is bounded to which Rust's parser goes.
const DEPTH: usize = 50;
/// Maximum product of nested repetitions in Go.
const REPETITIONS: u64 = 1000;
/// Number from which Go does not count digits of a repetition any more.
const UNCOUNTED: u64 = 100_000_000;

const LAST: u32 = char::MAX as u32;

type Range = RangeInclusive<u32>;

/// Why a pattern is not translated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Go refuses it as well.
    Invalid(&'static str),
    /// Go may take it.
    Unknown(&'static str),
}

use Refusal::{Invalid, Unknown};

/// Returns the pattern in Rust's syntax, in at most so many bytes.
pub(super) fn translate(pattern: &str, bytes: usize) -> Result<String, Refusal> {
    let mut translation = Translation {
        rest: pattern.chars(),
        written: String::new(),
        flags: Flags::default(),
        groups: Vec::new(),
        last: None,
        repetitions: 0,
    };
    let mut is_behind_repetition = false;
    while let Some(next) = translation.rest.next() {
        is_behind_repetition = translation.take(next, is_behind_repetition)?;
        if translation.written.len() > bytes {
            return Err(Unknown("the patterns are longer than is read"));
        }
    }
    if !translation.groups.is_empty() {
        return Err(Invalid("a ) is missing"));
    }
    Ok(translation.written)
}

#[derive(Clone, Copy, Default)]
struct Flags {
    ignores_case: bool,
    has_lines: bool,
    dot_is_any: bool,
}

/// A group that has begun.
struct Group {
    /// Flags in front of it.
    flags: Flags,
    /// Product of repetitions in front of it.
    repetitions: u64,
}

/// What a repetition would repeat.
#[derive(Clone, Copy)]
struct Item {
    /// Product of the nested repetitions in it, the largest if there are several.
    repetitions: u64,
    is_repeated: bool,
}

struct Translation<'p> {
    rest: Chars<'p>,
    written: String,
    flags: Flags,
    groups: Vec<Group>,
    /// `None` where a group, an alternative or the pattern begins.
    last: Option<Item>,
    /// Product of the nested repetitions before the last item in the group that is open, the largest if there are several.
    repetitions: u64,
}

impl Translation<'_> {
    /// Translates what begins with a character. Returns whether it is a repetition.
    fn take(&mut self, next: char, is_behind_repetition: bool) -> Result<bool, Refusal> {
        match next {
            '(' if self.skip("?") => self.flag_group()?,
            '(' => self.open(self.flags)?,
            ')' => self.close()?,
            '|' => {
                self.written.push('|');
                self.finish_item();
            }
            '^' if self.flags.has_lines => self.add("(?m:^)"),
            '^' => self.add(r"\A"),
            '$' if self.flags.has_lines => self.add("(?m:$)"),
            '$' => self.add(r"\z"),
            '.' if self.flags.dot_is_any => self.add("(?s:.)"),
            '.' => self.add(r"[^\n]"),
            '[' => self.class()?,
            '*' | '+' | '?' => {
                self.repeat(&next.to_string(), None, is_behind_repetition)?;
                return Ok(true);
            }
            '{' => {
                let Some(count) = self.count() else {
                    self.add_character('{')?;
                    return Ok(false);
                };
                self.repeat(&count.written(), Some(count), is_behind_repetition)?;
                return Ok(true);
            }
            '\\' => self.escape()?,
            character => self.add_character(character)?,
        }
        Ok(false)
    }

    /// Goes on behind a text if it is next.
    fn skip(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest.as_str().strip_prefix(text) else {
            return false;
        };
        self.rest = rest.chars();
        true
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    /// Counts the last item, which nothing repeats any more.
    fn finish_item(&mut self) {
        if let Some(item) = self.last.take() {
            self.repetitions = self.repetitions.max(item.repetitions);
        }
    }

    fn add(&mut self, written: &str) {
        self.finish_item();
        self.written += written;
        self.last = Some(Item {
            repetitions: 0,
            is_repeated: false,
        });
    }

    fn add_character(&mut self, character: char) -> Result<(), Refusal> {
        let code = u32::from(character);
        let is_plain =
            character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '/' | ':');
        if is_plain && !self.flags.ignores_case {
            self.add(character.encode_utf8(&mut [0; 4]));
            return Ok(());
        }
        let ranges = self.folded(code..=code)?;
        self.add(&written_class(ranges));
        Ok(())
    }

    fn open(&mut self, inner: Flags) -> Result<(), Refusal> {
        if self.groups.len() == DEPTH {
            return Err(Unknown("its groups are nested deeper than is read"));
        }
        self.finish_item();
        self.groups.push(Group {
            flags: self.flags,
            repetitions: self.repetitions,
        });
        self.written += "(?:";
        self.flags = inner;
        self.repetitions = 0;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Refusal> {
        let Some(group) = self.groups.pop() else {
            return Err(Invalid("a ) without its ("));
        };
        self.finish_item();
        self.written.push(')');
        self.flags = group.flags;
        self.last = Some(Item {
            repetitions: self.repetitions,
            is_repeated: false,
        });
        self.repetitions = group.repetitions;
        Ok(())
    }

    /// Translates what follows `(?`: a name, flags, or flags of a group.
    fn flag_group(&mut self) -> Result<(), Refusal> {
        const UNNAMED: Refusal = Invalid("a (? that is no group, as lookaround is not supported");
        let start = self.rest.clone();
        if self.skip("P<") || self.skip("<") {
            let Some(end) = self.rest.as_str().find('>') else {
                return Err(UNNAMED);
            };
            let name = &self.rest.as_str()[..end];
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(UNNAMED);
            }
            self.rest = self.rest.as_str()[end + 1..].chars();
            return self.open(self.flags);
        }
        self.rest = start;
        let mut flags = self.flags;
        let mut is_set = true;
        let mut has_flag = true;
        while let Some(next) = self.rest.next() {
            match next {
                'i' => flags.ignores_case = is_set,
                'm' => flags.has_lines = is_set,
                's' => flags.dot_is_any = is_set,
                'U' => {}
                '-' if is_set => {
                    is_set = false;
                    has_flag = false;
                    continue;
                }
                ':' if has_flag => return self.open(flags),
                ')' if has_flag => {
                    self.flags = flags;
                    return Ok(());
                }
                _ => break,
            }
            has_flag = true;
        }
        Err(UNNAMED)
    }

    /// Repeats the last item.
    fn repeat(
        &mut self,
        written: &str,
        count: Option<Count>,
        is_behind_repetition: bool,
    ) -> Result<(), Refusal> {
        if count.is_some_and(|count| count.is_too_large()) {
            return Err(Invalid("a repetition of more than 1000"));
        }
        self.skip("?");
        if is_behind_repetition {
            return Err(Invalid("a repetition right behind another"));
        }
        let Some(Item {
            repetitions,
            is_repeated,
        }) = self.last
        else {
            return Err(Invalid("a repetition of nothing"));
        };
        if is_repeated {
            return Err(Unknown(
                "a repetition behind another, with flags between them",
            ));
        }
        let repetitions = count.map_or(repetitions, |count| count.product(repetitions));
        let is_checked =
            count.is_some_and(|count| count.least >= 2 || count.most.is_some_and(|most| most >= 2));
        if is_checked && repetitions > REPETITIONS {
            return Err(Invalid("nested repetitions of more than 1000"));
        }
        self.written += written;
        self.last = Some(Item {
            repetitions,
            is_repeated: true,
        });
        Ok(())
    }

    /// Reads a count behind its `{`, if it is one.
    fn count(&mut self) -> Option<Count> {
        let start = self.rest.clone();
        let count = self.read_count();
        if count.is_none() {
            self.rest = start;
        }
        count
    }

    fn read_count(&mut self) -> Option<Count> {
        let least = self.number()?;
        let most = if !self.skip(",") {
            Some(least)
        } else if self.peek() == Some('}') {
            None
        } else {
            Some(self.number()?)
        };
        self.skip("}").then_some(Count { least, most })
    }

    /// Reads a number without leading zeros, of which what is too large is only that.
    fn number(&mut self) -> Option<u64> {
        let text = self.rest.as_str();
        let length = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let digits = &text[..length];
        if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
            return None;
        }
        self.rest = text[length..].chars();
        Some(digits.parse().unwrap_or(UNCOUNTED))
    }

    /// Translates what follows a backslash outside of classes.
    fn escape(&mut self) -> Result<(), Refusal> {
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
                    self.add(&written_class(ranges));
                    return Ok(());
                }
                let code = self.character_escape()?;
                let ranges = self.folded(code..=code)?;
                self.add(&written_class(ranges));
                return Ok(());
            }
        }
        self.rest.next();
        Ok(())
    }

    /// Translates what is between `\Q` and `\E` or the end.
    fn quoted(&mut self) -> Result<(), Refusal> {
        while !self.rest.as_str().is_empty() && !self.skip(r"\E") {
            let next = self.rest.next();
            next.map_or(Ok(()), |character| self.add_character(character))?;
        }
        Ok(())
    }

    /// Reads `d`, `s`, `w`, or its opposite.
    fn perl_class(&mut self) -> Option<Vec<Range>> {
        let name = self.peek()?;
        let ranges = match name.to_ascii_lowercase() {
            'd' => ranges_of("09"),
            's' => ranges_of("\t\n\x0c\r  "),
            'w' => ranges_of("09AZaz__"),
            _ => return None,
        };
        self.rest.next();
        Some(self.group(ranges, name.is_ascii_uppercase()))
    }

    /// Returns a named class of ASCII characters, with what differs from them in case only.
    fn group(&self, ranges: Vec<Range>, is_negated: bool) -> Vec<Range> {
        let ranges = if self.flags.ignores_case {
            with_other_case(&ranges)
        } else {
            ranges
        };
        if is_negated { others(ranges) } else { ranges }
    }

    /// Reads one character behind its backslash.
    fn character_escape(&mut self) -> Result<u32, Refusal> {
        const NONE: Refusal =
            Invalid("a \\ with a character behind it that needs none, or a backreference");
        let Some(next) = self.rest.next() else {
            return Err(Invalid("a \\ at the end"));
        };
        let is_octal = |next: Option<char>| next.is_some_and(|c| c.is_digit(8));
        let code = match next {
            'a' => 7,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '1'..='7' if !is_octal(self.peek()) => return Err(NONE),
            '0'..='7' => {
                let mut code = next.to_digit(8).unwrap_or_default();
                for _place in 0..2 {
                    let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit;
                    self.rest.next();
                }
                code
            }
            'x' => self.hexadecimal().ok_or(NONE)?,
            _ if next.is_ascii() && !next.is_ascii_alphanumeric() => u32::from(next),
            _ => return Err(NONE),
        };
        Ok(code)
    }

    /// Reads two digits, or any number of them in braces.
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

    /// Translates a class behind its `[`.
    fn class(&mut self) -> Result<(), Refusal> {
        let is_negated = self.skip("^");
        let mut ranges = Vec::new();
        let mut is_first = true;
        while is_first || !self.skip("]") {
            is_first = false;
            if let Some(named) = self.named_class()? {
                ranges.extend(named);
                continue;
            }
            let start = self.rest.clone();
            if self.skip("\\") {
                if matches!(self.peek(), Some('p' | 'P')) {
                    return Err(UNICODE);
                }
                if let Some(perl) = self.perl_class() {
                    ranges.extend(perl);
                    continue;
                }
            }
            self.rest = start;
            let low = self.class_character()?;
            let mut high = low;
            let mut behind = self.rest.clone();
            if behind.next() == Some('-') && !matches!(behind.next(), None | Some(']')) {
                self.skip("-");
                high = self.class_character()?;
            }
            if high < low {
                return Err(Invalid("a range whose end is before its beginning"));
            }
            ranges.extend(self.folded(low..=high)?);
        }
        let ranges = if is_negated { others(ranges) } else { ranges };
        self.add(&written_class(ranges));
        Ok(())
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
        Ok(Some(self.group(ranges, bare_name != name)))
    }

    /// Returns the range, with what differs from it in case only if that is ignored.
    fn folded(&self, range: Range) -> Result<Vec<Range>, Refusal> {
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

const UNICODE: Refusal = Unknown("it has a class of Unicode (\\p)");

/// Bounds of a repetition; without an upper one for `None`.
#[derive(Clone, Copy)]
struct Count {
    least: u64,
    most: Option<u64>,
}

impl Count {
    fn is_too_large(self) -> bool {
        let is_most_less = self.most.is_some_and(|most| most < self.least);
        self.least > REPETITIONS || self.most.is_some_and(|most| most > REPETITIONS) || is_most_less
    }

    /// Returns the product with the repetitions in what is repeated.
    fn product(self, inner: u64) -> u64 {
        match self.most {
            Some(0) => 0,
            None if self.least == 0 => inner,
            most => most.unwrap_or(self.least) * inner.max(1),
        }
    }

    fn written(self) -> String {
        match self.most {
            Some(most) => format!("{{{},{most}}}", self.least),
            None => format!("{{{},}}", self.least),
        }
    }
}

/// Returns the ranges whose ends are pairs of characters.
fn ranges_of(pairs: &str) -> Vec<Range> {
    let pairs = pairs.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| u32::from(pair[0])..=u32::from(pair[1]))
        .collect()
}

/// Returns ranges of ASCII characters with what differs from them in case only: of `k` and `s`, two characters beyond ASCII
/// as well.
fn with_other_case(ranges: &[Range]) -> Vec<Range> {
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
fn others(ranges: Vec<Range>) -> Vec<Range> {
    let mut others = Vec::new();
    let mut next = 0;
    for range in merged(ranges) {
        if next < *range.start() {
            others.push(next..=*range.start() - 1);
        }
        next = *range.end() + 1;
    }
    if next <= LAST {
        others.push(next..=LAST);
    }
    others
}

/// Returns the ranges in their order, without those that overlap or touch.
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

/// Returns a class in Rust's syntax. It has no surrogates, as no text has any.
fn written_class(ranges: Vec<Range>) -> String {
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
