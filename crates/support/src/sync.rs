//! A mutex that a panic does not poison. Guarded values are valid after every statement, so a panic of one caller need not
//! make later callers panic.

pub use parking_lot::Mutex;
