//! Reads what is needed of a JSON text, and skips the rest, in half the time that serde_json takes or less.
//!
//! It reads what Kubernetes sends, and is in [`NotRead`] over anything else: malformed text, but also blanks, numbers that
//! are no integers, or arrays for structs. In doubt the caller asks serde_json. What is read without
//! a doubt is what serde_json would have read; tests compare the two.

use std::fmt::{self, Display};

use serde::de::{self, Deserialize, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::source::{Characters, Source};
use super::unread;

/// The text is not read here: perhaps it is malformed, perhaps only unusual.
#[derive(Debug)]
pub struct NotRead;

/// Reads a value, borrowed as far as possible.
pub fn read<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, NotRead> {
    // Go's encoder ends each document by a new line.
    let json = json.strip_suffix(b"\n").unwrap_or(json);
    let text = std::str::from_utf8(json).map_err(|_| NotRead)?;
    let mut reader = Reader { text, source: Source::new(json).ok_or(NotRead)? };
    let value = T::deserialize(&mut reader)?;
    if reader.source.at == json.len() { Ok(value) } else { Err(NotRead) }
}

struct Reader<'de> {
    text: &'de str,
    source: Source<'de>,
}

impl Reader<'_> {
    #[inline]
    fn next(&self) -> Result<u8, NotRead> {
        self.source.next().ok_or(NotRead)
    }
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = NotRead;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NotRead> {
        Err(NotRead)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        self.source.value().ok_or(NotRead)?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        if self.next()? == b'n' {
            self.source.word("null").ok_or(NotRead)?;
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        let value = self.next()? == b't';
        self.source.word(if value { "true" } else { "false" }).ok_or(NotRead)?;
        visitor.visit_bool(value)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        let begin = self.source.at;
        self.source.integer().ok_or(NotRead)?;
        let text = &self.text[begin..self.source.at];
        // With a fraction or an exponent, what follows is not what may follow a value; and serde_json takes -0 for one that
        // has a fraction.
        if text == "-0" { Err(NotRead) } else { visitor.visit_i64(text.parse().map_err(|_| NotRead)?) }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        let Characters { begin, end, has_escapes } = self.source.string().ok_or(NotRead)?;
        if has_escapes {
            let text: String = serde_json::from_str(&self.text[begin - 1..=end]).map_err(|_| NotRead)?;
            visitor.visit_string(text)
        } else {
            visitor.visit_borrowed_str(&self.text[begin..end])
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        self.deserialize_str(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        self.source.byte(b'{').ok_or(NotRead)?;
        let mut parts = Parts { reader: self, place: Position::First };
        let value = visitor.visit_map(&mut parts)?;
        parts.ended(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NotRead> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, NotRead> {
        if name != unread::NAME {
            return Err(NotRead);
        }
        let begin = self.source.at;
        self.source.value().ok_or(NotRead)?;
        visitor.visit_borrowed_str(&self.text[begin..self.source.at])
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotRead> {
        self.source.byte(b'[').ok_or(NotRead)?;
        let mut parts = Parts { reader: self, place: Position::First };
        let value = visitor.visit_seq(&mut parts)?;
        parts.ended(value)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit unit_struct tuple tuple_struct
        enum
    }
}

struct Parts<'a, 'de> {
    reader: &'a mut Reader<'de>,
    place: Position,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Behind the opening bracket.
    First,
    /// Behind a part.
    Next,
    /// Behind the closing bracket.
    End,
}

impl Parts<'_, '_> {
    /// Whether there is another part; goes to where it begins, or behind the closing bracket.
    #[inline]
    fn more(&mut self, closing: u8) -> Result<bool, NotRead> {
        match (self.reader.next()?, self.place) {
            (byte, Position::First | Position::Next) if byte == closing => self.place = Position::End,
            (_, Position::First) => {
                self.place = Position::Next;
                return Ok(true);
            }
            (b',', Position::Next) => {}
            _ => return Err(NotRead),
        }
        self.reader.source.at += 1;
        Ok(self.place == Position::Next)
    }

    /// The value, if all parts have been taken.
    fn ended<T>(&self, value: T) -> Result<T, NotRead> {
        if self.place == Position::End { Ok(value) } else { Err(NotRead) }
    }
}

impl<'de> MapAccess<'de> for &mut Parts<'_, 'de> {
    type Error = NotRead;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NotRead> {
        if self.more(b'}')? { seed.deserialize(&mut *self.reader).map(Some) } else { Ok(None) }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, NotRead> {
        self.reader.source.byte(b':').ok_or(NotRead)?;
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> SeqAccess<'de> for &mut Parts<'_, 'de> {
    type Error = NotRead;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, NotRead> {
        if self.more(b']')? { seed.deserialize(&mut *self.reader).map(Some) } else { Ok(None) }
    }
}

impl de::Error for NotRead {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

impl Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not read here")
    }
}

impl std::error::Error for NotRead {}
