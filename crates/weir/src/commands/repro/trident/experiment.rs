//! The experiments, by the names that rows use: `postmark, fast SSD, lru`, or, for all loads,
//! `all loads, fast SSD, trident to lru`.

use std::fmt;
use weir_sim::fs::BottomFs;

/// The loads of the publication.
pub(super) const LOADS: [&str; 6] =
    ["create-files", "postmark", "fileserver", "webproxy", "untar", "kernel-compile"];
/// The loads that the publication calls dominated by writes.
const WRITE_LOADS: [&str; 3] = ["postmark", "fileserver", "untar"];
/// Sizes of NVM below the usual one of 384, in published MB.
const SMALLER_NVM: [u64; 5] = [4, 16, 64, 128, 256];

/// An experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Experiment {
    /// The distribution of the items of figure 5.
    Example(Method),
    /// A load on a machine.
    Run(Setup),
    /// Several loads on one SSD, each on two machines or more.
    Compared(Comparison),
}

/// A method of distribution in figure 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    RoundRobin,
    Greedy,
    Trident,
}

impl Method {
    pub(super) const ALL: [Self; 3] = [Self::RoundRobin, Self::Greedy, Self::Trident];

    /// Returns the name of the policy.
    pub(super) const fn policy(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Greedy => "greedy",
            Self::Trident => "trident",
        }
    }
}

/// A load on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Setup {
    pub(super) load: &'static str,
    pub(super) ssd: Ssd,
    pub(super) variant: Variant,
}

/// One of the SSDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ssd {
    Fast,
    Slow,
}

impl Ssd {
    pub(super) const ALL: [(&'static str, Self); 2] = [("fast SSD", Self::Fast), ("slow SSD", Self::Slow)];
}

/// The devices below NVM or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Devices {
    Ssd,
    Disk,
    Raid0,
}

/// What a machine has that the usual one has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variant {
    /// Nothing: `TridentFS` on NVM of 384 MB, the SSD and the disk.
    Trident,
    /// No NVM: ext4.
    Plain(Devices),
    /// `TridentFS` without its distribution.
    Single(Devices),
    /// Distribution by size.
    BySize,
    /// Distribution to the tier with the lowest load, in the order of eviction.
    Greedy,
    /// Distribution by rates of trial runs.
    Offline,
    /// File systems below, of the SSD and of the disk.
    Bottom(BottomFs, BottomFs),
    /// NVM of this size, in published MB.
    Nvm(u64),
    /// Another eviction policy.
    Evicted(&'static str),
    /// A high watermark in percent; the low one is as far below as usual.
    High(u64),
    /// A low watermark in percent.
    Low(u64),
}

const DEVICES: [(&str, Devices); 3] =
    [("SSD", Devices::Ssd), ("disk", Devices::Disk), ("RAID 0", Devices::Raid0)];

/// The variants whose names are words.
const WORDS: [(&str, Variant); 6] = [
    ("trident", Variant::Trident),
    ("by size", Variant::BySize),
    ("greedy", Variant::Greedy),
    ("offline", Variant::Offline),
    ("lru", Variant::Evicted("lru")),
    ("fifo", Variant::Evicted("fifo")),
];

impl Variant {
    fn parse(name: &str) -> Option<Self> {
        let devices = |text: &str| DEVICES.iter().find(|(known, _)| *known == text).map(|(_, all)| *all);
        let number = |text: &str, unit: &str| text.strip_suffix(unit)?.parse().ok();
        if let Some((_, variant)) = WORDS.iter().find(|(known, _)| *known == name) {
            return Some(*variant);
        }
        if let Some((ssd, disk)) = name.split_once('/') {
            return Some(Self::Bottom(BottomFs::by_name(ssd)?, BottomFs::by_name(disk)?));
        }
        match name.split_once(' ')? {
            ("ext4", rest) => devices(rest.strip_prefix("on ")?).map(Self::Plain),
            ("single", rest) => devices(rest.strip_prefix("on ")?).map(Self::Single),
            ("NVM", rest) => number(rest, " MB").map(Self::Nvm),
            ("high", rest) => number(rest, " %").map(Self::High),
            ("low", rest) => number(rest, " %").map(Self::Low),
            _ => None,
        }
    }

    /// Returns whether the SSD has no part in it.
    fn is_disk_alone(self) -> bool {
        matches!(self, Self::Plain(Devices::Disk) | Self::Single(Devices::Disk))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS.iter().find(|(_, known)| known == self).map_or("", |(word, _)| word);
        let name = |of: &Devices| DEVICES.iter().find(|(_, known)| known == of).map_or("", |(name, _)| name);
        match self {
            Self::Plain(devices) => write!(f, "ext4 on {}", name(devices)),
            Self::Single(devices) => write!(f, "single on {}", name(devices)),
            Self::Bottom(ssd, disk) => write!(f, "{}/{}", ssd.name(), disk.name()),
            Self::Nvm(size) => write!(f, "NVM {size} MB"),
            Self::High(share) => write!(f, "high {share} %"),
            Self::Low(share) => write!(f, "low {share} %"),
            _ => f.write_str(word),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ssd = Ssd::ALL.iter().find(|(_, known)| *known == self.ssd).map_or("", |(name, _)| name);
        write!(f, "{}, {ssd}, {}", self.load, self.variant)
    }
}

impl Setup {
    /// Creates it. A machine without an SSD is the same with either.
    pub(super) fn new(load: &'static str, ssd: Ssd, variant: Variant) -> Self {
        let ssd = if variant.is_disk_alone() { Ssd::Fast } else { ssd };
        Self { load, ssd, variant }
    }

