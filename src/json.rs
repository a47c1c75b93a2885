//! What serde lacks for reading the JSON of strangers.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A struct that is read from an object only.
///
/// serde also reads a struct from an array, member by member. To the API server and to containerd such an array is an
/// error, and a patch for the object that it is not would not apply.
#[derive(Debug, Default)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(Only(PhantomData)).map(Self)
    }
}

impl<T> std::ops::Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Pair {
        a: u8,
        b: u8,
    }

    #[test]
    fn an_array_is_no_object() {
        assert!(serde_json::from_str::<Pair>("[1, 2]").is_ok());
        assert!(serde_json::from_str::<Object<Pair>>("[1, 2]").is_err());
        let pair: Object<Pair> = serde_json::from_str(r#"{"b": 2, "a": 1, "c": []}"#).unwrap();
        assert_eq!((pair.a, pair.b), (1, 2));
    }
}
