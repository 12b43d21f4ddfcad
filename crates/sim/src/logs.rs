//! Logs on logs: what a log writes if the addresses below it are those of another log.
//!
//! A log-structured file system or database on flash is one log on another: its cleaner copies pages, and
//! the device's cleaner copies them again. [`simulate`] stacks layers of logs in virtual time. The load's
//! pages go to the first layer. What a log programs is written to the layer below, at the address of the page
//! where it was programmed; the last layer is flash.
//!
//! - A layer has one log or several. Each has a range of the addresses above it, its own segments, reserve
//!   and victim policy, and one append point.
//! - If a segment is erased, its addresses are trimmed below, or stay valid there until they are written
//!   again ([`LayerPlan::trim`]).
//! - Logs write metadata: pages in each segment, pages of a journal, and checkpoints of all logs of a layer,
//!   which make metadata grow with the number of logs ([`LogMetadata`]).
//! - When the load is idle, the virtual-log defragger may write segments of the first layer again, at their
//!   own addresses, so that they are contiguous below ([`Defragger`]).
//!
//! The logs are empty at first, filled or aged ([`StackPrecondition`]). Requests take no time; their arrival
//! times only tell when the load is idle.
//!
//! # Measures
//!
//! *FSWA* is the pages that the first layer writes, its cleaner, its metadata and the defragger included, for
//! each page of the user; *FLWA* the pages programmed by the last layer for each page written to it; *TCWA*
//! the pages programmed by the last layer for each page of the user. With two layers, TCWA is FSWA times
//! FLWA.
//!
//! Source: Yang, "Improving Performance for Flash-Based Storage Systems", chapter 4.

mod defrag;
mod layer;
mod outcome;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use layer::StackError;
pub use outcome::{DefragFigures, LayerFigures, LogFigures, StackOutcome, StackWindow};
pub use plan::{DefragTime, Defragger, LayerPlan, LogMetadata, Repetition, StackPlan, StackPrecondition};
pub use run::{data_size, simulate};
