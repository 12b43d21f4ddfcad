mod recorded;

use super::*;
use crate::output::testing::assert_fits;
use published::{Provenance, Source};
use std::collections::{BTreeMap, BTreeSet};
use verdict::Verdict;

#[test]
fn the_list_fits_the_terminal() {
    let document = document().expect("valid data");
    assert_fits(|width| list(width, &document));
}

fn publications() -> Vec<(&'static Reproduction, Publication)> {
    ALL.iter().map(|one| (one, one.publication().expect("valid data"))).collect()
}

/// Returns the names of all experiments, and of their periods.
fn experiments(reproduction: &Reproduction, setting: &Setting) -> (BTreeSet<String>, BTreeSet<&'static str>) {
    let names = |names: Result<Vec<String>, Failure>| {
        (names.expect("usable parameters").into_iter().collect(), BTreeSet::new())
    };
    let experiments = match &reproduction.measures {
        Measures::Pools(experiments) => experiments,
        Measures::Ramps(_) => return names(user_optimal::names(setting)),
        Measures::Caches(_) => return names(hec::names(setting)),
        Measures::Logs(_) => return names(log_on_log::names(setting)),
        Measures::Files(_) => return names(trident::names(setting)),
        Measures::Memory(_) => return names(scmfs::names(setting)),
    };
    let all = experiments(setting).expect("usable parameters");
    let names: BTreeSet<_> = all.iter().map(|one| one.name.clone()).collect();
    assert_eq!(names.len(), all.len(), "{}: names are distinct", reproduction.name);
    for one in &all {
        let tuned = one.policy().is_some();
        assert!(tuned, "{}: {} takes {:?}", one.name, one.policy, one.tuning);
    }
    (names, all.iter().flat_map(|one| one.periods.iter().map(|period| period.name)).collect())
}

/// Makes the load of each of these experiments once: names begin with the load's.
fn make_loads(reproduction: &Reproduction, setting: &Setting, is_wanted: impl Fn(&String) -> bool) {
    let Measures::Pools(experiments) = &reproduction.measures else { return };
    let all = experiments(setting).expect("usable parameters");
    let wanted = all.iter().filter(|one| is_wanted(&one.name));
    let of_each_load: BTreeMap<_, _> = wanted.map(|one| (one.name.split(", ").next(), one)).collect();
    for one in of_each_load.values() {
        let load = (one.load)(1, Nanos::secs(1));
        assert!(load.is_ok(), "{}: {:?}", one.name, load.err());
    }
}

#[test]
fn rows_name_experiments_and_metrics_that_exist() {
    for (reproduction, publication) in publications() {
        let setting = Setting::without_files(&publication);
        let (experiments, periods) = experiments(reproduction, &setting);
        make_loads(reproduction, &setting, |_| true);
        let has_metric = |name: &str| match reproduction.measures {
            Measures::Pools(_) => results::POOL_METRICS.contains(&name),
            Measures::Ramps(_) => user_optimal::METRICS.contains(&name),
            Measures::Caches(_) => hec::has_metric(name),
            Measures::Logs(_) => log_on_log::LOG_METRICS.contains(&name),
            Measures::Files(_) => trident::has_metric(name),
            Measures::Memory(_) => scmfs::has_metric(name),
        };
        for (table, row) in publication.rows() {
            let at = format!("{}, {}: {}", reproduction.name, table.at, row.quantity);
            if let Source::Run(run) = &row.source {
                // Longer names first: one may begin with another.
                let mut periods: Vec<_> = periods.iter().collect();
                periods.sort_by_key(|period| std::cmp::Reverse(period.len()));
                let general = periods.iter().fold(run.metric.clone(), |metric, period| {
                    let metric = metric.replace(&format!("in {period}"), "in PERIOD");
                    metric.replace(&format!("device, {period} to"), "device, PERIOD to")
                });
                let general = periods.iter().fold(general, |metric, period| {
                    metric.replace(&format!("PERIOD to {period}"), "PERIOD to PERIOD")
                });
                assert!(has_metric(&general), "{at}: {}", run.metric);
                for name in run.experiments() {
                    assert!(experiments.contains(name), "{at}: {name}");
                }
            }
            if let Some(pair) = &row.pair {
                let (place, quantity) = pair.split_once(": ").unwrap_or((&table.at, pair));
                let is_it = |(table, other): (&published::Table, &published::Row)| {
                    table.at == place && other.quantity == quantity && !std::ptr::eq(other, row)
                };
                let is_here =
                    table.rows.iter().any(|other| other.quantity == *pair && !std::ptr::eq(other, row));
                assert!(is_here || publication.rows().any(is_it), "{at}: pair {pair}");
            }
        }
    }
}

