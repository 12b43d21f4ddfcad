//! What `weir pool status` shows: a pool, its devices and their traffic, its volumes.
//!
//! The same document is printed with `--json`, so its fields are a promise: docs/guide.md
//! describes them, and a field may be added but not renamed.

mod clients;
mod measures;
mod metrics;
mod removed;
mod spread;

pub use clients::ClientsPart;
pub use measures::{CachePart, JudgedPart, LoadPart, MoverPart, MovesPart, ResponsesPart};
pub use removed::MovedPart;
pub use spread::SpreadPart;

use crate::devices::{self, Described, Opening};
use crate::output::{Table, Width, table};
use crate::pool_file::PoolFile;
use serde::{Deserialize, Serialize};
use weir_device::{Device, PaceStats};
use weir_engine::{DeviceState, PoolStatus, Remark, Room};
use weir_map::Map;
use weir_model::{Bytes, DeviceId, Nanos};
use weir_serve::control::Hardening;

/// The state of a pool that no server holds.
pub const IDLE: &str = "idle";
/// The state of a pool that a server serves.
pub const SERVED: &str = "served";

/// A pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pool.
    pub pool: PoolPart,
    /// Its devices, in the order of the pool file.
    pub devices: Vec<DevicePart>,
    /// Its volumes, by name.
    pub volumes: Vec<VolumePart>,
}

/// The pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolPart {
    /// Its name.
    pub name: String,
    /// Its random identity, in hexadecimal.
    pub id: String,
    /// `idle`, or `served` by a running server.
    pub state: String,
    /// The placement policy.
    pub policy: String,
    /// The one the pool file has, if that is another: `policy` was set and ends with the server.
    #[serde(default)]
    pub policy_after_restart: Option<String>,
    /// The extent size.
    pub extent_bytes: u64,
    /// Room for data on all devices.
    pub data_bytes: u64,
    /// How much of it is taken.
    pub used_bytes: u64,
    /// Given up, and free once the map that says so is durable; no part of `used_bytes`.
    #[serde(default)]
    pub releasing_bytes: u64,
    /// The sizes of all volumes together: what clients may come to use.
    pub promised_bytes: u64,
    /// Net growth of what is taken per second of late; negative while space is freed, 0 while idle.
    pub filling_bytes_per_second: f64,
    /// When the pool is full if that goes on.
    pub full_in_ns: Option<u64>,
    /// The highest of the pool's `warn_at` thresholds that has been passed, in percent.
    pub warning_percent: Option<u8>,
    /// What the pool has run out of: `data` or `metadata`.
    pub full: Option<String>,
    /// Parts of writes that wait for space.
    pub waiting: u64,
    /// Parts of writes refused for want of space since the server started.
    pub refused: u64,
    /// Room for metadata.
    pub metadata_bytes: u64,
    /// How much of it is taken.
    pub metadata_used_bytes: u64,
    /// As `warning_percent`, of metadata.
    pub metadata_warning_percent: Option<u8>,
    /// Written to the metadata since the server started.
    pub metadata_written_bytes: u64,
    /// Written for clients since the server started.
    pub data_written_bytes: u64,
    /// How long recovery would take if the power went now.
    pub recovery_ns: u64,
    /// Memory the map takes.
    pub map_memory_bytes: u64,
    /// What has been moved since the server started.
    #[serde(default)]
    pub moves: MovesPart,
    /// How extents lie on the devices.
    #[serde(default)]
    pub spread: SpreadPart,
    /// The extent cache.
    #[serde(default)]
    pub cache: CachePart,
    /// Data that lost devices alone hold, as found when the last one was lost.
    #[serde(default)]
    pub unreachable_bytes: u64,
    /// Whether they make requests faster.
    #[serde(default)]
    pub judged: JudgedPart,
    /// What policies cannot do as they were told to.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// The metadata can no longer be written: changes are refused.
    pub read_only: bool,
    /// Its clients; absent while idle.
    #[serde(default)]
    pub clients: Option<ClientsPart>,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DevicePart {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub path: String,
    /// `nvm`, `ssd`, `hdd` or `remote`.
    pub class: String,
    /// Whether the pool's metadata lives here, and is up to date.
    pub metadata: bool,
    /// Its copy of the pool's metadata is not the newest: the pool went on without it.
    #[serde(default)]
    pub left_behind: bool,
    /// It was not there when the pool was opened.
    #[serde(default)]
    pub absent: bool,
    /// The modelled drive it is paced to.
    pub pace: Option<String>,
    /// Its size when it joined the pool.
    pub size_bytes: u64,
    /// How long it is now: other than `size_bytes` if it was truncated or enlarged since; `null` if it is not open.
    #[serde(default)]
    pub size_now_bytes: Option<u64>,
    /// It goes through the page cache, since its file system refuses O_DIRECT.
    #[serde(default)]
    pub page_cache: bool,
    /// It is lost because it was truncated or overwritten while it was served: data that was durable is gone with it.
    #[serde(default)]
    pub damaged: bool,
    /// Its file was removed, or another took its place: all that is on it is gone once the server ends.
    #[serde(default)]
    pub removed: bool,
    /// Where it can be copied from until then.
    #[serde(default)]
    pub open_file: Option<String>,
    /// Its path leads to nothing, or to something else, though it has a name: the next start does not find
    /// it.
    #[serde(default)]
    pub moved: Option<MovedPart>,
    /// Room for data on it.
    pub data_bytes: u64,
    /// How much of it is taken.
    pub used_bytes: u64,
    /// `ok`; `moved`, `removed`: see there; `doubtful`: a flush failed, and blocks written before are lost
    /// until rewritten; `lost`: it gets no more commands until the pool is opened again.
    pub state: String,
    /// Why it is lost.
    pub lost_why: Option<String>,
    /// How long it has been lost.
    pub lost_ns: Option<u64>,
    /// Blocks of 4 KiB whose last write is lost: they read as EIO until rewritten or trimmed.
    pub doubtful_blocks: u64,
    /// What it has done since the server started; absent while idle.
    pub traffic: Option<Traffic>,
    /// How its responses are distributed since then, by direction and size; empty while idle.
    #[serde(default)]
    pub responses: Vec<ResponsesPart>,
}

