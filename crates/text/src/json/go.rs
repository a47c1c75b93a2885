//! JSON as Go's encoding/json reads it, for documents that programs in Go read on nodes. Names of members match in any
//! case, a repeated member is merged into the earlier one, `null` changes nothing, and text that is no Unicode is replaced.
//!
//! serde's structs do none of this. If two readers read different members of one document, one of them can be deceived.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess,
    Visitor,
};
use serde_json::value::RawValue;

/// Maximum bytes of a member's name. No struct has a longer one.
const NAME: usize = 32;

/// A struct as Go reads it. No two members may have names that differ only in case.
pub trait GoStruct: Default {
    /// Reads the value of a member into the struct. The name is in lower case, and empty if it is too long.
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error>;
}

/// The value of a member, which must be read or skipped by one of these methods.
pub struct GoValue<'a, A>(&'a mut A);

impl<A> GoValue<'_, A> {
    /// Reads a text, a number or the like. `null` changes nothing.
    pub fn read<'de, T>(self, into: &mut T) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: Deserialize<'de>,
    {
        if let Some(value) = self.0.next_value()? {
            *into = value;
        }
        Ok(())
    }

    /// Reads a value that is a pointer or a list in Go. `null` removes the present value.
    pub fn replace<'de, T>(self, into: &mut Option<T>) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: Deserialize<'de>,
    {
        *into = self.0.next_value()?;
        Ok(())
    }

    /// Reads members of a struct over the present ones. `null` changes nothing.
    pub fn merge<'de, T>(self, into: &mut T) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: GoStruct,
    {
        self.0.next_value_seed(InPlace(into))
    }

    /// Reads members of a struct, to which Go has a pointer, over the present ones. `null` removes the struct.
    pub fn merge_pointer<'de, T>(self, into: &mut Option<T>) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: GoStruct,
    {
        self.0.next_value_seed(InPlacePointer(into))
    }

    /// Adds the entries of a map, whose keys are case-sensitive, to the present ones. `null` removes all entries.
    pub fn extend<'de, T>(self, into: &mut BTreeMap<String, T>) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: Default + Deserialize<'de>,
    {
        extend(into, self.0.next_value()?);
        Ok(())
    }

    /// Reads a text or the like that other readers ignore. A value of another type changes nothing.
    pub fn read_if_valid<'de, T>(self, into: &mut T) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: DeserializeOwned,
    {
        let value = self.0.next_value::<Box<RawValue>>()?;
        if let Ok(Some(value)) = serde_json::from_str(value.get()) {
            *into = value;
        }
        Ok(())
    }

    /// Adds the entries of a map that other readers ignore. A value of another type changes nothing.
    pub fn extend_if_valid<'de, T>(self, into: &mut BTreeMap<String, T>) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: Default + DeserializeOwned,
    {
        let value = self.0.next_value::<Box<RawValue>>()?;
        if let Ok(map) = serde_json::from_str(value.get()) {
            extend(into, map);
        }
        Ok(())
    }

    /// Refuses a value of another type, as Go does even for members that are not needed.
    pub fn check<'de, T>(self) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
        T: Deserialize<'de>,
    {
        let _: Option<T> = self.0.next_value()?;
        Ok(())
    }

    pub fn skip<'de>(self) -> Result<(), A::Error>
    where
        A: MapAccess<'de>,
    {
        let _: IgnoredAny = self.0.next_value()?;
        Ok(())
    }
}

/// Reads a struct from a document. Text after the document is an error, as for `json.Unmarshal`.
pub fn read<T: GoStruct>(json: &[u8]) -> Result<T, serde_json::Error> {
    let Go(value) = serde_json::from_str(&text(json))?;
    Ok(value)
}

/// Reads a struct from the first value of a text. Text after the value is ignored, as by `json.Decoder`.
pub fn read_first<T: GoStruct>(json: &[u8]) -> Result<T, serde_json::Error> {
    let text = text(json);
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    let Go(value) = Go::deserialize(&mut deserializer)?;
    Ok(value)
}

/// Reads a map, whose keys are case-sensitive, from a document. `null` is an empty map.
pub fn read_map<T>(json: &[u8]) -> Result<BTreeMap<String, T>, serde_json::Error>
where
    T: Default + DeserializeOwned,
{
    let read: NullableMap<T> = serde_json::from_str(&text(json))?;
    let mut map = BTreeMap::new();
    extend(&mut map, read);
    Ok(map)
}