#[test]
fn a_table_has_one_baseline_unless_the_publication_has_two() {
    let table = |at: &str, baseline: &str, reason: &str| {
        format!(
            "[[table]]\nat = {at:?}\nwhat = \"w\"\nbaseline = {baseline:?}\n{reason}\n[[table.row]]\n\
             quantity = \"q\"\nratio = [2, 2]\nmissing = \"m\"\n"
        )
    };
    // The number of rows with a vote; none if the data is refused.
    let votes = |second: String| {
        let text = format!("source = \"s\"\n{}{second}", table("figure 5a", "the disk", ""));
        let publication = Publication::read(&text).ok()?;
        Some(publication.rows().filter(|(_, row)| row.has_vote()).count())
    };
    let quote = "second_baseline = \"better than the SSD\"";
    let restates = "restates = \"figure 5a\"";
    assert_eq!(votes(table("figure 5a, to the SSD", "the SSD", "")), None, "no reason");
    assert_eq!(votes(table("figure 5a (to the SSD)", "the SSD", "")), None, "no reason");
    assert_eq!(votes(table("figure 5a", "the SSD", quote)), Some(2));
    assert_eq!(votes(table("figure 5a", "the SSD", restates)), Some(1), "without a vote");
    assert_eq!(votes(table("figure 5a", "the SSD", &format!("{quote}\n{restates}"))), None, "two reasons");
    assert_eq!(votes(table("figure 5a", "the disk", quote)), None, "there is no second baseline");
    assert_eq!(votes(table("figure 5b", "the SSD", "")), Some(2), "another figure");
    assert_eq!(votes(table("section 5", "the SSD", "")), Some(2), "a statement of the text");
}

/// Words have a verdict only if they compare the row with its baseline.
#[test]
fn words_say_that_two_figures_are_about_equal() {
    let about_equal = [
        "similar",
        "same",
        "identical",
        "close",
        "near",
        "comparable",
        "equal",
        "balance",
        "no difference",
        "no impact",
        "slightly",
        "match",
        "maintained",
        "approached",
        "not perform beyond",
        "improves",
    ];
    for (reproduction, publication) in publications() {
        for (table, row) in
            publication.rows().filter(|(_, row)| row.has_vote() && matches!(row.source, Source::Run(_)))
        {
            if let Published::Words(words) | Published::WordsOr(words, _) = &row.published {
                let words = words.to_lowercase();
                let at = format!("{}, {}: {}", reproduction.name, table.at, row.quantity);
                assert!(about_equal.iter().any(|one| words.contains(one)), "{at}: {words:?}");
            }
        }
    }
}

/// Of the columns of a table that determine each other, the one that is printed most precisely has the vote,
/// unless several are precise enough to have a direction.
#[test]
fn the_most_precise_column_has_the_vote() {
    let width = |row: &published::Row| match &row.published {
        Published::Ratio(interval) => Some((interval.most / interval.least).ln()),
        _ => None,
    };
    for (reproduction, publication) in publications() {
        for table in &publication.tables {
            for row in &table.rows {
                let voting = table.rows.iter().find(|other| row.pair.as_ref() == Some(&other.quantity));
                let Some((here, there)) = voting.and_then(|voting| width(row).zip(width(voting))) else {
                    continue;
                };
                let at = format!("{}, {}: {}", reproduction.name, table.at, row.quantity);
                assert!(
                    there <= f64::max(here * 1.001, 1.02_f64.ln()),
                    "{at} is printed more precisely than {:?}",
                    row.pair
                );
            }
        }
    }
}

/// Experiments read every parameter from the data file, but those that the file says are built in, and no
/// other: reading a parameter that is not in the file is an error. So each value has a provenance.
#[test]
fn every_parameter_is_read_from_the_data_or_built_in() {
    for (reproduction, publication) in publications() {
        let setting = Setting::without_files(&publication);
        let _ = experiments(reproduction, &setting);
        let read = setting.parameters.names_read();
        for parameter in &publication.parameters {
            let is_read = read.contains(&parameter.name);
            assert_ne!(is_read, parameter.built_in.is_some(), "{}: {}", reproduction.name, parameter.name);
        }
    }
}

