//! Experiments that are made of others: the best of several policies, and the ratios of many pairs.

use super::super::results::{ExperimentId, Metrics, Results, median};
use super::experiments::{
    ALL, BEFORE, BOTH_LAYERS, CACHE_ONLY, FIGURE_3_4, FLASH_ONLY, Mode, PERCENTS, SELECTIVE, TPCEP, TRACES,
    VICTIMS, Victims, Way, name,
};
use std::collections::{BTreeMap, BTreeSet};

/// The user's or the cache's writes: each metric is 1.
const NO_AMPLIFICATION: &str = "no amplification";
/// Ratios within this factor of 1 count as the same.
const SAME: f64 = 0.02;
/// Metrics whose ratios are collected.
const RATIOS: [&str; 5] = ["clwa", "flwa", "tcwa", "erases", "hits"];
/// What is made of the ratios of a metric.
const OF_RATIOS: [&str; 12] = [
    "least",
    "most",
    "median",
    "least of rises",
    "median of rises",
    "most of falls",
    "median of falls",
    "median of the same",
    "rose",
    "fell",
    "kept",
    "same",
];
/// Metrics of single experiments that rows compare with 1.
const SINGLE: [&str; 11] = [
    "clwa",
    "flwa",
    "tcwa",
    "cleaning",
    "share read",
    "share written",
    "reads to writes",
    "unique share",
    "sequential share",
    "other share",
    "hits",
];

/// Pairs of experiments whose ratios are collected.
struct Pairs {
    name: String,
    pairs: Vec<(String, String)>,
}

fn size(percent: u32) -> String {
    format!("{percent} %")
}

