//! Formats the coverage of a campaign as Markdown tables.

use comfy_table::{CellAlignment, Table, presets};
use std::fmt::Write;
use std::time::Duration;
use weir_world::{FaultKind, Moment, Statistics, Trait};

/// Length of a full campaign in crashes, and the required number of hits of each pair of fault and moment.
const CRASHES: u64 = 1_000_000;
const HITS: u64 = 1_000;

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

/// Formats the whole summary.
pub(crate) fn summary(total: &Statistics, took: Duration) -> String {
    let mut out = String::new();
    let seconds = took.as_secs_f64().max(1e-9);
    let rows = [
        ("runs", total.runs.to_string()),
        ("crashes", format!("{} ({:.0}/s)", total.crashes, total.crashes as f64 / seconds)),
        ("… in copies of pools that went on", total.in_copies.to_string()),
        ("operations", format!("{} ({:.0}/s)", total.requests, total.requests as f64 / seconds)),
        ("… without space", total.no_space.to_string()),
        ("… failed by a device", total.errors.to_string()),
        ("bytes compared", total.compared.to_string()),
        ("operations between crashes, median", total.median_gap().to_string()),
        ("crashes during recovery", format!("{:.1} %", percent(total.in_recovery, total.crashes))),
        (
            "crashes after the journal went around",
            format!("{:.1} %", percent(total.after_wrap, total.crashes)),
        ),
        ("crashes during a checkpoint", format!("{:.1} %", percent(total.in_checkpoint, total.crashes))),
        (
            "runs with space reused by another volume",
            format!("{:.1} %", percent(total.runs_with_reuse, total.runs)),
        ),
        ("damaged metadata noticed when opening", total.damage_detected.to_string()),
        ("… mended, or in nothing that counts", total.damage_tolerated.to_string()),
        ("pools that may have lost their only journal's last frame", total.pools_abandoned.to_string()),
        ("damaged sectors of users' data read", total.damaged_data.to_string()),
        ("times the devices were looked at", total.audits.to_string()),
        ("… and redundancy was not back yet", total.restored.to_string()),
        ("devices lost for good, in copies of the pool", total.losses.to_string()),
        ("… and replaced by blank ones", total.replacements.to_string()),
        ("time", format!("{:.0} s", took.as_secs_f64())),
    ];
    let mut facts = Table::new();
    facts.load_style(presets::ASCII_MARKDOWN).set_header(["what", "how much"]);
    facts.add_rows(rows.map(|(what, much)| [what.to_owned(), much]));
    let _always_fits = write!(
        out,
        "\n{facts}\n\n{}\n\n{}\n\n{}\n\n{}",
        aims(total),
        matrix(total),
        triples(total),
        rare_pairs(total)
    );
    out
}

/// Formats the coverage goals of a campaign.
fn aims(total: &Statistics) -> Table {
    let share = |part, whole| format!("{:.1} %", percent(part, whole));
    let reaches = |part, whole, least| percent(part, whole) >= least;
    let gap = total.median_gap();
    let of_crashes = |part, least| (share(part, total.crashes), reaches(part, total.crashes, least));
    let rarest = total.rarer_than(u64::MAX).into_iter().map(|(_, _, hits)| hits).min().unwrap_or(0);
    let (met, possible) = triples_met(total);
    let (met, possible) = (met as u64, possible as u64);
    let triples = (share(met, possible), reaches(met, possible, 95.0));
    let reused = (share(total.runs_with_reuse, total.runs), reaches(total.runs_with_reuse, total.runs, 25.0));
    let rows = [
        ("operations between crashes, median", "200", (gap.to_string(), gap >= 200)),
        ("crashes after the journal went around", "10 %", of_crashes(total.after_wrap, 10.0)),
        ("crashes during a checkpoint", "10 %", of_crashes(total.in_checkpoint, 10.0)),
        ("crashes during recovery", "10 %", of_crashes(total.in_recovery, 10.0)),
        ("runs with space reused by another volume", "25 %", reused),
        ("triples met (what, when, to which pools)", "95 %", triples),
        ("hits of the rarest pair", "1000", (rarest.to_string(), rarest >= HITS)),
    ];
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["aim", "at least", "found", "reached"]);
    for (what, least, (found, reached)) in rows {
        table.add_row([what, least, &found, if reached { "yes" } else { "NO" }]);
    }
    table
}

/// Formats at how many of the possible moments each strike happened, by trait of the pool.
fn triples(total: &Statistics) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let name = |strike: &FaultKind| strike.to_string();
    table.set_header(["pools with".to_owned()].into_iter().chain(FaultKind::ALL.iter().map(name)));
    for of in Trait::ALL {
        let met = FaultKind::ALL.iter().map(|strike| match total.moments_covered(*strike, *of) {
            (met, possible) if met == possible => "all".to_owned(),
            (met, possible) => format!("{met}/{possible}"),
        });
        table.add_row([of.to_string()].into_iter().chain(met));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Returns the number of triples that occurred, and of all possible ones.
fn triples_met(total: &Statistics) -> (usize, usize) {
    let all = Trait::ALL.iter().flat_map(|of| FaultKind::ALL.iter().map(move |strike| (*strike, *of)));
    all.map(|(strike, of)| total.moments_covered(strike, of))
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Lists the pairs that occurred too rarely, or would at this rate in a full campaign.
fn rare_pairs(total: &Statistics) -> String {
    let part = total.crashes as f64 / CRASHES as f64;
    let enough = if part < 1.0 { (HITS as f64 * part).ceil() as u64 } else { HITS };
    let rare = total.rarer_than(enough);
    if rare.is_empty() {
        return format!("Every pair that can be met was met at least {enough} times.\n");
    }
    let mut text = format!("Met less than {enough} times ({HITS} in {CRASHES} crashes):\n\n");
    for (strike, moment, hits) in rare {
        let _always_fits = writeln!(text, "- {strike}, {moment}: {hits}");
    }
    text
}

/// Formats how often each strike happened at each moment.
fn matrix(total: &Statistics) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let name = |strike: &FaultKind| strike.to_string();
    table.set_header(["moment".to_owned()].into_iter().chain(FaultKind::ALL.iter().map(name)));
    for moment in Moment::all() {
        let hits = FaultKind::ALL.iter().map(|strike| match total.hits(*strike, moment) {
            0 if strike.impossible_at(moment).is_some() => "-".to_owned(),
            hits => hits.to_string(),
        });
        table.add_row([moment.to_string()].into_iter().chain(hits));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
