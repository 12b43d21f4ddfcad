//! Administrative commands: volumes are created, changed and removed while the pool is served.

use crate::core::Core;
use crate::ids::{AdminId, AdminStep, Waiter};
use crate::mover::Mover;
use crate::policy::harm::MovesStatus;
use crate::request::Requests;
use crate::request::active::Answer;
use crate::task::Task;
use crate::verify::Verification;
use crate::{Engine, StoppedChanges};
use weir_map::delta::Delta;
use weir_map::{Hardening, Intent, IntentKind, NAME_MAX, Superblock};
use weir_model::{
    Bytes, DeviceId, ErrorKind, Hint, Memory, Mutant, Nanos, Op, Request, RequestError, RequestId, SECTOR,
    VolumeId, VolumeOffset,
};
use weir_policy::placement::{Placement, TunedPolicy};

/// An administrative command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Creates a thin volume.
    CreateVolume {
        /// The name: 1 to 128 bytes, no control characters, not in use.
        name: String,
        /// The size: a multiple of 512 bytes.
        size: Bytes,
        /// When its map changes become durable.
        hardening: Hardening,
        /// The number of copies of every block, each on another device: 1 or 2.
        copies: u8,
    },
    /// Changes when a volume's map changes become durable. It takes effect once it is durable itself.
    SetHardening {
        /// The volume's name.
        name: String,
        /// The new setting.
        hardening: Hardening,
    },
    /// Removes a volume and frees its space. Requests to it fail from now on.
    RemoveVolume {
        /// The volume's name.
        name: String,
    },
}

/// The reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// The name is invalid.
    #[error("{0:?} is no volume name; use 1 to {NAME_MAX} bytes without control characters")]
    BadName(String),
    /// The size is invalid.
    #[error("a volume of {0} is not possible; choose a multiple of 512 bytes, from 4096 bytes to 4 EiB")]
    BadSize(Bytes),
    /// The number of copies is invalid.
    #[error("{0} copies of a volume are not possible; keep 1, or 2 on two devices")]
    BadCopies(u8),
    /// Two copies need two devices.
    #[error("two copies need two devices, and this pool has one; create a pool of several devices")]
    OneDevice,
    /// The map itself would be lost with one device.
    #[error(
        "two copies need a map that survives the loss of a device, and this pool keeps it on one only; declare \
         metadata = true for two devices in the pool file and create the pool anew"
    )]
    MapNotMirrored,
    /// The name is in use.
    #[error("there is a volume {0:?} already; choose another name or remove it first")]
    Exists(String),
    /// No volume has this name.
    #[error("there is no volume {0:?}; `weir volume list` shows those there are")]
    NotFound(String),
    /// The pool's devices failed.
    #[error("the change could not be made durable: {0}")]
    Failed(RequestError),
    /// The engine is stopping, and the volume's removal has begun.
    #[error(
        "volume {0:?} is not removed yet, because the server is stopping; \
         its next start continues the removal"
    )]
    Stopping(String),
    /// The only metadata is on a device of this name, which was removed, truncated or overwritten.
    #[error(
        "device {0}: it was removed, truncated or overwritten while it was served, and the pool's only metadata \
         with it, so no change can be made durable; weir pool status says what to do"
    )]
    Damaged(String),
}

impl AdminError {
    /// Returns the kind of the error.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::BadName(_) | Self::BadSize(_) | Self::BadCopies(_) | Self::NotFound(_) => ErrorKind::Usage,
            Self::Exists(_) | Self::OneDevice | Self::MapNotMirrored => ErrorKind::Refused,
            Self::Failed(_) | Self::Stopping(_) | Self::Damaged(_) => ErrorKind::Environment,
        }
    }
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminReply {
    /// The command's id.
    pub id: AdminId,
    /// The volume created, changed or removed.
    pub result: Result<VolumeId, AdminError>,
}

