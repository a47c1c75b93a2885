//! Escapes for the values of log lines, so that untrusted text cannot forge a line, control a terminal or fill the log.

use std::fmt::{self, Write};

/// Maximum bytes of a value; the rest is written as `…`. A byte becomes at most six (`\u001b`), and an event has at most
/// 32 fields. So a line has less than 768 KiB, and fits into the queue of lines.
const LIMIT: usize = 4 << 10;
/// Maximum characters of a shortened text.
pub const SHORTENED: usize = 300;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// A string of JSON (RFC 8259 section 7).
    Json,
    Quoted,
    Bare,
}

/// Writes a value with escapes, so that it cannot break out of its context.
pub fn escaped<W: Write>(
    writer: &mut W,
    context: Context,
    write: impl FnOnce(&mut Escaped<'_, W>) -> fmt::Result,
) -> fmt::Result {
    let mut escaped = Escaped {
        writer,
        context,
        left: LIMIT,
    };
    // A value that is too long ends with an error, so that the rest is not even formatted.
    if write(&mut escaped).is_err() {
        return escaped.writer.write_char('…');
    }
    Ok(())
}

/// A writer of one value.
pub struct Escaped<'w, W> {
    writer: &'w mut W,
    context: Context,
    left: usize,
}

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut end = self.left.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.left -= end;
        self.write(&text[..end])?;
        if end < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

impl<W: Write> Escaped<'_, W> {
    fn write(&mut self, text: &str) -> fmt::Result {
        let is_quoted = self.context != Context::Bare;
        // Without branches, the compiler can vectorise the loop.
        let mut has_special = false;
        for b in text.bytes() {
            let is_printable = (b' '..=b'~').contains(&b);
            let is_quote = (b == b'"') | (b == b'\\');
            has_special |= !is_printable | (is_quoted & is_quote);
        }
        if !has_special {
            return self.writer.write_str(text);
        }
        for c in text.chars() {
            match c {
                '"' | '\\' if is_quoted => write!(self.writer, "\\{c}")?,
                c if !is_unsafe(c) => self.writer.write_char(c)?,
                c if self.context == Context::Json => escape_json(self.writer, c)?,
                c => write!(self.writer, "{}", c.escape_default())?,
            }
        }
        Ok(())
    }
}

/// Returns whether a character could control a terminal, break a line, reorder text or hide in it: controls, line and
/// paragraph separators, Bidi_Control, format characters without a width. Holds for logs, tables, JSON, annotations and
/// events.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Replaces the characters for which [`is_unsafe`] holds, for texts that cannot escape them.
pub fn sanitized(text: &str) -> String {
    let replace = |c: char| {
        if is_unsafe(c) {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().map(replace).collect()
}

/// Writes a character as a JSON escape, such as `\u202e`; as two escapes if the character is beyond the basic plane.
pub fn escape_json(writer: &mut impl Write, c: char) -> fmt::Result {
    for unit in c.encode_utf16(&mut [0; 2]) {
        write!(writer, "\\u{unit:04x}")?;
    }
    Ok(())
}

/// Truncates a text of a Pod. The API server validates Pods only after webhooks, so such a text may have any length.
pub fn shortened(text: &str) -> &str {
    if text.len() <= SHORTENED {
        return text;
    }
    match text.char_indices().nth(SHORTENED) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Returns the last characters of a text. Names of images differ most at the end.
pub fn last_chars(text: &str, count: usize) -> &str {
    let Some(last) = count.checked_sub(1) else {
        return "";
    };
    match text.char_indices().rev().nth(last) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(context: Context, text: &str) -> String {
        let mut line = String::new();
        escaped(&mut line, context, |value| value.write_str(text)).unwrap();
        line
    }

    #[test]
    fn last_characters_are_whole() {
        for (count, expected) in [(0, ""), (1, "é"), (2, "xé"), (3, "漢xé"), (4, "漢xé")] {
            assert_eq!(last_chars("漢xé", count), expected);
        }
    }

    #[test]
    fn long_value_is_truncated_at_a_character() {
        for context in [Context::Json, Context::Quoted, Context::Bare] {
            assert_eq!(write(context, &"a".repeat(LIMIT)), "a".repeat(LIMIT));
            assert_eq!(
                write(context, &"a".repeat(LIMIT + 1)),
                format!("{}…", "a".repeat(LIMIT))
            );
            assert_eq!(
                write(context, &format!("a{}", "é".repeat(LIMIT))),
                format!("a{}…", "é".repeat(LIMIT / 2 - 1))
            );
        }
    }

    #[test]
    fn only_unsafe_characters_are_escaped() {
        assert_eq!(write(Context::Bare, r#"say "é\" 漢"#), r#"say "é\" 漢"#);
        assert_eq!(
            write(Context::Quoted, r#"say "é\" 漢"#),
            r#"say \"é\\\" 漢"#
        );
        assert_eq!(write(Context::Quoted, "a\n\u{202e}"), r"a\n\u{202e}");
        assert_eq!(write(Context::Json, "a\n\u{202e}"), r"a\u000a\u202e");
        let all = "\u{7f}\u{9b}\u{ad}\u{61c}\u{180e}\u{200b}\u{200d}\u{2028}\u{2060}\u{2066}\u{feff}\u{fff9}\u{e0041}";
        for context in [Context::Json, Context::Quoted, Context::Bare] {
            assert!(write(context, all).is_ascii(), "{}", write(context, all));
        }
        let json = format!("\"{}\"", write(Context::Json, all));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), all);
    }
}
