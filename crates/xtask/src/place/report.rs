//! Reports the results of the loads under each policy: a table, and figures kept in a file.

use super::Known;
use super::loads::Row;
use comfy_table::{CellAlignment, Table, presets};
use std::fmt::{self, Write};
use std::path::Path;
use weir_model::{Bytes, Nanos};
use weir_sim::{Outcome, Window};

/// The policy that is compared with the others.
pub(super) const JUDGED: &str = "adaptive";
/// Names of the best static placement and the lower bound, which are listed beside the policies.
pub(super) const STATIC: &str = "(static)";
pub(super) const DYNAMIC: &str = "(dynamic)";
/// Classic caching.
const CLASSIC: [&str; 2] = ["hystor", "hierarchy"];
/// Markers around the recorded table.
const BEGIN: &str = "<!-- cargo place -->";
const END: &str = "<!-- end -->";

/// Results of a policy on a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Response times in seconds.
    pub(super) mean: f64,
    pub(super) p99: f64,
    /// Requests answered per second.
    pub(super) rate: f64,
    /// Share of requests that were not answered.
    pub(super) unanswered: f64,
    /// Bytes moved per byte of user I/O, after the warm-up.
    pub(super) moved: f64,
    /// Cost per request by the bounds' model, including moves: seconds of device time.
    pub(super) cost: f64,
}

impl Figures {
    pub(super) fn of(outcome: &Outcome, cost: f64) -> Self {
        let seconds = outcome.measured.as_secs_f64();
        let bytes = (outcome.bytes_rate * seconds).max(1.0);
        Self {
            mean: outcome.all.mean.as_secs_f64(),
            p99: outcome.all.p99.as_secs_f64(),
            rate: outcome.rate,
            unanswered: outcome.unanswered as f64 / outcome.requests.max(1) as f64,
            moved: outcome.moved.0 as f64 / bytes,
            cost,
        }
    }

    /// Returns the figures by which it is judged; smaller is better.
    fn judged(&self, row: &Row) -> Vec<f64> {
        // A policy that does not answer everything is worse than any that does.
        let more = 1.0 + 1e3 * self.unanswered;
        if row.clients > 0 {
            vec![1.0 / self.rate.max(1e-9)]
        } else {
            vec![self.mean * more, self.p99 * more]
        }
    }

    fn cell(&self, row: &Row) -> String {
        if row.clients > 0 {
            return format!("{:.0}", self.rate);
        }
        let time = |seconds| Nanos::from_secs_f64(seconds).to_string();
        let lacks = if self.unanswered > 0.0 { "!" } else { "" };
        format!("{}{lacks} / {}", time(self.mean), time(self.p99))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds| Nanos::from_secs_f64(seconds);
        let Self { mean, p99, rate, unanswered, moved, cost } = *self;
        write!(f, "{rate:.1}/s, {} / {}", time(mean), time(p99))?;
        write!(f, ", {:.2} % unanswered, {:.1} % moved, {}", unanswered * 100.0, moved * 100.0, time(cost))
    }
}

/// Returns how much worse the judged policy is than the best of these, for each figure; negative if it is
/// better.
fn distance_to_best<'a>(row: &Row, known: &Known, others: impl Iterator<Item = &'a str>) -> Option<Vec<f64>> {
    let of = |policy: &str| known.get(&(row.name.to_owned(), policy.to_owned())).map(|f| f.judged(row));
    let ours = of(JUDGED)?;
    let others: Vec<_> = others.filter_map(of).collect();
    let best = |i: usize| others.iter().map(|other| other[i]).min_by(f64::total_cmp);
    ours.iter().enumerate().map(|(i, our)| best(i).map(|best| our / best - 1.0)).collect()
}

/// The judged policy takes at most this much longer than the best of the others, in each figure.
const FROM_BEST: f64 = 0.03;

/// Describes the violated bounds: the distance to the best of the other policies, and those of the rows.
pub(super) fn violated_bounds(rows: &[&Row], known: &Known) -> Vec<String> {
    let others = || policies(known).into_iter().filter(|policy| *policy != JUDGED);
    let far = |row: &&Row| {
        let far = distance_to_best(row, known, others())?;
        let is_far = far.iter().any(|far| *far > FROM_BEST);
        let name = row.name;
        is_far.then(|| {
            let limit = FROM_BEST * 100.0;
            format!("{name}: {JUDGED} is {} from the best, above {limit:.0} %", percent(far))
        })
    };
    let broken = |row: &&Row| {
        let (other, bound) = row.bound?;
        let far = distance_to_best(row, known, std::iter::once(other))?;
        let worst = 1.0 + far.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let name = row.name;
        (worst > bound)
            .then(|| format!("{name}: {JUDGED} takes {worst:.2} times what {other} takes, above {bound}"))
    };
    rows.iter().filter_map(far).chain(rows.iter().filter_map(broken)).collect()
}

