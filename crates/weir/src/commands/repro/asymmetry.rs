//! Reproduces measurement-driven migration between a flash drive of 2008 and a disk (the dissertation's
//! chapter II).
//!
//! The flash drive writes better or worse than the disk. The configurations are each drive alone, both
//! striped, both striped with migration, metadata on the flash drive, and two disks.

use super::experiment::{Experiment, MakeLoad, pool};
use super::loads::{ProcessLoad, nfs_server, postmark, ramp_rates, shape, words};
use super::parameters::Parameters;
use super::results::Period;
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::mix::Mix;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "asymmetry",
    about: "measurement-driven migration between flash and disk",
    data: include_str!("data/asymmetry.toml"),
    measures: Measures::Pools(experiments),
    notes: |_| Vec::new(),
};

/// A policy and its tuning: the name in experiments, the policy, and the keys that differ from the defaults.
type PolicyTuning = (&'static str, &'static str, Vec<(&'static str, f64)>);

/// The compared policies.
struct Policies {
    striped: PolicyTuning,
    migration: PolicyTuning,
    migration_2: PolicyTuning,
    less_delta: PolicyTuning,
    metadata: PolicyTuning,
    metadata_migration: PolicyTuning,
}

impl Policies {
    fn new(p: &Parameters) -> Result<Self, Failure> {
        let migration = vec![
            ("tokens", p.number("tokens")?),
            ("delta", p.number("delta")?),
            ("minimum", p.number("minimum")?),
            ("memory", p.share("counter_memory")?),
        ];
        let with = |keys: &[(&'static str, f64)]| {
            let others = migration.iter().filter(|(name, _)| keys.iter().all(|(key, _)| key != name));
            others.chain(keys).copied().collect::<Vec<_>>()
        };
        let [range, every] = p.range_and_distance("metadata_range")?;
        let ranges = [("metadata_range", range), ("metadata_every", every)];
        let rest = ("rest", 1.0);
        Ok(Self {
            striped: ("striped", "stripe", Vec::new()),
            migration_2: ("migration-2", "asymmetry", with(&[("large_stay", 1.0)])),
            less_delta: (
                "migration with less delta",
                "asymmetry",
                with(&[("delta", p.number("less_delta")?)]),
            ),
            metadata: ("metadata striped", "metadata_on_fast", [&ranges[..], &[rest]].concat()),
            metadata_migration: ("metadata migration", "asymmetry", with(&ranges)),
            migration: ("migration", "asymmetry", migration),
        })
    }
}

/// The pools: disks and flash drives.
struct Pools<'p> {
    p: &'p Parameters,
    chunk: Bytes,
}

impl Pools<'_> {
    fn pool(&self, drives: &[&str]) -> Result<PoolSpec, Failure> {
        let drives: Vec<_> = drives.iter().map(|name| self.p.drive(name)).collect::<Result<_, _>>()?;
        Ok(PoolSpec { mover_share: self.p.percent("mover_share")?, ..pool(self.chunk, &drives) })
    }
}

/// The drives of each pool, by the pool's name.
const POOLS: [(&str, &[&str]); 6] = [
    ("disk", &["disk"]),
    ("two disks", &["disk", "disk"]),
    ("transcend", &["transcend"]),
    ("transcend+disk", &["transcend", "disk"]),
    ("memoright", &["memoright"]),
    ("memoright+disk", &["memoright", "disk"]),
];

/// The experiments in preparation.
struct Experiments<'p> {
    p: &'p Parameters,
    all: Vec<Experiment>,
}

/// A load in an experiment: its name, processes besides write-back, and duration.
struct LoadCase<'n> {
    name: &'n str,
    make: MakeLoad,
    processes: usize,
    writers: usize,
    duration: Nanos,
    periods: Vec<Period>,
    saturation_limit: Option<Nanos>,
}

