//! A real node whose own programs are for another architecture: no image is blamed, and nothing is recorded.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use scenarios::{Cluster, Namespace, POOL, pod, until};
use serde_json::{Value, json};

use crate::architectures::cordon_and_uncordon;
use crate::nodes::{TOLERARCH, container, is_not_pulled, runs};

/// A hook of kind, which the node runs for each container.
const HOOK: &str = "/kind/bin/mount-product-files.sh";
/// The runtime, which the node runs for each container.
const RUNTIME: &str = "/usr/sbin/runc";
/// The program that the node runs for each Pod.
const SHIM: &str = "/usr/local/bin/containerd-shim-runc-v2";
/// A script that replaces a program by one whose header says s390x. Running processes continue.
const BREAK: &str = r#"cp --preserve "$PROGRAM" "$PROGRAM.sound"
cp /usr/local/bin/containerd-shim-runc-v2 /wrong && printf '\026' | dd of=/wrong bs=1 seek=18 conv=notrunc status=none
mv /wrong "$PROGRAM""#;
/// A script that restores the program.
const REPAIR: &str = r#"mv "$PROGRAM.sound" "$PROGRAM""#;

/// A node whose programs are broken.
struct TargetNode<'c> {
    cluster: &'c Cluster,
    node: &'c str,
    /// The value of the label by which Pods select the node.
    label: &'static str,
    architecture: &'static str,
}

pub(crate) async fn broken_node_program_is_not_blamed_on_an_image(cluster: &Cluster) {
    let [node, _] = cluster.node_names();
    break_programs(&TargetNode {
        cluster,
        node,
        label: "plain",
        architecture: "amd64",
    })
    .await;
}

pub(crate) async fn broken_arm64_node_program_is_not_blamed_on_an_image(cluster: &Cluster) {
    let node = &cluster.kind().emulated_node();
    cordon_and_uncordon(cluster, &[], &[node]).await;
    break_programs(&TargetNode {
        cluster,
        node,
        label: "arm64",
        architecture: "arm64",
    })
    .await;
    cordon_and_uncordon(cluster, &[node], &[]).await;
}

async fn break_programs(target: &TargetNode<'_>) {
    let TargetNode {
        cluster,
        node,
        architecture,
        ..
    } = *target;
    let namespace = cluster.namespace("broken").await;
    let image = cluster.images.program("multi");
    for (name, program) in [("hook", HOOK), ("runtime", RUNTIME)] {
        // The program is broken once the sandbox exists. The Pod waits for its image until then.
        namespace
            .apply(&target.pod(name, &cluster.images.program("later")))
            .await;
        namespace
            .until_pods(name, 1, |pod| container(pod).is_some_and(is_not_pulled))
            .await;
        target.run(BREAK, program).await;
        let change = json!({"spec": {"containers": [{"name": "c0", "image": image}]}});
        namespace
            .pods()
            .patch(name, &PatchParams::default(), &Patch::Strategic(change))
            .await
            .unwrap();
        let note = until_event(&namespace.api(), "NodeProgramFailed", name).await;
        target.run(REPAIR, program).await;
        println!("broken nodes: {name}: {note}");
        assert!(note.contains(node) && note.contains(program), "{note}");
        let pods = namespace.until_pods(name, 1, runs).await;
        let deletion = &pods[0].metadata.deletion_timestamp;
        assert!(deletion.is_none(), "the Pod is not evicted");
    }
    until_event(
        &Api::namespaced(cluster.client.clone(), "default"),
        "NodeProgramFailed",
        node,
    )
    .await;

    // Without a shim there is no sandbox, and only the kubelet reports it.
    target.run(BREAK, SHIM).await;
    namespace.apply(&target.pod("shim", &image)).await;
    let note = until_event(&namespace.api(), "FailedCreatePodSandBox", "shim").await;
    target.run(REPAIR, SHIM).await;
    println!("broken nodes: shim: {note}");
    namespace.until_pods("shim", 1, runs).await;

    // A container's own program of another architecture is still recognized, and is the only recorded one.
    namespace
        .apply(&target.pod("lies", &cluster.images.program("lies")))
        .await;
    until_event(&namespace.api(), "WrongArchitecture", "lies").await;
    let recorded = until("the image is recorded", async || {
        let images = recorded(cluster, &namespace).await;
        (!images.is_empty()).then_some(images)
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

impl TargetNode<'_> {
    /// Returns a Pod that runs on the node.
    fn pod(&self, name: &str, image: &str) -> Value {
        let mut pod = pod(&[image]);
        pod["metadata"] = json!({"name": name, "labels": {"app": name}});
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": self.label});
        pod["spec"]["tolerations"] = json!([{"key": POOL, "operator": "Exists"}]);
        // The container's output is evidence as well.
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
        pod
    }

    /// Runs a script for a program of the node.
    async fn run(&self, script: &str, program: &str) {
        let program = format!("PROGRAM={program}");
        let command = ["exec", "--env", &program, self.node, "bash", "-euc", script];
        self.cluster.kind().docker(&command).await;
    }
}

/// Waits for an event about an object with this name. Returns its text.
async fn until_event(events: &Api<Event>, reason: &str, name: &str) -> String {
    let of_reason = ListParams::default().fields(&format!("reason={reason}"));
    until(&format!("{reason} of {name}"), async || {
        let items = events.list(&of_reason).await.ok()?.items;
        let is_wanted = |event: &Event| {
            let object = event.regarding.as_ref();
            object.and_then(|object| object.name.as_deref()) == Some(name)
        };
        items.into_iter().find(is_wanted)?.note
    })
    .await
}

/// Returns the entries of the record that come from this namespace.
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
