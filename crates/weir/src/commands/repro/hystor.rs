//! Reproduces Hystor: an SSD holds a part of the working set and buffers writes (the paper's sections 2 and
//! 7).

use super::experiment::{Experiment, MakeLoad, pool};
use super::loads::{ProcessLoad, postmark, shape, words, words_with_pause};
use super::parameters::{Parameters, unusable};
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use weir_engine::Percent;
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::file_system::FileSystemConfig;
use weir_sim::load::random_reads::RandomReadsConfig;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "hystor",
    about: "the costly blocks of a disk also on an SSD, and writes buffered there",
    data: include_str!("data/hystor.toml"),
    measures: Measures::Pools(experiments),
    notes: |_| Vec::new(),
};

/// A load, with its duration and the settings for it.
struct LoadCase {
    name: &'static str,
    /// Size of the set of blocks that the load was observed to access.
    working_set: Bytes,
    duration: Nanos,
    /// Period of the policy's selection in seconds.
    period: f64,
    /// Share of a device's time for migration and scrubbing while clients use it.
    mover_share: Percent,
    writers: usize,
}

impl LoadCase {
    fn all(p: &Parameters) -> Result<[Self; 3], Failure> {
        let seconds = |name: &str| Ok::<_, Failure>(p.time(name)?.as_secs_f64());
        let writers = p.count("writeback_commands")? as usize;
        Ok([
            Self {
                name: "postmark",
                working_set: p.size("working_set_postmark")?,
                duration: p.time("duration")?,
                period: seconds("period")?,
                mover_share: p.percent("mover_share")?,
                writers,
            },
            Self {
                name: "email",
                working_set: p.size("working_set_email")?,
                duration: p.time("duration_email")?,
                period: seconds("period_email")?,
                mover_share: p.percent("mover_share_email")?,
                writers,
            },
            Self {
                name: "scan",
                working_set: p.size("working_set_scan")?,
                duration: p.time("duration")?,
                period: seconds("period")?,
                mover_share: p.percent("mover_share")?,
                writers: 0,
            },
        ])
    }

    fn load(&self, p: &Parameters) -> Result<MakeLoad, Failure> {
        match self.name {
            "postmark" => mail(p),
            "email" => email(p),
            _ => scan(p),
        }
    }
}

/// Returns processes that run, pause, and run again for the measurement. The paper measured second runs: a
/// first run, a pause in which the mover migrates by what it has learned, and the run that counts.
fn second_run(p: &Parameters, shape: FileSystemConfig) -> Result<ProcessLoad, Failure> {
    // With the journal that the file system has by default.
    let shape = FileSystemConfig { journal: p.size("journal")?, ..shape };
    let [start, end] = p.shares("second_run")?;
    Ok(ProcessLoad {
        pause: start..end,
        counts_blocks: true,
        ..ProcessLoad::of(p.count("processes")? as usize, shape)
    })
}

/// Returns the load of Postmark. The memory is so small that reads reach the drives, as they did in the
/// paper.
fn mail(p: &Parameters) -> Result<MakeLoad, Failure> {
    let shape = shape(p, "file_system", "memory", "dirty_limits")?;
    Ok(second_run(p, shape)?.mixed(postmark(p, "files", "file_sizes")?))
}

/// Returns the load of a mail server: files in as many directories, most of them small, with appends. Each
/// change is synced.
fn email(p: &Parameters) -> Result<MakeLoad, Failure> {
    let shape = shape(p, "file_system_email", "memory_email", "dirty_limits")?;
    let mut mix = postmark(p, "files_email", "file_sizes_email")?;
    (mix.mostly_small, mix.sync) = (true, p.word("sync")? == "each");
    Ok(second_run(p, shape)?.mixed(mix))
}

/// Returns the load of a query that reads one table from start to end and computes after each piece; it is
/// repeated, with the pause of [`second_run`].
fn scan(p: &Parameters) -> Result<MakeLoad, Failure> {
    let [read, table]: [Bytes; 2] = p.several_sizes("scan")?;
    let think = p.time("think")?;
    let [start, end] = p.shares("second_run")?;
    let text = format!("scan size={}B over={}B think={}us", read.0, table.0, think.0 / 1000);
    Ok(words_with_pause(text, start..end))
}

/// The experiments in preparation.
struct Experiments<'p> {
    p: &'p Parameters,
    all: Vec<Experiment>,
}

