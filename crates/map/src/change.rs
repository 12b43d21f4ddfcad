//! Changes of the map: places, copies, withdrawal, commits. Plain writes, clearing, placing and releasing are
//! in [`crate::Map`] itself.

pub mod commit;
pub(crate) mod narrow;
pub(crate) mod places;
pub(crate) mod usage;
pub(crate) mod withdraw;
