//! The JSON schema of the file, for editors.

use serde_json::{Map as Object, Value as Json, json};

use super::Config;
use super::shape::{List, Shape, Slot};

/// The schema of the file, indented.
pub fn schema() -> String {
    let mut whole = or_null(of(&mut Config::default()));
    if let Some(object) = whole.as_object_mut() {
        object.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        object.insert("title".into(), "The configuration of tolerarch".into());
    }
    format!("{whole:#}\n")
}

fn of(slot: &mut dyn Slot) -> Json {
    match slot.shape() {
        Shape::Section(keys) => {
            let mut properties = Object::new();
            for mut key in keys {
                let mut property = or_null(of(&mut *key.slot));
                if let Some(object) = property.as_object_mut() {
                    let restart =
                        if key.at_start { " (a change takes effect at the next start)" } else { "" };
                    object.insert("description".into(), format!("{}{restart}", key.doc).into());
                }
                properties.insert(key.name.to_owned(), property);
            }
            json!({"type": "object", "additionalProperties": false, "properties": properties})
        }
        Shape::Value(value) => {
            let (schema, default) = (value.domain().schema.clone(), value.written());
            with_default(schema, default)
        }
        Shape::Values(values) => {
            let list = json!({"type": "array", "items": values.domain().schema});
            let schema = match values.word() {
                Some(word) => json!({"anyOf": [list, {"const": word}]}),
                None => list,
            };
            let default = values.written();
            if default.is_empty() { schema } else { with_default(schema, default.into()) }
        }
        Shape::List(list) => {
            let default = written(list);
            with_default(json!({"type": "array", "items": blank(|visit| list.blank(visit))}), default)
        }
        Shape::Map(map) => {
            json!({"type": "object", "additionalProperties": or_null(blank(|visit| map.blank(visit)))})
        }
    }
}

/// A key without a value keeps its default.
fn or_null(mut schema: Json) -> Json {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    }
    if let Some(choices) = schema.get_mut("enum").and_then(Json::as_array_mut) {
        choices.push(Json::Null);
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Json::as_array_mut) {
        choices.push(json!({"type": "null"}));
    }
    schema
}

/// The schema of a new item; its values are no defaults.
fn blank(show: impl FnOnce(&mut dyn FnMut(&mut dyn Slot))) -> Json {
    let mut schema = Json::Null;
    show(&mut |slot| schema = of(slot));
    schema
}

fn with_default(mut schema: Json, default: Json) -> Json {
    let empty = default.is_null() || default == json!("") || default == json!([]);
    if let Some(object) = schema.as_object_mut().filter(|_| !empty) {
        object.insert("default".into(), default);
    }
    schema
}

/// What a list holds, as the file would say it.
fn written(list: &mut dyn List) -> Json {
    let mut items = Vec::new();
    list.each(&mut |slot| items.push(content(slot)));
    items.into()
}

fn content(slot: &mut dyn Slot) -> Json {
    match slot.shape() {
        Shape::Section(keys) => {
            let members = keys.into_iter().map(|mut key| (key.name.to_owned(), content(&mut *key.slot)));
            members.filter(|(_, value)| !value.is_null()).collect::<Object<_, _>>().into()
        }
        Shape::Value(value) => value.written(),
        Shape::Values(values) => values.written().into(),
        Shape::List(list) => written(list),
        Shape::Map(map) => {
            let mut members = Object::new();
            map.each(&mut |name, slot| drop(members.insert(name.to_owned(), content(slot))));
            members.into()
        }
    }
}
