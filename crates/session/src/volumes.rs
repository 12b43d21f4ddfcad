//! What the server needs of whoever keeps the volumes: the engine's face, and nothing else of it.

use weir_engine::{
    AdminCommand, AdminId, AdminReply, Driver, Engine, ExplainError, Explained, Loss, Notice, Status,
    VolumeInfo,
};
use weir_model::{Bytes, DeviceId, IoDone, Memory, Nanos, Planted, Reply, Request, VolumeId, VolumeOffset};
use weir_policy::placement::{Placement, TunedPolicy};

/// Volumes, driven by events: requests and completions in, device commands and replies out.
/// Implemented by [`Engine`], whose methods of the same names say what they do, and by
/// [`Ram`](crate::Ram) for tests of the server.
pub trait Volumes {
    /// From a client.
    fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M);
    /// A FLUSH of the volume failed because of the device, and nobody may have heard of it: the next one
    /// fails, too.
    fn owe(&mut self, volume: VolumeId, device: DeviceId) {
        let _ = (volume, device);
    }
    /// The last time that acknowledged writes of the volume were lost, if they ever were since the start.
    fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        let _ = volume;
        None
    }
    /// From a device.
    fn complete<M: Memory>(&mut self, now: Nanos, done: IoDone, memory: &mut M);
    /// What is due, and commands to devices.
    fn pump<D: Driver>(&mut self, driver: &mut D);
    /// To a client.
    fn next_reply(&mut self) -> Option<Reply>;
    /// When to pump at the latest.
    fn deadline(&self) -> Option<Nanos>;
    /// Whether another request may be submitted.
    fn can_accept(&self) -> bool;
    /// The volumes there are.
    fn volumes(&self) -> Vec<VolumeInfo>;
    /// Which parts of a range hold data. Nothing if there is no such volume.
    fn runs(&self, of: RunsOf, runs: &mut Vec<Status>);
    /// Where the block of a volume is that holds this byte, since when and why, if anything decides that.
    ///
    /// # Errors
    /// If there is no such volume, or it ends before.
    fn explain(&self, volume: &str, at: VolumeOffset) -> Result<Explained, ExplainError> {
        let _ = at;
        Err(ExplainError::NoVolume(volume.to_owned()))
    }
    /// Makes or removes a volume.
    fn admin(&mut self, now: Nanos, id: AdminId, command: AdminCommand);
    /// Another policy decides where data goes from now on, if anything decides that.
    fn set_policy(&mut self, now: Nanos, policy: Box<dyn Placement>) {
        let _ = (now, policy);
    }
    /// A policy of its own decides where data of the volume of this name goes from now on, or the pool's
    /// again, if anything decides that.
    fn set_volume_policy(&mut self, now: Nanos, name: &str, choice: Option<TunedPolicy>) {
        let _ = (now, name, choice);
    }
    /// A change that is durable, or was refused.
    fn next_admin_reply(&mut self) -> Option<AdminReply>;
    /// Something for the log.
    fn next_notice(&mut self) -> Option<Notice>;
    /// What a device is called.
    fn device_name(&self, device: DeviceId) -> String;
    /// Requests that wait for somebody to free space wait no longer: clients are about to go.
    fn stop_waiting_for_space(&mut self, now: Nanos);
    /// No more requests will come: bring everything to rest on the devices.
    fn begin_stop(&mut self, now: Nanos);
    /// For mutation testing.
    fn planted(&self) -> Planted {
        Planted::NONE
    }
    /// Everything is at rest.
    fn stopped(&self) -> bool;
    /// The device with which data that was durable is gone, or will be once it is closed.
    fn damaged_device(&self) -> Option<DeviceId> {
        None
    }
}

/// A question: which parts of a range hold data.
#[derive(Clone, Copy, Debug)]
pub struct RunsOf {
    /// Of which volume.
    pub volume: VolumeId,
    /// From where.
    pub offset: VolumeOffset,
    /// How far.
    pub len: Bytes,
    /// The most runs to be told.
    pub most: usize,
}

impl Volumes for Engine {
    fn submit<M: Memory>(&mut self, now: Nanos, request: Request, memory: &mut M) {
        Self::submit(self, now, request, memory);
    }
    fn owe(&mut self, volume: VolumeId, device: DeviceId) {
        Self::owe(self, volume, device);
    }
    fn last_loss(&self, volume: VolumeId) -> Option<Loss> {
        Self::last_loss(self, volume)
    }
    fn complete<M: Memory>(&mut self, now: Nanos, done: IoDone, memory: &mut M) {
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
    fn runs(&self, of: RunsOf, runs: &mut Vec<Status>) {
        self.block_status(of.volume, of.offset, of.len, of.most, runs);
    }
    fn explain(&self, volume: &str, at: VolumeOffset) -> Result<Explained, ExplainError> {
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
