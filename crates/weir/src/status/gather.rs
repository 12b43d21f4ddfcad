//! Builds the status of a pool from the engine, the pool file and the devices.

use super::{Commands, DevicePart, POOLS_POLICY, PoolPart, SERVED, Status, Traffic, VolumePart};
use crate::devices::{self, Opening, PoolDescription};
use crate::pool_file::{DeviceEntry, PoolFile};
use weir_device::{Device, PaceStats};
use weir_engine::{DeviceState, DeviceStatus, PoolStatus, Remark, SpaceKind, VolumeInfo};
use weir_map::{Map, Superblock};
use weir_model::{Bytes, DeviceId, Nanos};

impl Status {
    /// Creates a status from the engine's status and from facts that only the pool file and the devices know.
    pub fn new(
        state: &str,
        described: &PoolDescription,
        map: &Map,
        engine: PoolStatus,
        paces: &[Option<PaceStats>],
        opening: &Opening,
    ) -> Self {
        let pool = PoolPart::new(state, map, &engine, opening);
        let parts = described.file.devices.iter().zip(map.devices()).zip(engine.devices);
        let devices = parts.map(|((entry, superblock), device)| {
            let pace = paces.get(device.id.index()).copied().flatten().unwrap_or_default();
            DevicePart {
                path: described.device_path(entry).display().to_string(),
                metadata_stale: map.left_behind().contains(device.id),
                absent: map.absent().contains(device.id),
                traffic: (state == SERVED).then(|| Traffic::new(&device, pace)),
                responses: device.responses.iter().filter(|_| state == SERVED).map(Into::into).collect(),
                ..DevicePart::new(entry, superblock, &device)
            }
        });
        let volumes = engine.volumes.into_iter().map(VolumePart::from);
        let mut status = Self { pool, devices: devices.collect(), volumes: volumes.collect() };
        status.volumes.sort_by(|a, b| a.name.cmp(&b.name));
        status
    }

    /// Adds facts that only the open devices know.
    pub fn with_devices<'a>(mut self, device: impl Fn(DeviceId) -> Option<&'a Device>) -> Self {
        for (part, id) in self.devices.iter_mut().zip((0u8..).map(DeviceId)) {
            let Some(device) = device(id) else { continue };
            part.current_size_bytes = device.size_now().ok().map(Bytes::get);
            part.page_cache = device.is_refused_direct();
            part.open_file = device.removed_file().map(|path| path.display().to_string());
            part.removed |= part.open_file.is_some();
            part.moved = device.moved().map(Into::into);
            // Devices are checked even if the engine had no reason to check them.
            match part.state.as_str() {
                "lost" => {}
                _ if part.removed => part.state = "removed".to_owned(),
                "ok" if part.moved.is_some() => part.state = "moved".to_owned(),
                _ => {}
            }
        }
        self
    }

    /// Records settings of the pool file that take effect when the next server starts.
    pub fn note_pending_settings(&mut self, file: &PoolFile) {
        let other = |is: &str, will_be: &str| (is != will_be).then(|| will_be.to_owned());
        self.pool.policy_after_restart = other(&self.pool.policy, file.policy);
        for volume in &mut self.volumes {
            let will_be = file.volumes.get(&volume.name).copied().unwrap_or(POOLS_POLICY);
            let is = volume.policy.as_deref().unwrap_or(POOLS_POLICY);
            volume.policy_after_restart = other(is, will_be);
        }
        let is_member = |id: DeviceId| {
            let device = self.devices.get(id.index()).filter(|device| !device.absent)?;
            Some(device.metadata || device.metadata_stale)
        };
        let without_effect = devices::ineffective_key_notes_for(file, is_member);
        self.pool.configuration_warnings.extend(without_effect);
    }
}

fn used(device: &DeviceStatus) -> u64 {
    (device.total - device.free).get()
}

