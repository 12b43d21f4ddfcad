//! Plays a trace to a cache, with and without flash.

use super::super::parameters::Parameters;
use super::super::results::{Metrics, of_cache};
use super::experiments::{CacheExperiment, CacheSize, Mode, OnFlash};
use super::traces::PlayedTrace;
use crate::failure::{Failure, REPORT_DEFECT};
use weir_model::{ErrorKind, Seed};
use weir_policy::reclaim;
use weir_sim::cache::{AdmissionPolicy, AdmissionSettings, EvictionPolicy, Setup, WriteMode, play_warmed};
use weir_sim::flash_cache::{
    self, CacheLog, Drop, Evict, FlashCache, FlashCacheOutcome, Guarantee, SegmentSize, Victims, WarmUp,
};

/// The metrics of caches and of traces.
#[cfg(test)]
pub(super) const METRICS: [&str; 23] = [
    "size",
    "clwa",
    "hits",
    "byte hits",
    "bytes hit",
    "read miss writes",
    "write hit writes",
    "write miss writes",
    "flwa",
    "tcwa",
    "cleaning",
    "cleaning bytes",
    "erases",
    "tcwa least",
    "erases most",
    "valid deviation",
    "invalid",
    "share read",
    "share written",
    "reads to writes",
    "unique share",
    "sequential share",
    "other share",
];

/// The published settings of the flash.
pub(super) struct Flash {
    /// Eviction policy of caches, but for the experiments on LRU.
    replacement: String,
    reserve: f64,
    kept_free: f64,
    kept_free_of_tables: f64,
    segments: u32,
}

impl Flash {
    /// Reads the settings.
    ///
    /// # Errors
    /// Fails if a parameter is unusable.
    pub(super) fn new(p: &Parameters) -> Result<Self, Failure> {
        Ok(Self {
            replacement: p.word("replacement")?.to_owned(),
            reserve: p.share("flash_reserve")?,
            kept_free: p.share("gc_threshold")?,
            kept_free_of_tables: p.share("gc_threshold_of_table_3.1")?,
            segments: (1.0 / p.share("gc_segment")?).round() as u32,
        })
    }

    /// Plays the trace to the cache of an experiment.
    pub(super) fn play(
        &self,
        trace: &PlayedTrace,
        experiment: &CacheExperiment,
        seed: u64,
    ) -> Result<Metrics, Failure> {
        let missing = |what: &str| Failure::environment(format!("there is no policy {what}"), REPORT_DEFECT);
        let admission = AdmissionPolicy::by_name(experiment.admission);
        let admission = admission.ok_or_else(|| missing(experiment.admission))?;
        let lru = experiment.flash.is_some_and(|flash| flash.mode == Mode::CacheLru);
        let eviction = if lru { "lru" } else { &self.replacement };
        let eviction = EvictionPolicy::by_name(eviction).ok_or_else(|| missing(eviction))?;
        let of = match experiment.size {
            // On flash all policies have caches of the same size.
            CacheSize::Percent(percent) if experiment.flash.is_some() => {
                trace.unique() * u64::from(percent) / 100
            }
            CacheSize::Percent(percent) => trace.critical(admission) * u64::from(percent) / 100,
            CacheSize::Gb { size, of } => trace.unique() * u64::from(size) * 100 / u64::from(of),
        };
        let capacity = (of as u32).max(1);
        let settings = AdmissionSettings::default();
        let Some(OnFlash { mode, victims, guarantee }) = experiment.flash else {
            let setup = Setup { eviction, admission, settings, capacity, mode: WriteMode::Through };
            let warm_up = match trace.warm_up {
                WarmUp::Requests(requests) => requests,
                WarmUp::Pass => 0,
            };
            return Ok(of_cache(&play_warmed(&trace.blocks, &setup, warm_up)));
        };
        let share = f64::from(guarantee.unwrap_or(100)) / 100.0;
        let victims = victims.names().1;
        let cache = FlashCache {
            capacity,
            admission,
            settings,
            write_budget: None,
            evict: match mode {
                Mode::Cache | Mode::CacheLru => Evict::Cache(eviction),
                Mode::Gc => Evict::Cleaner(Guarantee { share, drop: Drop::Page }),
            },
            mode: WriteMode::Through,
            log: CacheLog {
                over_provisioning: self.reserve,
                segment: SegmentSize::Count(self.segments),
                kept_free: match experiment.size {
                    CacheSize::Gb { .. } => self.kept_free_of_tables,
                    CacheSize::Percent(_) => self.kept_free,
                },
                separate_copies: false,
                victims: Victims::Policy(reclaim::by_name(victims).ok_or_else(|| missing(victims))?),
            },
            containers: Vec::new(),
            warm_up: trace.warm_up,
            rated_cycles: 1,
            seed: Seed(seed),
        };
        let outcome = flash_cache::play(&trace.blocks, &cache);
        let outcome = outcome.map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))?;
        Ok(of_flash(&outcome))
    }
}

/// Returns the metrics of a cache on flash.
fn of_flash(outcome: &FlashCacheOutcome) -> Metrics {
    let flash = &outcome.flash;
    let (flwa, tcwa) = (flash.flwa.unwrap_or(f64::NAN), flash.tcwa.unwrap_or(f64::NAN));
    // A ratio to nothing has no meaning: where no segment is erased or no page copied, one is.
    let erases = flash.pages.erases.max(1) as f64;
    let copied = flash.pages.copied.max(1) as f64;
    let values = [
        ("flwa", flwa),
        ("tcwa", tcwa),
        ("cleaning", copied / flash.pages.written as f64),
        ("cleaning bytes", copied),
        ("erases", erases),
        // Of a cache that is not the best or the worst of several.
        ("tcwa least", tcwa),
        ("erases most", erases),
        ("valid deviation", flash.valid_deviation),
        ("invalid", flash.invalid_pages as f64),
    ];
    let mut metrics = of_cache(&outcome.cache);
    let finite = values.into_iter().filter(|(_, value)| value.is_finite());
    metrics.extend(finite.map(|(name, value)| (name.to_owned(), value)));
    metrics
}
