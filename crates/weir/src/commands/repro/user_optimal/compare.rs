//! Compares the ramps of experiments: what the rows of the publication are ratios of.
//!
//! A subject is a server of an experiment, or all servers of one together. Two subjects are compared at the
//! steps at which neither is saturated: "A beside B" has A's figures at these steps, and "B beside A" has
//! those of B, so that a row is the ratio of the two.

use super::steps::{Steps, letter};
use crate::commands::repro::parameters::Parameters;
use crate::commands::repro::results::Metrics;
use crate::failure::Failure;
use std::collections::BTreeMap;
use weir_model::Nanos;

/// The compared subjects; the second one of each pair is the baseline.
const PAIRS: &[(&str, &str)] = &[
    ("STR-MIG, 9 ms", "STR-MIG, 9 ms, one token"),
    ("STR-MIG, 9 ms", "STR-NOMIG, 9 ms"),
    ("STR-MIG, 17 ms", "STR-NOMIG, 17 ms"),
    ("STR-MIG, 25 ms", "STR-NOMIG, 25 ms"),
    ("STR-NOMIG, 17 ms", "STR-NOMIG, 9 ms"),
    ("STR-NOMIG, 25 ms", "STR-NOMIG, 9 ms"),
    ("STR-MIG, 17 ms", "STR-MIG, 9 ms"),
    ("STR-MIG, 25 ms", "STR-MIG, 9 ms"),
    ("SEQ-MIG, 9 ms", "SEQ-NOMIG, 9 ms"),
    ("SEQ-MIG, 17 ms", "SEQ-MIG, 9 ms"),
    ("SEQ-NOMIG, 17 ms", "SEQ-NOMIG, 9 ms"),
    ("SEQ-NOMIG, 25 ms", "SEQ-NOMIG, 9 ms"),
    ("STR-MIG, 9 ms", "locality, 9 ms"),
    ("SEQ-MIG, 9 ms", "locality, 9 ms"),
    ("three servers, STR-MIG, server A", "three servers, STR-NOMIG, server A"),
    ("three servers, STR-MIG, server B", "three servers, STR-NOMIG, server B"),
    ("three servers, STR-MIG, server C", "three servers, STR-NOMIG, server C"),
    ("three servers, STR-MIG, all servers", "three servers, STR-NOMIG, all servers"),
    (
        "three servers, equal loads, STR-MIG, all servers",
        "three servers, equal loads, STR-NOMIG, all servers",
    ),
    ("STR-MIG, 9 ms, measured after the fill", "STR-NOMIG, 9 ms"),
    ("STR-MIG, 9 ms, no threshold", "STR-NOMIG, 9 ms"),
    ("STR-MIG, 9 ms, no threshold, many tokens", "STR-NOMIG, 9 ms"),
    ("STR-MIG, 9 ms, little memory", "STR-NOMIG, 9 ms, little memory"),
    ("STR-MIG, 9 ms, little memory, many tokens", "STR-NOMIG, 9 ms, little memory"),
    ("SEQ-MIG, 9 ms, measured after the fill", "SEQ-NOMIG, 9 ms"),
    ("two servers, SEQ-MIG, server A", "two servers, SEQ-NOMIG, server A"),
    ("two servers, SEQ-MIG, server B", "two servers, SEQ-NOMIG, server B"),
    ("two servers, SEQ-MIG, all servers", "two servers, SEQ-NOMIG, all servers"),
];

/// The servers whose gains and losses are set against one another: the loser is at the steps of the winner's
/// greatest gain.
const EXAMPLE: [&str; 2] = ["two servers, SEQ-MIG", "two servers, SEQ-NOMIG"];

/// Responses at the loads that the publication names.
const NAMED_LOADS: [&str; 3] = ["light-load response", "onset response", "heavy-load response"];

/// What comparisons assume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assumptions {
    /// Mean response at which a server is saturated.
    limit: Nanos,
    /// The loads of [`NAMED_LOADS`], as shares of the rate at which the baseline saturates.
    named_loads: [f64; 3],
    /// The greatest load of the three servers over the least.
    imbalance: f64,
}

impl Assumptions {
    /// Reads the parameters.
    ///
    /// # Errors
    /// Fails if one is unusable.
    pub(super) fn new(p: &Parameters) -> Result<Self, Failure> {
        let [most, _, least] = p.shares("three_servers")?;
        Ok(Self {
            limit: p.time("nfs_limit")?,
            named_loads: p.shares("named_loads")?,
            imbalance: most / least,
        })
    }
}