/// Returns the policies with known figures.
fn policies(known: &Known) -> Vec<&str> {
    let all = known.keys().map(|(_, policy)| &policy[..]);
    let mut policies: Vec<&str> = all.filter(|name| ![STATIC, DYNAMIC].contains(name)).collect();
    policies.sort_unstable();
    policies.dedup();
    policies
}

/// Formats one row per load: the cost per request by the model under each policy, and the lower bound.
pub(super) fn costs(rows: &[&Row], known: &Known) -> String {
    let policies = policies(known);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let heads = ["load"].into_iter().chain(policies.iter().copied());
    let more =
        ["static", "dynamic", "adaptive to static", "to dynamic", "static, replayed", "adaptive to that"];
    table.set_header(heads.chain(more));
    for row in rows {
        let of = |policy: &str| known.get(&(row.name.to_owned(), policy.to_owned()));
        // Unanswered requests are missing from the cost.
        let cost = |policy: &str| of(policy).filter(|f| f.unanswered == 0.0 && f.cost > 0.0).map(|f| f.cost);
        let told = |policy: &str| {
            cost(policy).map_or_else(|| "-".to_owned(), |cost| Nanos::from_secs_f64(cost).to_string())
        };
        let times = |bound: &str| match (cost(JUDGED), cost(bound)) {
            (Some(ours), Some(least)) => format!("{:.2} times", ours / least),
            _ => "-".to_owned(),
        };
        let distance =
            distance_to_best(row, known, std::iter::once(STATIC)).map_or_else(|| "-".to_owned(), percent);
        let replayed = of(STATIC).map_or_else(|| "-".to_owned(), |figures| figures.cell(row));
        let costs = policies.iter().copied().chain([STATIC, DYNAMIC]).map(told);
        let cells = std::iter::once(row.name.to_owned()).chain(costs);
        table.add_row(cells.chain([times(STATIC), times(DYNAMIC), replayed, distance]));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "what an Option holds")]
fn percent(all: Vec<f64>) -> String {
    all.iter().map(|far| format!("{:+.0} %", far * 100.0)).collect::<Vec<_>>().join(" / ")
}

/// Formats one row per load: each policy's figures and the distance.
pub(super) fn table(rows: &[&Row], known: &Known) -> String {
    let policies = policies(known);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let heads = ["load"].into_iter().chain(policies.iter().copied());
    table.set_header(heads.chain(["adaptive to the best", "to classic caching"]));
    for row in rows {
        let told = |policy: &&str| {
            let figures = known.get(&(row.name.to_owned(), (*policy).to_owned()));
            figures.map_or_else(|| "-".to_owned(), |figures| figures.cell(row))
        };
        let others = || policies.iter().copied().filter(|policy| *policy != JUDGED);
        let distance = distance_to_best(row, known, others()).map_or_else(|| "-".to_owned(), percent);
        let classic = distance_to_best(row, known, CLASSIC.into_iter()).filter(|_| row.saturates);
        let classic =
            classic.map_or_else(|| "-".to_owned(), |far| format!("{:.2} times", 1.0 / (1.0 + far[0])));
        let cells = std::iter::once(row.name.to_owned()).chain(policies.iter().map(told));
        table.add_row(cells.chain([distance, classic]));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// Describes the devices' activity, also over time.
pub(super) fn devices(outcome: &Outcome) -> String {
    let mut text = format!("    reads {:?}\n    writes {:?}\n", outcome.reads, outcome.writes);
    if outcome.stops > 0 {
        let _always_fits = writeln!(text, "    moves stopped {} times", outcome.stops);
    }
    for device in &outcome.devices {
        let direction = |d: &weir_sim::place::outcome::DirectionOutcome| {
            format!("{} of {}, {}", d.count, Bytes(d.bytes.0 / d.count.max(1)), d.mean)
        };
        let _always_fits = writeln!(
            text,
            "    {}: {:.0} % used, busy {:.0} %, {:.1} under way, reads {}, writes {}, map {}",
            device.name,
            100.0 * device.used.0 as f64 / device.room.0.max(1) as f64,
            100.0 * device.load,
            device.queue,
            direction(&device.reads),
            direction(&device.writes),
            device.metadata
        );
    }
    for window in &outcome.windows {
        let Window { start, rate, mean, p99, moved, .. } = window;
        let _always_fits = writeln!(text, "    {start}: {rate:.0}/s, {mean} / {p99}, {moved} moved");
    }
    text
}

/// Inserts the table into a document, between its markers.
///
/// # Errors
/// Fails if the document does not exist, has no markers, or cannot be written.
pub(super) fn record(path: &Path, rows: &[&Row], table: &str) -> Result<(), String> {
    let told = |error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(told)?;
    let parts = text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("{} lacks {BEGIN} or {END}", path.display()))?;
    let mut list = String::new();
    for row in rows {
        let [fast, slow] = row.describe_devices();
        let how = if row.clients == 0 { "open".to_owned() } else { format!("{} clients", row.clients) };
        let _always_fits = writeln!(list, "| `{}` | {} | {how} | {fast} | {slow} |", row.name, row.about);
    }
    let head = "| load | what it is | loop | fast devices, their part of the data | slow devices |\n|---|---|---|---|---|";
    std::fs::write(path, format!("{before}{BEGIN}\n\n{head}\n{list}\n{table}\n\n{END}{after}")).map_err(told)
}

/// Reads figures from a file: load, policy and figures per line, separated by tabs.
///
/// # Errors
/// Fails if the file cannot be read, or a line is malformed.
pub(super) fn read(path: &Path) -> Result<Known, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line = |line: &str| {
        let mut words = line.split('\t');
        let names = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut number = || words.next()?.parse().ok();
        let (mean, p99, rate) = (number()?, number()?, number()?);
        let (unanswered, moved) = (number()?, number()?);
        Some((names, Figures { mean, p99, rate, unanswered, moved, cost: number()? }))
    };
    let all = text.lines().map(line).collect::<Option<_>>();
    all.ok_or_else(|| format!("{} has a line that is no figures", path.display()))
}

