//! Reproduces equal response times (the dissertation's chapter III) on an SSD of 2008 and disks of 15,000
//! rpm.
//!
//! The loads are dbench, a file server's mix of operations, and a load that grows from one process to ten.

use super::experiment::{Experiment, MakeLoad, pool};
use super::loads::{ProcessLoad, file_server, shape};
use super::parameters::Parameters;
use super::results::Period;
use super::{Measures, Reproduction, Setting};
use crate::failure::Failure;
use weir_model::{Bytes, Nanos};
use weir_sim::PoolSpec;
use weir_sim::load::file_system::FileSystemConfig;
use weir_sim::load::mix::Mix;

pub(super) const REPRODUCTION: Reproduction = Reproduction {
    name: "wardrop",
    about: "Wardrop equilibrium of an SSD and disks: equal response times",
    data: include_str!("data/wardrop.toml"),
    measures: Measures::Pools(experiments),
    notes,
};

/// Returns the operations of an engineering department's file server, with the counts of table III and the
/// sizes of table IV.
fn netapp(p: &Parameters) -> Result<Mix, Failure> {
    Ok(Mix {
        read: Some(p.sizes("netapp_read_sizes")?),
        write: p.sizes("netapp_write_sizes")?,
        updates_atime: p.word("netapp_access_times")? == "all",
        sync: p.word("netapp_sync")? != "none",
        ..file_server(p, "netapp")?
    })
}

/// Returns processes on a machine with four processors, on a file system that trims free space.
fn processes(p: &Parameters, count: usize) -> Result<ProcessLoad, Failure> {
    let trim = p.word("trim")? == "all";
    let shape = FileSystemConfig { trim, ..shape(p, "file_system_size", "memory", "dirty_limits")? };
    let processors = p.count("processors")? as usize;
    Ok(ProcessLoad { processors: Some(processors), ..ProcessLoad::of(count, shape) })
}

/// A policy and its tuning: the name in experiments, the policy, and the keys that differ from the defaults.
type PolicyTuning = (String, &'static str, Vec<(&'static str, f64)>);

fn striped() -> PolicyTuning {
    ("striped".into(), "stripe", Vec::new())
}

/// Returns the published policy. Alpha, published for each millisecond of response times of 0.2 to 0.9 ms, is
/// relative to the mean response time: with 128 writes waiting at a drive, response times here are tens of
/// milliseconds, and the published value would make the shares of every round all or nothing.
fn wardrop(p: &Parameters) -> Result<PolicyTuning, Failure> {
    let is_relative = p.word("alpha_unit")? == "mean-response";
    let tuning = vec![
        ("alpha", p.number("alpha")?),
        ("relative", f64::from(u8::from(is_relative))),
        ("beta", p.number("beta")?),
        ("step", p.share("step")?),
        ("floor", p.share("floor")?),
        ("round", p.time("round")?.as_secs_f64()),
        ("hot", p.number("hot")?),
        ("from_memory", f64::from(u8::from(p.word("from_memory")? == "yes"))),
    ];
    Ok(("wardrop".into(), "wardrop", tuning))
}

/// Returns a static split: this share of new data on the first device, the rest evenly on the others.
fn split(share: f64, devices: usize) -> PolicyTuning {
    const WEIGHTS: [&str; 5] = ["weight1", "weight2", "weight3", "weight4", "weight5"];
    let others = (1.0 - share) / (devices - 1) as f64;
    let weight = |(nth, key): (usize, &&'static str)| (*key, if nth == 0 { share } else { others });
    let tuning = WEIGHTS[..devices].iter().enumerate().map(weight).collect();
    (format!("static {:.0} %", share * 100.0), "weighted_stripe", tuning)
}

/// The experiments in preparation.
struct Experiments<'s> {
    setting: &'s Setting,
    all: Vec<Experiment>,
}

