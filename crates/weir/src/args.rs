//! The command line: every command and option, with its help.

mod advise;
mod endpoint;
mod trace;

use crate::output::Width;
use crate::pool_file;
use crate::sim::{Scale, scale};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};
use weir_serve::control::Hardening;
use weir_sim::cache::{self, AdmissionPolicy, BlockSize, EvictionPolicy};
use weir_trace::Format;

pub use advise::AdviseArgs;
pub use endpoint::{Endpoint, UnixSocket};
pub use trace::{
    AnalyzeArgs, AnalyzedArgs, ConvertArgs, GenerateArgs, Part, Picture, RecordArgs, SpanArgs, TraceCommand,
    TracePlotArgs,
};

/// Devices of different speed become one pool; its thin volumes are served over NBD.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Options of every command.
    #[command(flatten)]
    pub common: Common,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The pool file
    #[arg(long, global = true, env = "WEIR_POOL", default_value = "pool.toml", value_name = "FILE")]
    pub pool: PathBuf,
    /// Print one JSON document on standard output (docs/guide.md has the schema)
    #[arg(long, global = true)]
    pub json: bool,
    /// Print tables at full width, also on a narrow terminal
    #[arg(long, global = true)]
    pub wide: bool,
}

impl Common {
    /// How wide text on standard output may be.
    pub fn width(&self) -> Width {
        if self.wide { Width::UNLIMITED } else { Width::of_stdout() }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a pool of devices, or show one
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Make, list, change or remove thin volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Where a block of a volume is, since when and why, and what would make it move
    Explain {
        /// The volume's name
        #[arg(value_parser = name)]
        volume: String,
        /// A byte of the block, counted from the start of the volume, with its unit: 0, 64KiB, 1.5GiB, 12345B
        #[arg(value_parser = offset)]
        offset: Bytes,
    },
    /// Serve the pool's volumes until SIGTERM or SIGINT
    Serve(ServeArgs),
    /// A pool on this machine in a minute: three paced devices, a volume, a workload, a live picture
    Demo(DemoArgs),
    /// What would have been: experiments in virtual time
    #[command(subcommand)]
    Sim(SimCommand),
    /// Traces of what machines asked of their disks
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Which devices to buy for what a trace asks: the sets on the frontier of price, responses and flash life
    Advise(Box<AdviseArgs>),
    /// What the papers behind the policies measured, again in virtual time; without a name, which there are
    Repro(ReproArgs),
}

/// `weir sim ...`
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Replay a load over the pool's devices as modelled drives, under one policy or several
    Place(PlaceArgs),
    /// Play a trace to caches: which accesses hit, and what is written, by policy and size
    Cache(CacheArgs),
}

/// `weir sim place ...`
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// A trace's file, or words that make up a load: "zipf theta=1.1 reads=70% size=4KiB over=1GiB"
    #[arg(value_name = "TRACE")]
    pub load: String,
    /// The policies to compare, with commas between them [default: the pool file's]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<String>,
    /// Keep this many requests under way, whatever the load's own times
    #[arg(long, value_name = "N", conflicts_with = "open", value_parser = depth)]
    pub closed: Option<usize>,
    /// Make requests when the load says so (the default)
    #[arg(long)]
    pub open: bool,
    /// time=2 makes the load twice as slow; DEVICE=10% gives a device room for that share of the load's
    /// data instead of its size; may be repeated
    #[arg(long, value_name = "NAME=SCALE", value_parser = scale)]
    pub scale: Vec<Scale>,
    /// How long, in virtual time; the first third warms up
    /// [default: the whole load, at least 10min]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Stop after so many requests [default: 3000000 with --closed]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: Option<u64>,
    /// Leave everything at its first place, whatever the policies ask for
    #[arg(long)]
    pub no_moves: bool,
    /// Stretches of time told apart in --json and --plot
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub windows: u32,
    /// Decides whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The trace's format [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
    /// Draw what happened over time: an SVG picture, or a PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// `weir sim cache ...`
#[derive(Debug, Args)]
pub struct CacheArgs {
    /// The file of a trace, or of several
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,
    /// Which block leaves a full cache: policies to compare, with commas between them
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "lru", value_parser = evictions())]
    pub policy: Vec<String>,
    /// How large the caches are: 10% of the blocks the trace touches, 1GiB, 26921blk; several with commas
    /// between them
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "10%", value_parser = cache::size)]
    pub size: Vec<cache::Size>,
    /// How large a block is: a power of two
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = cache::block_size)]
    pub block_size: BlockSize,
    /// Which missed blocks come in: policies to compare, with commas between them
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "all", value_parser = admissions())]
    pub admission: Vec<String>,
    /// Where writes go: through the cache to the disk, around the cache, or to the cache and back to the disk later
    #[arg(long, value_name = "MODE", default_value = "through",
          value_parser = PossibleValuesParser::new(["through", "around", "back"]))]
    pub write_mode: String,
    /// With --write-mode back: how much of the cache may be dirty
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = cache::share)]
    pub dirty: f64,
    /// Keep each result in this file as soon as it is there; what is in it already is not simulated again
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Caches simulated at the same time [default: one a core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<usize>,
    /// The trace's format [default: found out]
    #[arg(long, value_name = "FORMAT", value_parser = Format::named)]
    pub format: Option<Format>,
    /// Refuse a trace with a line that cannot be read, or that breaks off
    #[arg(long)]
    pub strict: bool,
}