/// A volume, for lists and exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its id.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// The space it occupies on the devices in the visible state. Every place counts, including copies,
    /// cached copies, and reserved space.
    pub allocated: Bytes,
    /// When its map changes become durable.
    pub hardening: Hardening,
    /// The number of copies of every block.
    pub copies: u8,
    /// Its own placement policy, if it has one.
    pub policy: Option<&'static str>,
    /// The measured effect of that policy's moves.
    pub moves: Option<MovesStatus>,
    /// The space of extents that have blocks with too few copies; zero for volumes with one copy.
    pub degraded: Bytes,
    /// The amount of data that only lost devices have, as far as the walk that counts it has ended.
    pub unreachable: Bytes,
    /// Whether the walk that finds those extents is still in progress.
    pub scan_in_progress: bool,
    /// The amount of file-system metadata according to its superblock; `None` if no policy uses it, or there
    /// is no superblock.
    pub metadata: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The intent is becoming durable.
    Intent,
    /// Requests in flight are ending.
    Draining,
    /// Its extents are being freed.
    Clearing,
    /// The deletion of the volume is becoming durable.
    Dropping,
    /// A device failed; the next start of the pool resumes the removal.
    Stuck,
}

#[derive(Debug)]
struct Removal {
    volume: VolumeId,
    reply: Option<AdminId>,
    stage: Stage,
}

/// The commands in progress.
#[derive(Debug, Default)]
pub(crate) struct Admin {
    removals: Vec<Removal>,
    creating: Vec<(VolumeId, String)>,
    replies: std::collections::VecDeque<AdminReply>,
}

impl Task for Admin {
    type On = Engine;

    /// Whether a volume whose last requests have ended must be cleared.
    fn can_run(engine: &Engine) -> bool {
        let removals = &engine.admin.removals;
        engine.data.base.core.stopped_changes.is_none()
            && removals.iter().any(|r| {
                r.stage == Stage::Draining
                    && is_volume_idle(
                        &engine.data.base.core,
                        &engine.data.base.requests,
                        &engine.data.mover,
                        r.volume,
                    )
            })
    }

    /// Begins to clear volumes whose last requests have ended.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if engine.data.base.core.stopped_changes.is_some() {
            return;
        }
        let ready: Vec<_> = (engine.admin.removals.iter().filter(|r| r.stage == Stage::Draining))
            .map(|r| r.volume)
            .filter(|volume| {
                is_volume_idle(
                    &engine.data.base.core,
                    &engine.data.base.requests,
                    &engine.data.mover,
                    *volume,
                )
            })
            .collect();
        for volume in ready {
            engine.admin.set_stage(volume, Stage::Clearing);
            let Some(size) = engine.data.base.core.map.volume(volume).map(|v| v.size) else { continue };
            let extent = engine.data.base.core.map.extent();
            // The request covers whole extents, so that a volume that ends within a block leaves none behind.
            let len = Bytes(extent.count(size) * extent.bytes().0);
            let request = Request {
                id: RequestId(u64::MAX),
                volume,
                op: Op::Trim,
                offset: VolumeOffset(0),
                len,
                fua: true,
                hint: Hint::None,
                buffer: None,
            };
            let id = engine.data.base.activate(request, Answer::None);
            engine.data.base.advance_range(id);
        }
    }
}

impl Admin {
    /// Whether a volume is being removed.
    pub(crate) fn is_removing(&self) -> bool {
        !self.removals.is_empty()
    }

    /// Resumes the removals that a previous run began.
    pub(crate) fn resume_removals(&mut self, core: &mut Core, requests: &mut Requests) {
        let intents = core.map.catalogue().intents.values();
        let volumes: Vec<_> =
            intents.filter(|i| i.kind == IntentKind::RemoveVolume).map(|i| i.volume).collect();
        for volume in volumes {
            if core.map.volume(volume).is_none() {
                // The power failed between the last two steps.
                core.map.queue(Delta::EndIntent { id: volume.0 });
                continue;
            }
            requests.removing.push(volume);
            self.removals.push(Removal { volume, reply: None, stage: Stage::Draining });
        }
    }

