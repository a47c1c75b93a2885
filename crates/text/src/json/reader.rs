//! A reader that parses the needed parts of a JSON text and skips the rest, in a fraction of serde_json's time.
//!
//! It reads JSON as Kubernetes writes it. Anything else in the parts that it parses is [`Unsupported`], and left to
//! serde_json: malformed text, blanks, numbers that are no integers, arrays for structs. If the text is JSON, a returned
//! value is the one that serde_json would have read; tests compare both. A skipped part may be no JSON, as the reader only
//! looks for its end.

use std::fmt::Display;
use std::mem::take;

use serde::de::{self, Deserialize, DeserializeSeed, MapAccess, SeqAccess, Visitor};

use super::source::{Source, Unsupported};

/// Name of the newtype that gets the text of a value instead of the value.
pub(super) const TEXT: &str = "tolerarch::Unread";

/// Reads a value, which borrows from the JSON where possible.
pub fn read<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, Unsupported> {
    // Go's encoder ends each document with a newline.
    let json = json.strip_suffix(b"\n").unwrap_or(json);
    let Ok(text) = std::str::from_utf8(json) else {
        return Err(Unsupported);
    };
    let mut source = Source::new(text)?;
    let value = T::deserialize(&mut source)?;
    if source.at != text.len() {
        return Err(Unsupported);
    }
    Ok(value)
}

impl<'de> de::Deserializer<'de> for &mut Source<'de> {
    type Error = Unsupported;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Unsupported> {
        Err(Unsupported)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        self.value()?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        match self.next()? {
            b'n' if self.token()? == "null" => visitor.visit_none(),
            b'n' => Err(Unsupported),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        match self.token()? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(Unsupported),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        let token = self.token()?;
        match serde_json::from_str(token) {
            Ok(number) => visitor.visit_i64(number),
            Err(_) => Err(Unsupported),
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        let (range, has_escapes) = self.string()?;
        if !has_escapes {
            return visitor.visit_borrowed_str(&self.text[range]);
        }
        let quoted = &self.text[range.start - 1..=range.end];
        match serde_json::from_str(quoted) {
            Ok(text) => visitor.visit_string(text),
            Err(_) => Err(Unsupported),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        self.deserialize_str(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        self.byte(b'{')?;
        let value = visitor.visit_map(Parts {
            source: &mut *self,
            closing: b'}',
            is_first: true,
        })?;
        self.byte(b'}')?;
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unsupported> {
        self.deserialize_map(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unsupported> {
        if name != TEXT {
            return Err(Unsupported);
        }
        let begin = self.at;
        self.value()?;
        let value = &self.text[begin..self.at];
        if !is_compact(value) {
            return Err(Unsupported);
        }
        visitor.visit_borrowed_str(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unsupported> {
        self.byte(b'[')?;
        let value = visitor.visit_seq(Parts {
            source: &mut *self,
            closing: b']',
            is_first: true,
        })?;
        self.byte(b']')?;
        Ok(value)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit unit_struct tuple tuple_struct
        enum
    }
}

/// The members of an object, or the items of a list, up to the closing bracket.
struct Parts<'a, 'de> {
    source: &'a mut Source<'de>,
    closing: u8,
    is_first: bool,
}

impl Parts<'_, '_> {
    /// Moves to the beginning of the next part; returns false if there is none.
    #[inline]
    fn advance(&mut self) -> Result<bool, Unsupported> {
        let is_first = take(&mut self.is_first);
        if self.source.next()? == self.closing {
            return Ok(false);
        }
        if !is_first {
            self.source.byte(b',')?;
        }
        Ok(true)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, 'de> {
    type Error = Unsupported;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unsupported> {
        if !self.advance()? {
            return Ok(None);
        }
        let key = seed.deserialize(&mut *self.source)?;
        Ok(Some(key))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, Unsupported> {
        self.source.byte(b':')?;
        seed.deserialize(&mut *self.source)
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, 'de> {
    type Error = Unsupported;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Unsupported> {
        if !self.advance()? {
            return Ok(None);
        }
        let item = seed.deserialize(&mut *self.source)?;
        Ok(Some(item))
    }
}

impl de::Error for Unsupported {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

/// Returns whether this JSON, which has no control characters, has no blanks between values.
fn is_compact(json: &str) -> bool {
    !json.contains(' ') || compact(json.to_owned()) == json
}

/// Removes blanks between values, which the reader refuses.
pub(super) fn compact(mut json: String) -> String {
    let mut in_string = false;
    let mut is_escaped = false;
    json.retain(|c| {
        let is_blank = matches!(c, ' ' | '\t' | '\n' | '\r');
        let stays = in_string || !is_blank;
        in_string ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        stays
    });
    json
}
