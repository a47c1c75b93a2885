//! Decisions on Pods, with the lookups that they need.
//!
//! [`decide`] decides on a Pod by one snapshot of all settings: within the Pod's time budget it looks up the images,
//! with the credentials that the Pod may use, and then applies the rules of the core. [`census`] adds up decisions on
//! all Pods of a cluster; [`failed_images`] records images that fail where their manifests say that they run;
//! [`warm_start`] looks up the images of running Pods before the first review.

pub mod census;
pub mod decide;
pub mod failed_images;
pub mod warm_start;
