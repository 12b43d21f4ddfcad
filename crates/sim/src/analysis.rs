//! What a trace is like: how much is read and written, when and where, and what a cache would make of it.
//!
//! [`Analyzer`] takes one request after the other, in memory that grows with the blocks that are accessed, up to a limit, and gives an
//! [`Analysis`]. A request is one access to each 4 KiB block it touches, as in [`cache`](crate::cache), reads and writes alike.
//!
//! | file | figures |
//! |---|---|
//! | `analyzer` | reads, writes, sizes, and all that follows |
//! | `blocks` | footprint, critical cache sizes, times between accesses to a block; of how many blocks |
//! | `arrivals` | gaps between requests, bursts |
//! | `runs` | sequential runs |
//! | `places`, `spots` | footprint over time, the hot-spot map, how uneven blocks are asked for |
//! | `distances` | reuse distances |
//! | `read` | all of it, from a trace's reader |
//! | `sample`, `curve` | miss-ratio curves: LRU's exactly if it can be, any policy's from a sample, with its error |

mod analyzer;
mod arrivals;
mod blocks;
mod curve;
mod distances;
mod places;
mod read;
mod runs;
mod sample;
mod spots;
mod spread;
#[cfg(test)]
mod tests;

pub use analyzer::{Analysis, Analyzer, Counted, Critical, Settings};
pub use arrivals::{Arrivals, Burstiness};
pub use blocks::{LookedAt, ReuseTimes};
pub use curve::{Curve, Point, sizes};
pub use distances::Distances;
pub use places::{REGIONS, Stretch, Timeline, WINDOWS};
pub use read::{AnalyzeError, TraceAnalysis};
pub use runs::Sequentiality;
pub use sample::{Sample, Sampler, Sampling};
pub use spots::{COUNTED, Popularity, REGION_BLOCKS, Region, Share};
pub use spread::{Bucket, Spread};