/// The experiments whose migrations are compared; the second one of each pair is the baseline.
const MIGRATIONS: [(&str, &str); 3] = [
    ("SEQ-MIG, 25 ms", "SEQ-MIG, 9 ms"),
    ("SEQ-MIG, 25 ms, measured after the fill", "SEQ-MIG, 9 ms, measured after the fill"),
    ("SEQ-MIG, 25 ms, little write-back", "SEQ-MIG, 9 ms, little write-back"),
];

/// A response time that stands for none in ratios of differences, in seconds.
const LEAST_DIFFERENCE: f64 = 1e-6;

/// The metrics.
#[cfg(test)]
pub(in crate::commands::repro) const METRICS: [&str; 25] = [
    "saturation",
    "base response",
    "response",
    "higher response",
    "response at least gain",
    "response at greatest gain",
    "example response",
    "light-load response",
    "onset response",
    "heavy-load response",
    "difference",
    "speed-up",
    "base local share",
    "base remote share",
    "local share",
    "local load",
    "balance",
    "least balance",
    "imbalance",
    "requests",
    "migrations at lower loads",
    "migrations at higher loads",
    "migrated share",
    "share of migrations",
    "share of migrations at light load",
];

/// Returns the figures of all experiments of a seed, by name.
pub(super) fn compare(
    experiments: &BTreeMap<String, Metrics>,
    assumptions: &Assumptions,
) -> BTreeMap<String, Metrics> {
    let subjects = subjects(experiments, assumptions.limit);
    let mut all = BTreeMap::new();
    for (name, steps) in &subjects {
        alone(name, steps, assumptions, &mut all);
    }
    for (one, base) in PAIRS {
        let (Some(a), Some(b)) = (subjects.get(*one), subjects.get(*base)) else { continue };
        let pair = Pair::new(a, b);
        all.insert(format!("{one} beside {base}"), pair.figures(a, b, assumptions));
        all.insert(format!("{base} beside {one}"), pair.figures(b, b, assumptions));
        let gains = [("speed-up", pair.mean(b, 0..pair.common) / pair.mean(a, 0..pair.common))];
        all.insert(format!("gain of {one} over {base}"), figures(gains));
    }
    for (one, base) in MIGRATIONS {
        let (Some(a), Some(b)) = (subjects.get(one), subjects.get(base)) else { continue };
        let share = figures([("share of migrations", a.migrations() / b.migrations().max(1.0))]);
        all.insert(format!("migrations of {one} to those of {base}"), share);
    }
    example(&subjects, &mut all);
    for (server, steps) in (0..3).filter_map(|server| Some((server, subjects.get(&at_c(server))?))) {
        // Disk C is the third brick: the third disk of A, the second of B, and local to C.
        let below = steps.below_saturation();
        let requests = disks(steps, 0..below).get(2 - server).copied().unwrap_or(f64::NAN);
        all.insert(
            format!("requests of server {} at disk C", letter(server)),
            figures([("requests", requests)]),
        );
    }
    let loads = [("imbalance", assumptions.imbalance)];
    all.insert("loads of three servers".into(), figures(loads));
    all
}

/// Returns the name of a server whose requests at disk C are compared.
fn at_c(server: usize) -> String {
    format!("three servers, STR-MIG, server {}", letter(server))
}

/// Returns the servers of the experiments, and all servers together where there are several.
fn subjects(experiments: &BTreeMap<String, Metrics>, limit: Nanos) -> BTreeMap<String, Steps> {
    let mut all = BTreeMap::new();
    for (name, metrics) in experiments {
        let servers: Vec<_> = (0..3).map_while(|server| Steps::read(metrics, server, limit)).collect();
        let count = servers.len();
        match &*servers {
            [] => continue,
            [only] => {
                all.insert(name.clone(), only.clone());
                continue;
            }
            _ => {}
        }
        let disk_of = |server: usize, brick: usize| (brick + count - server) % count;
        all.insert(format!("{name}, all servers"), Steps::together(&servers, disk_of));
        for (server, steps) in servers.into_iter().enumerate() {
            all.insert(format!("{name}, server {}", letter(server)), steps);
        }
    }
    all
}