/// What a device has done since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads.
    pub reads: Commands,
    /// Writes, the map's included.
    pub writes: Commands,
    /// Flushes.
    pub flushes: u64,
    /// Commands that failed, those that were then tried again included.
    pub failed: u64,
    /// Of these, reads.
    pub failed_reads: u64,
    /// Of these, writes.
    pub failed_writes: u64,
    /// Of these, flushes.
    pub failed_flushes: u64,
    /// Writes for which there was no space in the file system, or thin pool, the device is in: not failed, but not done.
    #[serde(default)]
    pub no_space: u64,
    /// Commands in flight.
    pub in_flight: u64,
    /// What it does of late.
    #[serde(default)]
    pub load: LoadPart,
    /// What moves take of its time.
    #[serde(default)]
    pub mover: MoverPart,
    /// Response to a 4 KiB read when the pool was idle.
    pub idle_response_ns: Option<u64>,
    /// Some blocks are in doubt.
    pub in_doubt: bool,
    /// Commands that a paced device answered later than its model wanted, of all its commands.
    pub overruns_share: f64,
    /// So many overruns (above 1 %, and more than 3) that the figures say nothing of the model.
    pub figures_invalid: bool,
}

/// Commands of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// How many ended.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Their mean response, from submission to completion, recent ones counting more.
    pub response_ns: Option<u64>,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumePart {
    /// Its name, which is its NBD export name.
    pub name: String,
    /// The size clients see.
    pub size_bytes: u64,
    /// Space it takes on the devices, as its map is in effect: all copies, cached ones and kept space included.
    pub used_bytes: u64,
    /// When its map changes are durable: `flush` or `write`.
    pub hardening: Hardening,
    /// Copies kept of every block.
    pub copies: u8,
    /// Its own placement policy; `null` if it has the pool's.
    #[serde(default)]
    pub policy: Option<String>,
    /// What it will be after a restart of the server, `pool` for the pool's, if that is another: `policy` was set and
    /// ends with the server.
    #[serde(default)]
    pub policy_after_restart: Option<String>,
    /// Whether what that policy moves makes requests faster; `null` if it has none of its own.
    #[serde(default)]
    pub judged: Option<JudgedPart>,
    /// Space in extents some blocks of which have fewer copies for now; `null` as long as nobody has looked:
    /// while the pool is idle, and for a moment after it is opened.
    pub degraded_bytes: Option<u64>,
    /// What its superblock says is a file system's metadata; `null` if no policy wants to know, or none was found.
    #[serde(default)]
    pub metadata_bytes: Option<u64>,
}

