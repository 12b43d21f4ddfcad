//! `weir demo`: what a pool does, on this machine, in about a minute.
//!
//! Three small files stand for three drives, each served with the timing of a modelled one. One
//! pool is made of them, then one of each alone; fio runs the same workload on all four.

mod fio;
mod picture;
mod scratch;
mod server;

use super::{pool as pool_command, show, volume};
use crate::args::Common;
use crate::failure::Failure;
use crate::output::{Width, table};
use crate::pool;
use crate::signals::interruption;
use crate::status::{OVERRUN_WHY, Status};
use clap::Args;
use fio::{Fio, Measured, MeasuredPart, Work};
use picture::Picture;
use schemars::JsonSchema;
use scratch::Scratch;
use serde::Serialize;
use server::Server;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_model::{Bytes, Nanos};
use weir_serve::control::Hardening;

/// What the workload writes and reads.
const SPAN: Bytes = Bytes::mib(768);
/// What the files take at most at one time: the data, and what the pool keeps beside it.
const ROOM: Bytes = Bytes::mib(1280);
const VOLUME: &str = "demo";

/// A drive of the demo.
#[derive(Clone, Copy, Debug)]
struct Drive {
    name: &'static str,
    pace: &'static str,
    /// In the pool of three. Alone, each has room for everything.
    size: Bytes,
}

const DRIVES: [Drive; 3] = [
    Drive { name: "nvm", pace: "nvm", size: Bytes::mib(256) },
    Drive { name: "ssd", pace: "ssd-sata", size: Bytes::mib(384) },
    Drive { name: "disk", pace: "hdd-7200", size: Bytes::mib(1024) },
];
const ALONE: Bytes = Bytes::mib(1024);

/// `weir demo ...`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Seconds of workload on the pool
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Where to put the demo's files [default: a memory-backed folder with room]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// What the demo found.
#[derive(Debug)]
struct Report {
    pool: Measured,
    alone: Vec<(Drive, Measured)>,
    /// Devices that came later than their models too often, and in which run.
    late: Vec<String>,
}

/// The document of `weir demo`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir demo")]
pub(crate) struct DemoDocument<'a> {
    /// What fio measured on the pool of all devices.
    pool: MeasuredPart,
    /// What fio measured on a pool of each device alone.
    alone: Vec<AlonePart>,
    /// Devices that were later than their models too often, so that the figures are invalid, and how often.
    figures_invalid: &'a [String],
}

/// A device alone.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Alone")]
struct AlonePart {
    /// Name of the device.
    device: &'static str,
    /// The modelled drive.
    pace: &'static str,
    /// What fio measured.
    measured: MeasuredPart,
}

/// Runs the demo and shows what it found.
///
/// # Errors
/// If the machine cannot run it, or it was interrupted.
pub(crate) fn run(args: &DemoArgs, common: &Common) -> Result<(), Failure> {
    let report = measure(args)?;
    show(common, &report.document(), |width| report.human(width));
    Ok(())
}

/// Runs the demo and cleans up after it, also when it is interrupted.
///
/// # Errors
/// If something it needs is missing, or it was interrupted.
fn measure(args: &DemoArgs) -> Result<Report, Failure> {
    fio::check_installed()?;
    let demo = Demo { scratch: Scratch::new(args.scratch.as_deref(), ROOM)?, interrupted: interruption()? };
    crate::output::print_stderr(&format!(
        "Three drives of different speed, modelled, in {}{}.",
        demo.scratch.folder().display(),
        if demo.scratch.in_memory() { "" } else { " (not in memory: the fast ones may come out too slow)" }
    ));
    let (pool, mut late) = demo.measure("the pool of all three", &DRIVES, args.seconds)?;
    let mut alone = Vec::new();
    for drive in DRIVES {
        let seconds = (args.seconds / 5).max(2);
        let title = format!("{} alone", drive.name);
        let (measured, late_alone) = demo.measure(&title, &[Drive { size: ALONE, ..drive }], seconds)?;
        late.extend(late_alone.into_iter().map(|device| format!("{device} alone")));
        alone.push((drive, measured));
    }
    Ok(Report { pool, alone, late })
}

#[derive(Debug)]
struct Demo {
    scratch: Scratch,
    interrupted: Arc<AtomicBool>,
}

impl Demo {
    /// Makes a pool of these drives, fills a volume and runs the workload; returns what fio
    /// measured and what must be said about it. Leaves nothing behind.
    fn measure(
        &self,
        title: &str,
        drives: &[Drive],
        seconds: u64,
    ) -> Result<(Measured, Vec<String>), Failure> {
        let folder = self.scratch.folder().join(if drives.len() == 1 { drives[0].name } else { "pool" });
        std::fs::create_dir(&folder).map_err(|error| Failure::os("create", &folder, &error))?;
        let pool_file = write_pool_file(&folder, drives)?;
        pool_command::create(&pool_file, false)?;
        volume::create(&pool_file, VOLUME, SPAN, Hardening::Flush, 1)?;
        let server = Server::start(&folder, &pool_file)?;
        let mut picture = Picture::new();
        if drives.len() > 1 {
            // Where data goes is decided when it is first written, so let it be as in real life.
            let heading = format!("{title}: the busiest blocks are written first");
            self.work(&heading, &folder, Work::Begin, &mut picture, &pool_file)?;
        }
        self.work(
            &format!("{title}: writing all {SPAN} once"),
            &folder,
            Work::Fill,
            &mut picture,
            &pool_file,
        )?;
        let heading =
            format!("{title}: 70 % reads, 30 % writes of 4 KiB, and a sequential reader, for {seconds} s");
        let measured = self.work(&heading, &folder, Work::Mixed { seconds }, &mut picture, &pool_file)?;
        let late = pool::status(&pool_file)?.overrun();
        drop(server);
        std::fs::remove_dir_all(&folder).map_err(|error| Failure::os("remove", &folder, &error))?;
        Ok((measured, late))
    }