/// A drive: the name of its model, and its size.
type Drive<'p> = (&'p str, Bytes);

impl<'p> Experiments<'p> {
    /// Returns the fast device with this much space for the policy, which uses a part of it; the pool's
    /// metadata needs space, too.
    fn fast(&self, space: f64) -> Result<Drive<'p>, Failure> {
        let (model, _) = self.p.drive("ssd")?;
        let extent = self.p.size("extent")?.0;
        let size = space / self.p.share("usable_space")? + self.p.size("metadata_space")?.0 as f64;
        Ok((model, Bytes((size as u64).next_multiple_of(extent))))
    }

    fn push(&mut self, name: String, experiment: Experiment) {
        self.all.push(Experiment { name, ..experiment });
    }

    /// Returns an experiment of the load on these drives, without a name.
    fn experiment(&self, load: &LoadCase, drives: &[Drive<'_>]) -> Result<Experiment, Failure> {
        let p = self.p;
        Ok(Experiment {
            name: String::new(),
            pool: PoolSpec { mover_share: load.mover_share, ..pool(p.size("extent")?, drives) },
            policy: "sequential",
            tuning: Vec::new(),
            load: load.load(p)?,
            load_file: None,
            processes: p.count("processes")? as usize,
            writers: load.writers,
            periods: Vec::new(),
            saturation_limit: None,
            duration: load.duration,
            warm_up_share: p.share("warm_up")?,
        })
    }

    /// Adds the load on each drive alone, and on both under the policy with each size of the areas.
    fn load(&mut self, load: &LoadCase) -> Result<(), Failure> {
        let p = self.p;
        let (disk, ssd) = (p.drive("disk")?, p.drive("ssd")?);
        self.push(format!("{}, disk", load.name), self.experiment(load, &[disk])?);
        self.push(format!("{}, ssd", load.name), self.experiment(load, &[ssd])?);
        let (spaces, areas): ([f64; 5], [f64; 3]) = (p.shares("spaces")?, p.shares("write_back")?);
        for space in spaces {
            for area in areas {
                let name = format!("{}, {}", load.name, areas_name(space, area));
                self.push(name, self.hystor(load, disk, space, area)?);
            }
        }
        Ok(())
    }

    fn hystor(&self, load: &LoadCase, disk: Drive<'_>, space: f64, area: f64) -> Result<Experiment, Failure> {
        let fast = self.fast(load.working_set.0 as f64 * space)?;
        let tuning = vec![
            ("write_back", area),
            ("period", load.period),
            ("update", self.p.share("update")?),
            ("metadata", METADATA_OFF),
            ("resident_list", self.resident_list()?),
        ];
        Ok(Experiment { policy: "hystor", tuning, ..self.experiment(load, &[fast, disk])? })
    }

    /// Returns the value of the policy's key `resident_list`.
    fn resident_list(&self) -> Result<f64, Failure> {
        match self.p.word("resident_list")? {
            "extents" => Ok(0.0),
            "blocks" => Ok(1.0),
            _ => Err(unusable("resident_list", "is neither extents nor blocks")),
        }
    }

    /// Adds Email on a disk whose cache acknowledges writes: whether the publication's did is not certain.
    fn cached_disk(&mut self, load: &LoadCase) -> Result<(), Failure> {
        let disk = self.p.drive("cached_disk")?;
        self.push(format!("{}, cached disk", load.name), self.experiment(load, &[disk])?);
        let [smallest, _, _, large, whole]: [f64; 5] = self.p.shares("spaces")?;
        let [none, small, area] = self.p.shares("write_back")?;
        let cases = [(smallest, none), (smallest, small), (smallest, area), (large, small), (whole, none)];
        for (space, area) in cases {
            let name = format!("{} with a cached disk, {}", load.name, areas_name(space, area));
            self.push(name, self.hystor(load, disk, space, area)?);
        }
        Ok(())
    }

    /// Adds random reads of a large file, whose indirect blocks are metadata.
    fn random_reads(&mut self) -> Result<(), Failure> {
        let p = self.p;
        let [size, request]: [Bytes; 2] = p.several_sizes("large_file")?;
        let second_run = p.time("large_file_second_run")?;
        let volumes: [Bytes; 2] = p.several_sizes("large_file_reads")?;
        let spaces: [Bytes; 2] = p.several_sizes("large_file_spaces")?;
        let disk = p.drive("disk")?;
        for (volume, volume_name) in volumes.into_iter().zip(["16 MB", "32 MB"]) {
            let requests = volume.0 / request.0;
            let config = RandomReadsConfig {
                size,
                request,
                requests,
                second_run,
                cpu_time: p.time("postmark_operation_time")?,
            };
            let expected = Nanos(p.time("large_file_read_time")?.0 * requests);
            let duration = second_run + expected;
            let shape = FileSystemConfig {
                size: Bytes(size.0 + size.0 / 16),
                indirect: true,
                ..shape(p, "file_system", "large_file_memory", "dirty_limits")?
            };
            let experiment = |drives: &[Drive<'_>]| {
                Ok::<_, Failure>(Experiment {
                    name: String::new(),
                    pool: PoolSpec {
                        mover_share: p.percent("mover_share")?,
                        ..pool(p.size("extent")?, drives)
                    },
                    policy: "sequential",
                    tuning: Vec::new(),
                    load: ProcessLoad::of(1, shape).random_reads(config),
                    load_file: None,
                    processes: 1,
                    writers: 0,
                    periods: Vec::new(),
                    saturation_limit: None,
                    duration,
                    warm_up_share: second_run.as_secs_f64() / duration.as_secs_f64(),
                })
            };
            self.push(format!("{volume_name} read, disk"), experiment(&[disk])?);
            for (space, space_name) in spaces.into_iter().zip(["32 MB", "160 MB"]) {
                for (way, metadata) in [("metadata", METADATA_HINT), ("no metadata", METADATA_OFF)] {
                    let tuning = vec![
                        ("write_back", 0.0),
                        ("period", p.time("period_email")?.as_secs_f64()),
                        ("update", p.share("update")?),
                        ("metadata", metadata),
                        ("resident_list", self.resident_list()?),
                    ];
                    let on_both = experiment(&[self.fast(space.0 as f64)?, disk])?;
                    let name = format!("{volume_name} read, {space_name} of SSD, {way}");
                    self.push(name, Experiment { policy: "hystor", tuning, ..on_both });
                }
            }
        }
        Ok(())
    }

    /// Adds random and sequential reads and writes of each drive alone.
    fn raw(&mut self) -> Result<(), Failure> {
        let p = self.p;
        let clients = p.count("raw_clients")? as usize;
        let [small, medium, large]: [Bytes; 3] = p.several_sizes("raw_sizes")?;
        let area = p.size("raw_area")?;
        let cases = [
            ("random", "uniform", small, "4 KB"),
            ("random", "uniform", medium, "32 KB"),
            ("sequential", "scan", medium, "32 KB"),
            ("sequential", "scan", large, "256 KB"),
        ];
        for (order, pattern, size, size_name) in cases {
            for (direction, reads) in [("read", 100), ("write", 0)] {
                for drive in ["ssd", "disk"] {
                    let text = format!("{pattern} reads={reads}% size={}B over={}B", size.0, area.0);
                    let experiment = Experiment {
                        name: format!("{order} {direction} of {size_name}, {drive}"),
                        pool: pool(p.size("extent")?, &[p.drive(drive)?]),
                        policy: "sequential",
                        tuning: Vec::new(),
                        load: words(text),
                        load_file: None,
                        processes: clients,
                        writers: 0,
                        periods: Vec::new(),
                        saturation_limit: None,
                        duration: p.time("raw_duration")?,
                        warm_up_share: p.share("raw_warm_up")?,
                    };
                    self.all.push(experiment);
                }
            }
        }
        Ok(())
    }
}

/// Values of the policy's key `metadata`.
const METADATA_HINT: f64 = 0.0;
const METADATA_OFF: f64 = 2.0;

fn areas_name(space: f64, area: f64) -> String {
    format!("{:.0} %, {:.0} % for writes", space * 100.0, area * 100.0)
}

fn experiments(setting: &Setting) -> Result<Vec<Experiment>, Failure> {
    let p = &setting.parameters;
    let mut all = Experiments { p, all: Vec::new() };
    let loads = LoadCase::all(p)?;
    for load in &loads {
        all.load(load)?;
        if load.name == "email" {
            all.cached_disk(load)?;
        }
    }
    all.random_reads()?;
    all.raw()?;
    Ok(all.all)
}
