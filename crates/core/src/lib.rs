//! Values and rules, pure: from a Pod and what is known of its images to what is changed of it.

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
