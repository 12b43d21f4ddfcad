//! Named drives: their parameters, from the files in `drives/`, which are compiled into the program. Each
//! file gives the source of every value, in `[sources]`:
//!
//! - *measured* on the drive, by a published tool,
//! - *published* by the maker or a reviewer,
//! - *recalled* from a datasheet or a paper and not read again,
//! - *derived* from the other values as described there,
//! - *fitted* so that the model reproduces a measured or published figure.

use crate::cap::CapParams;
use crate::disk::{DiskParams, Overheads, Zone};
use crate::memory::MemoryParams;
use crate::network::NetworkParams;
use crate::ssd::SsdParams;
use crate::{Capped, Disk, Network, NewFlashLog, PersistentMemory, Ssd, Timing, WriteCache};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use weir_model::{Bytes, Nanos};

/// Drive files by name.
const FILES: &[(&str, &str)] = &[
    ("atlas-10k", include_str!("../drives/atlas-10k.toml")),
    ("capped-200", include_str!("../drives/capped-200.toml")),
    ("capped-600", include_str!("../drives/capped-600.toml")),
    ("cheetah-10k6", include_str!("../drives/cheetah-10k6.toml")),
    ("cheetah-9lp", include_str!("../drives/cheetah-9lp.toml")),
    ("cxl-dram", include_str!("../drives/cxl-dram.toml")),
    ("ddr5", include_str!("../drives/ddr5.toml")),
    ("hdd-15k", include_str!("../drives/hdd-15k.toml")),
    ("hdd-15k-through", include_str!("../drives/hdd-15k-through.toml")),
    ("hdd-7200", include_str!("../drives/hdd-7200.toml")),
    ("hp-c2247a", include_str!("../drives/hp-c2247a.toml")),
    ("intel-x25-e", include_str!("../drives/intel-x25-e.toml")),
    ("intel-x25-e-fresh", include_str!("../drives/intel-x25-e-fresh.toml")),
    ("intel-x25-m-g1", include_str!("../drives/intel-x25-m-g1.toml")),
    ("intel-x25-m-g1-log", include_str!("../drives/intel-x25-m-g1-log.toml")),
    ("intel-x25-m-g2", include_str!("../drives/intel-x25-m-g2.toml")),
    ("intel-x25-v", include_str!("../drives/intel-x25-v.toml")),
    ("mba3073", include_str!("../drives/mba3073.toml")),
    ("memoright-gt", include_str!("../drives/memoright-gt.toml")),
    ("nvm", include_str!("../drives/nvm.toml")),
    ("optane-p4800x", include_str!("../drives/optane-p4800x.toml")),
    ("optane-p5800x", include_str!("../drives/optane-p5800x.toml")),
    ("remote-10k-17ms", include_str!("../drives/remote-10k-17ms.toml")),
    ("remote-10k-25ms", include_str!("../drives/remote-10k-25ms.toml")),
    ("remote-10k-9ms", include_str!("../drives/remote-10k-9ms.toml")),
    ("remote-hdd-9ms", include_str!("../drives/remote-hdd-9ms.toml")),
    ("remote-ssd-lan", include_str!("../drives/remote-ssd-lan.toml")),
    ("samsung-980-pro", include_str!("../drives/samsung-980-pro.toml")),
    ("solidigm-d5-p5316", include_str!("../drives/solidigm-d5-p5316.toml")),
    ("sp2504c", include_str!("../drives/sp2504c.toml")),
    ("ssd-nvme", include_str!("../drives/ssd-nvme.toml")),
    ("ssd-sata", include_str!("../drives/ssd-sata.toml")),
    ("st3750528as", include_str!("../drives/st3750528as.toml")),
    ("transcend-ts16g", include_str!("../drives/transcend-ts16g.toml")),
];

static DRIVES: LazyLock<BTreeMap<&'static str, Drive>> = LazyLock::new(|| {
    // A file that cannot be parsed is left out; the tests ensure that there is none.
    let files = FILES.iter().filter_map(|&(name, text)| Some((name, read(text).ok()?)));
    let (mut drives, mut others) = (BTreeMap::new(), Vec::new());
    for (name, file) in files {
        match file {
            ParsedFile::Complete(drive) => drop(drives.insert(name, drive)),
            ParsedFile::Derived(drive, make) => others.push((name, drive, make)),
        }
    }
    for (name, drive, make) in others {
        if let Some(drive) = drives.get(&*drive).map(make) {
            drives.insert(name, drive);
        }
    }
    drives
});

/// A modelled drive.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Maker and model.
    pub about: String,
    /// Kind of its write cache.
    pub cache: WriteCache,
    /// Kind of drive, with its parameters.
    pub kind: DriveKind,
}