impl VolumePart {
    /// Its copies, and what lacks one, for people.
    fn copies(&self) -> String {
        match (self.copies, self.degraded_bytes) {
            (2.., Some(degraded @ 1..)) => format!("{}, {} DEGRADED", self.copies, Bytes(degraded)),
            _ => self.copies.to_string(),
        }
    }
}

impl Commands {
    /// The mean response, for people.
    pub fn response(self) -> String {
        self.response_ns.map_or("-".into(), |mean| Nanos(mean).to_string())
    }

    fn human(self) -> String {
        match self.response_ns {
            Some(mean) => format!("{} in {}", self.count, Nanos(mean)),
            None => self.count.to_string(),
        }
    }
}

impl From<(u64, Bytes, Option<Nanos>)> for Commands {
    fn from((count, bytes, response): (u64, Bytes, Option<Nanos>)) -> Self {
        Self { count, bytes: bytes.get(), response_ns: response.map(Nanos::get) }
    }
}

impl Status {
    /// From what the engine says, and what only the pool file and the devices know.
    pub fn new(
        state: &str,
        described: &Described,
        map: &Map,
        engine: PoolStatus,
        paces: &[Option<PaceStats>],
        opening: &Opening,
    ) -> Self {
        let page = |pages: u32| u64::from(pages) * weir_map::PAGE as u64;
        let used = |device: &weir_engine::DeviceStatus| (device.total - device.free).get();
        let space = &engine.space;
        let pool = PoolPart {
            name: engine.name,
            id: map.pool().to_string(),
            state: state.to_owned(),
            policy: engine.policy.to_owned(),
            policy_after_restart: None,
            extent_bytes: engine.extent.get(),
            data_bytes: engine.devices.iter().map(|device| device.total.get()).sum(),
            used_bytes: engine.devices.iter().map(used).sum(),
            releasing_bytes: engine.devices.iter().map(|device| device.releasing.get()).sum(),
            promised_bytes: space.promised.get(),
            filling_bytes_per_second: space.fill_rate,
            full_in_ns: space.full_in.map(Nanos::get),
            warning_percent: space.warning.map(|at| at.0),
            full: space.full.map(|room| room_name(room).to_owned()),
            waiting: space.waiting as u64,
            refused: space.refused,
            metadata_warning_percent: space.metadata_warning.map(|at| at.0),
            metadata_written_bytes: (engine.written.frames + engine.written.checkpoints).get(),
            data_written_bytes: engine.written.data.get(),
            recovery_ns: devices::expected(map, opening).get(),
            metadata_bytes: page(engine.metadata.pages),
            metadata_used_bytes: page(engine.metadata.pages - engine.metadata.free),
            map_memory_bytes: engine.memory.total().get(),
            moves: engine.mover.into(),
            spread: engine.spread.into(),
            cache: engine.cache.into(),
            unreachable_bytes: engine.unreachable.get(),
            judged: engine.moves.into(),
            remarks: engine.remarks.iter().map(remark).collect(),
            read_only: engine.read_only,
            clients: None,
        };
        let parts = described.file.devices.iter().zip(map.devices()).zip(engine.devices);
        let devices = parts.map(|((entry, superblock), device)| {
            let pace = paces.get(device.id.index()).copied().flatten().unwrap_or_default();
            let lost = match device.state {
                DeviceState::InUse => None,
                DeviceState::Lost { why, for_ } => Some((why.to_string(), for_.get())),
            };
            let damaged = matches!(device.state, DeviceState::Lost { why, .. } if why.is_damage());
            let device_state = match lost {
                Some(_) => "lost",
                None if device.removed => "removed",
                None if device.doubtful > 0 => "doubtful",
                None => "ok",
            };
            DevicePart {
                path: described.device_path(entry).display().to_string(),
                class: device.class.name().to_owned(),
                metadata: device.metadata,
                left_behind: map.left_behind().contains(device.id),
                absent: map.absent().contains(device.id),
                pace: entry.pace.map(str::to_owned),
                size_bytes: superblock.size.get(),
                damaged,
                removed: device.removed,
                data_bytes: device.total.get(),
                used_bytes: used(&device),
                state: device_state.to_owned(),
                lost_ns: lost.as_ref().map(|lost| lost.1),
                lost_why: lost.map(|lost| lost.0),
                doubtful_blocks: device.doubtful,
                traffic: (state == SERVED).then(|| Traffic {
                    reads: (device.reads.0, device.reads.1, device.read_response).into(),
                    writes: (device.writes.0, device.writes.1, device.write_response).into(),
                    flushes: device.flushes,
                    failed: device.errors.total(),
                    failed_reads: device.errors.reads,
                    failed_writes: device.errors.writes,
                    failed_flushes: device.errors.flushes,
                    no_space: device.errors.no_space,
                    in_flight: device.in_flight,
                    load: device.load.into(),
                    mover: device.mover.into(),
                    idle_response_ns: device.idle_response.map(Nanos::get),
                    in_doubt: device.doubtful > 0,
                    overruns_share: pace.overrun_share(),
                    figures_invalid: !pace.valid(),
                }),
                responses: device.responses.iter().filter(|_| state == SERVED).map(Into::into).collect(),
                name: entry.name.clone(),
                ..DevicePart::default()
            }
        });
        let volumes = engine.volumes.into_iter().map(|volume| VolumePart {
            name: volume.name,
            size_bytes: volume.size.get(),
            used_bytes: volume.allocated.get(),
            hardening: volume.hardening.into(),
            copies: volume.copies,
            policy: volume.policy.map(str::to_owned),
            policy_after_restart: None,
            judged: volume.moves.map(Into::into),
            degraded_bytes: (!volume.looking).then(|| volume.degraded.get()),
            metadata_bytes: volume.metadata.map(Bytes::get),
        });
        let mut status = Self { pool, devices: devices.collect(), volumes: volumes.collect() };
        status.volumes.sort_by(|a, b| a.name.cmp(&b.name));
        status
    }

