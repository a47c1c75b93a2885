//! Rules that turn a Pod and its images' platforms into edits of the Pod. No clock, network, Kubernetes or C.
//!
//! [`review`] reads an AdmissionReview and [`pod`] the facts of its Pod, among them the [`image`]s that the Pod names.
//! [`policy`] turns the platforms of the images into a verdict for each pool, and [`placement`] turns the verdicts into
//! edits of the Pod. [`decision`] joins verdicts and edits with the [`reason`], and [`patch`] renders the edits as a JSON
//! patch that applies by construction.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod decision;
pub mod image;
pub mod patch;
pub mod placement;
pub mod pod;
pub mod policy;
pub mod reason;
pub mod review;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
