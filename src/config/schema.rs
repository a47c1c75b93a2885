//! The JSON schema of the file, for editors.

use serde_json::{Map as Object, Value as Json, json};

use super::Config;
use super::shape::{Content, Domain, Entries, Shape, Slot, Step};

pub fn schema() -> String {
    let mut whole = or_null(of(Config::default().shape()));
    if let Some(object) = whole.as_object_mut() {
        object.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        object.insert("title".into(), "The configuration of tolerarch".into());
    }
    format!("{whole:#}\n")
}

fn of(shape: Shape<'_>) -> Json {
    match shape.content {
        Content::Section(keys) => {
            let mut properties = Object::new();
            for key in keys {
                let mut property = or_null(of(key.shape));
                if let Some(object) = property.as_object_mut() {
                    let restart =
                        if key.at_start { " (a change takes effect at the next start)" } else { "" };
                    object.insert("description".into(), format!("{}{restart}", key.doc).into());
                }
                properties.insert(key.name.to_owned(), property);
            }
            json!({"type": "object", "additionalProperties": false, "properties": properties})
        }
        Content::Value(value) => {
            let Domain { schema, is_list, word, .. } = value.domain();
            let schema = if is_list { json!({"type": "array", "items": schema}) } else { schema };
            let alone = word.map(|word| json!({"anyOf": [schema, {"const": word}]}));
            with_default(alone.unwrap_or(schema), value.written())
        }
        Content::Entries(entries) => {
            let mut entry = Json::Null;
            // The values of a new one are no defaults.
            entries.blank(&mut |shape| entry = of(shape));
            match entries.key() {
                None => with_default(json!({"type": "array", "items": entry}), written(entries)),
                Some(_) => json!({"type": "object", "additionalProperties": or_null(entry)}),
            }
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

fn with_default(mut schema: Json, default: Json) -> Json {
    let empty = default.is_null() || default == json!("") || default == json!([]);
    if let Some(object) = schema.as_object_mut().filter(|_| !empty) {
        object.insert("default".into(), default);
    }
    schema
}

/// What entries hold, as the file would say it.
fn written(entries: &mut dyn Entries) -> Json {
    let (mut items, mut members) = (Vec::new(), Object::new());
    entries.each(&mut |step, shape| match step {
        Step::At(_) => items.push(content(shape)),
        Step::Named(name) => drop(members.insert(name.to_owned(), content(shape))),
    });
    if entries.key().is_none() { items.into() } else { members.into() }
}

fn content(shape: Shape<'_>) -> Json {
    match shape.content {
        Content::Section(keys) => {
            let members = keys.into_iter().map(|key| (key.name.to_owned(), content(key.shape)));
            members.filter(|(_, value)| !value.is_null()).collect::<Object<_, _>>().into()
        }
        Content::Value(value) => value.written(),
        Content::Entries(entries) => written(entries),
    }
}
