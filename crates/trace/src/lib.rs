//! Readers of I/O traces: what some machine once asked of its disks, line by line.
//!
//! [`Reader`] takes any bytes ([`BufRead`](std::io::BufRead)), unpacks gzip, finds out the
//! [`Format`] by looking at the first lines, and gives one [`Record`] after another in constant memory.
//! [`Trace::load`] collects them for whoever needs them all, in order of time.
//!
//! | format | what it is |
//! |---|---|
//! | `msr` | MSR Cambridge, CSV: Windows file time, host, disk, `Read`/`Write`, bytes |
//! | `vscsi` | CloudPhysics, CSV with a heading: microseconds, SCSI operation, sectors |
//! | `systor` | SYSTOR '17, CSV with a heading: seconds, `R`/`W`, LUN, bytes |
//! | `hpl` | HP Labs, CSV with a heading: microseconds, units of 256 bytes |
//! | `tencent` | Tencent block storage, CSV: seconds, sectors, volume |
//! | `replayed` | a trace replayed on a drive, CSV: milliseconds, bytes |
//! | `mqsim` | MQSim and SSDsim: nanoseconds, sectors, 1 for a read |
//! | `ms-bytes` | as `mqsim`, in milliseconds with a fraction and bytes |
//! | `blkev` | events of blktrace: seconds, `D` and `C`, bytes |
//! | `arc-pages`, `arc` | the ARC paper's: pages or runs of sectors, without times |
//!
//! Pure: opens no file.
#![forbid(unsafe_code)]

mod error;
mod fields;
mod formats;
mod lines;
mod reader;
mod record;
mod trace;

pub use error::{Found, TraceError};
pub use formats::{FORMATS, Format, format};
pub use reader::Reader;
pub use record::{Disk, Record};
pub use trace::{Tally, Trace};
