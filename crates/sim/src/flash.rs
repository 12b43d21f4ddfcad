//! Flash simulation: what a NAND device writes, how it wears and how fast it responds under a load.
//!
//! The device is a log of [`weir_flash`] over [`Nand`] geometry. A simulation has four parts:
//!
//! 1. **Preconditioning** ([`Precondition`]) makes all pages valid, by writing them or by the closed form.
//! 2. **Warm-up**: the load's requests change the log, in no time, until write amplification is
//!    [steady](steady).
//! 3. **Measurement**: the load's requests go to the model of an SSD ([`weir_timing::Ssd`]), whose dies do
//!    what the log commands.
//! 4. **Lifetime**: how long cells of a rating last at the measured amplification.
//!
//! Data of the load is packed: the device holds the 64 KiB extents that the load touches, one after another.

mod device;
mod lifetime;
mod nand;
mod outcome;
mod pages;
mod run;
pub mod steady;
#[cfg(test)]
mod tests;

pub(crate) use lifetime::Endurance;
pub use lifetime::{Cell, DAYS_PER_YEAR, Lifetime};
pub use nand::{EraseUnit, Nand, OverProvisioning};
pub use outcome::{Arrangement, FlashOutcome, FlashWindow, PageCounts, SpareSpace, WearFigures};
pub(crate) use pages::PackedData;
pub use run::{FlashMode, FlashPlan, Precondition, Separation, simulate};
pub use weir_flash::{Thresholds, WearLevelling};
