//! Bounds and speed for untrusted JSON, which serde lacks.

pub mod go;
mod reader;
mod source;
mod unread;

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

pub use reader::read;
pub use unread::Unread;

/// A struct that is read from an object only. serde also reads a struct from an array, member by member. To the API
/// server and to containerd such an array is an error, and a patch for the object that it is not would not apply.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct Object<T>(pub T);

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

/// Reads an object of any size, and passes the name and the value of each member to `take`.
pub fn members<'de, D, N, V>(object: D, take: impl FnMut(N, V)) -> Result<(), D::Error>
where
    D: Deserializer<'de>,
    N: Deserialize<'de>,
    V: Deserialize<'de>,
{
    struct Members<F, N, V>(F, PhantomData<(N, V)>);
    impl<'de, F: FnMut(N, V), N: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de>
        for Members<F, N, V>
    {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some((name, value)) = map.next_entry()? {
                self.0(name, value);
            }
            Ok(())
        }
    }
    object.deserialize_map(Members(take, PhantomData))
}

/// The first `N` items of a list and one more, which shows that there are too many, in bounded memory.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct First<T, const N: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const N: usize> Deserialize<'de> for First<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const N: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Items<T, N> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
                let mut first = Vec::new();
                while first.len() <= N
                    && let Some(item) = items.next_element()?
                {
                    first.push(item);
                }
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }
        }
        deserializer
            .deserialize_seq(Items::<T, N>(PhantomData))
            .map(Self)
    }
}

#[cfg(test)]
mod tests;
