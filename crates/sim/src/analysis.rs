//! Characteristics of a trace: the amounts, times and places of its reads and writes, and the miss ratios of
//! caches.
//!
//! [`Analyzer`] takes one request after the other, in memory that grows with the accessed blocks up to a
//! limit, and produces an [`Analysis`]. A request is one access to each 4 KiB block it touches, as in
//! [`cache`](crate::cache), for reads and writes alike.
//!
//! | file | figures |
//! |---|---|
//! | `analyzer` | reads, writes, sizes, and all that follows |
//! | `blocks` | footprint, critical cache sizes, times between accesses to a block; for a bounded number of blocks |
//! | `addresses` | where requests begin, by direction and sequentiality |
//! | `arrivals` | gaps between requests, burstiness |
//! | `runs` | sequential runs |
//! | `places`, `popularity` | footprint over time, heat map, skew of accesses over blocks |
//! | `distances` | reuse distances |
//! | `read` | the whole analysis of a trace's reader |
//! | `sample`, `curve` | miss-ratio curves: LRU exactly if possible, any policy from a sample, with its error |

mod addresses;
mod analyzer;
mod arrivals;
mod blocks;
mod curve;
mod distances;
mod distribution;
mod popularity;
mod runs;
mod sample;
#[cfg(test)]
mod tests;
mod timeline;
mod trace_analysis;

pub use addresses::Addresses;
pub use analyzer::{Analysis, Analyzer, Counted, Critical, Settings, SizesApart};
pub use arrivals::{Arrivals, Burstiness};
pub use blocks::{LookedAt, ReuseTimes};
pub use curve::{Curve, Point, sizes};
pub use distances::Distances;
pub use distribution::{Bucket, Spread};
pub use popularity::{Popularity, REGION_BLOCKS, REGIONS_COUNTED_MAX, Region, Share};
pub use runs::Sequentiality;
pub use sample::{Sample, Sampler, Sampling};
pub use timeline::{REGIONS, Stretch, Timeline, WINDOWS};
pub use trace_analysis::{AnalyzeError, TraceAnalysis};