    /// Runs fio to its end, showing what the devices do meanwhile.
    fn work(
        &self,
        heading: &str,
        folder: &Path,
        work: Work,
        picture: &mut Picture,
        pool_file: &Path,
    ) -> Result<Measured, Failure> {
        picture.begin();
        let mut fio = Fio::start(folder, &Server::uri(VOLUME), SPAN, work)?;
        let mut shown = Instant::now();
        picture.show(heading, self.look(pool_file)?);
        while fio.is_running() {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::environment("interrupted; the demo's files are removed", ""));
            }
            std::thread::sleep(Duration::from_millis(50));
            if shown.elapsed() >= picture.pause() {
                shown = Instant::now();
                picture.show(heading, self.look(pool_file)?);
            }
        }
        fio.finish()
    }

    fn look(&self, pool_file: &Path) -> Result<Status, Failure> {
        pool::status(pool_file)
    }
}

fn write_pool_file(folder: &Path, drives: &[Drive]) -> Result<PathBuf, Failure> {
    let mut text = "[pool]\nname = \"demo\"\npolicy = \"adaptive\"\n".to_owned();
    for Drive { name, pace, size } in drives {
        let mib = size.get() >> 20;
        text += &format!(
            "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"{mib}MiB\"\npace = \"{pace}\"\n"
        );
    }
    let path = folder.join("pool.toml");
    std::fs::write(&path, text).map_err(|error| Failure::os("write", &path, &error))?;
    Ok(path)
}

impl Report {
    /// The document that `--json` prints.
    fn document(&self) -> DemoDocument<'_> {
        let alone = self.alone.iter().map(|(drive, measured)| AlonePart {
            device: drive.name,
            pace: drive.pace,
            measured: measured.document(),
        });
        DemoDocument { pool: self.pool.document(), alone: alone.collect(), figures_invalid: &self.late }
    }

    /// For people.
    fn human(&self, width: Width) -> String {
        let time = |time: Option<Nanos>| time.map_or_else(|| "-".to_owned(), |time| time.to_string());
        let row = |name: String, measured: &Measured| {
            [
                name,
                format!("{:.0}", measured.requests_per_second),
                time(measured.read_mean),
                time(measured.read_p90),
                time(measured.read_p99),
                time(measured.write_mean),
                format!("{}/s", Bytes(measured.sequential_per_second as u64)),
            ]
        };
        let pool = row("the pool".into(), &self.pool);
        let alone = self
            .alone
            .iter()
            .map(|(drive, measured)| row(format!("{} alone ({})", drive.name, drive.pace), measured));
        let parts: Vec<String> =
            DRIVES.iter().map(|drive| format!("{} of {}", drive.size, drive.name)).collect();
        let mut text = format!(
            "\nThe same workload on {SPAN} of data, as fio saw it at depth {}:\n\n{}\n",
            fio::DEPTH,
            table(
                width,
                ["", "4K/S", "READ MEAN", "9 OF 10", "99 OF 100", "WRITE MEAN", "SEQUENTIAL"],
                std::iter::once(pool).chain(alone),
            )
        );
        text += &format!(
            "The pool has {}; alone, each drive was made large enough for everything. \
             Its policy \"adaptive\" puts new data on the faster drives while they have room, and the busiest blocks came \
             first; it moves later what costs less elsewhere, as measured. The sequential reader wants {}/s and no more.\n",
            parts.join(", "),
            fio::SEQUENTIAL,
        );
        if !self.late.is_empty() {
            text += &format!("\nfigures invalid: {}; {OVERRUN_WHY}\n", self.late.join(", "));
        }
        text
    }
}

/// A report with figures, and drives without.
#[cfg(test)]
fn pretended() -> Report {
    let time = Some(Nanos(999_900_000));
    let measured = Measured {
        requests_per_second: 12_345_678.0,
        read_mean: time,
        read_p90: time,
        read_p99: time,
        write_mean: time,
        sequential_per_second: 1e12,
    };
    let alone = DRIVES.iter().map(|drive| (*drive, Measured::default())).collect();
    Report { pool: measured, alone, late: vec!["disk 12.3 %".into()] }
}

/// The document of a report.
#[cfg(test)]
pub(super) fn pretended_document() -> serde_json::Value {
    serde_json::to_value(pretended().document()).expect("JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::assert_fits;

    #[test]
    fn a_report_fits_the_terminal_and_has_no_times_of_nothing() {
        let report = pretended();
        assert_fits(|width| report.human(width));
        assert!(report.human(Width::UNLIMITED).contains("blocks came first; it"), "nothing folds it twice");
        assert!(!report.human(Width::UNLIMITED).contains("0 ns"), "{}", report.human(Width::UNLIMITED));
    }
}
