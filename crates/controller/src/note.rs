//! Notes of events. Pure. Tenants choose the names in notes, so names are truncated and sanitized.

use super::container_failure::ContainerFailure;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::policy::{Blocker, Cause, Pool};
use tolerarch_engine::lessons::{Evidence, FailedImage};
use tolerarch_kubernetes::cluster::{EventKind, Node};
use tolerarch_text::escape::{last_chars, sanitized};
use tolerarch_text::list::List;

/// List of images. With all its lists, a note has at most 1,024 bytes.
const IMAGES: List = List {
    separator: "; ",
    before_rest: "; ",
    after_rest: " images",
    items: usize::MAX,
    bytes: 700,
};
const POOLS: List = List {
    separator: ", ",
    before_rest: ", ",
    after_rest: " pools",
    items: usize::MAX,
    bytes: 200,
};
/// Maximum characters of an image's name. The end of a longer name is kept.
const IMAGE: usize = 150;
/// Maximum characters of a runtime's message. The end of a longer message is kept.
const MESSAGE: usize = 400;
/// Maximum characters of other names.
const NAME: usize = 100;

/// Event on a Pod that is not eligible because of its images.
pub(super) const POOL_CLOSED: EventKind = EventKind {
    r#type: "Normal",
    reason: "PoolClosed",
    action: "Decide",
};
/// Event on an existing Pod that got the tolerations of pools.
pub(super) const POOL_OPENED: EventKind = EventKind {
    r#type: "Normal",
    reason: "PoolOpened",
    action: "Repair",
};
/// Event on a Pod with an image that does not run on the Pod's node.
pub(super) const WRONG_ARCHITECTURE: EventKind = EventKind {
    r#type: "Warning",
    reason: "WrongArchitecture",
    action: "Run",
};
/// Event on a node, and on a Pod of it, where a program of the node is for another architecture.
pub(super) const NODE_PROGRAM_FAILED: EventKind = EventKind {
    r#type: "Warning",
    reason: "NodeProgramFailed",
    action: "Run",
};
/// Event on an owner that deletes the Pods that tolerarch has changed.
pub(super) const OWNER_RECREATES: EventKind = EventKind {
    r#type: "Warning",
    reason: "OwnerRecreates",
    action: "Learn",
};
pub(super) const EVENTS: [EventKind; 5] = [
    POOL_CLOSED,
    POOL_OPENED,
    WRONG_ARCHITECTURE,
    NODE_PROGRAM_FAILED,
    OWNER_RECREATES,
];

/// `multi-arch stays closed: ghcr.io/acme/app:1 lacks linux/arm64; redis:7 is not known (not-found); and 2 more images`
pub(super) fn closed(pools: &[Pool], blockers: &[Blocker<'_>]) -> String {
    let list = IMAGES.write(blockers, |blocker| {
        let image = image(blocker.image);
        match blocker.cause {
            Cause::Unknown(_) => format!("{image} is not known ({})", blocker.cause),
            Cause::Lacks(_) | Cause::Failed(_) => format!("{image} {}", blocker.cause),
        }
    });
    let stay = if pools.len() == 1 { "stays" } else { "stay" };
    format!("{} {stay} closed: {list}", names(pools.iter()))
}

/// `opened multi-arch to this Pod after its creation`
pub(super) fn opened<'p>(pools: impl IntoIterator<Item = &'p Pool>) -> String {
    format!("opened {} to this Pod after its creation", names(pools))
}

/// `multi-arch cannot be opened to this Pod any more: its nodes are selected by labels, and …`
pub(super) fn too_late<'p>(pools: impl IntoIterator<Item = &'p Pool>) -> String {
    format!(
        "{} cannot be opened to this Pod any more: its nodes are selected by labels, and a Pod that exists gets no node selector; delete the Pod so that its controller creates it again",
        names(pools)
    )
}

/// Returns whether these platforms of an image include the architecture; `None` if either is unknown.
pub(super) fn is_claimed(platforms: Option<PlatformSet>, architecture: &str) -> Option<bool> {
    let of_architecture = PlatformSet::of_architecture(architecture);
    if of_architecture.is_empty() {
        return None;
    }
    Some(!platforms?.intersection(of_architecture).is_empty())
}

/// Returns the note on a failure of an image on this node. `platforms` are those of the image, if they are known.
pub(super) fn wrong_architecture(
    failure: &ContainerFailure,
    node: &Node,
    platforms: Option<PlatformSet>,
) -> String {
    let container = name(&failure.container);
    let image = image(&failure.image);
    let is_claimed = is_claimed(platforms, &node.architecture);
    let node = node_name(node);
    let claims = match platforms {
        Some(platforms) => platforms.to_string(),
        None => String::new(),
    };
    let why = match (failure.evidence, is_claimed) {
        (Evidence::NoMatchForPlatform, Some(true)) => format!(
            "the node found nothing for its platform in {image}, which the registry says runs there ({claims})"
        ),
        (Evidence::NoMatchForPlatform, Some(false)) => format!("{image} runs on {claims} only"),
        (Evidence::NoMatchForPlatform, None) => format!("{image} has nothing for its platform"),
        // The node does not pull an index without an entry for itself, so this image is a single manifest.
        (_, Some(false)) => format!(
            "{image} runs on {claims} only, and nodes pull an image of a single manifest whatever their architecture"
        ),
        _ => {
            format!(
                "{image} says that it runs there ({claims}), and has a program for another architecture"
            )
        }
    };
    let what = match failure.evidence {
        Evidence::NoMatchForPlatform => "cannot start",
        Evidence::ExecFormatError => "ended by an exec format error",
    };
    format!("container {container} {what} on the node {node}: {why}")
}

