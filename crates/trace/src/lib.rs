//! Readers and writers of I/O traces: recordings of a machine's disk requests.
//!
//! [`Reader`] takes any bytes ([`BufRead`](std::io::BufRead)), decompresses gzip, zstd, xz and bzip2, detects
//! the [`Format`] by the plausibility of the requests that each format would yield, and returns one
//! [`Record`] after another in constant memory. [`Trace::load`] collects all of them, in time order.
//!
//! | format | description |
//! |---|---|
//! | `weir` | weir's own, compact |
//! | `msr` | MSR Cambridge, CSV: Windows file time, host, disk, `Read`/`Write`, bytes |
//! | `vscsi` | CloudPhysics, CSV with a heading: microseconds, SCSI operation, sectors |
//! | `systor` | SYSTOR '17, CSV with a heading: seconds, `R`/`W`, LUN, bytes |
//! | `hpl` | HP Labs, CSV with a heading: microseconds, units of 256 bytes |
//! | `tencent` | Tencent block storage, CSV: seconds, sectors, volume |
//! | `replayed` | a trace replayed on a drive, CSV: milliseconds, bytes |
//! | `mqsim` | MQSim and SSDsim: nanoseconds, sectors, 1 for a read |
//! | `ms-bytes` | as `mqsim`, in milliseconds with a fraction and bytes |
//! | `disksim`, `disksim-validate` | DiskSim's ASCII: milliseconds, sectors, flags; and its traces of measured drives |
//! | `blkev` | events of blktrace: seconds, `D` and `C`, bytes |
//! | `arc-pages`, `arc` | the ARC paper's: pages or runs of sectors, without times |
//! | `spc` | UMass and SPC, CSV: storage unit, sectors, bytes, seconds |
//! | `alibaba` | Alibaba block storage, CSV: device, bytes, microseconds |
//! | `blkparse`, `blkparse-issued` | blkparse's text: queued requests, commands issued to the disk |
//! | `blktrace` | blktrace's own records |
//! | `fio-2`, `fio-3`, `fio-latency` | fio's iologs of versions 2 and 3, and its log of latencies with offsets |
//! | `vscsi-1`, `vscsi-2` | CloudPhysics, binary |
//! | `oracle` | libCacheSim's oracleGeneral |
//! | `u32-pages` | page numbers, 4 bytes each, without times |
//! | `csv:...`, `blanks:...` | lines with named columns: [`Format::named`] |
//!
//! [`Writer`] writes records in another format.
//!
//! [`Reader::select_span`] selects a time span and [`Reader::select_numbers`] records by number; [`seek()`]
//! and [`seek_number`] find them in a trace in weir's own format without reading the rest.
//!
//! The crate is pure: it opens no file.
#![forbid(unsafe_code)]

mod chunk;
mod compress;
mod decompress;
mod error;
mod fields;
mod formats;
mod input;
mod reader;
mod record;
mod seek;
mod trace;
mod writer;

pub use compress::MaybeGzip;
pub use error::{Excerpt, TraceError};
pub use formats::{DescriptionError, FORMATS, Format, format};
pub use reader::Reader;
pub use record::{Disk, Record, Span};
pub use seek::{SpanInput, SuffixInput, seek, seek_number};
pub use trace::{OddSizes, Tally, Trace};
pub use writer::{WriteError, Writer, represents_disks, writable};