/// A parameter whose provenance is a policy's default has the value of that policy's key.
#[test]
fn defaults_are_those_of_the_policies() {
    for (_, publication) in publications() {
        let parameters = Parameters::new(&publication);
        for parameter in publication.parameters.iter().filter(|one| one.provenance == Provenance::Default) {
            let name = &*parameter.name;
            let mut keys = weir_policy::placement::ALL.iter().flat_map(|policy| policy.keys);
            let Some(key) = keys.find(|key| key.name == name) else { continue };
            let value = parameters.first_number(name).expect("a number");
            assert!((value - key.default).abs() < 1e-9, "{name}: {value} for {}", key.default);
        }
    }
}

/// The load whose words the parameters make is the named one that users can generate.
#[test]
fn the_load_of_the_caches_is_a_named_one() {
    let publication = hec::REPRODUCTION.publication().expect("valid data");
    let words = hec::load_words(&Parameters::new(&publication)).expect("usable parameters");
    let arrivals = |words: &str| {
        let mut load = weir_sim::load::parse(words, 1, crate::pool_file::size, crate::pool_file::duration)
            .expect("a load");
        let mut now = Nanos(0);
        let mut next = || {
            let arrival = load.next_arrival(now);
            now = arrival.at;
            arrival
        };
        (0..1000).map(|_| next()).collect::<Vec<_>>()
    };
    assert_eq!(arrivals(&words), arrivals(hec::LOAD), "{words}");
}

/// Every parameter is used by an experiment, and fitted to a table that exists.
#[test]
fn parameters_name_tables_and_experiments_that_exist() {
    for (reproduction, publication) in publications() {
        let (experiments, _) = experiments(reproduction, &Setting::without_files(&publication));
        assert!(!publication.parameters.is_empty(), "{}", reproduction.name);
        for parameter in &publication.parameters {
            let at = format!("{}: parameter {}", reproduction.name, parameter.name);
            assert!(experiments.iter().any(|name| parameter.is_used_by(name)), "{at}");
            if let Provenance::Fitted(tables) = &parameter.provenance {
                for place in tables {
                    assert!(publication.tables.iter().any(|table| table.at == *place), "{at}: {place}");
                }
            }
        }
    }
}

/// Every cause changes parameters that experiments read, and explains rows that are measured.
#[test]
fn causes_name_rows_and_parameters_that_exist() {
    for (reproduction, publication) in publications() {
        let setting = Setting::without_files(&publication);
        for cause in &publication.causes {
            let at = format!("{}: {}", reproduction.name, cause.what);
            let rows = causes::rows(&publication, cause).unwrap_or_else(|what| panic!("{at}: {what}"));
            assert!(!rows.is_empty() && !cause.change.is_empty(), "{at}");
            assert!(cause.one_thing.is_empty() || cause.change.len() > 1, "{at}: one parameter is one thing");
            let titles: BTreeSet<_> = rows
                .iter()
                .map(|(table, row, _)| (&table.at, published::title(&row.quantity, &table.baseline)))
                .collect();
            assert_eq!(titles.len(), rows.len(), "{at}: rows that cannot be told apart");
            let changed =
                causes::changed(&setting, &cause.change).unwrap_or_else(|what| panic!("{at}: {what}"));
            // The values are usable.
            let _ = experiments(reproduction, &changed);
            let of_rows: BTreeSet<_> = rows.iter().flat_map(|(_, _, run)| run.experiments()).collect();
            make_loads(reproduction, &changed, |name| of_rows.contains(name));
            for name in cause.change.keys() {
                assert!(changed.parameters.is_read(name), "{at}: {name}");
            }
        }
    }
}

