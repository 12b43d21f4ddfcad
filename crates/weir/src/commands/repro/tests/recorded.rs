//! Every published row of all systems is reproduced, or on the list of those that differ, with its reason.
//!
//! The list is `data/recorded.toml`. What is recorded is on the pages of results in the book. The test that
//! runs everything takes half an hour; `short_runs_differ_where_the_list_says` runs what is fast.

use super::*;
use published::{Row, Table};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Pages of recorded results.
const PAGES: [&str; 7] = [
    include_str!("../../../../../../docs/policies/reproduction-results.md"),
    include_str!("../../../../../../docs/policies/reproduction-results-f2fs.md"),
    include_str!("../../../../../../docs/policies/reproduction-results-hec.md"),
    include_str!("../../../../../../docs/policies/reproduction-results-logs.md"),
    include_str!("../../../../../../docs/policies/reproduction-results-ramps.md"),
    include_str!("../../../../../../docs/policies/reproduction-results-scmfs.md"),
    include_str!("../../../../../../docs/policies/reproduction-results-trident.md"),
];

/// Pages of recorded experiments on causes.
const CAUSE_PAGES: [&str; 2] = [
    include_str!("../../../../../../docs/policies/reproduction-causes-pools.md"),
    include_str!("../../../../../../docs/policies/reproduction-causes-caches.md"),
];

/// The load file of Debian's package dbench.
const DBENCH: &str = "/usr/share/dbench/client.txt";

/// The list, by reproduction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// Rows whose recorded figure differs.
    differs: BTreeMap<String, Vec<Listed>>,
    /// Rows without a recorded figure.
    unrecorded: BTreeMap<String, Vec<Listed>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    at: String,
    row: String,
    #[serde(default)]
    reason: String,
}

/// An experiment on a cause: the reproduction, the row, and the change.
type Experimented = (String, String, String);
/// A row: the reproduction, the place, what it compares, and the reason if it differs.
type Name = (String, String, String, String);

fn list() -> [BTreeSet<Name>; 2] {
    let List { differs, unrecorded } =
        toml::from_str(include_str!("../data/recorded.toml")).expect("a valid list");
    [differs, unrecorded].map(|all| {
        let of = |(name, rows): (String, Vec<Listed>)| {
            rows.into_iter().map(move |one| (name.clone(), one.at, one.row, one.reason)).collect::<Vec<_>>()
        };
        let rows: Vec<Name> = all.into_iter().flat_map(of).collect();
        let set: BTreeSet<Name> = rows.iter().cloned().collect();
        assert_eq!(set.len(), rows.len(), "no row is listed twice");
        set
    })
}

/// Returns the verdicts of the rows on the pages, by place and title.
fn recorded() -> BTreeMap<(String, String), String> {
    let mut all = BTreeMap::new();
    for line in PAGES.iter().flat_map(|page| page.lines()) {
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = cells.split(" | ").map(str::trim).collect();
        let [at, title, _, _, verdict] = cells[..] else { continue };
        let verdict = verdict.split(',').next().unwrap_or_default();
        if ["agrees", "in direction", "differs"].contains(&verdict) {
            all.insert((at.to_owned(), title.to_owned()), verdict.to_owned());
        }
    }
    all
}

/// Returns the rows with a vote that are measured.
fn rows() -> Vec<(&'static str, Table, Row)> {
    let of = |(reproduction, publication): (&'static Reproduction, Publication)| {
        let rows = publication.rows().filter(|(_, row)| row.has_vote());
        let rows = rows.filter(|(_, row)| matches!(row.source, Source::Run(_)));
        rows.map(|(table, row)| (reproduction.name, table.clone(), row.clone())).collect::<Vec<_>>()
    };
    publications().into_iter().flat_map(of).collect()
}

fn title(table: &Table, row: &Row) -> String {
    match &*table.baseline {
        "" => row.quantity.clone(),
        baseline => format!("{}, to {baseline}", row.quantity),
    }
}

fn name(reproduction: &str, table: &Table, row: &Row, differs: bool) -> Name {
    let reason = row.cause.as_deref().unwrap_or("cause unknown");
    let reason = if differs { reason } else { "" };
    (reproduction.into(), table.at.clone(), title(table, row), reason.into())
}

/// A row that leaves or joins the pages, or whose verdict there or whose cause changes, fails the test.
#[test]
fn every_row_is_recorded_as_reproduced_or_on_the_list() {
    let (pages, [differs, unrecorded]) = (recorded(), list());
    let mut found = [BTreeSet::new(), BTreeSet::new()];
    for (reproduction, table, row) in rows() {
        let title = title(&table, &row);
        let of_all = (format!("{reproduction}, {}", table.at), title.clone());
        match pages.get(&(table.at.clone(), title)).or_else(|| pages.get(&of_all)).map(String::as_str) {
            None => found[1].insert(name(reproduction, &table, &row, false)),
            Some("differs") => found[0].insert(name(reproduction, &table, &row, true)),
            Some(_) => true,
        };
    }
    assert_eq!(found[0].symmetric_difference(&differs).collect::<Vec<_>>(), Vec::<&Name>::new(), "differs");
    let changed: Vec<_> = found[1].symmetric_difference(&unrecorded).collect();
    assert_eq!(changed, Vec::<&Name>::new(), "unrecorded");
}