impl Experiments<'_> {
    fn pool(&self, drives: &[&str]) -> Result<PoolSpec, Failure> {
        let p = &self.setting.parameters;
        let drives: Vec<_> = drives.iter().map(|name| p.drive(name)).collect::<Result<_, _>>()?;
        let extent = p.size("extent")?;
        Ok(PoolSpec {
            extent_cache: Bytes(p.count("extent_cache")? * extent.0),
            mover_share: p.percent("mover_share")?,
            ..pool(extent, &drives)
        })
    }

    fn add(
        &mut self,
        load: (&str, MakeLoad, usize, Nanos),
        pool: (&str, &[&str]),
        way: &PolicyTuning,
    ) -> Result<&mut Experiment, Failure> {
        let p = &self.setting.parameters;
        let (load_name, load, processes, duration) = load;
        let (pool_name, drives) = pool;
        let experiment = Experiment {
            name: format!("{load_name}, {pool_name}, {}", way.0),
            pool: self.pool(drives)?,
            policy: way.1,
            tuning: way.2.clone(),
            load,
            load_file: None,
            processes,
            writers: p.count("writeback_depth")? as usize,
            periods: Vec::new(),
            saturation_limit: None,
            duration,
            warm_up_share: p.share("warm_up")?,
        };
        self.all.push(experiment);
        Ok(self.all.last_mut().unwrap_or_else(|| unreachable!("it was added")))
    }

    fn dbench(&mut self, clients: u64, pool: (&str, &[&str]), way: &PolicyTuning) -> Result<(), Failure> {
        let (p, recording) = (&self.setting.parameters, self.setting.recording());
        let takes = p.time("dbench_operation_time")?;
        let make = processes(p, clients as usize)?.dbench(recording, takes);
        let load_file = self.setting.load_file();
        let load = (&*format!("dbench {clients}"), make, clients as usize, p.time("dbench_duration")?);
        self.add(load, pool, way)?.load_file = load_file;
        Ok(())
    }

    fn netapp(&mut self, count: u64, pool: (&str, &[&str]), way: &PolicyTuning) -> Result<(), Failure> {
        let p = &self.setting.parameters;
        let make = processes(p, count as usize)?.mixed(netapp(p)?);
        let load = (&*format!("netapp {count}"), make, count as usize, p.time("netapp_duration")?);
        self.add(load, pool, way)?;
        Ok(())
    }

    /// Adds the load with one process, which nine others join in the middle.
    fn growing(&mut self, pool: (&str, &[&str]), way: &PolicyTuning) -> Result<(), Failure> {
        let p = &self.setting.parameters;
        let [few, many] = p.counts("growing_processes")?.map(|count: u64| count as usize);
        let mut grown = processes(p, many)?;
        grown.start_shares[few..].fill(p.share("growing_time")?);
        let [one, one_end, ten, ten_end] = p.shares("growing_windows")?;
        let load = ("1 to 10", grown.mixed(netapp(p)?), many, p.time("netapp_duration")?);
        self.add(load, pool, way)?.periods =
            vec![Period::new("1", [one, one_end]), Period::new("10", [ten, ten_end])];
        Ok(())
    }
}

const DISK: (&str, &[&str]) = ("disk", &["disk"]);
const SSD: (&str, &[&str]) = ("ssd", &["ssd"]);
const HYBRID: (&str, &[&str]) = ("ssd+disk", &["ssd", "disk"]);
const TWO_DISKS: (&str, &[&str]) = ("ssd+2 disks", &["ssd", "disk", "disk"]);
const FOUR_DISKS: (&str, &[&str]) = ("ssd+4 disks", &["ssd", "disk", "disk", "disk", "disk"]);
const ONLY_DISKS: (&str, &[&str]) = ("4 disks", &["disk", "disk", "disk", "disk"]);
/// Pools with another SSD: alone, and beside a disk.
type Pool = (&'static str, &'static [&'static str]);
const OTHERS: [(Pool, Pool); 2] = [
    (("memoright", &["memoright"]), ("memoright+disk", &["memoright", "disk"])),
    (("transcend", &["transcend"]), ("transcend+disk", &["transcend", "disk"])),
];

fn experiments(setting: &Setting) -> Result<Vec<Experiment>, Failure> {
    let p = &setting.parameters;
    let (striped, wardrop) = (striped(), wardrop(p)?);
    let mut all = Experiments { setting, all: Vec::new() };
    let counts: [u64; 3] = p.counts("netapp_processes")?;
    for count in counts {
        for (pool, way) in [(DISK, &striped), (SSD, &striped), (HYBRID, &striped), (HYBRID, &wardrop)] {
            all.netapp(count, pool, way)?;
        }
    }
    for (pool, way) in [(DISK, &striped), (SSD, &striped), (HYBRID, &wardrop)] {
        all.growing(pool, way)?;
    }
    let (counts, shares): ([u64; 3], [f64; 5]) = (p.counts("dbench_processes")?, p.shares("static_splits")?);
    for count in counts {
        all.dbench(count, DISK, &striped)?;
        all.dbench(count, SSD, &striped)?;
        all.dbench(count, HYBRID, &striped)?;
        all.dbench(count, HYBRID, &wardrop)?;
        for share in shares {
            all.dbench(count, HYBRID, &split(share, 2))?;
        }
    }
    let most = counts[counts.len() - 1];
    all.dbench(most, TWO_DISKS, &wardrop)?;
    all.dbench(most, FOUR_DISKS, &wardrop)?;
    all.dbench(most, FOUR_DISKS, &striped)?;
    all.dbench(most, FOUR_DISKS, &split(p.share("split_with_disks")?, FOUR_DISKS.1.len()))?;
    all.dbench(most, ONLY_DISKS, &striped)?;
    let shares: [f64; 5] = p.shares("other_splits")?;
    for (alone, hybrid) in OTHERS {
        all.dbench(most, alone, &striped)?;
        all.dbench(most, hybrid, &wardrop)?;
        for share in shares {
            all.dbench(most, hybrid, &split(share, 2))?;
        }
    }
    Ok(all.all)
}

fn notes(setting: &Setting) -> Vec<String> {
    if setting.named_recording.is_some() {
        return Vec::new();
    }
    let note = "dbench's load file is not named: the rows of dbench are measured with a load of weir's own \
                making, with its numbers of operations and sizes and none of its order; name the file with \
                --dbench FILE (Debian's package dbench has it as /usr/share/dbench/client.txt)";
    vec![note.into()]
}
