//! The interface that the server needs of the volumes: the engine's methods that it calls.

use weir_engine::{
    AdminCommand, AdminId, AdminReply, BlockExplanation, BlockStatus, Driver, Engine, ExplainError, Loss,
    Notice, VolumeInfo,
};
use weir_model::{
    Bytes, DeviceId, IoCompletion, Memory, Nanos, Planted, Reply, Request, VolumeId, VolumeOffset,
};
use weir_policy::placement::{Placement, TunedPolicy};

/// Volumes, driven by events: requests and completions in, device commands and replies out. [`Engine`]
/// implements it with methods of the same names, which document them; [`Ram`](crate::Ram) implements it for
/// tests of the server.
pub trait Volumes {
    /// Submits a client's request.
    fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M);
    /// Makes the next FLUSH of the volume fail because of the device: an earlier FLUSH failed, and its client
    /// may not have seen the error.
    fn fail_next_flush(&mut self, volume: VolumeId, device: DeviceId) {
        let _ = (volume, device);
    }
    /// Returns the last loss of acknowledged writes of the volume, if there has been one since the start.
    fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        let _ = volume;
        None
    }
    /// Reports the completion of a device command.
    fn complete<M: Memory>(&mut self, now: Nanos, done: IoCompletion, memory: &mut M);
    /// Does the work that is due, and starts device commands.
    fn pump<D: Driver>(&mut self, driver: &mut D);
    /// Takes the next reply to a client.
    fn next_reply(&mut self) -> Option<Reply>;
    /// Returns the time by which `pump` must be called.
    fn deadline(&self) -> Option<Nanos>;
    /// Reports whether another request may be submitted.
    fn can_accept(&self) -> bool;
    /// Lists the volumes.
    fn volumes(&self) -> Vec<VolumeInfo>;
    /// Appends the runs of a range and whether each holds data; appends nothing if there is no such volume.
    fn runs(&self, of: RunQuery, runs: &mut Vec<BlockStatus>);
    /// Explains where the block at this offset is stored, since when and why, if the implementation places
    /// data.
    ///
    /// # Errors
    /// Fails if there is no such volume, or the offset is beyond its end.
    fn explain(&self, volume: &str, at: VolumeOffset) -> Result<BlockExplanation, ExplainError> {
        let _ = at;
        Err(ExplainError::NoVolume(volume.to_owned()))
    }
    /// Creates, changes or removes a volume.
    fn admin(&mut self, now: Nanos, id: AdminId, command: AdminCommand);
    /// Switches to another placement policy, if the implementation places data.
    fn set_policy(&mut self, now: Nanos, policy: Box<dyn Placement>) {
        let _ = (now, policy);
    }
    /// Gives the named volume a policy of its own, or the pool's again, if the implementation places data.
    fn set_volume_policy(&mut self, now: Nanos, name: &str, choice: Option<TunedPolicy>) {
        let _ = (now, name, choice);
    }
    /// Takes the next answer to an admin command: the change is durable, or was refused.
    fn next_admin_reply(&mut self) -> Option<AdminReply>;
    /// Takes the next notice for the log.
    fn next_notice(&mut self) -> Option<Notice>;
    /// Returns the name of a device.
    fn device_name(&self, device: DeviceId) -> String;
    /// Fails requests that wait for free space: the clients are about to be disconnected.
    fn stop_waiting_for_space(&mut self, now: Nanos);
    /// Begins to stop: no more requests will come, and all data and metadata are written to the devices.
    fn begin_stop(&mut self, now: Nanos);
    /// Returns the active mutants, for mutation testing.
    fn planted(&self) -> Planted {
        Planted::NONE
    }
    /// Reports whether the stop is complete.
    fn stopped(&self) -> bool;
    /// Returns the device with which durable data is lost, or will be once it is closed.
    fn damaged_device(&self) -> Option<DeviceId> {
        None
    }
}

/// A query for the runs of a range that hold data.
#[derive(Clone, Copy, Debug)]
pub struct RunQuery {
    /// The volume.
    pub volume: VolumeId,
    /// Start of the range.
    pub offset: VolumeOffset,
    /// Length of the range.
    pub len: Bytes,
    /// Maximum number of runs to report.
    pub max_runs: usize,
}

impl Volumes for Engine {
    fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) {
        Self::submit(self, now, request, memory);
    }
    fn fail_next_flush(&mut self, volume: VolumeId, device: DeviceId) {
        Self::fail_next_flush(self, volume, device);
    }
    fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        Self::last_loss(self, volume)
    }
    fn complete<M: Memory>(&mut self, now: Nanos, done: IoCompletion, memory: &mut M) {
        Self::complete(self, now, done, memory);
    }
    fn pump<D: Driver>(&mut self, driver: &mut D) {
        Self::pump(self, driver);
    }
    fn next_reply(&mut self) -> Option<Reply> {
        Self::next_reply(self)
    }
    fn deadline(&self) -> Option<Nanos> {
        Self::deadline(self)
    }
    fn can_accept(&self) -> bool {
        Self::can_accept(self)
    }
    fn volumes(&self) -> Vec<VolumeInfo> {
        Self::volumes(self).collect()
    }
    fn runs(&self, of: RunQuery, runs: &mut Vec<BlockStatus>) {
        self.block_status(of.volume, of.offset, of.len, of.max_runs, runs);
    }
    fn explain(&self, volume: &str, at: VolumeOffset) -> Result<BlockExplanation, ExplainError> {
        Self::explain(self, volume, at)
    }
    fn admin(&mut self, now: Nanos, id: AdminId, command: AdminCommand) {
        Self::admin(self, now, id, command);
    }
    fn set_policy(&mut self, now: Nanos, policy: Box<dyn Placement>) {
        Self::set_policy(self, now, policy);
    }
    fn set_volume_policy(&mut self, now: Nanos, name: &str, choice: Option<TunedPolicy>) {
        Self::set_volume_policy(self, now, name, choice);
    }
    fn next_admin_reply(&mut self) -> Option<AdminReply> {
        Self::next_admin_reply(self)
    }
    fn next_notice(&mut self) -> Option<Notice> {
        Self::next_notice(self)
    }
    fn device_name(&self, device: DeviceId) -> String {
        self.map().devices().get(device.index()).map(|sb| sb.device_name.clone()).unwrap_or_default()
    }
    fn stop_waiting_for_space(&mut self, now: Nanos) {
        Self::stop_waiting_for_space(self, now);
    }
    fn begin_stop(&mut self, now: Nanos) {
        Self::begin_stop(self, now);
    }
    fn stopped(&self) -> bool {
        Self::stopped(self)
    }
    fn damaged_device(&self) -> Option<DeviceId> {
        Self::damaged_device(self)
    }
    fn planted(&self) -> Planted {
        self.map().planted()
    }
}
