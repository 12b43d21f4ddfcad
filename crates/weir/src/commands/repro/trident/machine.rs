//! The machine of an experiment, and its load.

use super::super::parameters::{Parameters, unusable};
use super::experiment::{Devices, Setup, Ssd, Variant};
use crate::failure::Failure;
use weir_model::{Bytes, Nanos};
use weir_policy::Watermarks;
use weir_policy::distribution::{DistributionPolicy, DistributionSettings};
use weir_policy::eviction::items::{ItemEvictionPolicy, ItemSettings};
use weir_policy::promotion::PromotionPolicy;
use weir_sim::fs::{BottomFs, FastTier, FsPlan, Machine, RateSource, TierPlan};

/// What an experiment runs.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) setup: Setup,
    pub(super) seed: u64,
    pub(super) words: String,
    pub(super) plan: FsPlan,
    /// By what the publication's numbers of files and sizes of memory are multiplied.
    pub(super) scale: f64,
}

/// Returns the machine and the load. Everything but the drives is multiplied by `scale`; a run takes `limit`
/// at most, and a load without an end the published time.
///
/// # Errors
/// Fails if a parameter is unusable.
pub(super) fn prepare(
    p: &Parameters,
    setup: Setup,
    seed: u64,
    scale: f64,
    limit: Nanos,
) -> Result<Prepared, Failure> {
    let scaled = |size: Bytes| Bytes((size.0 as f64 * scale).round() as u64);
    let total = p.size("memory")?;
    let nvm = match setup.variant {
        Variant::Plain(_) => Bytes(0),
        Variant::Nvm(size) => Bytes::mib(size),
        _ => p.size("nvm")?,
    };
    let dirty: [f64; 2] = p.shares("dirty")?;
    let fast = match setup.variant {
        Variant::Plain(_) => FastTier::Memory(scaled(Bytes((total.0 as f64 * dirty[0]) as u64))),
        _ => FastTier::Nvm(scaled(nvm)),
    };
    let duration = match setup.load {
        "create-files" | "fileserver" | "webproxy" => {
            limit.min(Nanos::from_secs_f64(p.time("run_time")?.as_secs_f64() * scale))
        }
        _ => limit,
    };
    let plan = FsPlan {
        machine: Machine {
            processors: p.count("processors")? as usize,
            operation: p.time("operation")?,
            copy_rate: p.size("copied_per_second")?,
            memory: scaled(total - nvm),
            metadata: p.size("inode")?,
            directories: p.count("directories")?,
            unwritten_percent_max: p.percent("waits")?.0,
            evicts_to_memory: match p.word("evicted")? {
                "written" => false,
                "buffered" => true,
                _ => return Err(unusable("evicted", "is neither written nor buffered")),
            },
        },
        watermarks: watermarks(p, setup.variant, dirty)?,
        duration: Some(duration),
        ..with_policies(p, setup.variant, FsPlan::new(fast, tiers(p, setup)?))?
    };
    let words = format!("{} scale={scale}", words(p, setup.load)?);
    Ok(Prepared { setup, seed, words, plan, scale })
}

/// Returns the words of a load.
fn words(p: &Parameters, load: &str) -> Result<String, Failure> {
    let mean = |name| Ok::<_, Failure>(format!("{}B", p.size(name)?.0));
    let parts = match load {
        "create-files" => {
            vec![format!("mean={}", mean("create_files_mean")?), p.text("create_files")?.into()]
        }
        "fileserver" => vec![p.text("fileserver")?.into(), p.text("fileserver_defaults")?.into()],
        "webproxy" => vec![p.text("webproxy")?.into(), p.text("webproxy_defaults")?.into()],
        "untar" => vec![p.text("untar")?.into(), p.text("decompression")?.into()],
        "postmark" => vec![p.text("postmark")?.into()],
        _ => vec![p.text("kernel_compile")?.into(), p.text("kernel_sources")?.into()],
    };
    Ok(format!("{load} {}", parts.join(" ")))
}

fn tiers(p: &Parameters, setup: Setup) -> Result<Vec<TierPlan>, Failure> {
    let tier = |name: &str, bottom| {
        let (drive, size) = p.drive(name)?;
        Ok::<_, Failure>(TierPlan { drive: drive.to_owned(), size, bottom })
    };
    let ssd = match setup.ssd {
        Ssd::Fast => "fast_ssd",
        Ssd::Slow => "slow_ssd",
    };
    let (on_ssd, on_disk) = match setup.variant {
        Variant::Bottom(ssd, disk) => (ssd, disk),
        _ => (BottomFs::Ext4, BottomFs::Ext4),
    };
    Ok(match setup.variant {
        Variant::Plain(Devices::Ssd) | Variant::Single(Devices::Ssd) => vec![tier(ssd, on_ssd)?],
        Variant::Plain(Devices::Disk) | Variant::Single(Devices::Disk) => vec![tier("disk", on_disk)?],
        _ => vec![tier(ssd, on_ssd)?, tier("disk", on_disk)?],
    })
}

fn watermarks(p: &Parameters, variant: Variant, dirty: [f64; 2]) -> Result<Watermarks, Failure> {
    let [high, low] = p.shares("watermarks")?;
    let percent = |share: u64| share as f64 / 100.0;
    let (high, low) = match variant {
        // Write-back of memory begins at its limit, and ends at the lower one.
        Variant::Plain(_) => (1.0, dirty[1] / dirty[0]),
        Variant::High(share) => (percent(share), percent(share) - (high - low)),
        Variant::Low(share) => (high, percent(share)),
        _ => (high, low),
    };
    Watermarks::new(high, low).ok_or_else(|| unusable("watermarks", "are in the wrong order"))
}

fn with_policies(p: &Parameters, variant: Variant, plan: FsPlan) -> Result<FsPlan, Failure> {
    let eviction = match variant {
        Variant::Plain(_) => "fifo",
        Variant::Evicted(name) => name,
        _ => "trident",
    };
    let distribution = match variant {
        // Stripes in turn give each device as many bytes.
        Variant::Plain(_) | Variant::Single(_) => "round_robin",
        Variant::BySize => "by_size",
        Variant::Greedy => "greedy",
        _ => "trident",
    };
    let unknown = || unusable("promotion", "is no policy");
    Ok(FsPlan {
        eviction: ItemEvictionPolicy::by_name(eviction).unwrap_or(plan.eviction),
        eviction_settings: ItemSettings { omega: p.number("omega")? },
        distribution: DistributionPolicy::by_name(distribution).unwrap_or(plan.distribution),
        distribution_settings: DistributionSettings { size_threshold: p.size("size_threshold")? },
        promotion: PromotionPolicy::by_name(p.word("promotion")?).ok_or_else(unknown)?,
        rates: RateSource::Measured,
        ..plan
    })
}
