//! Defines the arguments of `weir sim cache` about flash.

use crate::args::size;
use clap::Args;
use clap::builder::PossibleValuesParser;
use weir_model::{Bytes, Seed};
use weir_policy::reclaim::{self, Weights};
use weir_sim::cache::{AdmissionSettings, BlockTrace, CacheConfig};
use weir_sim::flash::Cell;
use weir_sim::flash_cache::{
    CacheLog, Container, Drop, Evict, FlashCache, Guarantee, SegmentSize, Victims, WarmUp,
};

/// Heading of the options about flash in help.
const FLASH: &str = "Flash options";

/// Number of segments by default, as published.
const SEGMENTS: u32 = 1024;
/// Values of `--evict`: the cache's policies, or the cleaner of the log.
pub(super) const EVICT: [&str; 2] = ["cache", "gc"];

/// The flash below the caches.
#[derive(Debug, Args)]
pub struct FlashCacheArgs {
    /// Put the caches into the log of a flash device: amplification, erases and lifetime
    #[arg(long, help_heading = FLASH)]
    pub flash: bool,
    /// Let the policies of the cache evict, or the log's garbage collection, or compare both
    #[arg(long, value_name = "WHO", value_delimiter = ',', default_value = "cache", help_heading = FLASH)]
    #[arg(value_parser = PossibleValuesParser::new(EVICT), requires = "flash")]
    pub evict: Vec<String>,
    /// Leave SHARE of the cache's size valid with --evict gc, 0% to 100%
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share, help_heading = FLASH)]
    #[arg(requires = "flash")]
    pub guarantee: f64,
    /// Drop or copy whole segments with --evict gc, not single pages
    #[arg(long, requires = "flash", help_heading = FLASH)]
    pub drop_segments: bool,
    /// Compare these victim policies, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "greedy", help_heading = FLASH)]
    #[arg(value_parser = PossibleValuesParser::new(reclaim::ALL.iter().map(|policy| policy.name)))]
    #[arg(requires = "flash")]
    pub victims: Vec<String>,
    /// Weigh space, age and what containers have in excess in the victim policy weighted
    #[arg(long, value_name = "W1,W2,W3", default_value = "1,1,1", value_parser = weights)]
    #[arg(help_heading = FLASH, requires = "flash")]
    pub weights: Weights,
    /// Set the flash beyond the cache's size, as a share of that size: (P - V) / V
    #[arg(long, value_name = "SHARE", default_value = "20%", value_parser = share, help_heading = FLASH)]
    #[arg(requires = "flash")]
    pub over_provisioning: f64,
    /// Keep SHARE of the segments free: cleaning starts when fewer would remain
    #[arg(long, value_name = "SHARE", default_value = "8%", value_parser = share, help_heading = FLASH)]
    #[arg(requires = "flash")]
    pub kept_free: f64,
    /// Set the size of a segment [default: 1/1024 of the flash]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "flash", help_heading = FLASH)]
    pub segment: Option<Bytes>,
    /// Give copied pages an append point of their own
    #[arg(long, requires = "flash", help_heading = FLASH)]
    pub separate_copies: bool,
    /// Reserve SHARE of the cache for the next SIZE of each disk's addresses; the rest is for the others
    #[arg(long, value_name = "SIZE:SHARE", value_delimiter = ',', value_parser = container)]
    #[arg(requires = "flash", help_heading = FLASH)]
    pub container: Vec<Container>,
    /// Warm the caches with the whole trace (pass), nothing (none), or SHARE of its requests
    #[arg(long, value_name = "HOW", default_value = "pass", value_parser = warm_up, help_heading = FLASH)]
    #[arg(requires = "flash")]
    pub warm_up: WarmUpShare,
    /// Add the same caches with at most SIZE written per day: misses beyond are not admitted
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "flash", help_heading = FLASH)]
    pub write_budget: Option<Bytes>,
    /// Take the usual rating of these cells for the lifetime
    #[arg(long, value_name = "CELL", default_value = "tlc", help_heading = FLASH, requires = "flash")]
    #[arg(value_parser = PossibleValuesParser::new(Cell::ALL.map(|cell| cell.name)))]
    pub cell: String,
    /// Set how often a cell can be erased [default: the usual rating of --cell]
    #[arg(long, value_name = "N", help_heading = FLASH, requires = "flash")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub cycles: Option<u32>,
    /// Set the random seed
    #[arg(long, value_name = "N", default_value_t = 1, requires = "flash", help_heading = FLASH)]
    pub seed: u64,
}

