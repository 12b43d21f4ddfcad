//! `weir demo` runs a disk alone, a pool and an all-SSD configuration under the same load, in about a minute.
//!
//! Small files stand for drives, each served with the timing of a modelled drive. Every configuration starts
//! with the same data in place; fio then runs the same job on each, and reads sequentially afterwards.

mod fio;
mod keep;
mod live_view;
mod load;
mod report;
mod scratch;
mod server;
mod svg;

use super::advise::device_list::{self, DeviceList};
use super::{pool as pool_command, show, volume};
use crate::args::Common;
use crate::failure::{Failure, REPORT_DEFECT};
use crate::files::{self, OutputKind};
use crate::output::print_stderr;
use crate::pool;
use crate::signals::interruption;
use clap::Args;
use fio::Fio;
use live_view::LiveView;
use load::{FioJob, Load};
pub(crate) use report::Report;
use report::{Measured, Outcome, Part};
use scratch::Scratch;
use server::Server;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_model::Bytes;
use weir_serve::control::Hardening;
use weir_sim::advise::Offer;

/// Size of the volume. The demo writes all of it.
const DATA: Bytes = Bytes::mib(768);
/// Space for the files of one configuration: the data and the pool's metadata.
const SPACE: Bytes = Bytes::mib(1280);
const VOLUME: &str = "demo";
/// Name of a volume that fills the SSD while the data is written, so that the data goes to the disk.
const FILLER: &str = "filler";
/// Longest time to wait until the space of the removed volume is free.
const SPACE_TIMEOUT: Duration = Duration::from_secs(60);
const IDLE_MACHINE_ADVICE: &str = "run the demo while the machine has nothing else to do";

/// A drive of the demo: a file that stands for a device on sale.
#[derive(Clone, Copy, Debug)]
struct Drive {
    name: &'static str,
    /// The device's name in the list of `weir advise`.
    offer: &'static str,
    size: Bytes,
}

/// A configuration: the drives of one pool.
#[derive(Clone, Copy, Debug)]
struct Configuration {
    name: &'static str,
    /// The drives, the fast one first.
    drives: &'static [Drive],
}

/// The disk. The sizes of disk and SSD have the same ratio as those of the devices on sale, 4 TB to 500 GB.
const DISK: Drive = Drive { name: "disk", offer: "exos-7e10-4tb", size: Bytes::mib(1024) };
const SSD: Drive = Drive { name: "ssd", offer: "870-evo-500gb", size: Bytes::mib(128) };
const LARGE_SSD: Drive = Drive { name: "ssd", offer: "870-evo-4tb", size: Bytes::mib(1024) };
const CONFIGURATIONS: [Configuration; 3] = [
    Configuration { name: "disk alone", drives: &[DISK] },
    Configuration { name: "pool", drives: &[SSD, DISK] },
    Configuration { name: "all-SSD", drives: &[LARGE_SSD] },
];

/// `weir demo ...`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Seconds that the load runs on each configuration
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(2..=3600))]
    pub seconds: u64,
    /// Folder for the demo's files [default: a memory-backed folder with enough space]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Keep the pool in the folder weir-demo, in the folder of --scratch or the current one
    #[arg(long)]
    pub keep: bool,
    /// Draw the bars: an SVG picture, or a PNG if the name ends so
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Runs the demo and prints its result.
///
/// # Errors
/// Fails if the machine cannot run the demo, or if the demo is interrupted.
pub(crate) fn run(args: &DemoArgs, common: &Common) -> Result<(), Failure> {
    args.plot.iter().try_for_each(|path| files::refuse_foreign_content(path, OutputKind::Picture))?;
    let report = measure(args)?;
    if let Some(path) = &args.plot {
        crate::picture::write(path, &svg::svg(&report))?;
    }
    let is_terminal = std::io::stdout().is_terminal();
    show(common, &report, |width| if is_terminal { report.human(width) } else { report.lines() });
    if !is_terminal && !common.json {
        report.warning().into_iter().chain(report.kept_pool_help()).for_each(|text| print_stderr(&text));
    }
    Ok(())
}

