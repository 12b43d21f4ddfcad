//! The host of the placement policies: what they are shown, asked and told, and the guard that stops harmful
//! moves.

pub(crate) mod advice;
pub(crate) mod harm;
pub(crate) mod registry;
pub(crate) mod rounds;
pub(crate) mod runs;
pub(crate) mod which;
