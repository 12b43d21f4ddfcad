//! Recordings of F2FS are replayed. These are of weir's own making: what a file system would write.

use super::*;
use crate::commands::repro::args::ReproArgs;
use crate::commands::repro::rows::RowOutcome;
use recordings::Recording;
use std::fs::File;
use std::path::Path;
use weir_model::{Hint, Op, Rng, VolumeOffset};
use weir_trace::{Disk, Record, Writer};

const PAGE: u64 = 4096;
/// Pages of the file system, of which the first ones are filled, and pages that are written then.
const PAGES: u64 = 2700;
const FILLED: u64 = 2500;
const WRITTEN: u64 = 9000;
/// With this scale 52.2 GiB are 6,842 pages, and 0.456 GiB are 59.
const SCALE: u64 = 2000;

/// Writes a trace. Returns the bytes of its writes.
fn write(directory: &Path, name: &str, requests: impl Iterator<Item = (Op, u64, u64)>) -> u64 {
    let path = directory.join(format!("{name}.weirtrace"));
    let file = File::create(path).expect("a file");
    let mut writer = Writer::new(weir_trace::format("weir").expect("a format"), file).expect("begun");
    let mut written = 0;
    for (nth, (op, page, pages)) in (1_u64..).zip(requests) {
        let record = Record {
            at: Nanos::micros(nth),
            disk: Disk(0),
            op,
            offset: VolumeOffset(page * PAGE),
            len: Bytes(pages * PAGE),
            hint: Hint::None,
        };
        assert!(writer.write(&record, "8,0").expect("written"));
        written += if op == Op::Write { record.len.0 } else { 0 };
    }
    writer.finish().expect("written");
    written
}

/// Makes a recording: the file is filled, in requests of ten pages; then `requests` are recorded, for half as
/// many pages of the user.
fn record(directory: &Path, name: &str, requests: impl Iterator<Item = (Op, u64, u64)>) {
    let fill = (0..FILLED / 10).map(|nth| (Op::Write, nth * 10, 10));
    let fill = write(directory, &format!("{name}-fill"), fill);
    let run = write(directory, name, requests);
    let (load, logs) = name.rsplit_once('-').expect("a load and its logs");
    let numbers = [WRITTEN * PAGE / 2, WRITTEN / 2, PAGE, fill, run];
    describe(directory, name, load, logs, numbers);
}

fn describe(directory: &Path, name: &str, load: &str, logs: &str, numbers: [u64; 5]) {
    let [user, requests, request, fill, run] = numbers;
    let text = format!(
        r#"{{"load": "{load}", "logs": {logs}, "user": {user}, "requests": {requests}, "request": {request},
            "fill": {{"written": {fill}}}, "run": {{"written": {run}}},
            "scale": {SCALE}, "direct": "no", "kernel": "none", "seed": 1, "other": 2}}"#
    );
    std::fs::write(directory.join(format!("{name}.json")), text).expect("written");
}

fn in_order() -> impl Iterator<Item = (Op, u64, u64)> {
    (0..WRITTEN).map(|nth| (Op::Write, nth % PAGES, 1))
}

fn at_random() -> impl Iterator<Item = (Op, u64, u64)> {
    let mut draw = Rng::new(Seed(1));
    (0..WRITTEN).map(move |_| (Op::Write, draw.below(PAGES), 1))
}

/// Discards a half of the file system, and writes to the other one.
fn discarded() -> impl Iterator<Item = (Op, u64, u64)> {
    let half = std::iter::once((Op::Trim, PAGES / 2, PAGES / 2));
    half.chain(at_random().map(|(op, page, pages)| (op, page % (PAGES / 2), pages)))
}

fn parameters(change: &[(&str, &str)]) -> Parameters {
    let setting = Setting::without_files(&REPRODUCTION.publication().expect("valid data"));
    let change = change.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    setting.parameters.changed(&change).expect("parameters that exist")
}

