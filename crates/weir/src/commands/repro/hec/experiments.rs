//! The caches that are simulated.

use super::super::parameters::Parameters;
use crate::failure::Failure;

/// The traces, by their names in the publication.
pub(super) const TRACES: [&str; 7] = ["stg_1", "web_2", "hm_0", "prn_0", "prn_1", "tpce", TPCEP];
/// The polluted database.
pub(super) const TPCEP: &str = "tpcep";
/// The traces of figures 3.3 and 3.4.
const FIGURE_3_3: [&str; 4] = ["web_2", TPCEP, "prn_1", "stg_1"];
pub(super) const FIGURE_3_4: [&str; 4] = ["web_2", "tpce", TPCEP, "stg_1"];
/// The trace of figure 3.7.
const FIGURE_3_7: &str = "hm_0";

/// The admission policies, by their names in weir: ADMIT_ALL, SSEQR, TC and SSEQR+TC.
pub(super) const ALL: &str = "all";
pub(super) const SELECTIVE: [&str; 3] = ["sequential", "touch_count", BOTH];
pub(super) const BOTH: &str = "sequential+touch_count";

/// The victim policies.
pub(super) const VICTIMS: [Victims; 3] = [Victims::Greedy, Victims::CostBenefit, OLDEST];
const OLDEST: Victims = Victims::Oldest;

/// What is cleaned first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Victims {
    Greedy,
    CostBenefit,
    Oldest,
}

impl Victims {
    /// Returns the name in experiments, and the name in weir.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Greedy => ("greedy", "greedy"),
            Self::CostBenefit => ("cost_benefit", "cost-benefit-closed"),
            Self::Oldest => ("oldest", "oldest"),
        }
    }
}

/// What evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// The cache: the least recently written block.
    Cache,
    /// The cache: the least recently used block.
    CacheLru,
    /// Garbage collection.
    Gc,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::CacheLru => "cache LRU",
            Self::Gc => "gc",
        }
    }
}

/// The size of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CacheSize {
    /// In percent of the critical size: without flash that of its admission policy, otherwise of ADMIT_ALL.
    Percent(u32),
    /// In GB, of so many 1/100 GB of unique data in the publication.
    Gb { size: u32, of: u32 },
}

impl CacheSize {
    fn name(self) -> String {
        match self {
            Self::Percent(percent) => format!("{percent} %"),
            Self::Gb { size, .. } => format!("{size} GB"),
        }
    }
}

/// The flash below a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OnFlash {
    pub(super) mode: Mode,
    pub(super) victims: Victims,
    /// Guaranteed share of the capacity in percent, if the name has it; 100 otherwise.
    pub(super) guarantee: Option<u32>,
}

/// A cache with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CacheExperiment {
    pub(super) trace: &'static str,
    pub(super) admission: &'static str,
    pub(super) flash: Option<OnFlash>,
    pub(super) size: CacheSize,
}

impl CacheExperiment {
    pub(super) fn name(&self) -> String {
        let flash = self.flash.map(|OnFlash { mode, victims, guarantee }| {
            let guarantee = guarantee.map(|percent| format!(", guarantee {percent} %")).unwrap_or_default();
            format!(", {}, {}{guarantee}", mode.name(), victims.names().0)
        });
        format!("{}, {}{}, {}", self.trace, self.admission, flash.unwrap_or_default(), self.size.name())
    }
}

/// Returns the name of a cache on flash that guarantees all.
pub(super) fn name(trace: &str, admission: &str, mode: Mode, victims: Victims, size: &str) -> String {
    format!("{trace}, {admission}, {}, {}, {size}", mode.name(), victims.names().0)
}

/// The shares of the critical size of all figures.
pub(super) const PERCENTS: [u32; 3] = [50, 70, 90];

/// The three ways of figure 3.6 besides that before: the name, the admission policy, the mode and the
/// victims.
pub(super) type Way = (&'static str, Mode, Victims);
pub(super) const BEFORE: Way = (ALL, Mode::Cache, OLDEST);
pub(super) const BOTH_LAYERS: Way = (BOTH, Mode::Gc, Victims::CostBenefit);
pub(super) const FLASH_ONLY: Way = (ALL, Mode::Gc, Victims::CostBenefit);
pub(super) const CACHE_ONLY: Way = (BOTH, Mode::Cache, OLDEST);

/// Returns all caches, each once.
///
/// # Errors
/// Fails if a parameter is unusable.
pub(super) fn all(p: &Parameters) -> Result<Vec<CacheExperiment>, Failure> {
    let percent = |share: f64| (share * 100.0).round() as u32;
    let own: [f64; 3] = p.shares("sizes")?;
    let others: [f64; 3] = p.shares("sizes_of_others")?;
    let gb = |size: weir_model::Bytes, of: weir_model::Bytes| CacheSize::Gb {
        size: (size.0 as f64 / 1e9).round() as u32,
        of: (of.0 as f64 / 1e7).round() as u32,
    };
    let [first, second, third, of] = p.several_sizes("sizes_of_tables")?;
    let tables = [first, second, third].map(|size| gb(size, of));
    let [small, large, of] = p.several_sizes("small_and_large")?;
    let absolute = [small, large].map(|size| gb(size, of));
    let guarantees: [f64; 3] = p.shares("guarantees")?;
    let own = own.map(|share| CacheSize::Percent(percent(share)));
    let sizes = others.map(|share| CacheSize::Percent(percent(share)));

    let mut all = Vec::new();
    for admission in [ALL].into_iter().chain(SELECTIVE) {
        let alone = |size: &CacheSize| CacheExperiment { trace: TPCEP, admission, flash: None, size: *size };
        all.extend(own.iter().chain(&absolute).map(alone));
    }
    let mut add = |trace, (admission, mode, victims): Way, guarantee, size| {
        all.push(CacheExperiment {
            trace,
            admission,
            flash: Some(OnFlash { mode, victims, guarantee }),
            size,
        });
    };
    for size in sizes {
        for trace in TRACES {
            [BEFORE, BOTH_LAYERS, FLASH_ONLY, CACHE_ONLY]
                .into_iter()
                .for_each(|way| add(trace, way, None, size));
        }
        for trace in FIGURE_3_4 {
            for mode in [Mode::Cache, Mode::CacheLru, Mode::Gc] {
                VICTIMS.into_iter().for_each(|victims| add(trace, (ALL, mode, victims), None, size));
            }
        }
        for share in guarantees {
            add(FIGURE_3_7, (ALL, Mode::Gc, OLDEST), Some(percent(share)), size);
        }
    }
    for trace in FIGURE_3_3 {
        let largest = sizes[sizes.len() - 1];
        for admission in SELECTIVE {
            add(trace, (admission, Mode::Cache, OLDEST), None, largest);
        }
    }
    for size in tables {
        add(TPCEP, BEFORE, None, size);
        add(TPCEP, BOTH_LAYERS, None, size);
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
