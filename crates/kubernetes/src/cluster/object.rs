//! Identity of an object in JSON, even if nothing else of the object can be read.

use std::fmt;

use kube::api::ObjectMeta;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Identifies the object, or the first one of a list, at this path of a JSON, by as much as there is of the JSON.
pub(super) fn identity(json: &[u8], path: &'static [&'static str]) -> ObjectMeta {
    let mut found = ObjectMeta::default();
    // An error at the end does not matter.
    let _ = At { path, found: &mut found }.deserialize(&mut serde_json::Deserializer::from_slice(json));
    found
}

struct At<'f> {
    path: &'static [&'static str],
    found: &'f mut ObjectMeta,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { path, found } = self;
        while let Some(name) = members.next_key::<String>()? {
            let member = match (path.split_first(), name.as_str()) {
                (Some((first, rest)), name) if *first == name => {
                    members.next_value_seed(At { path: rest, found })?;
                    continue;
                }
                (None, "name") => &mut found.name,
                (None, "namespace") => &mut found.namespace,
                (None, "uid") => &mut found.uid,
                (None, "resourceVersion") => &mut found.resource_version,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *member = members.next_value()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { path, found } = self;
        while items.next_element_seed(At { path, found })?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_known_by_as_much_as_there_is() {
        let deep = format!("{}1{}", r#"{"f:a":"#.repeat(10_000), "}".repeat(10_000));
        let object = format!(
            r#"{{"metadata":{{"name":"web","managedFields":[{{"fieldsV1":{deep}}}],"namespace":"team","uid":"u"}}}}"#
        );
        let of = |json: &str, path| {
            let ObjectMeta { name, namespace, uid, .. } = identity(json.as_bytes(), path);
            (name.unwrap_or_default(), namespace.unwrap_or_default(), uid.unwrap_or_default())
        };
        let all = ("web".to_owned(), "team".to_owned(), "u".to_owned());
        assert_eq!(of(&object, &["metadata"]), all);
        let event = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        assert_eq!(of(&event, &["object", "metadata"]), all);
        let list = format!(r#"{{"metadata":{{"name":"no"}},"items":[{object}"#);
        assert_eq!(of(&list, &["items", "metadata"]), all, "the rest is missing");
        let (name, namespace, _) = of(&object[..60], &["metadata"]);
        assert_eq!((&*name, &*namespace), ("web", ""));
        assert_eq!(of("canary", &["metadata"]), Default::default());
    }
}
