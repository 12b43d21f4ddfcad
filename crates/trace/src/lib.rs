//! Readers of I/O traces: what some machine once asked of its disks, request by request.
//!
//! [`Reader`] takes any bytes ([`BufRead`](std::io::BufRead)), unpacks gzip, zstd, xz and bzip2, finds out the
//! [`Format`] by how plausible is what each would make of the first lines or records, and gives one [`Record`] after another in constant memory.
//! [`Trace::load`] collects them for whoever needs them all, in order of time.
//!
//! | format | what it is |
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
//! | `blkparse`, `blkparse-issued` | blkparse's text: what was asked for, what the disk got |
//! | `blktrace` | blktrace's own records |
//! | `fio-2`, `fio-3`, `fio-latency` | fio's iologs of versions 2 and 3, and its log of latencies with offsets |
//! | `vscsi-1`, `vscsi-2` | CloudPhysics, binary |
//! | `oracle` | libCacheSim's oracleGeneral |
//! | `u32-pages` | numbers of pages, 4 bytes each, without times |
//! | `csv:...`, `blanks:...` | lines whose columns are named: [`Format::named`] |
//!
//! [`Writer`] writes what is read in another format.
//!
//! [`Reader::within`] reads a span of time alone and [`Reader::numbered`] records by number; [`seek`] and [`seek_number`] find them
//! in a trace of weir's own format without reading the rest.
//!
//! Pure: opens no file.
#![forbid(unsafe_code)]

mod chunk;
mod error;
mod fields;
mod formats;
mod input;
mod pack;
mod reader;
mod record;
mod seek;
mod trace;
mod unpack;
mod writer;

pub use error::{Found, TraceError};
pub use formats::{DescriptionError, FORMATS, Format, format};
pub use pack::Packing;
pub use reader::Reader;
pub use record::{Disk, Record, Span};
pub use seek::{Part, Rest, seek, seek_number};
pub use trace::{OddSizes, Tally, Trace};
pub use writer::{WriteError, Writer, tells_disks, writable};