/// Collects figures; those that cannot be computed are absent.
fn figures<const N: usize>(all: [(&str, f64); N]) -> Metrics {
    let finite = all.into_iter().filter(|(_, value)| value.is_finite());
    finite.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds the figures of a subject that need no other one.
fn alone(name: &str, steps: &Steps, assumptions: &Assumptions, all: &mut BTreeMap<String, Metrics>) {
    let below = steps.below_saturation();
    let sum = |list: &[f64]| list.iter().sum::<f64>();
    let total = steps.migrations();
    let light = assumptions.named_loads[0] * steps.saturation();
    let is_light = steps.offered.partition_point(|rate| *rate <= light);
    let migrated = sum(&steps.inward[..is_light]) + sum(&steps.outward[..is_light]);
    let light_share = match is_light {
        // Saturated from the start: there was no light load.
        0 => f64::NAN,
        _ if total > 0.0 => migrated / total,
        _ => 0.0,
    };
    let own = figures([
        ("saturation", steps.saturation()),
        ("base response", steps.response[0]),
        ("migrated share", total / sum(&steps.requests).max(1.0)),
        ("share of migrations at light load", light_share),
        ("balance", balance(steps, 0..below)),
        ("least balance", (0..below).map(|step| balance(steps, step..step + 1)).fold(1.0, f64::min)),
        ("imbalance", imbalance(steps, 0..below)),
    ]);
    all.insert(name.to_owned(), own);
    let last = below.saturating_sub(1);
    for (which, step) in [("first step", 0), ("later steps", last)] {
        all.insert(format!("{name}, {which}"), figures([("response", steps.response[step])]));
    }
    // One more than was counted, so that there is a ratio where nothing migrates.
    let half = below / 2;
    for (direction, list, against) in [
        ("to the local disk", &steps.inward, &steps.outward),
        ("from the local disk", &steps.outward, &steps.inward),
    ] {
        let both = sum(list) + sum(against);
        let entry = figures([
            ("migrations at lower loads", 1.0 + sum(&list[..half])),
            ("migrations at higher loads", 1.0 + sum(&list[half..below])),
            ("migrated share", if both > 0.0 { sum(list) / both } else { 0.0 }),
        ]);
        all.insert(format!("{name}, {direction}"), entry);
    }
    // Early and late in the run, before it is saturated.
    let third = (below / 3).max(1).min(steps.offered.len());
    for (disk, shares) in steps.shares.iter().enumerate() {
        let mean = |part: &[f64]| sum(part) / part.len().max(1) as f64;
        let early = mean(&shares[..third]);
        let late = mean(&shares[below.max(third) - third..below.max(third)]);
        let whole = mean(&shares[..below.max(1)]);
        for (when, share) in [("early", early), ("late", late), ("whole run", whole)] {
            all.insert(format!("{name}, disk {disk}, {when}"), figures([("local share", share)]));
        }
    }
}

/// Returns the commands of each disk in these steps, as a share of all.
fn disks(steps: &Steps, part: std::ops::Range<usize>) -> Vec<f64> {
    let of = |shares: &Vec<f64>| part.clone().map(|step| shares[step] * steps.requests[step]).sum::<f64>();
    steps.shares.iter().map(of).collect()
}

/// Returns the mean number of commands of a disk over the greatest: 1 if all have the same.
fn balance(steps: &Steps, part: std::ops::Range<usize>) -> f64 {
    let disks = disks(steps, part);
    disks.iter().sum::<f64>() / disks.len() as f64 / disks.iter().copied().fold(0.0, f64::max)
}

/// Returns the greatest number of commands of a disk over the least.
fn imbalance(steps: &Steps, part: std::ops::Range<usize>) -> f64 {
    let disks = disks(steps, part);
    disks.iter().copied().fold(0.0, f64::max) / disks.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The steps at which two subjects are compared.
struct Pair {
    /// Number of steps at which neither is saturated.
    common: usize,
    /// The steps above the first one with the least and the greatest gain.
    least_gain: usize,
    greatest_gain: usize,
}

impl Pair {
    fn new(a: &Steps, base: &Steps) -> Self {
        let common = a.below_saturation().min(base.below_saturation());
        let ratio = |step: &usize| a.response[*step] / base.response[*step];
        let higher = || common.min(1)..common.max(1);
        let by = |x: &usize, y: &usize| ratio(x).total_cmp(&ratio(y));
        Self {
            common,
            least_gain: higher().max_by(by).unwrap_or(0),
            greatest_gain: higher().min_by(by).unwrap_or(0),
        }
    }

    /// Returns the geometric mean of the responses of some steps.
    fn mean(&self, steps: &Steps, part: std::ops::Range<usize>) -> f64 {
        let count = part.len() as f64;
        (part.map(|step| steps.response[step].ln()).sum::<f64>() / count).exp()
    }

    /// Returns the figures of one of the two: only the point of saturation if there is no step to compare.
    fn figures(&self, of: &Steps, base: &Steps, assumptions: &Assumptions) -> Metrics {
        if self.common == 0 {
            return figures([("saturation", of.saturation())]);
        }
        let last = self.common.saturating_sub(1);
        let local = |step: usize| of.shares.first().map_or(f64::NAN, |shares| shares[step]);
        let count = self.common as f64;
        let mut all = figures([
            ("saturation", of.saturation()),
            ("base response", of.response[0]),
            ("response", self.mean(of, 0..self.common)),
            ("higher response", self.mean(of, self.common / 2..self.common)),
            ("response at least gain", of.response[self.least_gain]),
            ("response at greatest gain", of.response[self.greatest_gain]),
            ("base local share", local(0)),
            ("base remote share", 1.0 - local(0)),
            ("local share", (0..self.common).map(local).sum::<f64>() / count),
            ("local load", of.loads.first().map_or(f64::NAN, |loads| loads[last])),
            ("balance", balance(of, 0..self.common)),
            ("least balance", (0..self.common).map(|step| balance(of, step..step + 1)).fold(1.0, f64::min)),
        ]);
        for (name, share) in NAMED_LOADS.into_iter().zip(assumptions.named_loads) {
            let response = of.response_at(share * base.saturation());
            all.extend(figures([(name, response)]));
        }
        all
    }
}

/// Adds the responses of two servers where the first one gains most, and the gain and the loss.
fn example(subjects: &BTreeMap<String, Steps>, all: &mut BTreeMap<String, Metrics>) {
    let [moves, stays] = EXAMPLE;
    let of = |experiment: &str, server: &str| subjects.get(&format!("{experiment}, {server}"));
    let (Some(a), Some(base)) = (of(moves, "server A"), of(stays, "server A")) else { return };
    let Pair { common, greatest_gain: step, .. } = Pair::new(a, base);
    for server in ["server A", "server B", "all servers"] {
        let (Some(with), Some(without)) = (of(moves, server), of(stays, server)) else { continue };
        let response = [with, without].map(|steps| if common > 0 { steps.response[step] } else { f64::NAN });
        for (experiment, other, response) in [(moves, stays, response[0]), (stays, moves, response[1])] {
            let name = format!("{experiment}, {server} beside {other}, {server}");
            all.entry(name).or_default().extend(figures([("example response", response)]));
        }
        let difference = response[1] - response[0];
        for (what, difference) in [("gain", difference), ("loss", -difference)] {
            // Unlike `max`, this keeps a difference that cannot be computed.
            let least = if difference < LEAST_DIFFERENCE { LEAST_DIFFERENCE } else { difference };
            all.insert(format!("{what} of {server}"), figures([("difference", least)]));
        }
    }
}

/// Returns the names of what is compared, given the experiments and their numbers of servers.
#[cfg(test)]
pub(super) fn names(experiments: &[(String, usize)], assumptions: &Assumptions) -> Vec<String> {
    let metrics = |servers: usize| -> Metrics {
        let of_server = |server| {
            let disks = if servers == 1 { 2 } else { servers };
            let names =
                ["offered", "delivered", "response", "requests", "inward", "outward"].map(String::from);
            let shares =
                (0..disks).flat_map(|disk| [format!("share of disk {disk}"), format!("load of disk {disk}")]);
            let names = names.into_iter().chain(shares);
            names.map(move |name| (format!("{} {name} 0", letter(server)), 0.01)).collect::<Vec<_>>()
        };
        (0..servers).flat_map(of_server).collect()
    };
    let all = experiments.iter().map(|(name, servers)| (name.clone(), metrics(*servers))).collect();
    compare(&all, assumptions).into_keys().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSUMPTIONS: Assumptions =
        Assumptions { limit: Nanos::millis(50), named_loads: [4.0 / 6.0, 5.0 / 6.0, 1.0], imbalance: 3.0 };

    fn steps(response_ms: &[f64], outward: f64) -> Metrics {
        let mut all = Metrics::new();
        for (step, ms) in response_ms.iter().enumerate() {
            let rate = 100.0 * (step + 1) as f64;
            let values = [
                ("offered", rate),
                ("delivered", rate),
                ("response", ms / 1e3),
                ("requests", 1000.0),
                ("inward", 0.0),
                ("outward", if step > 1 { outward } else { 0.0 }),
                ("share of disk 0", 1.0 - 0.1 * step as f64),
                ("share of disk 1", 0.1 * step as f64),
                ("load of disk 0", 0.2 * step as f64),
                ("load of disk 1", 0.1),
            ];
            all.extend(values.map(|(name, value)| (format!("A {name} {step}"), value)));
        }
        all
    }

    #[test]
    fn pairs_are_compared_where_neither_is_saturated() {
        let experiments = BTreeMap::from([
            ("SEQ-MIG, 9 ms".to_owned(), steps(&[5.0, 9.0, 20.0, 45.0, 100.0], 10.0)),
            ("SEQ-NOMIG, 9 ms".to_owned(), steps(&[5.0, 8.0, 40.0, 90.0, 900.0], 0.0)),
        ]);
        let all = compare(&experiments, &ASSUMPTIONS);
        let ratio = |metric: &str| {
            let of = |one: &str, other: &str| all[&format!("{one}, 9 ms beside {other}, 9 ms")][metric];
            of("SEQ-MIG", "SEQ-NOMIG") / of("SEQ-NOMIG", "SEQ-MIG")
        };
        let near = |metric: &str, expected: f64| {
            assert!((ratio(metric) - expected).abs() < 1e-6, "{metric}: {} for {expected}", ratio(metric));
        };
        near("base response", 1.0);
        near("response at least gain", 9.0 / 8.0);
        near("response at greatest gain", 0.5);
        near("response", (9.0f64 / 8.0 * 0.5).cbrt());
        // 20 and 45 ms: at 50 ms after 1/11 of the last step; 40 and 90 ms: at 50 ms after a fifth.
        near("saturation", (400.0 + 100.0 / 11.0) / 320.0);
        // Two thirds of 320 are 213: between 8 and 40, and 9 and 20 ms.
        let part = (320.0 * 2.0 / 3.0 - 200.0) / 100.0;
        near("light-load response", (9.0 + 11.0 * part) / (8.0 + 32.0 * part));
        assert_eq!(all["SEQ-MIG, 9 ms"]["migrated share"], 30.0 / 5000.0);
        assert_eq!(all["SEQ-MIG, 9 ms"]["share of migrations at light load"], 0.0);
        let saturated = BTreeMap::from([("SEQ-MIG, 9 ms".to_owned(), steps(&[60.0, 90.0], 10.0))]);
        let alone = &compare(&saturated, &ASSUMPTIONS)["SEQ-MIG, 9 ms"];
        assert!(!alone.contains_key("share of migrations at light load"), "no load was light: {alone:?}");
        let both = BTreeMap::from([
            ("SEQ-MIG, 9 ms".to_owned(), steps(&[60.0, 90.0], 10.0)),
            ("SEQ-NOMIG, 9 ms".to_owned(), steps(&[5.0, 90.0], 0.0)),
        ]);
        let compared = &compare(&both, &ASSUMPTIONS)["SEQ-NOMIG, 9 ms beside SEQ-MIG, 9 ms"];
        assert!(compared.keys().eq(["saturation"]), "no step to compare: {compared:?}");
        assert_eq!(all["SEQ-MIG, 9 ms, from the local disk"]["migrations at higher loads"], 21.0);
        assert_eq!(all["SEQ-NOMIG, 9 ms, from the local disk"]["migrated share"], 0.0);
        assert_eq!(all["SEQ-MIG, 9 ms, disk 1, late"]["local share"], 0.1 * 3.0);
        let known = |metrics: &Metrics| metrics.keys().all(|metric| METRICS.contains(&&**metric));
        assert!(all.values().all(known), "{all:?}");
    }

    #[test]
    fn a_gain_and_a_loss_are_at_the_same_step() {
        let servers = |a: &[f64], b: &[f64]| {
            let mut all = steps(a, 0.0);
            let second = steps(b, 0.0);
            all.extend(second.into_iter().map(|(name, value)| (name.replacen('A', "B", 1), value)));
            all
        };
        let experiments = BTreeMap::from([
            (EXAMPLE[0].to_owned(), servers(&[5.0, 6.0, 8.0], &[2.0, 4.0, 3.0])),
            (EXAMPLE[1].to_owned(), servers(&[5.0, 10.0, 12.0], &[2.0, 2.0, 2.0])),
        ]);
        let all = compare(&experiments, &ASSUMPTIONS);
        assert!((all["gain of server A"]["difference"] - 0.004).abs() < 1e-9);
        assert!((all["loss of server B"]["difference"] - 0.002).abs() < 1e-9);
        assert_eq!(all["gain of server B"]["difference"], LEAST_DIFFERENCE);
        let saturated = BTreeMap::from([
            (EXAMPLE[0].to_owned(), servers(&[60.0, 90.0], &[2.0, 2.0])),
            (EXAMPLE[1].to_owned(), servers(&[70.0, 90.0], &[2.0, 2.0])),
        ]);
        let all_saturated = compare(&saturated, &ASSUMPTIONS);
        assert!(all_saturated["gain of server A"].is_empty() && all_saturated["loss of server B"].is_empty());
        let b = "two servers, SEQ-MIG, server B beside two servers, SEQ-NOMIG, server B";
        assert_eq!(all[b]["example response"], 0.004);
    }
}