fn play(directory: &Path, experiment: &str, change: &[(&str, &str)]) -> Metrics {
    let recorded = Recorded::parse(experiment).expect("an experiment");
    let recording: Recording = Recordings::open(directory).expect("recordings").read(&recorded).expect("one");
    let device = Device::new(&parameters(change)).expect("usable parameters");
    device.play(&recorded, recording, 1).expect("a result")
}

#[test]
fn names_of_recordings_are_parsed() {
    for name in ["F2FS zipf0.8, 2 logs", "F2FS segments, 6 logs, 64 MB"] {
        assert_eq!(Recorded::parse(name).expect("a recording").to_string(), name);
        assert!(matches!(Experiment::parse(name), Some(Experiment::Recorded(_))));
    }
    for name in ["zipf0.8, 2 logs", "F2FS zipf0.8", "F2FS zipf0.8, two logs", "F2FS a, 2 logs, 4 MB, x"] {
        assert_eq!(Recorded::parse(name), None, "{name}");
    }
}

/// What is written in order leaves segments without valid pages; what is written at random does not. The
/// fill is in no figure.
#[test]
fn recordings_are_replayed_on_the_log_of_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "zipf0.8-2", in_order());
    record(folder.path(), "zipf0.8-6", at_random());
    let small = [("recorded_free", "4 GiB")];
    let sequential = play(folder.path(), "F2FS zipf0.8, 2 logs", &small);
    let random = play(folder.path(), "F2FS zipf0.8, 6 logs", &small);
    assert_eq!((sequential["fswa"], random["fswa"]), (2.0, 2.0), "pages written to those of the user");
    // A page that the cleaner copied stands for none.
    assert_eq!((sequential["flwa"], sequential["cleaning"]), (1.0, 1.0 / WRITTEN as f64));
    assert!(random["flwa"] > 1.3, "{random:?}");
    for metrics in [&sequential, &random] {
        assert!((metrics["tcwa"] - 2.0 * metrics["flwa"]).abs() < 1e-9, "{metrics:?}");
    }
    assert!((random["cleaning"] - (random["flwa"] - 1.0)).abs() < 1e-9, "{random:?}");
    assert!((random["copied"] - 2.0 * random["cleaning"]).abs() < 1e-9, "{random:?}");
    // Segments have 59 pages, and 4 GiB at this scale are 524 pages.
    let erased = sequential["erases"] * 59.0;
    assert!((erased - (WRITTEN - 524) as f64).abs() < 3.0 * 59.0, "{erased}");
    let published = play(folder.path(), "F2FS zipf0.8, 2 logs", &[]);
    let erased = published["erases"] * 59.0;
    assert!((erased - (WRITTEN - 6842) as f64).abs() < 3.0 * 59.0, "{erased}");
}

#[test]
fn discards_are_heeded_or_not() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "uniform-2", discarded());
    let of = |value| {
        let change = [("recorded_free", "4 GiB"), ("recorded_discards", value)];
        play(folder.path(), "F2FS uniform, 2 logs", &change)["flwa"]
    };
    assert!(of("heeded") < of("ignored") * 0.9, "{} {}", of("heeded"), of("ignored"));
}

/// The device of figure 4.5 has the given segments, whatever the scale.
#[test]
fn segments_do_not_scale() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "segments-6", at_random());
    let of = |segment: u32| {
        let device = [("recorded_ssd", "48 GiB")];
        play(folder.path(), &format!("F2FS segments, 6 logs, {segment} MB"), &device)
    };
    // At this scale they are 24 segments of 1 MiB, or 12 of 2 MiB.
    let (small, large) = (of(1), of(2));
    let pages = |metrics: &Metrics, segment: f64| metrics["erases"] * segment;
    assert!(large["erases"] < small["erases"], "{small:?} {large:?}");
    let programmed = small["flwa"] * WRITTEN as f64;
    assert!((pages(&small, 256.0) / programmed - 1.0).abs() < 0.35, "{small:?}");
}

