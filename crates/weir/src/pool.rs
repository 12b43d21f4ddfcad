//! What commands do with a pool, idle or served.

pub mod devices;
pub mod metadata;