/// Every sweep has a chosen value, changes parameters that experiments read, and has rows in every table.
#[test]
fn sweeps_name_tables_and_parameters_that_exist() {
    for (reproduction, publication) in publications() {
        let setting = Setting::without_files(&publication);
        for sweep in &publication.sweeps {
            let at = format!("{}: {}", reproduction.name, sweep.what);
            let chosen = sweep.steps.iter().filter(|step| step.change.is_empty()).count();
            assert_eq!(chosen, 1, "{at}");
            let values: BTreeSet<_> = sweep.steps.iter().map(|step| &step.value).collect();
            assert_eq!(values.len(), sweep.steps.len(), "{at}");
            for table in &sweep.tables {
                let is_measured = |(of, row): (&published::Table, &published::Row)| {
                    of.at == *table && matches!(row.source, Source::Run(_))
                };
                assert!(publication.rows().any(is_measured), "{at}: {table}");
            }
            for step in &sweep.steps {
                let changed =
                    causes::changed(&setting, &step.change).unwrap_or_else(|what| panic!("{at}: {what}"));
                // The values are usable.
                let _ = experiments(reproduction, &changed);
                for name in step.change.keys() {
                    assert!(changed.parameters.is_read(name), "{at}: {name}");
                }
            }
        }
    }
}

/// Uniform writes are the cause of a row of table 4.2, as its data says; logs filled before are not.
#[test]
fn the_cause_of_a_row_is_measured() {
    let only = Some("table 4.2, FLWA: 0.8, 4 MB".to_owned());
    let args = ReproArgs { only, seed: 1, ..ReproArgs::default() };
    let found = explain("log-on-log", &args).expect("experiments");
    let document = serde_json::to_value(found[0].document()).expect("JSON");
    let row = |cause: usize| &document["causes"][cause]["rows"][0];
    let figure = |cause: usize, name: &str| row(cause)[name].as_f64().expect("a figure");
    assert!((figure(0, "without") - 1.0).abs() < 0.01 && figure(0, "with") > 1.1, "{document}");
    assert_eq!(row(0)["effect"], "nearer", "it is in direction, and not half of the way: {document}");
    assert_eq!(figure(1, "without"), figure(0, "without"));
    assert_ne!(row(1)["effect"], "shown", "{document}");
    assert_fits(|width| found[0].human(width));
    assert!(explain("log-on-log", &ReproArgs { only: Some("no such".into()), ..args }).is_err());
}

#[test]
fn experiments_are_selected_by_place() {
    let publication = asymmetry::REPRODUCTION.publication().expect("valid data");
    let named =
        |place: &str, part: &str| publication.experiments_at(place).iter().any(|name| name.contains(part));
    assert!(named("table I", "postmark") && !named("table I", "large files"), "table II is another");
    assert!(named("table II", "large files"));
    assert!(named("figure 5", "nfs ramp, disk"), "figure 5a is a part of it");
    assert!(publication.experiments_at("figure 50").is_empty() && publication.experiments_at("").is_empty());
    let hystor = hystor::REPRODUCTION.publication().expect("valid data");
    assert!(hystor.experiments_at("figure").len() > hystor.experiments_at("figure 5").len());
}

#[test]
fn a_name_of_no_experiment_is_refused() {
    let args = ReproArgs { only: Some("nosuch".into()), ..ReproArgs::default() };
    for name in ["hystor", "all"] {
        let refused = reproduce(name, &args).expect_err("no experiment");
        assert!(refused.message.contains("\"nosuch\""), "{refused:?}");
        assert!(
            refused.help.starts_with("its experiments are ") && refused.help.contains("; and "),
            "{refused:?}"
        );
    }
}

#[test]
fn options_without_a_publication_are_refused() {
    let refused = |args: ReproArgs| refuse_without_name(&args).expect_err("no name");
    let failure = refused(ReproArgs { causes: true, ..ReproArgs::default() });
    assert_eq!(failure.message, "--causes needs the name of a publication");
    assert!(
        failure.help.contains("wardrop") && failure.help.ends_with("weir repro all --causes"),
        "{failure:?}"
    );
    assert!(refused(ReproArgs { full: true, ..ReproArgs::default() }).message.contains("--full"));
    assert!(refuse_without_name(&ReproArgs::default()).is_ok());
}