    /// Adds what only the open devices know.
    pub fn with_devices<'a>(mut self, device: impl Fn(DeviceId) -> Option<&'a Device>) -> Self {
        for (part, id) in self.devices.iter_mut().zip((0u8..).map(DeviceId)) {
            let Some(device) = device(id) else { continue };
            part.size_now_bytes = device.size_now().ok().map(Bytes::get);
            part.page_cache = device.is_refused_direct();
            part.open_file = device.removed_file().map(|path| path.display().to_string());
            part.removed |= part.open_file.is_some();
            part.moved = device.misplaced().map(Into::into);
            // Also where the engine has had no reason to look.
            match part.state.as_str() {
                "lost" => {}
                _ if part.removed => part.state = "removed".to_owned(),
                "ok" if part.moved.is_some() => part.state = "moved".to_owned(),
                _ => {}
            }
        }
        self
    }

    /// Notes what the pool file says that is in force from the server's next start on.
    pub fn compare(&mut self, file: &PoolFile) {
        let other = |is: &str, will_be: &str| (is != will_be).then(|| will_be.to_owned());
        self.pool.policy_after_restart = other(&self.pool.policy, file.policy);
        for volume in &mut self.volumes {
            let will_be = file.volumes.get(&volume.name).copied().unwrap_or(POOLS_POLICY);
            let is = volume.policy.as_deref().unwrap_or(POOLS_POLICY);
            volume.policy_after_restart = other(is, will_be);
        }
    }

    /// For people.
    pub fn human(&self, width: Width) -> String {
        let pool = &self.pool;
        let size = |bytes| Bytes(bytes).to_string();
        let mut text = format!(
            "pool {} ({}), {}{}, policy {}, extents of {}\n\n",
            pool.name,
            pool.id,
            pool.state,
            if pool.read_only { ", READ-ONLY: its metadata cannot be written" } else { "" },
            until_the_server_ends(&pool.policy, pool.policy_after_restart.as_deref()),
            size(pool.extent_bytes)
        );
        text += &pool.space();
        text += &pool.clients.map(|clients| clients.human()).unwrap_or_default();
        text.push('\n');
        let devices = Table::new(
            ["DEVICE", "CLASS", "USED", "OF", "READS", "WRITES", "FLUSHES", "FAILED", "BUSY", "NOTES"],
            self.devices.iter().map(|device| {
                let traffic = device.traffic.unwrap_or_default();
                [
                    device.name.clone(),
                    device.class.clone(),
                    size(device.used_bytes),
                    size(device.data_bytes),
                    traffic.reads.human(),
                    traffic.writes.human(),
                    traffic.flushes.to_string(),
                    traffic.failed.to_string(),
                    traffic.load.human(),
                    device.notes(),
                ]
            }),
        );
        text += &devices.text(width);
        text.push('\n');
        text += &volumes_table(&self.volumes, width);
        text + &measures::responses_table(&self.devices, width)
    }

    /// What must be said: space running out, devices whose figures are not to be trusted.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.pool.warnings();
        warnings.extend(removed::warning(&self.devices));
        warnings.extend(self.devices.iter().filter_map(DevicePart::moved_away));
        warnings.extend(self.devices.iter().filter_map(DevicePart::damage));
        warnings.extend(self.devices.iter().filter(|device| device.page_cache).map(|device| {
            format!(
                "device {} ({}): its file system refuses O_DIRECT, so its data goes through the page cache; a write \
                 that the system cannot carry out is reported by the next flush only; put it on a file system that \
                 has O_DIRECT (ext4, xfs, btrfs), or use a block device",
                device.name, device.path
            )
        }));
        warnings.extend(self.devices.iter().filter(|device| device.left_behind).map(|device| {
            format!(
                "the pool's metadata has one copy only: device {} was left behind; once it works, restarting \
                 the server writes its copy anew",
                device.name
            )
        }));
        warnings.extend(self.pool.judged.warning(&self.pool.policy));
        warnings.extend(self.volumes.iter().filter_map(|volume| {
            let policy = format!("{} of volume {}", volume.policy.as_ref()?, volume.name);
            volume.judged?.warning(&policy)
        }));
        let late = self.overrun();
        if !late.is_empty() {
            warnings.push(format!("figures invalid: {}; {OVERRUN_WHY}", late.join(", ")));
        }
        warnings
    }

    /// The paced devices that came too late too often, each with how often.
    pub fn overrun(&self) -> Vec<String> {
        let late = self.devices.iter().filter_map(|device| {
            let traffic = device.traffic.filter(|traffic| traffic.figures_invalid)?;
            Some(format!("{} {:.1} %", device.name, 100.0 * traffic.overruns_share))
        });
        late.collect()
    }
}

