//! Defines the arguments of `weir sim fs`.

use crate::args::{duration, omega, size};
use crate::pool_file;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser as _};
use weir_model::{BLOCK, Bytes, Nanos, SECTOR};
use weir_policy::distribution::DISTRIBUTION;
use weir_policy::eviction::{ITEM_EVICTION, OMEGA};
use weir_policy::promotion::PROMOTION;
use weir_sim::cache::share;
use weir_sim::fs::BottomFs;

/// Heading of the options about the machine in help.
const MACHINE: &str = "Machine options";
/// Heading of the options about policies in help.
const POLICIES: &str = "Policy options";

const EXAMPLES: &str = "Examples:
  weir sim fs postmark --nvm 128MiB --eviction trident,lru,fifo
  weir sim fs \"fileserver scale=1/8\" --nvm 48MiB --memory 208MiB
  weir sim fs untar --nvm none --tier hdd-7200=1TB";

/// `weir sim fs ...`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FsArgs {
    /// Words of the load: postmark, create-files, fileserver, webproxy, untar or kernel-compile, and settings
    #[arg(value_name = "LOAD")]
    pub load: String,
    /// Compare these sizes of NVM, separated by commas; none for changes in memory, written back by age
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "384MiB", help_heading = MACHINE)]
    #[arg(value_parser = nvm)]
    pub nvm: Vec<NvmSize>,
    /// Put a tier on this modelled drive below (repeatable)
    /// [default: intel-x25-m-g2=80GB and st3750528as=750GB]
    #[arg(long, value_name = "DRIVE=SIZE", value_parser = tier, help_heading = MACHINE)]
    pub tier: Vec<TierDrive>,
    /// Put these file systems on the tiers, in their order, separated by commas; the last one on the rest
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "ext4", help_heading = MACHINE)]
    #[arg(value_parser = PossibleValuesParser::new(BottomFs::ALL.map(|(name, _)| name)))]
    pub bottom: Vec<String>,
    /// Set the size of the page cache
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "1664MiB", help_heading = MACHINE)]
    pub memory: Bytes,
    /// Set the amount of changes in memory from which on they are written back (with --nvm none)
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "200MiB", help_heading = MACHINE)]
    pub dirty: Bytes,
    /// Compare these eviction policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "trident")]
    #[arg(help_heading = POLICIES)]
    #[arg(value_parser = PossibleValuesParser::new(ITEM_EVICTION.iter().map(|policy| policy.name)))]
    pub eviction: Vec<String>,
    /// Weigh accesses per byte by N beside recency; several, separated by commas (trident)
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [OMEGA], help_heading = POLICIES)]
    #[arg(value_parser = omega, allow_negative_numbers = true)]
    pub omega: Vec<f64>,
    /// Compare these distribution policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "trident")]
    #[arg(help_heading = POLICIES)]
    #[arg(value_parser = PossibleValuesParser::new(DISTRIBUTION.iter().map(|policy| policy.name)))]
    pub distribution: Vec<String>,
    /// Distribute items of SIZE or more to tiers that seek (by_size)
    #[arg(long, value_name = "SIZE", default_value = "1MiB", help_heading = POLICIES)]
    #[arg(value_parser = any_size)]
    pub size_threshold: Bytes,
    /// Distribute by these bytes per second of each tier, separated by commas [default: measured]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = any_size, help_heading = POLICIES)]
    pub rates: Vec<Bytes>,
    /// Compare these promotion policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "hot", help_heading = POLICIES)]
    #[arg(value_parser = PossibleValuesParser::new(PROMOTION.iter().map(|policy| policy.name)))]
    pub promotion: Vec<String>,
    /// Evict when this share of NVM is in use
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "90%", help_heading = POLICIES)]
    pub high: f64,
    /// Stop to evict when no more than this share of NVM is in use
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "85%", help_heading = POLICIES)]
    pub low: f64,
    /// Measure TIME of virtual time at most [default: until the load ends]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Nanos>,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl FsArgs {
    /// Returns what a command line with this load and no options says.
    pub(super) fn without_options(load: &str) -> Self {
        #[derive(clap::Parser)]
        struct CommandLine {
            #[command(flatten)]
            args: FsArgs,
        }
        CommandLine::parse_from(["fs", "--", load]).args
    }
}

/// The size of NVM; `None` without NVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmSize(pub Option<Bytes>);

fn nvm(text: &str) -> Result<NvmSize, String> {
    if text == "none" {
        return Ok(NvmSize(None));
    }
    size(text).map(|size| NvmSize(Some(size))).map_err(|allowed| format!("{allowed}, or none"))
}

/// A modelled drive and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierDrive {
    /// Name of the model.
    pub drive: String,
    /// Size of the drive.
    pub size: Bytes,
}

fn tier(text: &str) -> Result<TierDrive, String> {
    let (drive, of) = text.split_once('=').ok_or("write a drive and its size, such as ssd-sata=500GB")?;
    if weir_timing::drives::drive(drive).is_none() {
        let known: Vec<_> = weir_timing::drives::all().map(|(name, _)| name).collect();
        return Err(format!("there is no model of {drive:?}; there are {}", known.join(", ")));
    }
    let given = any_size(of)?;
    // Drives have whole sectors; sizes of the market, such as 1.3GB, need not.
    let size = Bytes(given.0 - given.0 % SECTOR);
    if size < Bytes(BLOCK) {
        return Err(format!("{given} is too small: write {} or more", Bytes(BLOCK)));
    }
    Ok(TierDrive { drive: drive.to_owned(), size })
}

/// Parses a size that need not be whole sectors.
fn any_size(text: &str) -> Result<Bytes, String> {
    pool_file::size(text).map_err(|allowed| format!("write {allowed}"))
}