/// `weir repro ...`
#[derive(Debug, Default, Args)]
pub struct ReproArgs {
    /// Which
    #[arg(value_parser = PossibleValuesParser::new(crate::repro::names()))]
    pub name: Option<String>,
    /// dbench's load file, client.txt of its version 4 (in Debian's package dbench)
    #[arg(long, value_name = "FILE")]
    pub dbench: Option<PathBuf>,
    /// Only the experiments whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// How long each experiment goes on, in virtual time, its warm-up included
    /// [default: as the load needs, 20 s to 3 hours]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Decides whatever is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Draw the ratios, published and here: an SVG picture, or a PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// `weir pool ...`
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Make the pool that a pool file describes, of blank devices
    Create {
        /// The pool file (instead of --pool)
        file: Option<PathBuf>,
        /// Take devices that hold data, too; it is lost
        #[arg(long)]
        force: bool,
    },
    /// Show the pool, its devices and their load
    Status {
        /// For a pool that is not all there.
        #[command(flatten)]
        accept: Accept,
        /// Print metrics in the OpenMetrics text format, for a monitor
        #[arg(long, conflicts_with = "json")]
        metrics: bool,
    },
    /// Change how a served pool is run, until its server ends; the pool file decides for the next one
    Set {
        /// The placement policy, as tuned in the pool file; nothing is moved by that
        #[arg(long, value_parser = PossibleValuesParser::new(policies()))]
        policy: String,
    },
    /// Verify everything the pool stores about itself; the pool must not be served
    ///
    /// Exit codes as fsck's: 0 clean, 1 repaired, 4 something is wrong, 8 it could not be checked,
    /// 16 the command line or the pool file is wrong, 32 a signal ended it.
    Check {
        /// Repair what can be repaired without guessing
        #[arg(long)]
        repair: bool,
    },
    /// Save all metadata of the pool to a file; the pool must not be served
    Dump {
        /// The file; it must not exist
        file: PathBuf,
    },
    /// Put metadata saved by dump back; the pool must not be served
    Restore {
        /// The file
        file: PathBuf,
        /// Even if the pool may have changed since: what was written since may be lost, or mixed up
        /// with other volumes' data
        #[arg(long)]
        accept_rollback: bool,
    },
}

/// `weir volume ...`
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a thin volume; it takes space as it is written
    Create {
        /// The volume's name; NBD clients ask for it as the export name
        #[arg(value_parser = name)]
        name: String,
        /// The size clients see, with its unit: 100GiB or 100G, or decimal, 2TB; may exceed the devices
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: Bytes,
        /// When the map's part of a write is durable: with the next flush, as on a disk with a
        /// cache, or when the write is acknowledged
        #[arg(long, value_parser = hardening(), default_value = "flush")]
        hardening: Hardening,
        /// Copies kept of every block, each on another device: 2 survive the loss of either
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=2), default_value = "1")]
        copies: u8,
    },
    /// Change a volume: its hardening for good, its policy until the server ends; at least one of them
    #[command(override_usage = "weir volume set [OPTIONS] <NAME> <--hardening <HARDENING>|--policy <NAME>>")]
    Set {
        /// The volume's name
        #[arg(value_parser = name)]
        name: String,
        /// When the map's part of a write is durable, from now on: flush or write, as for create
        #[arg(long, value_parser = hardening(), required_unless_present = "policy")]
        hardening: Option<Hardening>,
        /// The placement policy that the running server is to use for this volume until it ends; `pool` for
        /// the pool's
        #[arg(long, value_name = "NAME")]
        policy: Option<String>,
    },
    /// List the volumes
    List,
    /// Remove a volume and give its space back
    Remove {
        /// The volume's name
        #[arg(value_parser = name)]
        name: String,
    },
}

/// What the user accepts for a pool that is not all there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Accept {
    /// Open the pool though the device with the other copy of its metadata is absent and may know of
    /// newer changes; what only that one knows is then lost for good
    #[arg(long)]
    pub accept_rollback: bool,
    /// Open the pool without this device: what is on it gives I/O errors; may be repeated
    #[arg(long, value_name = "DEVICE", value_parser = name)]
    pub without: Vec<String>,
}

/// What `weir serve --help` says of limits.
const SERVE_LIMITS: &str = "Limits, set under [serve] in the pool file:
  clients              connected clients [default: 1024]
  clients_per_address  of these, from one IP address [default: 256]
  handshake_timeout    time to choose a volume [default: 30s]
  control_timeout      silence of a control session [default: 60s]";