/// What warms the caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WarmUpShare {
    /// The whole trace, which is played again.
    Pass,
    /// This share of the requests.
    Requests(f64),
}

/// A cache on flash, besides its policy, size and write mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnFlash {
    by_gc: bool,
    victims: Victims,
    write_budget: Option<Bytes>,
}

impl FlashCacheArgs {
    /// Returns what is compared on flash.
    pub(super) fn all(&self) -> Vec<OnFlash> {
        let budgets: Vec<_> = std::iter::once(None).chain(self.write_budget.map(Some)).collect();
        let mut all = Vec::new();
        for evict in &self.evict {
            for policy in self.victims.iter().filter_map(|name| reclaim::by_name(name)) {
                let is_weighted = policy.name == Victims::Weighted(self.weights).name();
                let victims =
                    if is_weighted { Victims::Weighted(self.weights) } else { Victims::Policy(policy) };
                let with = |write_budget: &Option<Bytes>| OnFlash {
                    by_gc: evict == EVICT[1],
                    victims,
                    write_budget: *write_budget,
                };
                all.extend(budgets.iter().map(with));
            }
        }
        all
    }

    fn guarantee(&self) -> Guarantee {
        let drop = if self.drop_segments { Drop::Segment } else { Drop::Page };
        Guarantee { share: self.guarantee, drop }
    }

    fn log(&self, victims: Victims) -> CacheLog {
        CacheLog {
            over_provisioning: self.over_provisioning,
            segment: self.segment.map_or(SegmentSize::Count(SEGMENTS), SegmentSize::Bytes),
            kept_free: self.kept_free,
            separate_copies: self.separate_copies,
            victims,
        }
    }

    fn cycles(&self) -> u32 {
        let usual = || Cell::by_name(&self.cell).map(|cell| cell.cycles);
        self.cycles.or_else(usual).unwrap_or(Cell::ALL[0].cycles)
    }

    /// Returns the cache for this trace.
    pub(super) fn cache(&self, config: &CacheConfig, on: OnFlash, trace: &BlockTrace) -> FlashCache {
        FlashCache {
            capacity: config.size.of(trace),
            admission: config.admission,
            settings: config.settings,
            write_budget: on.write_budget,
            evict: if on.by_gc { Evict::Cleaner(self.guarantee()) } else { Evict::Cache(config.eviction) },
            mode: config.mode,
            log: self.log(on.victims),
            containers: self.container.clone(),
            warm_up: match self.warm_up {
                WarmUpShare::Pass => WarmUp::Pass,
                WarmUpShare::Requests(share) => WarmUp::Requests((trace.requests() as f64 * share) as usize),
            },
            rated_cycles: self.cycles(),
            seed: Seed(self.seed),
        }
    }

    /// Returns all that determines the result of a cache on flash, as text.
    pub(super) fn key(&self, on: OnFlash) -> String {
        let log = self.log(on.victims);
        format!(
            "gc={} {:?} budget={:?} victims={} {:?} {} {:?} {} {} {:?} {:?} {} {}",
            on.by_gc,
            self.guarantee(),
            on.write_budget,
            on.victims.name(),
            self.weights,
            log.over_provisioning,
            log.segment,
            log.kept_free,
            log.separate_copies,
            self.container,
            self.warm_up,
            self.cycles(),
            self.seed,
        )
    }
}

