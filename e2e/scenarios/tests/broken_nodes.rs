//! On a real node whose own programs are for another architecture: no image is blamed, and nothing is recorded.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use scenarios::{Cluster, Namespace, POOL, pod, until};
use serde_json::{Value, json};

use crate::architectures::exchange;
use crate::nodes::{TOLERARCH, container, is_not_pulled, runs};

/// What the node runs for each container: a hook of kind's, and the runtime.
const HOOK: &str = "/kind/bin/mount-product-files.sh";
const RUNTIME: &str = "/usr/sbin/runc";
/// What it runs for each Pod.
const SHIM: &str = "/usr/local/bin/containerd-shim-runc-v2";
/// Puts in the place of a program one that is for s390x, by its header. Those that run go on.
const BREAK: &str = r#"cp --preserve "$PROGRAM" "$PROGRAM.sound"
cp /usr/local/bin/containerd-shim-runc-v2 /wrong && printf '\026' | dd of=/wrong bs=1 seek=18 conv=notrunc status=none
mv /wrong "$PROGRAM""#;
const MEND: &str = r#"mv "$PROGRAM.sound" "$PROGRAM""#;

/// A node, and how its scenarios' Pods get there.
struct Place<'c> {
    cluster: &'c Cluster,
    node: &'c str,
    /// Value of the label by which Pods select it.
    label: &'static str,
    architecture: &'static str,
}

pub(crate) async fn broken_node_program_is_not_blamed_on_an_image(cluster: &Cluster) {
    let [node, _] = cluster.node_names();
    break_programs(&Place {
        cluster,
        node,
        label: "plain",
        architecture: "amd64",
    })
    .await;
}

pub(crate) async fn broken_arm64_node_program_is_not_blamed_on_an_image(cluster: &Cluster) {
    let node = &cluster.kind().emulated_node();
    exchange(cluster, &[], &[node]).await;
    break_programs(&Place {
        cluster,
        node,
        label: "arm64",
        architecture: "arm64",
    })
    .await;
    exchange(cluster, &[node], &[]).await;
}

async fn break_programs(place: &Place<'_>) {
    let Place {
        cluster,
        node,
        architecture,
        ..
    } = *place;
    let namespace = cluster.namespace("broken").await;
    let image = cluster.images.program("multi");
    for (name, program) in [("hook", HOOK), ("runtime", RUNTIME)] {
        // The node is broken once the sandbox is there, which waits for the image.
        namespace
            .apply(&place.pod(name, &cluster.images.program("later")))
            .await;
        namespace
            .until_pods(name, 1, |pod| container(pod).is_some_and(is_not_pulled))
            .await;
        place.run(BREAK, program).await;
        let change = json!({"spec": {"containers": [{"name": "c0", "image": image}]}});
        namespace
            .pods()
            .patch(name, &PatchParams::default(), &Patch::Strategic(change))
            .await
            .unwrap();
        let note = event(&namespace.api(), "NodeProgramFailed", name).await;
        place.run(MEND, program).await;
        println!("broken nodes: {name}: {note}");
        assert!(note.contains(node) && note.contains(program), "{note}");
        let pods = namespace.until_pods(name, 1, runs).await;
        assert!(
            pods.iter()
                .all(|pod| pod.metadata.deletion_timestamp.is_none()),
            "it is not evicted"
        );
    }
    event(
        &Api::namespaced(cluster.client.clone(), "default"),
        "NodeProgramFailed",
        node,
    )
    .await;

    // Without a shim there is no sandbox, and the kubelet alone says so.
    place.run(BREAK, SHIM).await;
    namespace.apply(&place.pod("shim", &image)).await;
    let note = event(&namespace.api(), "FailedCreatePodSandBox", "shim").await;
    place.run(MEND, SHIM).await;
    println!("broken nodes: shim: {note}");
    namespace.until_pods("shim", 1, runs).await;

    // What a container's own program is for is seen all the while, and nothing else has been recorded before it.
    namespace
        .apply(&place.pod("lies", &cluster.images.program("lies")))
        .await;
    event(&namespace.api(), "WrongArchitecture", "lies").await;
    let recorded = until("the image is recorded", async || {
        Some(recorded(cluster, &namespace).await).filter(|images| !images.is_empty())
    })
    .await;
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!(recorded[0]["architecture"], architecture);
    assert_eq!(recorded[0]["allNamespaces"], false);
    let events: Api<Event> = namespace.api();
    let wrong = events
        .list(&ListParams::default().fields("reason=WrongArchitecture"))
        .await
        .unwrap()
        .items;
    assert_eq!(wrong.len(), 1, "another image is blamed: {wrong:?}");
}

impl Place<'_> {
    /// A Pod that runs there.
    fn pod(&self, name: &str, image: &str) -> Value {
        let mut pod = pod(&[image]);
        pod["metadata"] = json!({"name": name, "labels": {"app": name}});
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": self.label});
        pod["spec"]["tolerations"] = json!([{"key": POOL, "operator": "Exists"}]);
        // What the container writes is evidence as well.
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
        pod
    }

    /// Runs a script about a program of the node.
    async fn run(&self, script: &str, program: &str) {
        let program = format!("PROGRAM={program}");
        let command = ["exec", "--env", &program, self.node, "bash", "-euc", script];
        self.cluster.kind().docker(&command).await;
    }
}

/// Waits for the event on an object of this name. Gives its text.
async fn event(events: &Api<Event>, reason: &str, name: &str) -> String {
    let of_reason = ListParams::default().fields(&format!("reason={reason}"));
    until(&format!("{reason} of {name}"), async || {
        let items = events.list(&of_reason).await.ok()?.items;
        let is_it = |event: &Event| {
            event
                .regarding
                .as_ref()
                .and_then(|regarding| regarding.name.as_deref())
                == Some(name)
        };
        items.into_iter().find(is_it)?.note
    })
    .await
}

/// What is recorded of images of Pods of this namespace.
async fn recorded(cluster: &Cluster, namespace: &Namespace) -> Vec<Value> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), TOLERARCH);
    let map = maps
        .get_opt("tolerarch-controller-failed-images")
        .await
        .unwrap();
    let text = map
        .and_then(|map| map.data?.remove("record.json"))
        .unwrap_or_else(|| "[]".to_owned());
    let mut entries: Vec<Value> = serde_json::from_str(&text).unwrap();
    entries.retain(|entry| entry["namespace"] == *namespace.name);
    entries
}
