//! A mutex that a panic does not poison. The guarded value is valid after every statement, so a caller that panics must
//! not make later callers panic too.

pub use parking_lot::Mutex;
