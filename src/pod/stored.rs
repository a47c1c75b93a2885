//! How many bytes an object takes in etcd, by its JSON. The API server stores protobuf: without names of fields and without
//! escapes, where a long text may have a sixth of its length as JSON (`\u003c` is `<`).
//!
//! An estimate, rather too large: within some percent for what makes objects large, which is texts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Bytes of JSON below which an object counts with all of them.
const SMALL: usize = 1 << 20;
/// Bytes of a message beside its fields: its tag and length, and fields that are written though they are empty.
const MESSAGE: usize = 8;
/// Bytes of an entry of a map beside its key: three tags and lengths.
const ENTRY: usize = 7;
/// Bytes of a number with its tag; few are larger.
const NUMBER: usize = 6;
/// Fields of a Pod whose members are named by users.
const MAPS: [&str; 10] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "overhead",
    "requests",
    "allocatedResources",
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
    Part::Message.deserialize(&mut reader).unwrap_or(json.len())
}

/// Of this object.
pub(crate) fn size_of_value(value: &Value) -> usize {
    Part::Message.deserialize(value).unwrap_or(usize::MAX)
}

/// What a value is a part of.
#[derive(Clone, Copy)]
enum Part {
    Message,
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
        let mut size = MESSAGE;
        while let Some((part, key)) = members.next_key_seed(Name(self))? {
            size += key + members.next_value_seed(part)?;
        }
        Ok(size)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let mut size = 0;
        while let Some(item) = items.next_element_seed(self)? {
            size += item;
        }
        Ok(size)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
        // Its tag and length.
        let around = 2 + usize::from(text.len() > 127) + usize::from(text.len() > 16_383);
        Ok(around + text.len())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<usize, E> {
        Ok(NUMBER)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<usize, E> {
        Ok(NUMBER)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<usize, E> {
        Ok(NUMBER)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<usize, E> {
        Ok(NUMBER)
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
            Part::Message if MAPS.contains(&name) => (Part::Map, 0),
            Part::Message if name == RAW => (Part::Raw, 0),
            Part::Message => (Part::Message, 0),
            Part::Map => (Part::Message, name.len() + ENTRY),
            Part::Raw => (Part::Raw, name.len()),
        })
    }
}

#[cfg(test)]
mod tests;
