//! Translates patterns of Go's `regexp` into the syntax of Rust's `regex`, so that they match the same names. Both
//! descend from RE2, but differ in many details: classes of characters, repetitions, flags and escapes.
//!
//! The translation drops captures and makes all repetitions greedy: neither decides whether a name matches.

mod class;
mod escape;
mod ranges;
mod repetition;

use std::str::Chars;

use ranges::in_brackets;

/// Maximum nesting of groups, which bounds the recursion of Rust's parser.
const DEPTH: usize = 50;

/// Why a pattern is not translated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Go refuses the pattern as well.
    Invalid(&'static str),
    /// Go may accept the pattern.
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
        is_behind_repetition = translation.translate_next(next, is_behind_repetition)?;
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

/// State outside a group that is open, to be restored when the group closes.
struct Group {
    flags: Flags,
    repetitions: u64,
}

/// The item to which a repetition would apply.
#[derive(Clone, Copy)]
struct Item {
    /// Product of the nested repetitions in the item; the largest product if there are several.
    repetitions: u64,
    is_repeated: bool,
}

struct Translation<'p> {
    rest: Chars<'p>,
    written: String,
    flags: Flags,
    /// Groups that are open, the innermost last.
    groups: Vec<Group>,
    /// `None` at the beginning of a group, an alternative or the pattern.
    last: Option<Item>,
    /// Product of the nested repetitions before the last item in the innermost open group; the largest product if there
    /// are several.
    repetitions: u64,
}

impl Translation<'_> {
    /// Translates the element that begins with `next`. Returns whether it is a repetition.
    fn translate_next(&mut self, next: char, is_behind_repetition: bool) -> Result<bool, Refusal> {
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

    /// Skips a text if it comes next. Returns whether it did.
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

    /// Counts the repetitions of the last item: no further repetition applies to it.
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
        self.add(&in_brackets(ranges));
        Ok(())
    }

    fn open(&mut self, inner: Flags) -> Result<(), Refusal> {
        if self.groups.len() == DEPTH {
            return Err(Unknown("its groups are nested more than 50 levels deep"));
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

    /// Translates the rest of a group after `(?`: a name, flags of the group, or flags of what follows.
    fn flag_group(&mut self) -> Result<(), Refusal> {
        if self.skip("P<") || self.skip("<") {
            return self.named_group();
        }
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
        Err(NO_GROUP)
    }

    fn named_group(&mut self) -> Result<(), Refusal> {
        let rest = self.rest.as_str();
        let Some((name, rest)) = rest.split_once('>') else {
            return Err(NO_GROUP);
        };
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_of_name) {
            return Err(NO_GROUP);
        }
        self.rest = rest.chars();
        self.open(self.flags)
    }
}

const NO_GROUP: Refusal = Invalid("a (? that is no group, as lookaround is not supported");