/// Kind of a drive.
#[derive(Clone, Debug)]
pub enum DriveKind {
    /// A hard disk.
    Disk(DiskParams),
    /// An SSD.
    Ssd(SsdParams),
    /// Byte-addressable memory.
    Memory(MemoryParams),
    /// Another drive behind a network.
    Remote(NetworkParams, Box<Drive>),
    /// Another drive behind a rate limit.
    Capped(CapParams, Box<Drive>),
}

impl Drive {
    /// Returns the timing of the idle drive with this write cache; memory has none and ignores it. `new_log`
    /// creates the log of an SSD whose garbage collection follows from the state of its flash.
    pub fn timing(&self, capacity: Bytes, cache: WriteCache, new_log: NewFlashLog) -> Box<dyn Timing> {
        match &self.kind {
            DriveKind::Disk(params) => Box::new(Disk::new(params, capacity, cache)),
            DriveKind::Ssd(params) => Box::new(Ssd::new(params, capacity, cache, new_log)),
            DriveKind::Memory(params) => Box::new(PersistentMemory::new(params)),
            DriveKind::Remote(params, device) => {
                Box::new(Network::new(params, device.timing(capacity, cache, new_log)))
            }
            DriveKind::Capped(params, device) => {
                Box::new(Capped::new(params, device.timing(capacity, cache, new_log)))
            }
        }
    }
}

/// Returns the drive of this name; `None` if it is unknown.
pub fn drive(name: &str) -> Option<&'static Drive> {
    DRIVES.get(name)
}

/// Returns the parameters of the named disk; `None` if the name is unknown or not a disk.
pub fn disk(name: &str) -> Option<&'static DiskParams> {
    match &drive(name)?.kind {
        DriveKind::Disk(params) => Some(params),
        DriveKind::Ssd(_) | DriveKind::Memory(_) | DriveKind::Remote(..) | DriveKind::Capped(..) => None,
    }
}

/// Returns all drives by name, in alphabetical order.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Drive)> {
    DRIVES.iter().map(|(&name, drive)| (name, drive))
}

/// A parsed file: a drive, or a change to another one.
enum ParsedFile {
    Complete(Drive),
    Derived(String, Box<dyn FnOnce(&Drive) -> Drive>),
}

