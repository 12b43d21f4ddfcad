//! The pool of an experiment: modelled drives and their sizes.

use super::endurance::is_flash;
use crate::{Noise, SimError, VolumeData};
use weir_engine::Percent;
use weir_map::{NewDevice, NewPool, PoolId, Superblock};
use weir_model::{BLOCK, Bytes, DeviceClass, DeviceId, DeviceSet, ExtentSize, Nanos};
use weir_policy::harm::MoveControl;
use weir_timing::WriteCache;
use weir_timing::drives::{Drive, DriveKind, drive};
use weir_world::flash_log;

/// The pool of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSpec {
    /// Extent size.
    pub extent: ExtentSize,
    /// Its devices, at least one, with distinct names.
    pub devices: Vec<DeviceSpec>,
    /// Share of each device's time that the mover may use while clients use the device.
    pub mover_share: Percent,
    /// Memory for the cache of whole extents; zero disables it.
    pub extent_cache: Bytes,
    /// Whether and how the policy's migrations are judged.
    pub moves: MoveControl,
}

/// A device of the pool.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Device name.
    pub name: String,
    /// Modelled drive: one of [`weir_timing::drives::all`].
    pub model: String,
    /// Size.
    pub size: DeviceSize,
    /// Whether the map may be placed on it; `None` lets the pool choose.
    pub metadata: Option<bool>,
    /// Noise added to its responses; none by default.
    pub noise: Option<Noise>,
}

/// Size of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceSize {
    /// This many bytes, including metadata.
    Size(Bytes),
    /// Room for this share of the data that exists before the load begins. The drive's buffers are scaled
    /// down as well.
    Share(f64),
    /// Like [`DeviceSize::Share`], with the drive's real buffers.
    ShareUnscaled(f64),
}

impl DeviceSize {
    /// Returns the number of data extents that the device must hold, if the size is relative to the `data`
    /// extents of the load.
    fn required_extents(self, data: u64) -> Option<u64> {
        match self {
            Self::Size(_) => None,
            Self::Share(share) | Self::ShareUnscaled(share) => Some(extents(share, data)),
        }
    }
}

/// Minimum number of extents of a device, however small its share.
const EXTENTS_MIN: u64 = 8;

/// Device size at which drives are compared.
const PROBE_SIZE: Bytes = Bytes::gib(1);
/// Flush responses that differ by less than this count as equal; the first device wins.
const FLUSH_RESOLUTION: Nanos = Nanos::micros(50);

/// Divisor of a scaled drive's size that gives its buffers: a larger share than real drives have, and still
/// too small to hold the load's data.
const BUFFER_SHARE: u64 = 1000;
/// Minimum buffer size of a scaled drive.
const BUFFER_MIN: Bytes = Bytes::kib(256);
/// Minimum segment size of a disk's read buffer.
const SEGMENT_MIN: Bytes = Bytes::kib(64);

impl DeviceSpec {
    fn drive(&self) -> Result<&'static Drive, SimError> {
        drive(&self.model).ok_or_else(|| SimError::UnknownDrive {
            device: self.name.clone(),
            model: self.model.clone(),
            known: weir_timing::drives::all().map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        })
    }
}

/// The result of laying out a [`PoolSpec`].
pub(crate) struct Layout {
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) drives: Vec<Drive>,
    /// Noise by device.
    pub(crate) noises: Vec<Option<Noise>>,
}

impl Layout {
    /// Reports whether the device's writes are volatile until flushed.
    pub(crate) fn is_volatile(&self, device: DeviceId) -> bool {
        self.drives[device.index()].cache == WriteCache::Volatile
    }
}

impl PoolSpec {
    /// Returns its devices whose drives are flash.
    pub fn flash(&self) -> DeviceSet {
        let mut flash = DeviceSet::default();
        let drives = self.devices.iter().map(|device| drive(&device.model));
        let of_flash = drives.zip((0..).map(DeviceId)).filter(|(drive, _)| drive.is_some_and(is_flash));
        of_flash.for_each(|(_, id)| flash.insert(id));
        flash
    }

    /// Lays the pool out for a load with these volumes.
    pub(crate) fn layout(&self, spaces: &[VolumeData]) -> Result<Layout, SimError> {
        let data = spaces.iter().map(VolumeData::count).sum();
        let drives = self.devices.iter().map(DeviceSpec::drive).collect::<Result<Vec<_>, _>>()?;
        let mut pool = NewPool {
            id: PoolId([0x51; 16]),
            name: "sim".into(),
            extent: self.extent,
            devices: self
                .devices
                .iter()
                .zip(&drives)
                .map(|(spec, drive)| self.device(spec, drive, data))
                .collect(),
            metadata: self.metadata(&drives),
        };
        let mut superblocks = weir_map::create::layout(&pool)?;
        // The size of the metadata on a device depends on the sizes of all devices; a few rounds converge.
        for _ in 0..8 {
            let mut settled = true;
            for ((new, spec), superblock) in pool.devices.iter_mut().zip(&self.devices).zip(&superblocks) {
                let Some(wanted) = spec.size.required_extents(data) else { continue };
                let has = u64::from(superblock.data_extents);
                if has != wanted {
                    settled = false;
                    let size = new.size.0 + wanted.saturating_sub(has) * self.extent.bytes().0;
                    new.size = Bytes(size - has.saturating_sub(wanted) * self.extent.bytes().0);
                }
            }
            if settled {
                break;
            }
            superblocks = weir_map::create::layout(&pool)?;
        }
        let more = pages_for_sparse(spaces).next_multiple_of(self.extent.bytes().0.max(1 << 20) / BLOCK);
        for superblock in superblocks.iter_mut().filter(|superblock| superblock.is_metadata_member()) {
            superblock.meta_pages += more;
            superblock.data_at = superblock.data_at + Bytes(more * BLOCK);
            superblock.size += Bytes(more * BLOCK);
        }
        let room = superblocks.iter().map(|superblock| u64::from(superblock.data_extents)).sum();
        if room < data {
            let size = |extents| Bytes(extents * self.extent.bytes().0);
            return Err(SimError::TooSmall { data: size(data), room: size(room) });
        }
        let drives = self.devices.iter().zip(drives).zip(&superblocks);
        let drives = drives.map(|((spec, drive), superblock)| match spec.size {
            DeviceSize::Size(_) | DeviceSize::ShareUnscaled(_) => drive.clone(),
            DeviceSize::Share(_) => scaled(drive, superblock.size),
        });
        let noises = self.devices.iter().map(|spec| spec.noise).collect();
        Ok(Layout { drives: drives.collect(), superblocks, noises })
    }