/// Writes the figures atomically: an interruption leaves the old or the new file.
///
/// # Errors
/// Fails if the file cannot be written.
pub(super) fn write(path: &Path, known: &Known) -> Result<(), String> {
    let mut text = String::new();
    for ((load, policy), figures) in known {
        let Figures { mean, p99, rate, unanswered, moved, cost } = figures;
        let all = [mean, p99, rate, unanswered, moved, cost].map(f64::to_string).join("\t");
        let _always_fits = writeln!(text, "{load}\t{policy}\t{all}");
    }
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::loads::ROWS;
    use super::*;

    fn figures(mean: f64, rate: f64) -> Figures {
        Figures { mean, p99: 2.0 * mean, rate, ..Figures::default() }
    }

    #[test]
    fn distances_are_to_the_best_of_the_others_in_each_figure() {
        let name = |row: &Row, policy: &str| (row.name.to_owned(), policy.to_owned());
        let open = ROWS.iter().find(|row| row.clients == 0).expect("an open loop");
        let closed = ROWS.iter().find(|row| row.saturates).expect("a closed loop");
        let mut known = Known::new();
        known.insert(name(open, JUDGED), figures(1.1, 1.0));
        known.insert(name(open, "stripe"), figures(1.0, 1.0));
        known.insert(name(open, "mirror"), Figures { unanswered: 0.1, ..figures(0.5, 1.0) });
        known.insert(name(closed, JUDGED), figures(1.0, 300.0));
        known.insert(name(closed, "hystor"), figures(1.0, 100.0));
        let far =
            |row| distance_to_best(row, &known, ["stripe", "mirror", "hystor"].into_iter()).expect("figures");
        assert!(far(open).iter().all(|far| (far - 0.1).abs() < 1e-9), "{:?}", far(open));
        assert!((far(closed)[0] + 2.0 / 3.0).abs() < 1e-9);
        assert!(table(&[open, closed], &known).contains("3.00 times"));
    }

    #[test]
    fn violated_bound_is_reported() {
        let row = ROWS.iter().find(|row| row.bound.is_some()).expect("a row with a bound");
        let (other, bound) = row.bound.expect("a bound");
        let name = |policy: &str| (row.name.to_owned(), policy.to_owned());
        let mut known = Known::from([(name(JUDGED), figures(bound, 1.0))]);
        assert!(violated_bounds(&[row], &known).is_empty(), "there is nothing to compare with");
        let broken = |known: &Known| {
            let broken = violated_bounds(&[row], known);
            broken.iter().filter(|text| text.contains(" times what ")).count()
        };
        known.insert(name(other), figures(1.001, 1.0));
        assert_eq!(broken(&known), 0);
        known.insert(name(other), Figures { p99: 1.9, ..figures(1.001, 1.0) });
        assert_eq!(broken(&known), 1, "one figure is enough");
    }

    #[test]
    fn a_distance_of_more_than_three_percent_to_the_best_is_reported() {
        let row = ROWS.iter().find(|row| row.clients == 0 && row.bound.is_none()).expect("an open loop");
        let name = |policy: &str| (row.name.to_owned(), policy.to_owned());
        let mut known =
            Known::from([(name(JUDGED), figures(1.02, 1.0)), (name("stripe"), figures(1.0, 1.0))]);
        assert!(violated_bounds(&[row], &known).is_empty());
        known.insert(name(STATIC), figures(0.5, 1.0));
        assert!(violated_bounds(&[row], &known).is_empty(), "the offline bounds are no policies");
        known.insert(name("mirror"), Figures { mean: 0.9, ..figures(1.5, 1.0) });
        let broken = violated_bounds(&[row], &known);
        assert_eq!(broken, [format!("{}: adaptive is +13 % / +2 % from the best, above 3 %", row.name)]);
    }

    #[test]
    fn figures_survive_write_and_read() {
        let path = std::env::temp_dir().join(format!("weir-place-{}", std::process::id()));
        let known = Known::from([(("a".to_owned(), "b".to_owned()), figures(0.125, 3.5))]);
        write(&path, &known).expect("written");
        assert_eq!(read(&path), Ok(known));
        std::fs::remove_file(&path).expect("removed");
    }
}