    fn set_stage(&mut self, volume: VolumeId, stage: Stage) {
        for removal in self.removals.iter_mut().filter(|r| r.volume == volume) {
            removal.stage = stage;
        }
    }

    fn removal_failed(&mut self, volume: VolumeId, failure: AdminError) {
        for removal in self.removals.iter_mut().filter(|r| r.volume == volume) {
            removal.stage = Stage::Stuck;
            if let Some(id) = removal.reply.take() {
                self.replies.push_back(AdminReply { id, result: Err(failure.clone()) });
            }
        }
    }
}

impl Admin {
    /// Fails removals that wait for requests in flight, because no more changes are accepted; the next start
    /// resumes them.
    pub(crate) fn fail_draining_removals(&mut self, core: &Core, verification: &Verification) {
        let draining = self.removals.iter().filter(|r| r.stage == Stage::Draining);
        let volumes: Vec<_> = draining.map(|r| r.volume).collect();
        volumes
            .into_iter()
            .for_each(|volume| self.removal_failed(volume, removal_stop_error(core, verification, volume)));
    }
}

fn find_volume(core: &Core, requests: &Requests, name: String) -> Result<VolumeId, AdminError> {
    let volume = core.map.catalogue().by_name(&name).filter(|v| !requests.is_being_removed(*v));
    volume.ok_or(AdminError::NotFound(name))
}

/// Checks that the pool can keep this many copies: two need two devices for the data, and two for the map. An
/// absent device counts as having space, because its capacity is unknown.
fn check_copies(core: &Core, copies: u8) -> Result<(), AdminError> {
    let absent = core.map.absent();
    let may_hold = |sb: &&Superblock| sb.data_extents > 0 || absent.contains(sb.device);
    let with_space = core.map.devices().iter().filter(may_hold).count();
    match copies {
        1 => Ok(()),
        2 if with_space < 2 => Err(AdminError::OneDevice),
        2 if !core.map.is_mirrored() => Err(AdminError::MapNotMirrored),
        2 => Ok(()),
        _ => Err(AdminError::BadCopies(copies)),
    }
}

fn is_volume_idle(core: &Core, requests: &Requests, mover: &Mover, volume: VolumeId) -> bool {
    let in_flight =
        || requests.active.iter().any(|(_, a)| a.request.volume == volume && a.request.op != Op::Flush);
    core.is_planted(Mutant::RemovalNotDrained) || !(in_flight() || mover.is_moving_in(volume))
}

/// Converts the failure of a change to the most helpful error.
fn admin_error(core: &Core, verification: &Verification, error: RequestError) -> AdminError {
    let name = |device: DeviceId| core.map.devices()[device.index()].device_name.clone();
    let damaged = verification.metadata_damage(core).map(name);
    damaged.map_or(AdminError::Failed(error), AdminError::Damaged)
}

/// Returns why a removal cannot continue now that no more changes are accepted.
fn removal_stop_error(core: &Core, verification: &Verification, volume: VolumeId) -> AdminError {
    match (core.stopped_changes, core.map.volume(volume)) {
        (Some(StoppedChanges::Stopping), Some(volume)) => AdminError::Stopping(volume.name.clone()),
        _ => admin_error(core, verification, RequestError::ReadOnly),
    }
}

impl Engine {
    /// Begins a command. Its reply comes from [`Self::next_admin_reply`] once it is durable.
    pub fn admin(&mut self, now: Nanos, id: AdminId, command: AdminCommand) {
        self.data.base.core.now = now;
        let refused = match command {
            AdminCommand::CreateVolume { name, size, hardening, copies } => {
                self.create_volume(id, name, size, hardening, copies).err()
            }
            AdminCommand::SetHardening { name, hardening } => self.set_hardening(id, name, hardening).err(),
            AdminCommand::RemoveVolume { name } => self.remove_volume(id, name).err(),
        };
        if let Some(error) = refused {
            self.admin.replies.push_back(AdminReply { id, result: Err(error) });
        }
    }

    /// Returns the next finished command.
    pub fn next_admin_reply(&mut self) -> Option<AdminReply> {
        self.admin.replies.pop_front()
    }