fn read(text: &str) -> Result<ParsedFile, toml::de::Error> {
    Ok(match toml::from_str(text)? {
        File::Disk(file) => ParsedFile::Complete((*file).into()),
        File::Ssd(file) => ParsedFile::Complete(file.into()),
        File::Memory(file) => ParsedFile::Complete(file.into()),
        File::Remote(file) => {
            ParsedFile::Derived(file.behind.clone(), Box::new(move |device| file.before(device)))
        }
        File::Capped(file) => {
            ParsedFile::Derived(file.behind.clone(), Box::new(move |device| file.before(device)))
        }
        File::As(file) => ParsedFile::Derived(file.drive.clone(), Box::new(move |drive| file.of(drive))),
    })
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum File {
    Disk(Box<DiskFile>),
    Ssd(SsdFile),
    Memory(MemoryFile),
    Remote(RemoteFile),
    Capped(CappedFile),
    As(AsFile),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CacheFile {
    None,
    Volatile,
    Protected,
}

impl From<CacheFile> for WriteCache {
    fn from(file: CacheFile) -> Self {
        match file {
            CacheFile::None => Self::None,
            CacheFile::Volatile => Self::Volatile,
            CacheFile::Protected => Self::Protected,
        }
    }
}

#[derive(Deserialize)]
struct DiskFile {
    about: String,
    cache: CacheFile,
    turn_ns: u64,
    surfaces: u32,
    cylinders: u64,
    write_settle_ns: u64,
    switch_ns: u64,
    leg: u64,
    read_hit_ns: u64,
    read_miss_ns: u64,
    write_ns: u64,
    write_on_ns: u64,
    link_rate: u64,
    queue: usize,
    segment: u64,
    segments: usize,
    read_before: bool,
    write_cache: u64,
    write_runs: usize,
    write_window: usize,
    seek: Vec<(u64, u64)>,
    zones: Vec<ZoneFile>,
}

#[derive(Deserialize)]
struct ZoneFile {
    first_cylinder: u64,
    sectors_per_track: u64,
    track_skew: f64,
    cylinder_skew: f64,
    offset: Option<f64>,
    #[serde(default)]
    spare: u64,
    #[serde(default)]
    slips: Vec<(u64, u64)>,
}

impl From<ZoneFile> for Zone {
    fn from(file: ZoneFile) -> Self {
        Self {
            first_cylinder: file.first_cylinder,
            sectors_per_track: file.sectors_per_track,
            track_skew: file.track_skew,
            cylinder_skew: file.cylinder_skew,
            offset: file.offset,
            spare: file.spare,
            slips: file.slips,
        }
    }
}

impl From<DiskFile> for Drive {
    fn from(file: DiskFile) -> Self {
        let params = DiskParams {
            turn: Nanos(file.turn_ns),
            surfaces: file.surfaces,
            cylinders: file.cylinders,
            zones: file.zones.into_iter().map(Zone::from).collect(),
            seek: file.seek.into_iter().map(|(distance, ns)| (distance, Nanos(ns))).collect(),
            write_settle: Nanos(file.write_settle_ns),
            switch: Nanos(file.switch_ns),
            leg: file.leg,
            overheads: Overheads {
                read_hit: Nanos(file.read_hit_ns),
                read_miss: Nanos(file.read_miss_ns),
                write: Nanos(file.write_ns),
                write_on: Nanos(file.write_on_ns),
            },
            link_rate: Bytes(file.link_rate),
            queue: file.queue,
            segment: Bytes(file.segment),
            segments: file.segments,
            read_before: file.read_before,
            write_cache: Bytes(file.write_cache),
            write_runs: file.write_runs,
            write_window: file.write_window,
        };
        Self { about: file.about, cache: file.cache.into(), kind: DriveKind::Disk(params) }
    }
}

#[derive(Deserialize)]
struct SsdFile {
    about: String,
    cache: CacheFile,
    dies: u32,
    page: u64,
    read_ns: u64,
    suspend_ns: Option<u64>,
    erase_ns: u64,
    block: u32,
    command_ns: u64,
    read_rate: u64,
    write_rate: u64,
    duplex: bool,
    acknowledge_ns: u64,
    buffer: u64,
    drain_rate: u64,
    streams: usize,
    random_percent: u32,
    #[serde(default)]
    random_ns: u64,
    spare_percent: Option<f64>,
    program_ns: u64,
    flush_ns: u64,
}

impl From<SsdFile> for Drive {
    fn from(file: SsdFile) -> Self {
        let params = SsdParams {
            dies: file.dies,
            page: Bytes(file.page),
            read: Nanos(file.read_ns),
            suspend: file.suspend_ns.map(Nanos),
            erase: Nanos(file.erase_ns),
            block: file.block,
            command: Nanos(file.command_ns),
            read_rate: Bytes(file.read_rate),
            write_rate: Bytes(file.write_rate),
            duplex: file.duplex,
            acknowledge: Nanos(file.acknowledge_ns),
            buffer: Bytes(file.buffer),
            drain_rate: Bytes(file.drain_rate),
            streams: file.streams,
            random_percent: file.random_percent,
            random: Nanos(file.random_ns),
            spare: file.spare_percent.map(|percent| percent / 100.0),
            program: Nanos(file.program_ns),
            flush: Nanos(file.flush_ns),
        };
        Self { about: file.about, cache: file.cache.into(), kind: DriveKind::Ssd(params) }
    }
}

#[derive(Deserialize)]
struct MemoryFile {
    about: String,
    read_latency_ns: u64,
    write_latency_ns: u64,
    read_rate: u64,
    write_rate: u64,
    flush_ns: u64,
}

impl From<MemoryFile> for Drive {
    fn from(file: MemoryFile) -> Self {
        let params = MemoryParams {
            read_latency: Nanos(file.read_latency_ns),
            write_latency: Nanos(file.write_latency_ns),
            read_rate: Bytes(file.read_rate),
            write_rate: Bytes(file.write_rate),
            flush: Nanos(file.flush_ns),
        };
        Self { about: file.about, cache: WriteCache::None, kind: DriveKind::Memory(params) }
    }
}

#[derive(Deserialize)]
struct RemoteFile {
    about: String,
    behind: String,
    delay: Vec<(u32, u64)>,
    rate: u64,
    header: u64,
}

impl RemoteFile {
    /// Puts the device behind this network.
    fn before(self, device: &Drive) -> Drive {
        let params = NetworkParams {
            delay: self.delay.into_iter().map(|(share, ns)| (share, Nanos(ns))).collect(),
            rate: Bytes(self.rate),
            header: Bytes(self.header),
        };
        Drive {
            about: self.about,
            cache: device.cache,
            kind: DriveKind::Remote(params, Box::new(device.clone())),
        }
    }
}

#[derive(Deserialize)]
struct CappedFile {
    about: String,
    behind: String,
    commands: u64,
    rate: u64,
    burst_ns: u64,
}

impl CappedFile {
    /// Puts the device behind this rate limit.
    fn before(self, device: &Drive) -> Drive {
        let params =
            CapParams { commands: self.commands, rate: Bytes(self.rate), burst: Nanos(self.burst_ns) };
        Drive {
            about: self.about,
            cache: device.cache,
            kind: DriveKind::Capped(params, Box::new(device.clone())),
        }
    }
}

/// Another drive with a different write cache.
#[derive(Deserialize)]
struct AsFile {
    about: String,
    drive: String,
    cache: CacheFile,
}

impl AsFile {
    fn of(self, drive: &Drive) -> Drive {
        Drive { about: self.about, cache: self.cache.into(), kind: drive.kind.clone() }
    }
}

#[cfg(test)]
mod tests;
