//! A typical review.

use serde_json::{Value, json};

/// Returns a Pod of typical size, as a ReplicaSet creates it: with a container for each image, default tolerations and managed
/// fields.
pub(crate) fn pod(images: &[String]) -> Value {
    let container = |(index, image): (usize, &String)| {
        let http = json!({"path": "/readyz", "port": "http", "scheme": "HTTP"});
        json!({
            "name": format!("part-{index}"), "image": image, "imagePullPolicy": "IfNotPresent",
            "ports": [{"name": "http", "containerPort": 8080 + index, "protocol": "TCP"}],
            "env": [
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "DATABASE_URL", "value": "postgres://shop@db.shop.svc:5432/shop?sslmode=verify-full"},
            ],
            "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "512Mi"}},
            "readinessProbe": {
                "httpGet": http, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            },
            "volumeMounts": [
                {"name": "config", "mountPath": "/etc/shop", "readOnly": true},
                {"name": "kube-api-access-7xk2p", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
            ],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    let default_toleration = |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let spec = json!({
        "containers": images.iter().enumerate().map(container).collect::<Vec<_>>(),
        "volumes": [
            {"name": "config", "configMap": {"name": "shop", "defaultMode": 420}},
            {"name": "kube-api-access-7xk2p", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ]}},
        ],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "shop", "serviceAccount": "shop", "schedulerName": "default-scheduler",
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
    });
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "generateName": "shop-5d7c9b6f4-", "namespace": "shop", "creationTimestamp": null,
            "labels": {"app.kubernetes.io/name": "shop", "pod-template-hash": "5d7c9b6f4"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-5d7c9b6f4",
                "uid": "0b7f3c0e-6f0e-4a50-9d3c-3a8f1b0f9a55", "controller": true, "blockOwnerDeletion": true,
            }],
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2026-01-05T10:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": managed_fields(&spec)},
            }],
        },
        "spec": spec,
        "status": {},
    });
    pod["spec"]["tolerations"] = json!([
        default_toleration("node.kubernetes.io/not-ready"),
        default_toleration("node.kubernetes.io/unreachable")
    ]);
    pod
}

/// Returns the managed fields of a value, as server-side apply writes them.
fn managed_fields(value: &Value) -> Value {
    let name = |item: &Value| Some(format!("k:{}", json!({"name": item.get("name")?})));
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (format!("f:{key}"), managed_fields(value)))
            .collect(),
        Value::Array(items) => items
            .iter()
            .filter_map(|item| Some((name(item)?, managed_fields(item))))
            .collect(),
        _ => json!({}),
    }
}

/// Returns the AdmissionReview that the API server sends when a Pod is created.
pub(crate) fn review(pod: &Value) -> Value {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource, "namespace": "shop", "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "a52f1b0e-7a7e-4f7b-8f4e-2f9e1c0f8f11",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
            },
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}