/// Returns pairs of two ways, for these traces and all sizes.
fn ways(title: &str, way: Way, traces: &[&'static str]) -> Pairs {
    let of = |(admission, mode, victims): Way, trace, percent| {
        name(trace, admission, mode, victims, &size(percent))
    };
    let pair = |trace| PERCENTS.map(|percent| (of(way, trace, percent), of(BEFORE, trace, percent)));
    Pairs { name: title.to_owned(), pairs: traces.iter().copied().flat_map(pair).collect() }
}

/// Returns the pairs of eviction by garbage collection and by the cache.
fn modes(title: &str, mode: Mode, traces: &[&str], victims: &[Victims]) -> Pairs {
    let mut pairs = Vec::new();
    for trace in traces {
        for victims in victims {
            let of = |mode, percent| name(trace, ALL, mode, *victims, &size(percent));
            pairs.extend(PERCENTS.map(|percent| (of(Mode::Gc, percent), of(mode, percent))));
        }
    }
    Pairs { name: title.to_owned(), pairs }
}

/// Returns the pairs of a victim policy and OLDEST.
fn victims(mode: (&str, Mode), victims: Victims, traces: &[&str], remark: &str) -> Pairs {
    let of = |trace: &str, victims, percent| name(trace, ALL, mode.1, victims, &size(percent));
    let pair = |trace: &&str| {
        PERCENTS.map(|percent| (of(trace, victims, percent), of(trace, Victims::Oldest, percent)))
    };
    Pairs {
        name: format!("figure 3.4, {}, {} to oldest{remark}", mode.0, victims.names().0),
        pairs: traces.iter().flat_map(pair).collect(),
    }
}

fn all_pairs() -> Vec<Pairs> {
    let all_but_stg_1: Vec<&str> = FIGURE_3_4.into_iter().filter(|trace| *trace != "stg_1").collect();
    let all_but_tpcep: Vec<&'static str> = TRACES.into_iter().filter(|trace| *trace != TPCEP).collect();
    let mut all = vec![
        modes("figure 3.4, gc to cache", Mode::Cache, &FIGURE_3_4, &VICTIMS),
        modes("figure 3.4, gc to cache, LRU", Mode::CacheLru, &FIGURE_3_4, &VICTIMS),
        modes("figure 3.4, gc to cache, tpce, cost_benefit", Mode::Cache, &["tpce"], &[Victims::CostBenefit]),
        ways("both layers, 18 simulations", BOTH_LAYERS, &all_but_tpcep),
        ways("flash layer only, 21 simulations", FLASH_ONLY, &TRACES),
        ways("cache layer only, 17 simulations", CACHE_ONLY, &TRACES),
    ];
    for policy in [Victims::Greedy, Victims::CostBenefit] {
        all.push(victims(("cache", Mode::Cache), policy, &all_but_stg_1, ", all but stg_1"));
        all.push(victims(("gc", Mode::Gc), policy, &FIGURE_3_4, ""));
    }
    all
}

/// Returns the best of the selective policies: its name, and those of its parts.
fn selective(trace: &str) -> (String, [String; 3]) {
    let of = |admission: &str| name(trace, admission, Mode::Cache, Victims::Oldest, &size(PERCENTS[2]));
    (of("selective"), SELECTIVE.map(of))
}

const OF_FIGURE_3_3: [&str; 4] = ["web_2", TPCEP, "prn_1", "stg_1"];

/// Returns the experiments that those of these names are made of.
pub(super) fn parts(names: &BTreeSet<&String>) -> BTreeSet<String> {
    let best = OF_FIGURE_3_3.into_iter().map(selective).map(|(name, parts)| (name, parts.to_vec()));
    let pairs = all_pairs()
        .into_iter()
        .map(|Pairs { name, pairs }| (name, pairs.into_iter().flat_map(|(of, to)| [of, to]).collect()));
    best.chain(pairs).filter(|(name, _)| names.contains(name)).flat_map(|(_, parts)| parts).collect()
}

/// Returns the names of the derived experiments.
#[cfg(test)]
pub(super) fn names() -> Vec<String> {
    let pairs = all_pairs().into_iter().map(|pairs| pairs.name);
    let best = OF_FIGURE_3_3.into_iter().map(|trace| selective(trace).0);
    pairs.chain(best).chain([NO_AMPLIFICATION.to_owned()]).collect()
}

/// Reports whether a derived experiment has a metric of this name.
#[cfg(test)]
pub(super) fn has_metric(name: &str) -> bool {
    ratio_metrics().any(|metric| metric == name)
}

fn ratio_metrics() -> impl Iterator<Item = String> {
    RATIOS.into_iter().flat_map(|metric| OF_RATIOS.map(|what| format!("{metric} {what}")))
}

/// Adds the derived experiments whose parts were all run.
pub(super) fn add(results: &mut Results, seeds: &[u64], is_named: impl Fn(&str) -> bool) {
    for &seed in seeds {
        let mut new: BTreeMap<String, Metrics> = BTreeMap::new();
        let ones = SINGLE.into_iter().map(str::to_owned).chain(ratio_metrics()).map(|metric| (metric, 1.0));
        // It is no experiment, so it alone is not a result.
        if results.iter().next().is_some() {
            new.insert(NO_AMPLIFICATION.to_owned(), ones.collect());
        }
        for trace in OF_FIGURE_3_3 {
            let (name, parts) = selective(trace);
            let of = |metric: &str| -> Option<Vec<f64>> {
                parts.iter().map(|part| results.metric(part, seed, metric)).collect()
            };
            let least = of("tcwa").and_then(|all| all.into_iter().reduce(f64::min));
            let most = of("erases").and_then(|all| all.into_iter().reduce(f64::max));
            if let Some((least, most)) = least.zip(most) {
                let metrics = [("tcwa least".to_owned(), least), ("erases most".to_owned(), most)];
                new.insert(name, Metrics::from(metrics));
            }
        }
        for Pairs { name, pairs } in all_pairs().into_iter().filter(|pairs| is_named(&pairs.name)) {
            if pairs.iter().all(|(of, to)| results.has(of) && results.has(to)) {
                new.insert(name, of_pairs(results, seed, &pairs));
            }
        }
        for (experiment, metrics) in new {
            results.add(ExperimentId { experiment, seed, duration_ns: 0 }, metrics);
        }
    }
}

/// Returns the metrics of pairs.
fn of_pairs(results: &Results, seed: u64, pairs: &[(String, String)]) -> Metrics {
    let mut metrics = Metrics::new();
    for metric in RATIOS {
        let ratio = |(of, to): &(String, String)| {
            Some(results.metric(of, seed, metric)? / results.metric(to, seed, metric)?)
        };
        let ratios: Vec<f64> = pairs.iter().filter_map(ratio).filter(|ratio| ratio.is_finite()).collect();
        for (what, value) in of_ratios(metric, &ratios) {
            metrics.insert(format!("{metric} {what}"), value);
        }
    }
    metrics
}

/// Returns what is made of the ratios of a metric. Where no ratio rose, fell or stayed, the one that is
/// nearest to that counts.
fn of_ratios(metric: &str, ratios: &[f64]) -> Vec<(&'static str, f64)> {
    let all = || ratios.iter().copied();
    let Some((least, most)) = all().reduce(f64::min).zip(all().reduce(f64::max)) else { return Vec::new() };
    let rises: Vec<f64> = all().filter(|ratio| *ratio > 1.0 + SAME).collect();
    let falls: Vec<f64> = all().filter(|ratio| *ratio < 1.0 - SAME).collect();
    let same: Vec<f64> = all().filter(|ratio| (ratio - 1.0).abs() <= SAME).collect();
    let nearest = all().min_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs())).unwrap_or(1.0);
    let share = |some: &[f64]| some.len() as f64 / ratios.len() as f64;
    // Hits are kept if they do not fall.
    let kept = if metric == "hits" { 1.0 - share(&falls) } else { share(&same) };
    vec![
        ("least", least),
        ("most", most),
        ("median", median(ratios.to_vec()).unwrap_or(f64::NAN)),
        ("least of rises", rises.iter().copied().reduce(f64::min).unwrap_or(most)),
        ("median of rises", median(rises.clone()).unwrap_or(most)),
        ("most of falls", falls.iter().copied().reduce(f64::max).unwrap_or(least)),
        ("median of falls", median(falls.clone()).unwrap_or(least)),
        ("median of the same", median(same.clone()).unwrap_or(nearest)),
        ("rose", share(&rises)),
        ("fell", share(&falls)),
        ("kept", kept),
        ("same", share(&same)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_divided_into_rises_falls_and_the_same() {
        let of = |metric: &str, what: &str| {
            let all = of_ratios(metric, &[0.5, 0.9, 1.0, 1.01, 1.1]);
            all.into_iter().find(|(name, _)| *name == what).map(|(_, value)| value)
        };
        assert_eq!(
            ["least", "most", "median", "least of rises", "most of falls"].map(|what| of("flwa", what)),
            [0.5, 1.1, 1.0, 1.1, 0.9].map(Some)
        );
        assert_eq!(
            ["rose", "fell", "kept", "same"].map(|what| of("flwa", what)),
            [0.2, 0.4, 0.4, 0.4].map(Some)
        );
        assert_eq!(of("hits", "kept"), Some(0.6));
        let names: Vec<_> = of_ratios("flwa", &[1.0]).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, OF_RATIOS);
        let rises = of_ratios("flwa", &[0.5, 0.7])[3];
        assert_eq!(rises, ("least of rises", 0.7), "without a rise the highest ratio counts");
    }
}
