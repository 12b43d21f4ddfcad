//! The experiments, by the names that rows use: `random read, 64 KiB, scmfs-1`, `postmark reads, ext2`, and
//! for all sizes of records `random read, all records, scmfs-1 to ext2`.

use std::fmt;
use weir_model::Bytes;
use weir_sim::memory::PageSize;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Experiment {
    /// A load on a system.
    Run(Setup),
    /// The geometric means of a load's metrics, over all sizes of records.
    Mean(Vec<Setup>),
    /// The ratios of a system to another, over all sizes of records.
    Compared(Vec<[Setup; 2]>),
}

/// A load on a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    pub(super) load: Load,
    pub(super) system: System,
    /// The pages of the kernel's linear mapping.
    pub(super) linear: PageSize,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// Records of one file for each thread, each once.
    Iozone(Records),
    /// Transactions on small files.
    Postmark { is_write: bool },
}

/// Records of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Records {
    pub(super) is_random: bool,
    pub(super) is_write: bool,
    pub(super) record: Bytes,
    pub(super) threads: usize,
    /// Whether files are mapped into the program.
    pub(super) is_mapped: bool,
}

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    Ramfs,
    Tmpfs,
    Ext2,
    Scmfs(Build, PageSize),
}

/// A build of SCMFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Build {
    /// Neither null files nor ordered writes.
    Plain,
    /// With null files.
    Preallocating,
    /// With null files and ordered writes.
    Consistent,
}

const PATTERNS: [(&str, bool, bool); 4] = [
    ("sequential read", false, false),
    ("sequential write", false, true),
    ("random read", true, false),
    ("random write", true, true),
];
const POSTMARKS: [(&str, bool); 2] = [("postmark reads", false), ("postmark writes", true)];
const SYSTEMS: [(&str, System); 7] = [
    ("ramfs", System::Ramfs),
    ("tmpfs", System::Tmpfs),
    ("ext2", System::Ext2),
    ("scmfs-1", System::Scmfs(Build::Plain, PageSize::Small)),
    ("scmfs-2", System::Scmfs(Build::Preallocating, PageSize::Small)),
    ("scmfs-3", System::Scmfs(Build::Consistent, PageSize::Small)),
    ("scmfs-1 by 2 MiB", System::Scmfs(Build::Plain, PageSize::Large)),
];
/// Binary logarithms of the sizes of records: 4 KiB to 16 MiB.
const RECORDS: std::ops::RangeInclusive<u32> = 12..=24;
const ALL_RECORDS: &str = "all records";
const MAPPED: &str = "mmap";
const WITHOUT_PSE: &str = "without PSE";

/// The largest size of a record.
pub(super) const RECORD_MAX: Bytes = Bytes(1 << *RECORDS.end());

fn system(name: &str) -> Option<System> {
    SYSTEMS.iter().find(|(known, _)| *known == name).map(|(_, system)| *system)
}

fn record(text: &str) -> Option<Bytes> {
    let (number, unit) = text.split_once(' ')?;
    let unit = match unit {
        "KiB" => 10,
        "MiB" => 20,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()? << unit;
    (bytes.is_power_of_two() && RECORDS.contains(&bytes.ilog2())).then_some(Bytes(bytes))
}

impl Experiment {
    /// Reads a name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts: Vec<&str> = name.split(", ").collect();
        let (first, last) = (parts.remove(0), parts.pop()?);
        let linear = match parts.last() {
            Some(&WITHOUT_PSE) => {
                parts.pop();
                PageSize::Small
            }
            _ => PageSize::Large,
        };
        if let Some((_, is_write)) = POSTMARKS.iter().find(|(known, _)| *known == first) {
            let setup = Setup { load: Load::Postmark { is_write: *is_write }, system: system(last)?, linear };
            return parts.is_empty().then_some(Self::Run(setup));
        }
        let (_, is_random, is_write) = *PATTERNS.iter().find(|(known, ..)| *known == first)?;
        let is_mapped = parts.last() == Some(&MAPPED);
        parts.truncate(parts.len() - usize::from(is_mapped));
        let (size, threads) = match *parts.as_slice() {
            [size] => (size, 1),
            [size, threads] => (size, threads.strip_suffix(" threads")?.parse().ok()?),
            _ => return None,
        };
        let setup = |record, system| {
            let load = Load::Iozone(Records { is_random, is_write, record, threads, is_mapped });
            Setup { load, system, linear }
        };
        if size != ALL_RECORDS {
            return Some(Self::Run(setup(record(size)?, system(last)?)));
        }
        let all = RECORDS.map(|log| Bytes(1 << log));
        Some(match last.split_once(" to ") {
            None => {
                let system = system(last)?;
                Self::Mean(all.map(|record| setup(record, system)).collect())
            }
            Some((one, other)) => {
                let (one, other) = (system(one)?, system(other)?);
                Self::Compared(all.map(|record| [one, other].map(|system| setup(record, system))).collect())
            }
        })
    }

    /// Returns the loads on systems that it needs.
    pub(super) fn setups(&self) -> Vec<Setup> {
        match self {
            Self::Run(setup) => vec![*setup],
            Self::Mean(setups) => setups.clone(),
            Self::Compared(pairs) => pairs.iter().flatten().copied().collect(),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.load {
            Load::Postmark { is_write } => {
                let name = POSTMARKS.iter().find(|(_, write)| *write == is_write).map(|(name, _)| *name);
                f.write_str(name.unwrap_or_default())?;
            }
            Load::Iozone(Records { is_random, is_write, record, threads, is_mapped }) => {
                let is_it =
                    |(_, random, write): &&(_, bool, bool)| (*random, *write) == (is_random, is_write);
                f.write_str(PATTERNS.iter().find(is_it).map(|(name, ..)| *name).unwrap_or_default())?;
                match record.0 {
                    size if size < 1 << 20 => write!(f, ", {} KiB", size >> 10)?,
                    size => write!(f, ", {} MiB", size >> 20)?,
                }
                if threads > 1 {
                    write!(f, ", {threads} threads")?;
                }
                if is_mapped {
                    write!(f, ", {MAPPED}")?;
                }
            }
        }
        if self.linear == PageSize::Small {
            write!(f, ", {WITHOUT_PSE}")?;
        }
        let name = SYSTEMS.iter().find(|(_, system)| *system == self.system).map(|(name, _)| *name);
        write!(f, ", {}", name.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        for name in [
            "random read, 64 KiB, scmfs-1",
            "sequential write, 16 MiB, tmpfs",
            "random write, 64 KiB, 4 threads, mmap, ext2",
            "random write, 1 MiB, without PSE, ext2",
            "random read, 4 KiB, scmfs-1 by 2 MiB",
            "postmark reads, scmfs-3",
        ] {
            let Some(Experiment::Run(setup)) = Experiment::parse(name) else { panic!("{name}") };
            assert_eq!(setup.to_string(), name);
        }
        for wrong in
            ["random read, scmfs-1", "random read, 3 KiB, ext2", "postmark, ext2", "random read, 4 KiB, ext4"]
        {
            assert_eq!(Experiment::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_records_are_thirteen_sizes() {
        let count = |name: &str| Experiment::parse(name).expect("an experiment").setups().len();
        assert_eq!(count("random read, all records, ramfs"), 13);
        assert_eq!(count("random read, all records, without PSE, scmfs-1 to ext2"), 26);
    }
}