/// Returns the last part of a note: the consequence of a recorded failure.
pub(super) fn consequence(failed: &FailedImage) -> String {
    let FailedImage {
        architecture,
        nodes,
        ..
    } = failed;
    let others = if nodes.is_empty() {
        ""
    } else {
        ", nor any others once it fails so on a second node"
    };
    format!(
        "; for a day or longer no more Pods of this namespace with it get tolerations for {architecture}{others}"
    )
}

/// Returns the note on a program of the node that could not be run, with the end of the runtime's message.
pub(super) fn program_failed(node: &Node, message: &str) -> String {
    let node = node_name(node);
    let message = end(message, MESSAGE);
    format!(
        "the node {node} has a program for another architecture, which is not the container's: {message}; nothing is recorded of the image"
    )
}

fn node_name(node: &Node) -> String {
    match &*node.architecture {
        "" => name(node.name()),
        architecture => format!("{} ({})", name(node.name()), name(architecture)),
    }
}

/// Note of the event on an owner that deletes changed Pods.
pub(super) const RECREATES: &str = "its Pods were deleted and created again five times after tolerarch had changed them; for a day or longer they stay unchanged";

fn names<'p>(pools: impl IntoIterator<Item = &'p Pool>) -> String {
    let pools: Vec<&Pool> = pools.into_iter().collect();
    POOLS.write(&pools, |pool| pool.name.clone())
}

fn image(image: &str) -> String {
    end(image, IMAGE)
}

/// Returns the last characters of a text.
fn end(text: &str, max: usize) -> String {
    let end = sanitized(last_chars(text, max));
    if text.chars().count() > max {
        return format!("…{end}");
    }
    end
}

fn name(name: &str) -> String {
    let first: String = name.chars().take(NAME).collect();
    sanitized(&first)
}

#[cfg(test)]
mod tests {
    use tolerarch_text::escape::is_unsafe;

    use super::*;
    use crate::container_failure::Blame;
    use tolerarch_core::image::LookupError;
    use tolerarch_core::testing::platforms;
    use tolerarch_kubernetes::cluster::Metadata;

    #[test]
    fn note_on_a_closed_pool_names_the_images() {
        let pools = [Pool::default()];
        let lacks = Blocker {
            image: "acme/app:1",
            cause: Cause::Lacks(platforms(&["linux/arm64"])),
        };
        let unknown = Blocker {
            image: "redis:7",
            cause: Cause::Unknown(LookupError::NotFound),
        };
        assert_eq!(
            closed(&pools, &[lacks, unknown]),
            "multi-arch stays closed: acme/app:1 lacks linux/arm64; redis:7 is not known (not-found)"
        );
        let many = closed(&pools, &[lacks; 4000]);
        assert!(many.ends_with(" more images"), "{many}");
        assert!(too_late(&pools).starts_with("multi-arch cannot be opened to this Pod any more"));
        assert_eq!(
            opened(&pools),
            "opened multi-arch to this Pod after its creation"
        );
        let several = [&pools[0], &pools[0]];
        assert_eq!(
            opened(several),
            "opened multi-arch, multi-arch to this Pod after its creation"
        );
    }

    #[test]
    fn notes_with_hostile_names_are_short_and_harmless() {
        let pool = |name: String| Pool {
            name,
            ..Pool::default()
        };
        let pools: Vec<Pool> = (0..50)
            .map(|at| pool(format!("{at}{}", "p".repeat(60))))
            .collect();
        for evil in [
            "x".repeat(300_000),
            "é\u{1b}[2J\n\u{202e}漢".repeat(200),
            String::new(),
        ] {
            let mut notes = Vec::new();
            for cause in [
                Cause::Lacks(PlatformSet::ALL),
                Cause::Unknown(LookupError::NotAllowed),
            ] {
                notes.push(closed(
                    &pools,
                    &[Blocker {
                        image: &evil,
                        cause,
                    }; 70],
                ));
            }
            for (evidence, platforms) in [
                (Evidence::ExecFormatError, Some(PlatformSet::ALL)),
                (Evidence::ExecFormatError, Some(platforms(&["linux/amd64"]))),
                (Evidence::NoMatchForPlatform, None),
                (Evidence::NoMatchForPlatform, Some(PlatformSet::ALL)),
            ] {
                let [container, image, name] = [(); 3].map(|()| evil.clone());
                let failure = ContainerFailure {
                    container,
                    image,
                    evidence,
                    in_log: None,
                    digest: None,
                    blame: Blame::ImageOrPod,
                };
                let metadata = Metadata {
                    name,
                    ..Metadata::default()
                };
                for architecture in ["arm64", &*evil].map(str::to_owned) {
                    let node = Node {
                        metadata: metadata.clone(),
                        architecture,
                        ..Node::default()
                    };
                    notes.push(wrong_architecture(&failure, &node, platforms));
                    notes.push(program_failed(&node, &evil));
                }
            }
            for note in notes {
                // A longer note would lose its end.
                assert!(note.len() < 1600, "{} {note}", note.len());
                assert!(!note.chars().any(is_unsafe), "{note}");
            }
        }
    }

    #[test]
    fn claim_is_unknown_without_platforms_or_architecture() {
        let amd = Some(platforms(&["linux/amd64"]));
        assert_eq!(is_claimed(amd, "amd64"), Some(true));
        assert_eq!(is_claimed(amd, "arm64"), Some(false));
        assert_eq!(
            is_claimed(Some(platforms(&["linux/arm/v6"])), "arm"),
            Some(true)
        );
        for (architecture, platforms) in [("amd64", None), ("", amd), ("vax", amd)] {
            assert_eq!(is_claimed(platforms, architecture), None);
        }
    }
}