    /// Returns the same load and SSD on another machine.
    pub(super) fn with(self, variant: Variant) -> Self {
        Self::new(self.load, self.ssd, variant)
    }
}

/// Loads on one SSD, each on several machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) loads: &'static [&'static str],
    pub(super) ssd: Ssd,
    /// What is compared for each load: a machine, and its baseline.
    pub(super) pairs: Vec<(Variant, Variant)>,
}

impl Comparison {
    /// Parses the machines: `trident to lru`, `ext4/ext4 to other pairs` or `more NVM to less`.
    fn pairs(text: &str) -> Option<Vec<(Variant, Variant)>> {
        match text {
            "ext4/ext4 to other pairs" => {
                let kinds = BottomFs::ALL.map(|(_, kind)| kind);
                let all = kinds.iter().flat_map(|ssd| kinds.iter().map(|disk| (*ssd, *disk)));
                let others = all.filter(|pair| *pair != (BottomFs::Ext4, BottomFs::Ext4));
                Some(others.map(|(ssd, disk)| (Variant::Trident, Variant::Bottom(ssd, disk))).collect())
            }
            "more NVM to less" => {
                let sizes = SMALLER_NVM.map(Variant::Nvm).into_iter().chain([Variant::Trident]);
                let all: Vec<_> = sizes.collect();
                Some(all.windows(2).map(|pair| (pair[1], pair[0])).collect())
            }
            _ => {
                let (of, to) = text.split_once(" to ")?;
                Some(vec![(Variant::parse(of)?, Variant::parse(to)?)])
            }
        }
    }

    /// Returns the machines of each load, as pairs.
    pub(super) fn setups(&self) -> impl Iterator<Item = Vec<[Setup; 2]>> {
        let of = |load: &'static str, variant| Setup::new(load, self.ssd, variant);
        let pair = move |load, &(one, other): &(Variant, Variant)| [of(load, one), of(load, other)];
        self.loads.iter().map(move |&load| self.pairs.iter().map(|both| pair(load, both)).collect())
    }
}

impl Experiment {
    /// Parses a name; `None` if it is no experiment.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let parts: Vec<&str> = name.split(", ").collect();
        if let ["figure 5", method] = parts[..] {
            let method = Method::ALL.into_iter().find(|known| known.policy() == method);
            return method.map(Self::Example);
        }
        let [load, ssd, variant] = parts[..] else { return None };
        let (_, ssd) = *Ssd::ALL.iter().find(|(known, _)| *known == ssd)?;
        let loads = match load {
            "all loads" => &LOADS[..],
            "write loads" => &WRITE_LOADS[..],
            _ => {
                let load = LOADS.into_iter().find(|known| *known == load)?;
                return Some(Self::Run(Setup::new(load, ssd, Variant::parse(variant)?)));
            }
        };
        Some(Self::Compared(Comparison { loads, ssd, pairs: Comparison::pairs(variant)? }))
    }

    /// Returns the machines that it needs, those of trial runs included.
    pub(super) fn setups(&self) -> Vec<Setup> {
        let all = match self {
            Self::Example(_) => Vec::new(),
            Self::Run(setup) => vec![*setup],
            Self::Compared(comparison) => comparison.setups().flatten().flatten().collect(),
        };
        let trials =
            all.iter().filter(|setup| setup.variant == Variant::Offline).flat_map(|setup| trials(*setup));
        let trials: Vec<_> = trials.collect();
        all.into_iter().chain(trials).collect()
    }
}

/// Returns the trial runs that give the rates of the SSD and the disk.
pub(super) fn trials(setup: Setup) -> [Setup; 2] {
    [Devices::Ssd, Devices::Disk].map(|devices| setup.with(Variant::Single(devices)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_printed() {
        let variants = [
            "trident",
            "by size",
            "greedy",
            "offline",
            "lru",
            "fifo",
            "ext4 on SSD",
            "single on RAID 0",
            "fat/nilfs2",
            "NVM 4 MB",
            "high 60 %",
            "low 90 %",
        ];
        for variant in variants {
            let name = format!("postmark, slow SSD, {variant}");
            let Some(Experiment::Run(setup)) = Experiment::parse(&name) else { panic!("{name}") };
            assert_eq!(setup.to_string(), name);
        }
        for wrong in
            ["postmark, trident", "mail, fast SSD, trident", "postmark, fast SSD, mru", "figure 5, lru"]
        {
            assert_eq!(Experiment::parse(wrong), None, "{wrong}");
        }
        let disk = Experiment::parse("untar, slow SSD, single on disk").expect("an experiment");
        assert_eq!(disk.setups()[0].to_string(), "untar, fast SSD, single on disk", "without an SSD");
    }

    #[test]
    fn comparisons_need_the_machines_of_all_loads() {
        let count = |name: &str| Experiment::parse(name).expect("an experiment").setups().len();
        assert_eq!(count("all loads, fast SSD, trident to lru"), 12);
        assert_eq!(count("write loads, slow SSD, trident to by size"), 6);
        assert_eq!(count("all loads, fast SSD, ext4/ext4 to other pairs"), 6 * 8 * 2);
        assert_eq!(count("all loads, fast SSD, more NVM to less"), 6 * 5 * 2);
        assert_eq!(count("untar, fast SSD, offline"), 3, "with its trial runs");
        assert_eq!(count("figure 5, greedy"), 0);
    }
}