impl PoolPart {
    fn new(state: &str, map: &Map, engine: &PoolStatus, opening: &Opening) -> Self {
        let page = |pages: u32| u64::from(pages) * weir_map::PAGE as u64;
        let space = &engine.space;
        Self {
            name: engine.name.clone(),
            id: map.pool().to_string(),
            state: state.to_owned(),
            policy: engine.policy.to_owned(),
            policy_after_restart: None,
            extent_bytes: engine.extent.get(),
            capacity_bytes: engine.devices.iter().map(|device| device.total.get()).sum(),
            used_bytes: engine.devices.iter().map(used).sum(),
            quarantined_bytes: engine.devices.iter().map(|device| device.releasing.get()).sum(),
            provisioned_bytes: space.provisioned.get(),
            growth_bytes_per_second: space.fill_rate,
            full_in_ns: space.full_in.map(Nanos::get),
            warning_percent: space.warning.map(|at| at.0),
            full: space.full.map(|room| space_kind_name(room).to_owned()),
            waiting_writes: space.waiting as u64,
            refused_writes: space.refused,
            metadata_warning_percent: space.metadata_warning.map(|at| at.0),
            metadata_written_bytes: (engine.written.frames + engine.written.checkpoints).get(),
            data_written_bytes: engine.written.data.get(),
            recovery_ns: devices::expected_recovery(map, opening).get(),
            metadata_capacity_bytes: page(engine.metadata.pages),
            metadata_used_bytes: page(engine.metadata.pages - engine.metadata.free),
            map_memory_bytes: engine.memory.total().get(),
            migration: engine.mover.into(),
            fragmentation: engine.spread.into(),
            extent_cache: engine.cache.into(),
            unreachable_bytes: engine.unreachable.get(),
            migration_estimate: engine.moves.into(),
            configuration_warnings: engine.remarks.iter().map(remark).collect(),
            read_only: engine.read_only,
            clients: None,
        }
    }
}

impl DevicePart {
    /// Creates the part of a device from its entry, its superblock and the engine's status, without traffic.
    fn new(entry: &DeviceEntry, superblock: &Superblock, device: &DeviceStatus) -> Self {
        let lost = match device.state {
            DeviceState::InUse => None,
            DeviceState::Lost { reason: why, duration: for_ } => Some((why.to_string(), for_.get())),
        };
        let damaged = matches!(device.state, DeviceState::Lost { reason, .. } if reason.is_damage());
        let device_state = match lost {
            Some(_) => "lost",
            None if device.removed => "removed",
            None if device.doubtful > 0 => "in_doubt",
            None => "ok",
        };
        Self {
            name: entry.name.clone(),
            class: device.class.name().to_owned(),
            metadata: device.metadata,
            pace: entry.pace.map(str::to_owned),
            size_bytes: superblock.size.get(),
            damaged,
            removed: device.removed,
            capacity_bytes: device.total.get(),
            used_bytes: used(device),
            state: device_state.to_owned(),
            lost_ns: lost.as_ref().map(|lost| lost.1),
            lost_reason: lost.map(|lost| lost.0),
            blocks_in_doubt: device.doubtful,
            ..Self::default()
        }
    }
}

impl Traffic {
    fn new(device: &DeviceStatus, pace: PaceStats) -> Self {
        Self {
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
            figures_invalid: !pace.is_valid(),
        }
    }
}

impl From<VolumeInfo> for VolumePart {
    fn from(volume: VolumeInfo) -> Self {
        Self {
            name: volume.name,
            size_bytes: volume.size.get(),
            used_bytes: volume.allocated.get(),
            hardening: volume.hardening.into(),
            copies: volume.copies,
            policy: volume.policy.map(str::to_owned),
            policy_after_restart: None,
            migration_estimate: volume.moves.map(Into::into),
            degraded_bytes: (!volume.scan_in_progress).then(|| volume.degraded.get()),
            unreachable_bytes: volume.unreachable.get(),
            file_system_metadata_bytes: volume.metadata.map(Bytes::get),
        }
    }
}
impl From<(u64, Bytes, Option<Nanos>)> for Commands {
    fn from((count, bytes, response): (u64, Bytes, Option<Nanos>)) -> Self {
        Self { count, bytes: bytes.get(), response_ns: response.map(Nanos::get) }
    }
}

/// Formats a remark of a policy for people.
fn remark(remark: &Remark) -> String {
    let volume = remark.volume.as_ref().map_or(String::new(), |volume| format!(" of volume {volume}"));
    format!("policy {}{volume}: {}", remark.policy, remark.text)
}

fn space_kind_name(kind: SpaceKind) -> &'static str {
    match kind {
        SpaceKind::Data => "data",
        SpaceKind::Metadata => "metadata",
    }
}
