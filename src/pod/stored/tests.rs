use super::*;
use serde_json::json;

/// Compared with what k8s.io/api v0.37.2 makes of them (`Pod.Marshal`).
#[test]
fn knows_what_protobuf_takes() {
    for (pod, stored) in pods() {
        let (json, size) = (pod.to_string().len(), size_of_value(&pod));
        // What is empty in every Pod is not counted.
        assert!((stored - 256..=stored * 4 / 3).contains(&size), "{json} as JSON, {stored} stored: {size}");
    }
}

fn pods() -> [(Value, usize); 4] {
    let long = |text: &str, length: usize| text.repeat(length / text.len());
    let container =
        |env: Value| json!({"spec": {"containers": [{"name": "c", "image": "nginx", "env": env}]}});
    [
        (container(json!([{"name": "A", "value": long("<&>\n\"\\", 1 << 20)}])), 1_048_688),
        (
            container(
                (0..20_000)
                    .map(|i| json!({"name": format!("A{i}"), "value": "a value of usual length"}))
                    .collect(),
            ),
            688_995,
        ),
        (json!({"metadata": {"annotations": {"a": long("x", 200_000)}, "labels": {"b": "c"}}}), 200_090),
        (
            json!({"metadata": {"managedFields": [{"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {"f:env": (0..9999).map(|i| (format!("k:{i}"), json!({"f:name": {}, ".": {}}))).collect::<serde_json::Map<_, _>>()}}}}}]}}),
            299_025,
        ),
    ]
}
