//! How many bytes an object takes in etcd, by its JSON. API servers store protobuf: without names of fields and without
//! escapes, where a long text may have a sixth of its length as JSON (`\u003c` is `<`).
//!
//! Never too small, whatever is in the object: by it a Pod is left alone that our additions would make too large. Rather
//! too large, by some percent for texts, which are most of a large Pod, and by half for `env` of single letters.
//! `e2e/upstream` compares it with the encoder of the API server.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Bytes of JSON below which an object counts with all of them. No list takes more than ten times the bytes of its JSON (of
/// containers that are all `{}`), which fits as well.
const SMALL: usize = 128 << 10;
/// Bytes of a message beside what its JSON shows: its tag, and what is written although it is empty, 16 bytes at most.
const MESSAGE: usize = 18;
/// The same for those of which a large Pod has most; and those that write more.
const FREQUENT: ([&str; 3], usize) = (["env", "items", "matchExpressions"], 5);
const LARGE: ([&str; 10], usize) = (
    [
        "containers",
        "ephemeralContainers",
        "initContainers",
        "iscsi",
        "metadata",
        "scaleIO",
        "spec",
        "status",
        "template",
        "volumeClaimTemplate",
    ],
    64,
);
/// Bytes of an entry of a map beside its key and the text of its value: tags and lengths, one of a quantity's message too.
const ENTRY: usize = 7;
/// Bytes of an entry of `fieldsV1` beside its key: quotes, colon, comma and braces.
const RAW_ENTRY: usize = 6;
const TAG: usize = 2;
/// Fields of a Pod whose members are named by users.
const MAPS: [&str; 11] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "overhead",
    "requests",
    "allocatedResources",
    "userAnnotations",
    "volumeAttributes",
];
/// The field that is stored as JSON.
const RAW: &str = "fieldsV1";

/// Of the object in this JSON, all of it included.
pub(crate) fn size_of_json(json: &[u8]) -> usize {
    if json.len() < SMALL {
        return json.len();
    }
    let mut reader = serde_json::Deserializer::from_slice(json);
    Part::Message(MESSAGE).deserialize(&mut reader).unwrap_or(usize::MAX)
}

/// Of this object.
pub(crate) fn size_of_value(value: &Value) -> usize {
    Part::Message(MESSAGE).deserialize(value).unwrap_or(usize::MAX)
}

/// Bytes of a number of this size.
const fn varint(number: u64) -> usize {
    1 + (number | 1).ilog2() as usize / 7
}

/// What a value is a part of.
#[derive(Clone, Copy)]
enum Part {
    /// A message, or several, of so many bytes beside what is in it.
    Message(usize),
    Map,
    Raw,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<usize, A::Error> {
        let mut size = 0;
        while let Some((part, key)) = members.next_key_seed(Name(self))? {
            size += key + members.next_value_seed(part)?;
        }
        Ok(match self {
            Self::Message(around) => around + varint(size as u64) + size,
            Self::Map => size,
            // The braces of the outermost, and its tag and length.
            Self::Raw => size + TAG,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut size = 0;
        while let Some(item) = items.next_element_seed(self)? {
            size += item;
        }
        Ok(size)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
        Ok(1 + varint(text.len() as u64) + text.len())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<usize, E> {
        Ok(TAG + 1)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<usize, E> {
        self.visit_u64(number.cast_unsigned())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<usize, E> {
        Ok(TAG + varint(number))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<usize, E> {
        self.visit_u64(u64::MAX)
    }

    fn visit_unit<E: Error>(self) -> Result<usize, E> {
        Ok(0)
    }
}

/// The name of a member: what its value is a part of, and the bytes of the name.
struct Name(Part);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = (Part, usize);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = (Part, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(match self.0 {
            Part::Message(_) if MAPS.contains(&name) => (Part::Map, 0),
            Part::Message(_) if name == RAW => (Part::Raw, 0),
            Part::Message(_) if FREQUENT.0.contains(&name) => (Part::Message(FREQUENT.1), 0),
            Part::Message(_) if LARGE.0.contains(&name) => (Part::Message(LARGE.1), 0),
            Part::Message(_) => (Part::Message(MESSAGE), 0),
            Part::Map => (Part::Message(MESSAGE), name.len() + ENTRY),
            Part::Raw => (Part::Raw, name.bytes().map(escaped).sum::<usize>() + RAW_ENTRY),
        })
    }
}

/// Bytes of this one in a text of JSON, as Go writes it.
const fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' => 2,
        0..0x20 | b'<' | b'>' | b'&' => 6,
        // U+2028 and U+2029 are three bytes, and six when escaped.
        0x80.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