    fn device(&self, spec: &DeviceSpec, drive: &Drive, data: u64) -> NewDevice {
        let size = match spec.size {
            DeviceSize::Size(size) => size,
            // An allowance for the metadata, which is corrected once its size is known.
            DeviceSize::Share(share) | DeviceSize::ShareUnscaled(share) => {
                Bytes(extents(share, data) * self.extent.bytes().0) + Bytes::mib(8)
            }
        };
        let class = match drive.kind {
            DriveKind::Disk(_) => DeviceClass::Hdd,
            DriveKind::Ssd(_) => DeviceClass::Ssd,
            DriveKind::Memory(_) => DeviceClass::Nvm,
            DriveKind::Remote(..) | DriveKind::Capped(..) => DeviceClass::Remote,
        };
        NewDevice { name: spec.name.clone(), size, class }
    }

    /// Chooses the devices of the map by the same rule as the creation of a pool of paced devices.
    fn metadata(&self, drives: &[&Drive]) -> Vec<DeviceId> {
        let numbered = || self.devices.iter().zip((0u8..).map(DeviceId));
        let declared: Vec<_> =
            numbered().filter(|(spec, _)| spec.metadata == Some(true)).map(|(_, id)| id).collect();
        if !declared.is_empty() {
            return declared;
        }
        let mut candidates: Vec<_> = numbered()
            .filter(|(spec, _)| spec.metadata != Some(false))
            .map(|(_, id)| {
                let drive = drives[id.index()];
                let mut timing = drive.timing(PROBE_SIZE, drive.cache, flash_log);
                let flush = weir_timing::flush_response(&mut *timing, PROBE_SIZE);
                (flush.0 / FLUSH_RESOLUTION.0, id, is_disk(drive))
            })
            .collect();
        candidates.sort_unstable();
        let first = candidates.first().map(|(_, id, _)| *id);
        let mirror = candidates.iter().skip(1).find(|(_, _, is_disk)| !is_disk).map(|(_, id, _)| *id);
        first.into_iter().chain(mirror).collect()
    }
}

/// Returns the number of extra metadata pages for volumes with scattered data, beyond those of a pool of its
/// devices' size. Loads touch small parts of large disks, and a map page covers about 500 neighbouring
/// extents.
fn pages_for_sparse(spaces: &[VolumeData]) -> u64 {
    const NEIGHBOURS: u64 = 256;
    let mut pages = 0;
    for space in spaces {
        // Extents by their page, pages by their parent, up to the root.
        let mut under_one = NEIGHBOURS;
        loop {
            let of_level = parts(space, under_one);
            pages += of_level;
            if of_level <= 1 {
                break;
            }
            under_one = under_one.saturating_mul(NEIGHBOURS);
        }
    }
    // Three versions, and the tables that refer to them.
    4 * pages
}

/// Counts the parts of the volume, of `len` extents each, that hold data.
fn parts(space: &VolumeData, len: u64) -> u64 {
    let mut last = None;
    let mut count = 0;
    for run in &space.extents {
        let (from, to) = (run.start.0 / len, (run.end.0 - 1) / len);
        count += to - from + u64::from(last != Some(from));
        last = Some(to);
    }
    count
}

/// Returns the drive with buffers scaled to this size. A load of tens of megabytes stands for one of
/// terabytes; with its real buffers, the drive's cache would serve all of it.
pub(crate) fn scaled(drive: &Drive, size: Bytes) -> Drive {
    let most = Bytes((size.0 / BUFFER_SHARE).max(BUFFER_MIN.0));
    let mut drive = drive.clone();
    match &mut drive.kind {
        DriveKind::Disk(disk) => {
            let each = Bytes(most.0 / disk.segments.max(1) as u64).max(SEGMENT_MIN);
            disk.segment = disk.segment.min(each);
            disk.segments = disk.segments.min((most.0 / disk.segment.0.max(1)) as usize).max(1);
            disk.write_cache = disk.write_cache.min(most);
        }
        DriveKind::Ssd(ssd) => ssd.buffer = ssd.buffer.min(most),
        DriveKind::Remote(_, device) | DriveKind::Capped(_, device) => **device = scaled(device, size),
        DriveKind::Memory(_) => {}
    }
    drive
}

fn is_disk(drive: &Drive) -> bool {
    match &drive.kind {
        DriveKind::Disk(_) => true,
        DriveKind::Remote(_, device) | DriveKind::Capped(_, device) => is_disk(device),
        DriveKind::Ssd(_) | DriveKind::Memory(_) => false,
    }
}

fn extents(share: f64, data: u64) -> u64 {
    ((data as f64 * share).ceil() as u64).max(EXTENTS_MIN)
}
