//! JSON schema of the configuration file, for editors.

use serde_json::{Map as Object, Value as Json, json};

use super::Config;
use super::shape::{Content, Describe, Description, Value, is_empty};

pub fn schema() -> String {
    let (mut whole, _) = of(Config::default().describe().content);
    if let Some(object) = whole.as_object_mut() {
        object.insert(
            "$schema".into(),
            "http://json-schema.org/draft-07/schema#".into(),
        );
        object.insert("title".into(), "The configuration of tolerarch".into());
    }
    format!("{:#}\n", or_null(whole))
}

/// Returns the schema of a content, and the default in the form of the file, without entries that the user names.
fn of(content: Content<'_>) -> (Json, Json) {
    let (mut schema, written) = match content {
        Content::Section(keys) => return of_section(keys),
        Content::Value(Value {
            accepted, written, ..
        }) => {
            let many = json!({"type": "array", "items": accepted.schema});
            let schema = match accepted.word {
                Some(word) => json!({"anyOf": [many, {"const": word}]}),
                None if accepted.is_list => many,
                None => accepted.schema,
            };
            (schema, written)
        }
        Content::Entries(names, entries) => {
            let mut items = Vec::new();
            let mut entry = Json::Null;
            entries.each(&mut |item| items.push(of(item.content).1));
            // The entries are not read again, so a change does no harm.
            let _ = entries.add(String::new(), &mut |description| {
                entry = of(description.content).0;
            });
            match names {
                None => (json!({"type": "array", "items": entry}), items.into()),
                Some(_) => (
                    json!({"type": "object", "additionalProperties": or_null(entry)}),
                    Json::Null,
                ),
            }
        }
    };
    if !is_empty(&written) {
        schema["default"] = written.clone();
    }
    (schema, written)
}

fn of_section(keys: Vec<Description<'_>>) -> (Json, Json) {
    let mut properties = Object::new();
    let mut members = Object::new();
    for key in keys {
        let (schema, written) = of(key.content);
        let mut property = or_null(schema);
        let restart = if key.at_start {
            " (a change takes effect at the next start)"
        } else {
            ""
        };
        property["description"] = format!("{}{restart}", key.doc).into();
        if !written.is_null() {
            members.insert(key.name.to_string(), written);
        }
        properties.insert(key.name.into_owned(), property);
    }
    let section =
        json!({"type": "object", "additionalProperties": false, "properties": properties});
    (section, members.into())
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