/// Runs the demo and removes its files, even if it is interrupted.
///
/// # Errors
/// Fails if something that the demo needs is missing, or if the demo is interrupted.
fn measure(args: &DemoArgs) -> Result<Report, Failure> {
    fio::check_installed()?;
    let kept_folder = args.keep.then(|| keep::folder(args.scratch.as_deref())).transpose()?;
    let demo = Demo {
        scratch: Scratch::new(args.scratch.as_deref(), SPACE)?,
        interrupted: interruption()?,
        load: Load::new(DATA, args.seconds),
        list: device_list::read(None)?,
        kept_folder,
    };
    print_stderr(&demo.introduction());
    let mut report = Report {
        load: demo.load,
        currency: demo.list.currency.clone(),
        configurations: Vec::new(),
        figures_invalid: Vec::new(),
        kept_pool_file: None,
    };
    for configuration in CONFIGURATIONS {
        demo.measure(configuration, &mut report)?;
    }
    Ok(report)
}

#[derive(Debug)]
struct Demo {
    scratch: Scratch,
    interrupted: Arc<AtomicBool>,
    load: Load,
    list: DeviceList,
    kept_folder: Option<PathBuf>,
}

/// A configuration that is being served.
struct Running<'d> {
    demo: &'d Demo,
    name: &'static str,
    folder: PathBuf,
    pool_file: PathBuf,
}

impl Demo {
    fn introduction(&self) -> String {
        let folder = self.scratch.folder().display();
        match self.scratch.in_memory() {
            true => format!("{} Files: {folder}.", self.load.description()),
            false => format!(
                "{} Files: {folder}, which is not in memory: drives may answer too late.",
                self.load.description()
            ),
        }
    }

    fn offer(&self, drive: &Drive) -> Result<&Offer, Failure> {
        let found = self.list.offers.iter().find(|offer| offer.name == drive.offer);
        found.ok_or_else(|| {
            Failure::environment(format!("the list of devices has no {}", drive.offer), REPORT_DEFECT)
        })
    }

    /// Creates the pool of a configuration, writes the data, runs the load and adds the figures to the
    /// report. Removes all files except those of the kept pool.
    fn measure(&self, configuration: Configuration, report: &mut Report) -> Result<(), Failure> {
        let Configuration { name, drives } = configuration;
        let folder = self.scratch.folder().join(name.replace(' ', "-"));
        std::fs::create_dir(&folder).map_err(|error| Failure::os("create", &folder, &error))?;
        let pool_file = self.write_pool_file(&folder, drives)?;
        pool_command::create(&pool_file, false)?;
        volume::create(&pool_file, VOLUME, DATA, Hardening::Flush, 1)?;
        let server = Server::start(&folder, &pool_file)?;
        let running = Running { demo: self, name, folder, pool_file };
        running.fill(drives)?;
        // A restarted server measures response times and lateness under the load alone.
        drop(server);
        let server = Server::start(&running.folder, &running.pool_file)?;
        let measured = running.run_job(VOLUME, FioJob::Run)?;
        let scan = running.run_job(VOLUME, FioJob::Scan)?;
        let late = pool::status(&running.pool_file)?.overrun();
        drop(server);
        report.figures_invalid.extend(late.iter().map(|device| format!("{name}: {device}")));
        report.configurations.push(self.outcome(configuration, measured, scan.read_bytes_per_second)?);
        if let Some(kept) = self.kept_folder.as_deref().filter(|_| drives.len() > 1) {
            report.kept_pool_file = Some(keep::keep(&running.folder, kept)?);
        }
        std::fs::remove_dir_all(&running.folder)
            .map_err(|error| Failure::os("remove", &running.folder, &error))
    }