/// `weir serve ...`
#[derive(Debug, Args)]
#[command(after_help = SERVE_LIMITS)]
pub struct ServeArgs {
    /// For a pool that is not all there.
    #[command(flatten)]
    pub accept: Accept,
    /// Address to serve NBD at: unix:PATH or HOST:PORT; may be repeated. Only this user may connect to a unix
    /// socket unless its mode, group or owner is set: unix:PATH,mode=0660,group=libvirt,owner=NAME. TCP has no
    /// authentication [default: unix:NAME.sock beside the pool file NAME.toml]
    #[arg(long, value_name = "unix:PATH|HOST:PORT", value_parser = endpoint::parse)]
    pub nbd: Vec<Endpoint>,
}

/// `weir demo ...`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Seconds of workload on the pool
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Where to put the demo's files [default: a memory-backed folder with room]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

fn depth(text: &str) -> Result<usize, String> {
    let depth = text.parse().ok().filter(|depth| (1..=4096).contains(depth));
    depth.ok_or_else(|| "a number of requests from 1 to 4096".into())
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads.ok_or_else(|| "a number of threads from 1 to 1024".into())
}

fn evictions() -> PossibleValuesParser {
    PossibleValuesParser::new(EvictionPolicy::ALL.iter().map(|policy| policy.name))
}

fn admissions() -> PossibleValuesParser {
    PossibleValuesParser::new(AdmissionPolicy::ALL.iter().map(|policy| policy.name))
}

fn duration(text: &str) -> Result<Nanos, String> {
    pool_file::duration(text).map_err(|allowed| format!("write {allowed}"))
}

fn name(text: &str) -> Result<String, String> {
    pool_file::name(text).map_err(|allowed| format!("a name is {allowed}"))
}

fn policies() -> Vec<&'static str> {
    weir_policy::placement::ALL.iter().map(|known| known.name).collect()
}

fn hardening() -> impl TypedValueParser<Value = Hardening> {
    PossibleValuesParser::new(["flush", "write"])
        .map(|text| if text == "write" { Hardening::Write } else { Hardening::Flush })
}

fn offset(text: &str) -> Result<Bytes, String> {
    let zero = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0";
    let bytes = if zero { Ok(Bytes(0)) } else { pool_file::size(text) };
    bytes.map_err(|_| "write 0, or an offset with its unit, such as 64KiB, 1.5GiB or 12345B".into())
}

fn size(text: &str) -> Result<Bytes, String> {
    match pool_file::size(text) {
        Ok(size) if size.get().is_multiple_of(weir_model::SECTOR) && size.get() >= weir_model::BLOCK => {
            Ok(size)
        }
        Ok(size) => Err(format!(
            "{} bytes is not a multiple of 512 from 4096 up; use a unit such as MiB or GiB",
            size.get()
        )),
        Err(allowed) => Err(format!("write {allowed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Help stands on its own: none goes on from the line above it.
    #[test]
    fn no_help_begins_with_an_ellipsis() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    !help.starts_with(['…', '.']),
                    "{} {}: {help}",
                    command.get_name(),
                    argument.get_id()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn a_negative_size_is_told_to_be_no_size() {
        let arguments = ["weir", "volume", "create", "x", "--size", "-1G"];
        let error = Cli::try_parse_from(arguments).expect_err("no size").to_string();
        assert!(error.contains("write a size with its unit"), "{error}");
    }

    #[test]
    fn offsets_have_units_but_for_zero() {
        assert_eq!((offset("0"), offset("0B")), (Ok(Bytes(0)), Ok(Bytes(0))));
        assert_eq!((offset("12345B"), offset("1.5KiB")), (Ok(Bytes(12345)), Ok(Bytes(1536))));
        for bad in ["", "4096", "KiB", "-4KiB", "4XB"] {
            assert!(offset(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn volume_sizes_are_whole_sectors() {
        assert_eq!(size("4GiB"), Ok(Bytes::gib(4)));
        assert_eq!((size("1GB"), size("1G")), (Ok(Bytes(1_000_000_000)), Ok(Bytes::gib(1))));
        assert_eq!(size("500GB"), Ok(Bytes(500_000_000_000)));
        for bad in ["5KB", "512B", "1.3KiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    /// Whatever help, a refusal or a message suggests as a size can be had.
    #[test]
    fn every_size_in_the_help_is_taken() {
        let mut command = Cli::command();
        let volume = command.find_subcommand_mut("volume").and_then(|it| it.find_subcommand_mut("create"));
        let help = volume.map(|it| it.render_long_help().to_string()).unwrap_or_default();
        let refusal = size("4XB").unwrap_err();
        let is_size = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('B');
        let text = format!("{help} {refusal}");
        let sizes: Vec<_> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_size).collect();
        assert_eq!(sizes, ["100GiB", "2TB", "4GiB", "500GB", "64KiB"]);
        for text in sizes {
            assert!(size(text).is_ok(), "{text}");
        }
    }
}