impl OnFlash {
    /// Whether the cleaner evicts, so that the policies of the cache do not matter.
    pub(super) const fn is_by_gc(self) -> bool {
        self.by_gc
    }
}

/// Returns the settings as text if they are not the published ones.
pub(super) fn settings_key(settings: &AdmissionSettings) -> Option<String> {
    (*settings != AdmissionSettings::default()).then(|| format!("{settings:?}"))
}

/// Parses `8%` as 0.08.
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
    let share = percent.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent / 100.0);
    share.ok_or_else(|| "write a percentage from 0% to 100%".into())
}

fn weights(text: &str) -> Result<Weights, String> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|word| word.parse().ok()).collect();
    let is_weight = |weight: &f64| (0.0..=1e6).contains(weight);
    match numbers.as_deref() {
        Some(&[space, age, excess]) if [space, age, excess].iter().all(is_weight) => {
            Ok(Weights { space, age, excess })
        }
        _ => Err("write three numbers from 0 to 1000000: 1,0.5,1".into()),
    }
}

fn container(text: &str) -> Result<Container, String> {
    let allowed = || "write a size and a share above 0% and below 100%: 10GiB:60%".to_owned();
    let (of, part) = text.split_once(':').ok_or_else(allowed)?;
    let (size, share) = (size(of)?, share(part)?);
    if share > 0.0 && share < 1.0 { Ok(Container { size, share }) } else { Err(allowed()) }
}

fn warm_up(text: &str) -> Result<WarmUpShare, String> {
    match text {
        "pass" => Ok(WarmUpShare::Pass),
        "none" => Ok(WarmUpShare::Requests(0.0)),
        _ => match share(text).ok().filter(|share| *share < 1.0) {
            Some(share) => Ok(WarmUpShare::Requests(share)),
            None => Err("write pass, none or a percentage below 100%".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "\\PC*") {
            let _ = (container(&text), share(&text), weights(&text), warm_up(&text));
        }

        /// Of a container's size and share, what was written is read.
        #[test]
        fn containers_have_the_size_and_share_that_are_written(
            sectors in 8_u64..1 << 50,
            percent in 0.0_f64..120.0,
            damage in proptest::option::of((0_usize..20, "\\PC{0,3}")),
        ) {
            let text = format!("{}B:{percent}%", sectors * 512);
            let read = container(&text);
            if percent > 0.0 && percent < 100.0 {
                let Container { size, share } = read.expect("a size and a share");
                prop_assert_eq!(size, Bytes(sectors * 512));
                prop_assert!((share * 100.0 - percent).abs() < 1e-9, "{}: {}", text, share);
            } else {
                prop_assert!(read.is_err(), "{}", text);
            }
            if let Some((at, insert)) = damage {
                let (start, end) = text.split_at(at.min(text.len()));
                if let Ok(Container { size, share }) = container(&format!("{start}{insert}{end}")) {
                    prop_assert!(size.0 >= 4096 && size.0.is_multiple_of(512) && share > 0.0 && share < 1.0);
                }
            }
        }
    }

    #[test]
    fn values_are_parsed_or_refused() {
        assert_eq!(share("0%"), Ok(0.0));
        assert_eq!(container("1GiB:60%"), Ok(Container { size: Bytes::gib(1), share: 0.6 }));
        assert_eq!(weights("1,0,2.5"), Ok(Weights { space: 1.0, age: 0.0, excess: 2.5 }));
        assert_eq!(
            (warm_up("pass"), warm_up("50%")),
            (Ok(WarmUpShare::Pass), Ok(WarmUpShare::Requests(0.5)))
        );
        for bad in ["", "60%", "1GiB:", "1GiB:0%", "1GiB:100%", "x:50%"] {
            assert!(container(bad).is_err(), "{bad}");
        }
        assert!(["1,2", "1,2,3,4", "-1,0,0", "a,b,c", "nan,0,0"].iter().all(|bad| weights(bad).is_err()));
        assert!(["", "all", "100%", "101%"].iter().all(|bad| warm_up(bad).is_err()));
    }
}