/// What recorded experiments on causes showed, by reproduction, row, and number of the change: the change and
/// its effect.
type Effects = BTreeMap<(String, String), BTreeMap<usize, (String, &'static str)>>;

/// Reads the tables of the pages: the numbered changes of a reproduction, and its rows with a column for each
/// change.
fn recorded_effects() -> Effects {
    let mut all = Effects::new();
    let (mut reproduction, mut changes, mut columns) = ("", BTreeMap::new(), Vec::new());
    for line in CAUSE_PAGES.iter().flat_map(|page| page.lines()) {
        if let Some(heading) = line.strip_prefix("## ") {
            (reproduction, changes, columns) = (heading, BTreeMap::new(), Vec::new());
        }
        let Some(cells) = line.strip_prefix("| ").and_then(|line| line.strip_suffix('|')) else { continue };
        let cells: Vec<&str> = cells.split('|').map(str::trim).collect();
        match &*cells {
            ["row", "published", "here", numbers @ ..] => {
                columns = numbers.iter().filter_map(|number| number.parse::<usize>().ok()).collect();
            }
            [number, what, _] if number.parse::<usize>().is_ok() => {
                changes.insert(number.parse::<usize>().expect("checked"), (*what).to_owned());
            }
            [row, _, _, figures @ ..] if figures.len() == columns.len() => {
                let of_row = all.entry((reproduction.to_owned(), (*row).to_owned())).or_default();
                for (number, figure) in columns.iter().zip(figures).filter(|(_, figure)| !figure.is_empty()) {
                    let known = ["shown", "nearer", "no", "does not differ", "failed"];
                    let effect = known.into_iter().find(|effect| figure.ends_with(&format!(" {effect}")));
                    let effect = effect.unwrap_or_else(|| panic!("{reproduction}: {row}: {figure}"));
                    of_row.insert(*number, (changes[number].clone(), effect));
                }
            }
            _ => {}
        }
    }
    all
}

/// Every declared change is recorded with each of its rows, and no others are.
#[test]
fn every_experiment_on_a_cause_is_recorded() {
    let mut declared = BTreeSet::new();
    for (reproduction, publication) in publications() {
        for cause in &publication.causes {
            let row = |row: &String| (reproduction.name.to_owned(), row.clone(), cause.what.clone());
            declared.extend(cause.rows.iter().map(row));
        }
    }
    let mut recorded = BTreeSet::new();
    for ((reproduction, row), changes) in recorded_effects() {
        let one = |(what, _): (String, &str)| (reproduction.clone(), row.clone(), what);
        recorded.extend(changes.into_values().map(one));
    }
    assert_eq!(declared.symmetric_difference(&recorded).collect::<Vec<_>>(), Vec::<&Experimented>::new());
}

/// Every row that differs names the changes that were shown to be its cause, or a part of it, or says that
/// the cause is unknown.
#[test]
fn every_reason_names_the_experiment_that_showed_it() {
    let (effects, [differs, _]) = (recorded_effects(), list());
    let mut wrong = Vec::new();
    for (reproduction, publication) in publications() {
        for (table, row) in publication.rows() {
            let title = title(table, row);
            let of_row = |(name, at, listed, _): &&Name| {
                (&**name, at, listed) == (reproduction.name, &table.at, &title)
            };
            let Some((.., reason)) = differs.iter().find(of_row) else { continue };
            let names = [format!("{}: {}", table.at, row.quantity), format!("{}: {title}", table.at)];
            let of_name = |row: &String| effects.get(&(reproduction.name.to_owned(), row.clone()));
            let changes: BTreeMap<_, _> = names.iter().filter_map(of_name).flatten().collect();
            let that = |effect: &str| {
                let some = changes.values().filter(|(_, of)| *of == effect);
                // "what is so; something else instead"
                some.map(|(what, _)| what.rsplit_once("; ").map_or(&**what, |(is, _)| is)).collect::<Vec<_>>()
            };
            let is_right = match (&*that("shown"), &*that("nearer")) {
                ([], []) => reason.starts_with("cause unknown"),
                ([], parts) => *reason == format!("in part: {}", parts.join("; ")),
                (shown, _) => *reason == shown.join("; "),
            };
            if !is_right {
                wrong.push((reproduction.name, names, reason.clone(), that("shown"), that("nearer")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same, by running the short form of everything. Prints the rows that left or joined.
#[test]
#[ignore = "takes half an hour: run with --release"]
fn the_short_form_differs_where_the_list_says() {
    // The pages are of runs with dbench's own load file.
    let dbench = Some(PathBuf::from(DBENCH)).filter(|file| file.exists());
    if dbench.is_none() {
        eprintln!("left out: the rows of wardrop, since there is no {DBENCH}; install dbench");
    }
    let has_dbench = dbench.is_some();
    let args =
        ReproArgs { name: Some(EVERY.into()), no_variants: true, seed: 1, dbench, ..ReproArgs::default() };
    let [differs, unrecorded] = list();
    let mut wrong = Vec::new();
    let reports = reproduce(EVERY, &args).expect("reports");
    for report in reports.iter().filter(|report| has_dbench || report.name != "wardrop") {
        for result in report.rows().iter().filter(|result| result.has_vote()) {
            let RowOutcome::Measured(measurement) = &result.outcome else { continue };
            let row = |differs| name(report.name, result.table, result.row, differs);
            let is_listed = differs.contains(&row(true));
            let joins = (measurement.verdict == Verdict::Differs) != is_listed;
            if joins && !unrecorded.contains(&row(false)) {
                wrong.push((row(true), measurement.median, measurement.verdict));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
