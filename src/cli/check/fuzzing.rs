//! What must hold for every file that `check` is given.

use super::documents::{self, Document};
use super::workload::{self, Content, Given};
use tolerarch_core::decision::testing as patches;

/// Every fault is on a line of the file, and the patch of every Pod in it is one that the API server applies.
pub fn check(data: &[u8]) -> bool {
    // A carriage return alone ends a line, too; what is missing at the end is missing on the line after it.
    let lines = data.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 2;
    let policy = patches::policy();
    let mut objects = 0;
    for (place, Document { number, line, content }) in documents::read(data).into_iter().enumerate() {
        assert_eq!(number, place + 1);
        assert!((1..=lines).contains(&line), "line {line} of {lines}");
        let Ok(node) = content else { continue };
        for content in workload::contents(&node, &[]) {
            match content {
                Content::Invalid { line, message } => {
                    assert!((1..=lines).contains(&line), "line {line} of {lines}: {message}");
                }
                Content::Object(object) => {
                    objects += 1;
                    assert!((1..=lines).contains(&object.line), "line {} of {lines}", object.line);
                    let (Given::Pod(pod) | Given::Template { value: pod, .. }) = &object.given else {
                        continue;
                    };
                    patches::holds(&policy, pod);
                }
                Content::Skipped(_) | Content::Foreign(_) | Content::Templateless(_) => {}
            }
        }
    }
    objects > 0
}
