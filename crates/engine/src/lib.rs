//! From a Pod to a decision: which images, with which credentials, until when.

pub mod census;
pub mod decide;
pub mod warm_start;