    /// Replaces the pool's policy, which decides for all volumes without their own. This moves nothing: data
    /// stays in place until the new policy requests moves.
    pub fn set_policy(&mut self, now: Nanos, policy: Box<dyn Placement>) {
        self.data.base.core.now = now;
        self.data.base.host.set_policy(&self.data.base.core, policy);
    }

    /// Chooses a policy for the volume of this name; `None`: the pool's. If no volume has that name, the
    /// choice applies to the next one created with it. This moves nothing.
    pub fn set_volume_policy(&mut self, now: Nanos, name: &str, choice: Option<TunedPolicy>) {
        self.data.base.core.now = now;
        self.data.base.host.set_volume_policy(&self.data.base.core, name, choice);
    }

    /// Finds all extents that lack a copy, synchronously: without a server no task does. Cost: reads the
    /// records of all volumes with two copies.
    pub fn find_missing_copies(&mut self) {
        while self.data.base.durability.missing_copies.is_scanning() {
            self.data.base.durability.missing_copies.walk(&self.data.base.core);
        }
    }

    /// Returns the pool's volumes in order of creation, without those being removed.
    pub fn volumes(&self) -> impl Iterator<Item = VolumeInfo> + '_ {
        let extent = self.data.base.core.map.extent().bytes();
        let all = self.data.base.core.map.catalogue().volumes.iter();
        all.filter(|(id, _)| !self.data.base.requests.is_being_removed(**id)).map(move |(id, volume)| {
            let (degraded, looking) =
                self.data.base.durability.missing_copies.degraded(&self.data.base.core, *id);
            VolumeInfo {
                id: *id,
                name: volume.name.clone(),
                size: volume.size,
                allocated: self.data.base.core.map.usage(*id).bytes(extent),
                hardening: volume.hardening,
                copies: volume.copies,
                policy: self.data.base.host.policies.own_name(*id),
                moves: self.data.base.host.policies.own_name(*id).map(|_| {
                    self.data
                        .base
                        .host
                        .moves_status(&self.data.base.core, self.data.base.host.policies.index_of(*id))
                }),
                degraded,
                unreachable: self.background.unreachable.found_in(*id),
                scan_in_progress: looking,
                metadata: self.data.base.host.inference.metadata_size(*id),
            }
        })
    }

    fn create_volume(
        &mut self,
        id: AdminId,
        name: String,
        size: Bytes,
        hardening: Hardening,
        copies: u8,
    ) -> Result<(), AdminError> {
        let printable = !name.chars().any(char::is_control);
        if name.is_empty() || name.len() > NAME_MAX || !printable {
            return Err(AdminError::BadName(name));
        }
        if !size.0.is_multiple_of(SECTOR) || !(4096..=1 << 62).contains(&size.0) {
            return Err(AdminError::BadSize(size));
        }
        check_copies(&self.data.base.core, copies)?;
        let taken = self.data.base.core.map.catalogue().by_name(&name).is_some()
            || self.admin.creating.iter().any(|(_, n)| *n == name);
        if taken {
            return Err(AdminError::Exists(name));
        }
        if self.data.base.core.stopped_changes.is_some() {
            return Err(admin_error(
                &self.data.base.core,
                &self.data.base.verification,
                RequestError::ReadOnly,
            ));
        }
        if !self.data.base.core.map.has_metadata_space() {
            return Err(AdminError::Failed(RequestError::NoSpace));
        }
        let volume = self.data.base.core.map.create_volume(&name, size, hardening, copies);
        self.data.base.host.policies.apply_choice(
            self.data.base.core.now,
            volume,
            &name,
            self.data.base.host.harm.moves(),
        );
        self.admin.creating.push((volume, name));
        self.data.base.durability.wait_for_commit(Waiter::Admin(AdminStep::Created(id, volume)));
        Ok(())
    }

    fn set_hardening(&mut self, id: AdminId, name: String, hardening: Hardening) -> Result<(), AdminError> {
        let volume = find_volume(&self.data.base.core, &self.data.base.requests, name)?;
        if self.data.base.core.stopped_changes.is_some() {
            return Err(admin_error(
                &self.data.base.core,
                &self.data.base.verification,
                RequestError::ReadOnly,
            ));
        }
        self.data.base.core.map.set_hardening(volume, hardening);
        self.data.base.durability.wait_for_commit(Waiter::Admin(AdminStep::Changed(id, volume)));
        Ok(())
    }

    fn remove_volume(&mut self, id: AdminId, name: String) -> Result<(), AdminError> {
        let volume = find_volume(&self.data.base.core, &self.data.base.requests, name)?;
        if self.data.base.core.stopped_changes.is_some() {
            return Err(admin_error(
                &self.data.base.core,
                &self.data.base.verification,
                RequestError::ReadOnly,
            ));
        }
        let intent = Intent { kind: IntentKind::RemoveVolume, volume, progress: 0 };
        self.data.base.core.map.queue(Delta::Intent { id: volume.0, intent });
        self.data.base.requests.removing.push(volume);
        self.admin.removals.push(Removal { volume, reply: Some(id), stage: Stage::Intent });
        // Its writes that wait for space would delay the removal.
        self.data.base.space.retry_waiting_space(&mut self.data.base.requests);
        self.data.base.durability.wait_for_commit(Waiter::Admin(AdminStep::RemovalBegun(volume)));
        Ok(())
    }

    /// Continues a removal whose extents have all been freed durably.
    pub(crate) fn clearing_ended(&mut self, volume: VolumeId, error: Option<RequestError>) {
        if let Some(error) = error {
            return self.admin.removal_failed(
                volume,
                admin_error(&self.data.base.core, &self.data.base.verification, error),
            );
        }
        self.admin.set_stage(volume, Stage::Dropping);
        self.data.base.core.map.queue(Delta::DropVolume { id: volume });
        self.data.base.core.map.queue(Delta::EndIntent { id: volume.0 });
        self.data.base.durability.wait_for_commit(Waiter::Admin(AdminStep::Removed(volume)));
    }

    pub(crate) fn admin_step_ended(&mut self, step: AdminStep, error: Option<RequestError>) {
        match (step, error) {
            (AdminStep::Created(id, volume), error) => {
                self.admin.creating.retain(|(v, _)| *v != volume);
                let result = error.map_or(Ok(volume), |error| {
                    Err(admin_error(&self.data.base.core, &self.data.base.verification, error))
                });
                self.admin.replies.push_back(AdminReply { id, result });
            }
            (AdminStep::Changed(id, volume), error) => {
                let result = error.map_or(Ok(volume), |error| {
                    Err(admin_error(&self.data.base.core, &self.data.base.verification, error))
                });
                self.admin.replies.push_back(AdminReply { id, result });
            }
            (AdminStep::RemovalBegun(volume), None) if self.data.base.core.stopped_changes.is_some() => {
                self.admin.removal_failed(
                    volume,
                    removal_stop_error(&self.data.base.core, &self.data.base.verification, volume),
                );
            }
            (AdminStep::RemovalBegun(volume), None) => self.admin.set_stage(volume, Stage::Draining),
            (AdminStep::RemovalBegun(volume) | AdminStep::Removed(volume), Some(error)) => {
                self.admin.removal_failed(
                    volume,
                    admin_error(&self.data.base.core, &self.data.base.verification, error),
                );
            }
            (AdminStep::Removed(volume), None) => {
                self.data.base.durability.doubt.remove_volume(volume);
                self.data.base.cache.invalidate_volume(volume);
                self.data.base.host.inference.remove_volume(volume);
                self.data.base.host.policies.remove(volume);
                self.data.base.requests.removing.retain(|removing| *removing != volume);
                let done = self.admin.removals.iter().position(|r| r.volume == volume);
                if let Some(id) = done.and_then(|i| self.admin.removals.swap_remove(i).reply) {
                    self.admin.replies.push_back(AdminReply { id, result: Ok(volume) });
                }
            }
        }
    }
}