/// Rows that differ in the short runs below. `data/recorded.toml` says why.
const DIFFER: &[(&str, &str, &str)] = &[
    ("asymmetry", "figure 9", "3R1W, striped"),
    ("asymmetry", "figure 9", "4R0W, striped"),
    ("hec", "table 3.1, FLWA", "80 GB, FLWA"),
    ("hec", "table 3.1, FLWA", "100 GB, FLWA"),
    ("hec", "table 3.1, FLWA", "120 GB, FLWA"),
    ("hec", "table 3.1, hits", "80 GB, hit rate"),
    ("hec", "table 3.1, hits", "100 GB, hit rate"),
    ("hec", "table 3.1, hits", "120 GB, hit rate"),
    ("hec", STATEMENTS, "SSEQR, large caches of the same absolute size, hit rate"),
    ("hec", STATEMENTS, "TC, large caches of the same absolute size, hit rate"),
    ("hec", STATEMENTS, "SSEQR+TC, large caches of the same absolute size, hit rate"),
    ("hec", "table 3.4", "improved, 100 GB, CLWA"),
    ("hec", "table 3.4", "improved, 120 GB, CLWA"),
    ("hec", "table 3.4, FLWA", "improved, 120 GB, FLWA"),
    ("hec", "table 3.4, hits", "improved, 100 GB, hit rate"),
    ("hec", "table 3.4, hits", "improved, 120 GB, hit rate"),
    ("hec", "figure 3.7", "guarantee 50 %, hit rate"),
    ("hec", "figure 3.7", "guarantee 50 %, write amplification"),
    ("log-on-log", "table 4.2, FLWA", "0.8, 4 MB, FLWA"),
    ("scmfs", "figure 26, writes of 64 to 512 KiB", "SCMFS, 64 KiB"),
    ("scmfs", "figure 28, file systems", "writes, 2 threads"),
    ("scmfs", "figure 28, file systems", "writes, 3 threads"),
    ("scmfs", "figure 28, file systems", "writes, 4 threads"),
    ("scmfs", "figure 29, file systems", "writes, 2 threads"),
    ("scmfs", "figure 29, file systems", "writes, 3 threads"),
    ("scmfs", "figure 29, file systems", "writes, 4 threads"),
    ("trident", "figure 5c", "greedy"),
    ("wardrop", "figure 10", "2 processes, half of the data on the SSD, throughput"),
];
const STATEMENTS: &str = "section 3.4.2, statements";

/// Short runs of the fast experiments have the published direction, but for the rows of a list. A row that
/// leaves or joins the list fails the test.
#[test]
fn short_runs_differ_where_the_list_says() {
    let short = [
        // Rows of email have no vote; that they can be computed is tested.
        ("hystor", "email, ", 20),
        ("hystor", "table 1", 20),
        ("asymmetry", "0R4W", 200),
        ("asymmetry", "3R1W", 200),
        ("asymmetry", "4R0W", 200),
        ("asymmetry", "postmark, ", 300),
        ("wardrop", "netapp 10, ssd", 60),
        ("wardrop", "dbench 2, ssd", 20),
        // Tables 3.1 and 3.4, and caches of 70 and 200 GB.
        ("hec", "0 GB", 439),
        ("hec", "hm_0", 625),
        ("log-on-log", "lower fixed, 0.8, 2 MB on 4 MB", 1),
        ("scmfs", "random write, 64 KiB", 1),
        ("trident", "figure 5", 1),
        ("user-optimal", "NOMIG, ", 42),
        ("user-optimal", "locality", 42),
    ];
    let mut differ = BTreeSet::new();
    for (name, only, seconds) in short {
        let args = ReproArgs {
            name: Some(name.into()),
            only: Some(only.into()),
            duration: Some(Nanos::secs(seconds)),
            seed: 1,
            no_variants: true,
            ..ReproArgs::default()
        };
        let reports = reproduce(name, &args).expect("a report");
        let rows: Vec<_> = reports.iter().flat_map(Report::rows).collect();
        refuse_failed(&rows).expect("every figure can be computed");
        let measured = rows.iter().filter_map(|row| match &row.outcome {
            RowOutcome::Measured(measurement) => Some((row, measurement)),
            _ => None,
        });
        assert!(measured.clone().count() > 0, "{name}, {only}");
        for (row, measurement) in measured.filter(|(row, _)| row.has_vote()) {
            if measurement.verdict == Verdict::Differs {
                differ.insert((name.to_owned(), row.table.at.clone(), row.row.quantity.clone()));
            }
        }
    }
    let listed: BTreeSet<_> = DIFFER
        .iter()
        .map(|(name, at, quantity)| ((*name).to_owned(), (*at).to_owned(), (*quantity).to_owned()))
        .collect();
    assert_eq!(differ, listed, "seed 1");
}