/// What it means when a device is named by [`Status::overrun`].
pub const OVERRUN_WHY: &str = "so many commands were answered later than the modelled drive would have (more than 1 %): \
     this machine is too slow or too busy, or the files are not in memory";

impl PoolPart {
    /// How full it is, and what that means, for people.
    fn space(&self) -> String {
        let size = |bytes| Bytes(bytes).to_string();
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let mut text = format!(
            "space: {} of {} used ({:.0} %), {} promised to volumes",
            size(self.used_bytes),
            size(self.data_bytes),
            share(self.used_bytes, self.data_bytes),
            size(self.promised_bytes)
        );
        if let Some(ns) = self.full_in_ns {
            text += &format!("; full in about {} at the present rate", about(Nanos(ns)));
        }
        if self.waiting > 0 {
            text += &format!("; {} parts of writes wait for space", self.waiting);
        }
        text += &format!(
            "\nmetadata: {} of {} used; recovery would take about {}\n",
            size(self.metadata_used_bytes),
            size(self.metadata_bytes),
            about(Nanos(self.recovery_ns))
        );
        text += &self.spread.human(self.used_bytes);
        let cache = &self.cache;
        if cache.size_bytes > 0 {
            text += &format!(
                "extent cache: {} of {} in use, {:.0} % of reads answered from it\n",
                size(cache.held_bytes),
                size(cache.size_bytes),
                share(cache.hits, cache.hits + cache.misses)
            );
        }
        text + &self.judged.human().map_or(String::new(), |judged| format!("moves: {judged}\n"))
    }