/// A row whose recording is absent says what is missing; the others are measured.
#[test]
fn rows_without_a_recording_are_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "zipf0.8-2", at_random());
    let args = ReproArgs {
        recordings: Some(folder.path().to_owned()),
        only: Some("F2FS zipf0.8".into()),
        seed: 1,
        no_variants: true,
        ..ReproArgs::default()
    };
    let outcomes = |args: &ReproArgs| {
        let report = REPRODUCTION.run(args).expect("a report");
        let rows = report.rows();
        let of = rows.iter().filter(|row| row.table.at == "table 4.1").map(|row| match row.outcome {
            RowOutcome::Measured(_) => "measured".to_owned(),
            RowOutcome::Missing(what) => what.to_owned(),
            _ => "other".into(),
        });
        of.collect::<Vec<_>>()
    };
    let found = outcomes(&args);
    assert_eq!(found[..2], ["measured", "measured"], "2 logs");
    assert!(found[2..].iter().all(|row| row.contains("--recordings DIR")), "{found:?}");
    let without = outcomes(&ReproArgs { recordings: None, only: Some("no amplification".into()), ..args });
    assert!(without.iter().all(|row| row.contains("--recordings DIR")), "{without:?}");
}

#[test]
fn directories_without_recordings_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |path: &Path| Recordings::open(path).expect_err("no recording");
    assert!(refused(folder.path()).message.starts_with("there is no recording of F2FS in "));
    assert!(refused(&folder.path().join("absent")).message.contains("absent"));
    record(folder.path(), "zipf0.8-2", in_order());
    let recorded = Recorded::parse("F2FS zipf0.8, 2 logs").expect("a recording");
    let description = folder.path().join("zipf0.8-2.json");
    let recordings = Recordings::open(folder.path()).expect("a recording");
    for text in ["", "{}", r#"{"user": 1, "scale": "x"}"#] {
        std::fs::write(&description, text).expect("written");
        let failure = recordings.read(&recorded).expect_err("no description");
        assert!(failure.message.contains("does not describe a recording of F2FS"), "{failure:?}");
    }
    record(folder.path(), "zipf0.8-2", in_order());
    let valid = std::fs::read_to_string(&description).expect("a description");
    let (user, scale) = (format!("\"user\": {}", WRITTEN * PAGE / 2), format!("\"scale\": {SCALE}"));
    for (old, new) in [(scale, "\"scale\": 0"), (user, "\"user\": 0")] {
        assert!(valid.contains(&old), "{old} should be in {valid}");
        std::fs::write(&description, valid.replace(&old, new)).expect("written");
        let failure = recordings.read(&recorded).expect_err("no numbers to divide by");
        assert!(failure.message.contains("does not describe a recording of F2FS"), "{failure:?}");
    }
}

/// A description of another recording, or of other traces, would make up figures.
#[test]
fn descriptions_that_contradict_their_traces_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "zipf0.8-2", in_order());
    let recorded = Recorded::parse("F2FS zipf0.8, 2 logs").expect("a recording");
    let recordings = Recordings::open(folder.path()).expect("a recording");
    let (fill, run) = (FILLED * PAGE, WRITTEN * PAGE);
    let said = |load: &str, logs: &str, numbers: [u64; 5]| {
        describe(folder.path(), "zipf0.8-2", load, logs, numbers);
        recordings.read(&recorded).map(|_| ()).map_err(|failure| failure.message)
    };
    let right = [run / 2, WRITTEN / 2, PAGE, fill, run];
    assert_eq!(said("zipf0.8", "2", right), Ok(()));
    let [user, requests, request, ..] = right;
    for (load, logs, numbers, why) in [
        ("uniform", "2", right, "it says uniform, 2 logs"),
        ("zipf0.8", "6", right, "it says zipf0.8, 6 logs"),
        ("zipf0.8", "2", [user, requests, request, fill + 1, run], "fill.written is 10240001"),
        ("zipf0.8", "2", [user, requests, request, fill, 7], "run.written is 7"),
        ("zipf0.8", "2", [10 * user, requests, request, fill, run], "user is 184320000"),
        ("zipf0.8", "2", [user, u64::MAX, request, fill, run], "are not that many"),
    ] {
        let message = said(load, logs, numbers).expect_err("a contradiction");
        assert!(
            message.contains("zipf0.8-2.json is of another recording: ") && message.contains(why),
            "{message}"
        );
    }
}