impl Experiments<'_> {
    fn add(
        &mut self,
        load: LoadCase<'_>,
        pool_name: &str,
        pool: PoolSpec,
        way: &PolicyTuning,
    ) -> Result<(), Failure> {
        self.all.push(Experiment {
            name: format!("{}, {pool_name}, {}", load.name, way.0),
            pool,
            policy: way.1,
            tuning: way.2.clone(),
            load: load.make,
            load_file: None,
            processes: load.processes,
            writers: load.writers,
            periods: load.periods,
            saturation_limit: load.saturation_limit,
            duration: load.duration,
            warm_up_share: self.p.share("warm_up")?,
        });
        Ok(())
    }

    fn writers(&self) -> Result<usize, Failure> {
        Ok(self.p.count("writeback_depth")? as usize)
    }

    fn nfs(&self) -> Result<LoadCase<'static>, Failure> {
        let p = self.p;
        let clients = p.count("nfs_clients")? as usize;
        let shape = shape(p, "nfs_file_system", "nfs_memory", "nfs_dirty_limits")?;
        Ok(LoadCase {
            name: "nfs",
            make: ProcessLoad::of(clients, shape).mixed(nfs_server(p)?),
            processes: clients,
            writers: self.writers()?,
            duration: p.time("nfs_duration")?,
            periods: vec![
                Period::new("2000 s", p.shares("early_period")?),
                Period::new("12000 s", p.shares("late_period")?),
            ],
            saturation_limit: None,
        })
    }

    /// Returns the same operations, offered at rates that rise until the server is saturated.
    fn nfs_ramp(&self) -> Result<LoadCase<'static>, Failure> {
        let p = self.p;
        let clients = p.count("nfs_clients")? as usize;
        let threads = p.count("nfs_threads")? as usize;
        let shape = shape(p, "nfs_file_system", "nfs_memory", "nfs_dirty_limits")?;
        Ok(LoadCase {
            name: "nfs ramp",
            make: ProcessLoad::of(clients, shape).offered(nfs_server(p)?, ramp_rates(p)?, threads),
            processes: threads,
            periods: Vec::new(),
            saturation_limit: Some(p.time("nfs_limit")?),
            ..self.nfs()?
        })
    }

    /// Returns a load of Postmark: small files, or large ones.
    fn postmark(&self, is_large: bool) -> Result<LoadCase<'static>, Failure> {
        let p = self.p;
        let processes = p.count("postmark_processes")? as usize;
        let names = match is_large {
            false => ["postmark_file_system", "postmark_memory", "postmark_files", "postmark_file_sizes"],
            true => ["large_file_system", "large_file_memory", "large_files", "large_file_sizes"],
        };
        let appends = if is_large { "large_file_appends" } else { "postmark_appends" };
        let shape = shape(p, names[0], names[1], "postmark_dirty_limits")?;
        let mix = Mix { write: p.sizes(appends)?, ..postmark(p, names[2], names[3])? };
        Ok(LoadCase {
            name: if is_large { "large files" } else { "postmark" },
            make: ProcessLoad::of(processes, shape).mixed(mix),
            processes,
            writers: self.writers()?,
            duration: p.time("short_duration")?,
            periods: Vec::new(),
            saturation_limit: None,
        })
    }

    /// Returns the load of four processes, of which `readers` read and the others write.
    ///
    /// Each has a file and bypasses the memory. It selects records by Zipf's law, the first one most often,
    /// so frequent records are adjacent.
    fn zipf<'n>(&self, name: &'n str, readers: u64) -> Result<LoadCase<'n>, Failure> {
        let p = self.p;
        let (processes, file) = p.count_and_size("zipf_processes")?;
        let hot = if p.word("zipf_order")? == "side" { "hot=first" } else { "hot=0" };
        let (theta, record) = (p.number("zipf_exponent")?, p.size("zipf_record")?);
        let of = |number| {
            let reads = if number < readers { 100 } else { 0 };
            format!("zipf theta={theta} {hot} reads={reads}% size={}B over={}B", record.0, file.0)
        };
        Ok(LoadCase {
            name,
            make: words((0..processes).map(of).collect::<Vec<_>>().join(" | ")),
            processes: processes as usize,
            writers: 0,
            duration: p.time("long_duration")?,
            periods: Vec::new(),
            saturation_limit: None,
        })
    }

    /// Adds reads and writes of small and large pieces of each drive alone.
    fn raw(&mut self, pools: &Pools<'_>, way: &PolicyTuning) -> Result<(), Failure> {
        let sizes: [Bytes; 2] = self.p.several_sizes("raw_sizes")?;
        let area = self.p.size("raw_area")?;
        for (size_name, size) in ["small", "large"].into_iter().zip(sizes) {
            for (direction, reads) in [("reads", 100), ("writes", 0)] {
                for drive in ["disk", "transcend", "memoright"] {
                    let load = LoadCase {
                        name: &format!("{size_name} {direction}"),
                        make: words(format!("uniform reads={reads}% size={}B over={}B", size.0, area.0)),
                        processes: 1,
                        writers: 0,
                        duration: self.p.time("raw_duration")?,
                        periods: Vec::new(),
                        saturation_limit: None,
                    };
                    self.add(load, drive, pools.pool(&[drive])?, way)?;
                }
            }
        }
        Ok(())
    }
}

fn experiments(setting: &Setting) -> Result<Vec<Experiment>, Failure> {
    let p = &setting.parameters;
    let (policies, pools) = (Policies::new(p)?, Pools { p, chunk: p.size("chunk")? });
    let mut all = Experiments { p, all: Vec::new() };
    for (name, drives) in POOLS {
        let (is_alone, is_hybrid) = (drives.len() == 1, drives.len() == 2 && drives[0] != drives[1]);
        let mut ways = vec![&policies.striped];
        if is_hybrid {
            ways.push(&policies.migration);
        }
        for way in &ways {
            all.add(all.nfs()?, name, pools.pool(drives)?, way)?;
            all.add(all.nfs_ramp()?, name, pools.pool(drives)?, way)?;
            if is_alone {
                continue;
            }
            all.add(all.postmark(false)?, name, pools.pool(drives)?, way)?;
            for readers in 0..=4 {
                let load = format!("{readers}R{}W", 4 - readers);
                all.add(all.zipf(&load, readers)?, name, pools.pool(drives)?, way)?;
            }
            all.add(all.postmark(true)?, name, pools.pool(drives)?, way)?;
        }
        if is_hybrid {
            all.add(all.postmark(true)?, name, pools.pool(drives)?, &policies.migration_2)?;
            for way in [&policies.metadata, &policies.metadata_migration] {
                all.add(all.nfs()?, name, pools.pool(drives)?, way)?;
                all.add(all.nfs_ramp()?, name, pools.pool(drives)?, way)?;
            }
        }
    }
    let hybrid = ["transcend", "disk"];
    all.add(all.nfs()?, "transcend+disk", pools.pool(&hybrid)?, &policies.less_delta)?;
    let chunks: [Bytes; 2] = p.several_sizes("larger_chunks")?;
    for (chunk, name) in chunks.into_iter().zip(["128 KiB", "256 KiB"]) {
        let pool = Pools { p, chunk }.pool(&hybrid)?;
        all.add(all.nfs()?, &format!("transcend+disk in {name}"), pool, &policies.migration)?;
    }
    all.raw(&pools, &policies.striped)?;
    Ok(all.all)
}