    fn warnings(&self) -> Vec<String> {
        let way_out = "trim or remove volumes";
        let full = self.full.as_ref().map(|room| match room.as_str() {
            "metadata" => format!("no space for metadata is left: writes to new places fail; {way_out}"),
            _ => format!("no space is left: writes that need new space fail; {way_out}"),
        });
        let passed = |at: Option<u8>, what: &str| {
            at.filter(|_| self.full.is_none())
                .map(|at| format!("more than {at} % of the {what} is in use; {way_out} before it is full"))
        };
        let space = passed(self.warning_percent, "space for data");
        let metadata = passed(self.metadata_warning_percent, "space for metadata");
        let unreachable = (self.unreachable_bytes > 0).then(|| {
            format!(
                "{} of data are on lost devices alone and cannot be read; the server's log says of which volumes and where. Bring the devices \
                 back and restart the server, or write the data anew",
                Bytes(self.unreachable_bytes)
            )
        });
        let remarks = self.remarks.iter().cloned();
        [full, space, metadata, unreachable].into_iter().flatten().chain(remarks).collect()
    }
}

/// What a policy has to say, for people.
fn remark(remark: &Remark) -> String {
    let volume = remark.volume.as_ref().map_or(String::new(), |volume| format!(" of volume {volume}"));
    format!("policy {}{volume}: {}", remark.policy, remark.text)
}

fn room_name(room: Room) -> &'static str {
    match room {
        Room::Data => "data",
        Room::Metadata => "metadata",
    }
}

/// A time nobody needs to know exactly.
fn about(time: Nanos) -> String {
    let seconds = time.as_secs_f64();
    match seconds as u64 {
        0 => format!("{:.0} ms", (seconds * 1e3).max(1.0)),
        1..120 => format!("{seconds:.0} s"),
        120..7_200 => format!("{:.0} min", seconds / 60.0),
        7_200..172_800 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

impl DevicePart {
    fn notes(&self) -> String {
        let page_cache = self.page_cache.then(|| "no O_DIRECT".to_owned());
        let lost = self.lost_why.as_ref().map(|why| {
            let time = Nanos(self.lost_ns.unwrap_or_default());
            format!("LOST for {time}: {why}")
        });
        let removed = self.removed.then(|| "REMOVED: gone once the server ends".to_owned());
        let moved = self.moved.is_some().then(|| "MOVED: the next start does not find it".to_owned());
        let doubtful = self.doubtful_blocks;
        let doubtful = (doubtful > 0).then(|| format!("{doubtful} blocks IN DOUBT"));
        let no_space = self.traffic.map_or(0, |traffic| traffic.no_space);
        let no_space = (no_space > 0).then(|| format!("{no_space} writes found NO SPACE below"));
        let pace = self.pace.as_ref().map(|pace| format!("paced as {pace}"));
        let metadata = match (self.absent, self.metadata, self.left_behind) {
            (true, ..) => Some("ABSENT".to_owned()),
            (_, true, _) => Some("metadata".to_owned()),
            (.., true) => Some("metadata LEFT BEHIND".to_owned()),
            _ => None,
        };
        let invalid =
            self.traffic.filter(|traffic| traffic.figures_invalid).map(|_| "figures invalid".to_owned());
        [lost, removed, moved, doubtful, no_space, metadata, pace, page_cache, invalid]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// What stands for the pool's policy where a volume's is named.
pub const POOLS_POLICY: &str = "pool";

/// A policy in force, and whether that ends with the server, for people.
fn until_the_server_ends(policy: &str, after: Option<&str>) -> String {
    match after {
        Some(after) => format!("{policy} until the server ends, then {after}"),
        None => policy.to_owned(),
    }
}

/// The volumes, for people.
pub fn volumes_table(volumes: &[VolumePart], width: Width) -> String {
    if volumes.is_empty() {
        return "no volumes; make one with: weir volume create NAME --size 100GiB\n".into();
    }
    table(
        width,
        ["VOLUME", "SIZE", "USED", "HARDENING", "COPIES", "POLICY"],
        volumes.iter().map(|volume| {
            [
                volume.name.clone(),
                Bytes(volume.size_bytes).to_string(),
                Bytes(volume.used_bytes).to_string(),
                volume.hardening.to_string(),
                volume.copies(),
                until_the_server_ends(
                    volume.policy.as_deref().unwrap_or(POOLS_POLICY),
                    volume.policy_after_restart.as_deref(),
                ),
            ]
        }),
    )
}

#[cfg(test)]
mod tests;
