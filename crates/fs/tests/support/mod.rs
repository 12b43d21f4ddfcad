//! Random operations on a file system and on a model of it.

// Each test uses a part of this.
#![allow(dead_code, missing_docs, unreachable_pub)]

pub mod damage;
pub mod model;
pub mod operation;
pub mod pair;
pub mod snapshot;
pub mod tiers;
