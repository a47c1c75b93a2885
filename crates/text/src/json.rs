//! JSON from untrusted sources: bounds and speed that serde_json does not offer.

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

/// A struct that is read only from an object. serde also reads a struct from an array, member by member. For the API server
/// and containerd such an array is an error, and a patch that expects an object would not apply to it.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        let visitor = ObjectVisitor(PhantomData);
        let value = deserializer.deserialize_map(visitor)?;
        Ok(Self(value))
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

/// The first `N` items of a list, and one more item if the list is longer. The memory is bounded.
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
        let items = deserializer.deserialize_seq(Items::<T, N>(PhantomData))?;
        Ok(Self(items))
    }
}

#[cfg(test)]
mod tests;