/// A map that may be `null`, as may each of its values.
type NullableMap<T> = Option<BTreeMap<String, Option<T>>>;

fn extend<T: Default>(into: &mut BTreeMap<String, T>, map: NullableMap<T>) {
    let Some(map) = map else {
        into.clear();
        return;
    };
    for (key, value) in map {
        into.insert(key, value.unwrap_or_default());
    }
}

/// A struct as a value; `null` is the default.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Go<T>(pub T);

impl<'de, T: GoStruct> Deserialize<'de> for Go<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = T::default();
        InPlace(&mut value).deserialize(deserializer)?;
        Ok(Self(value))
    }
}

/// A text whose content is dropped.
pub struct AnyText;

impl<'de> Deserialize<'de> for AnyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl Visitor<'_> for Texts {
            type Value = AnyText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_str<E: Error>(self, _: &str) -> Result<AnyText, E> {
                Ok(AnyText)
            }
        }
        deserializer.deserialize_str(Texts)
    }
}

struct InPlace<'a, T>(&'a mut T);

impl<'de, T: GoStruct> DeserializeSeed<'de> for InPlace<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: GoStruct> Visitor<'de> for InPlace<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(name) = members.next_key::<Name>()? {
            self.0.read_member(name.as_str(), GoValue(&mut members))?;
        }
        Ok(())
    }
}

struct InPlacePointer<'a, T>(&'a mut Option<T>);

impl<'de, T: GoStruct> DeserializeSeed<'de> for InPlacePointer<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: GoStruct> Visitor<'de> for InPlacePointer<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        *self.0 = None;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        InPlace(self.0.get_or_insert_default()).visit_map(members)
    }
}

/// Name of a member in lower case, folded as Go folds it (`bytes.EqualFold`), without an allocation for each.
#[derive(Default)]
struct Name {
    bytes: [u8; NAME],
    length: usize,
}

impl Name {
    fn fold(name: &str) -> Self {
        let mut folded = Self::default();
        for letter in name.chars() {
            // These two are the only characters outside of ASCII that fold to an ASCII letter.
            let letter = match letter {
                'ſ' => 's',
                '\u{212a}' => 'k',
                letter => letter.to_ascii_lowercase(),
            };
            if !letter.is_ascii() || folded.length >= NAME {
                return Self::default();
            }
            folded.bytes[folded.length] = letter as u8;
            folded.length += 1;
        }
        folded
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Folded;
        impl Visitor<'_> for Folded {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                Ok(Name::fold(name))
            }
        }
        deserializer.deserialize_str(Folded)
    }
}

/// Returns a document as text, with U+FFFD for each byte that is no UTF-8, and for each escaped surrogate without its pair.
pub fn text(json: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(json) {
        if text.contains("\\ud") || text.contains("\\uD") {
            return Cow::Owned(without_lone_surrogates(text.to_owned()));
        }
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(json.len());
    for chunk in json.utf8_chunks() {
        text.push_str(chunk.valid());
        for _ in chunk.invalid() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    Cow::Owned(without_lone_surrogates(text))
}

/// Replaces escaped surrogates that are no pair by the escape of U+FFFD.
fn without_lone_surrogates(text: String) -> String {
    const ESCAPE: usize = "\\ud800".len();
    let mut bytes = text.into_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        let first = escaped(&bytes[at..]).unwrap_or_default();
        let rest = bytes.get(at + ESCAPE..).unwrap_or_default();
        let second = escaped(rest).unwrap_or_default();
        at += match (first, second) {
            (0xd800..0xdc00, 0xdc00..0xe000) => 2 * ESCAPE,
            (0xd800..0xe000, _) => {
                bytes[at + 2..at + ESCAPE].copy_from_slice(b"fffd");
                ESCAPE
            }
            _ => 2,
        };
    }
    // The text is still UTF-8: the replaced bytes and their replacements are ASCII.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Returns the code unit of an escape such as `\u1234` at the beginning of a text.
fn escaped(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    let mut unit = 0;
    for digit in digits {
        unit = unit << 4 | char::from(*digit).to_digit(16)?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests;