    fn outcome(
        &self,
        configuration: Configuration,
        measured: Measured,
        scan: f64,
    ) -> Result<Outcome, Failure> {
        let (mut devices, mut capacity, mut price) = (Vec::new(), Bytes(0), 0.0);
        for drive in configuration.drives {
            let offer = self.offer(drive)?;
            capacity += offer.size;
            price += offer.price.whole();
            devices.push(Part {
                name: drive.name,
                stands_for: offer.name.clone(),
                about: offer.about.clone(),
                pace: offer.model.clone(),
                file_bytes: drive.size.get(),
            });
        }
        Ok(Outcome {
            name: configuration.name,
            devices,
            capacity_bytes: capacity.get(),
            price,
            requests_per_second_per_100: measured.requests_per_second / price * 100.0,
            measured,
            scan_bytes_per_second: scan,
        })
    }

    fn write_pool_file(&self, folder: &Path, drives: &[Drive]) -> Result<PathBuf, Failure> {
        let mut text = "[pool]\nname = \"demo\"\npolicy = \"adaptive\"\n".to_owned();
        for drive in drives {
            let (name, mib, pace) = (drive.name, drive.size.get() >> 20, &self.offer(drive)?.model);
            text += &format!(
                "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"{mib}MiB\"\npace = \"{pace}\"\n"
            );
        }
        let path = folder.join("pool.toml");
        std::fs::write(&path, text).map_err(|error| Failure::os("write", &path, &error))?;
        Ok(path)
    }
}

impl Running<'_> {
    /// Writes the data. In a pool of several devices it goes to the disk, because another volume fills the
    /// SSD meanwhile.
    fn fill(&self, drives: &[Drive]) -> Result<(), Failure> {
        let [fast, _, ..] = drives else {
            return self.run_job(VOLUME, FioJob::Fill(DATA)).map(drop);
        };
        // The pool's metadata takes the rest of the SSD.
        let size = Bytes(fast.size.get() / 16 * 15);
        volume::create(&self.pool_file, FILLER, size, Hardening::Flush, 1)?;
        self.run_job(FILLER, FioJob::Fill(size))?;
        self.run_job(VOLUME, FioJob::Fill(DATA))?;
        volume::remove(&self.pool_file, FILLER)?;
        let began = Instant::now();
        // The data alone remains, most of it on the disk. How much of it is on the SSD depends on how much of
        // the filler went to the disk, because the SSD answered late on a busy machine.
        let most = DATA.get() + fast.size.get() / 16;
        while pool::status(&self.pool_file)?.devices.iter().map(|device| device.used_bytes).sum::<u64>()
            > most
        {
            if began.elapsed() > SPACE_TIMEOUT {
                return Err(Failure::environment(
                    "the space of a removed volume does not become free",
                    IDLE_MACHINE_ADVICE,
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Runs fio until it ends, and draws the devices' traffic meanwhile.
    fn run_job(&self, volume: &str, work: FioJob) -> Result<Measured, Failure> {
        let heading = format!("{}: {}", self.name, work.heading(&self.demo.load));
        let mut picture = LiveView::new();
        let mut fio = Fio::start(&self.folder, &Server::uri(volume), &self.demo.load, work)?;
        let mut shown: Option<Instant> = None;
        while fio.is_running() {
            if self.demo.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::environment(
                    "interrupted; the demo's files are removed",
                    "run it again",
                ));
            }
            let pause = picture.pause();
            if pause.is_some_and(|pause| shown.is_none_or(|shown| shown.elapsed() >= pause)) {
                shown = Some(Instant::now());
                picture.show(&heading, pool::status(&self.pool_file)?, &fio.reads());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        fio.finish()
    }
}

/// Returns a synthetic result for the test of its schema.
#[cfg(test)]
pub(crate) fn sample_document() -> serde_json::Value {
    serde_json::to_value(report::tests::report()).expect("a document")
}
