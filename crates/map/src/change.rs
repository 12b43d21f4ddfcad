//! How the map changes: places, copies, what is withdrawn, what a commit says. Plain writes, clearing,
//! placing and giving back are in [`crate::Map`] itself.

pub mod commit;
pub(crate) mod narrow;
pub(crate) mod places;
pub(crate) mod usage;
pub(crate) mod withdraw;
