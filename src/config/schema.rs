//! JSON schema of the file, for editors.

use serde_json::{Map as Object, Value as Json, json};

use super::Config;
use super::shape::{Content, Shape, Slot, Value, is_empty};

pub fn schema() -> String {
    let mut whole = of(Config::default().shape());
    if let Some(object) = whole.as_object_mut() {
        object.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
        object.insert("title".into(), "The configuration of tolerarch".into());
    }
    format!("{:#}\n", or_null(whole))
}

fn of(shape: Shape<'_>) -> Json {
    let (mut schema, default) = match shape.content {
        Content::Section(keys) => {
            let mut properties = Object::new();
            for key in keys {
                let mut property = or_null(of(key.shape));
                let restart = if key.at_start { " (a change takes effect at the next start)" } else { "" };
                property["description"] = format!("{}{restart}", key.doc).into();
                properties.insert(key.name.to_owned(), property);
            }
            let section = json!({"type": "object", "additionalProperties": false, "properties": properties});
            (section, Json::Null)
        }
        Content::Value(Value { domain, written, .. }) => {
            let many = json!({"type": "array", "items": domain.schema});
            let schema = match domain.word {
                Some(word) => json!({"anyOf": [many, {"const": word}]}),
                None if domain.is_list => many,
                None => domain.schema,
            };
            (schema, written)
        }
        Content::Entries(entries) => {
            let default = Shape::entries(entries).written();
            let mut entry = Json::Null;
            // Nobody reads the entries again.
            let _ = entries.add(String::new(), &mut |shape| entry = of(shape));
            let schema = match entries.names() {
                None => json!({"type": "array", "items": entry}),
                Some(_) => json!({"type": "object", "additionalProperties": or_null(entry)}),
            };
            (schema, default)
        }
    };
    if !is_empty(&default) {
        schema["default"] = default;
    }
    schema
}

/// Allows null in a schema: a key without a value keeps its default.
fn or_null(mut schema: Json) -> Json {
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    }
    for (choices, null) in [("enum", Json::Null), ("anyOf", json!({"type": "null"}))] {
        if let Some(choices) = schema.get_mut(choices).and_then(Json::as_array_mut) {
            choices.push(null);
        }
    }
    schema
}
