//! A JSON value that stays a text until it is needed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

use super::reader::{TEXT, compact, read};

/// The text of a value, which is borrowed by the fast reader. To store it costs no more than to skip the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unread<'a>(pub Cow<'a, str>);

impl Unread<'_> {
    /// Reads the value; `None` if it is no `T`, or if the fast reader does not read it.
    pub fn read<'p, T: Deserialize<'p>>(&'p self) -> Option<T> {
        read(self.0.as_bytes()).ok()
    }

    /// Returns whether one of the value's strings may contain `text`, which needs no escapes.
    pub fn may_have(&self, text: &str) -> bool {
        self.0.contains(text) || self.0.contains('\\')
    }
}

impl Serialize for Unread<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Unread<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Skipped;
        impl<'de> Visitor<'de> for Skipped {
            type Value = Unread<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_borrowed_str<E: Error>(self, json: &'de str) -> Result<Self::Value, E> {
                Ok(Unread(json.into()))
            }
            /// Reads from other deserializers. Untrusted input stays a text: a tree takes up to sixty times the memory.
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                source: D,
            ) -> Result<Self::Value, D::Error> {
                let value = Box::<RawValue>::deserialize(source)?;
                let json: Box<str> = value.into();
                Ok(Unread(compact(json.into()).into()))
            }
        }
        deserializer.deserialize_newtype_struct(TEXT, Skipped)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        part: Option<Unread<'a>>,
    }

    #[test]
    fn any_deserializer_is_read_and_compact_json_is_borrowed() {
        let compact = r#"{"a":1,"part":{"x":["\u0061","b"]}}"#;
        let fast: Outer<'_> = crate::json::read(compact.as_bytes()).unwrap();
        let part = fast.part.unwrap();
        assert!(matches!(part.0, Cow::Borrowed(_)));
        assert_eq!(&*part.0, r#"{"x":["\u0061","b"]}"#);

        let spacious = compact.replace(':', " :\n ");
        let slow: Outer<'_> = serde_json::from_str(&spacious).unwrap();
        let value = json!({"part": {"x": ["a", "b"]}});
        let of_value = Outer::deserialize(&value).unwrap();
        let traced: Outer<'_> = serde_path_to_error::deserialize(&value).unwrap();
        for part in [
            part,
            slow.part.unwrap(),
            of_value.part.unwrap(),
            traced.part.unwrap(),
        ] {
            let read: Inner = part.read().unwrap();
            assert_eq!(read.x.iter().map(|word| &*word.0).collect::<String>(), "ab");
            assert!(part.may_have("b"));
            assert!(part.read::<bool>().is_none());
        }
        let deep = format!(r#"{{"part": {}{} }}"#, "[".repeat(100), "] ".repeat(100));
        let deep: Outer<'_> = serde_json::from_str(&deep).unwrap();
        assert_eq!(deep.part.unwrap().0.len(), 200);
        let strings: Outer<'_> =
            serde_json::from_str(r#"{"part": [ "a \" b", "\\", "c d" ]}"#).unwrap();
        assert_eq!(&*strings.part.unwrap().0, r#"["a \" b","\\","c d"]"#);
        for none in [json!({"part": null}), json!({})] {
            assert!(Outer::deserialize(&none).unwrap().part.is_none());
        }
    }

    #[derive(serde::Deserialize)]
    struct Inner {
        x: Vec<Word>,
    }

    /// A text that is deserialized by `deserialize_str`, the only method for texts that the reader has.
    struct Word(String);

    impl<'de> Deserialize<'de> for Word {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Words;
            impl Visitor<'_> for Words {
                type Value = Word;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a word")
                }
                fn visit_str<E: Error>(self, word: &str) -> Result<Word, E> {
                    Ok(Word(word.to_owned()))
                }
            }
            deserializer.deserialize_str(Words)
        }
    }
}
