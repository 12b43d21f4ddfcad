//! Writes the engine's notices for the operator to the log, with a limit on the rate of failed commands.

use crate::throttle::ThrottledEvents;
use weir_engine::{Notice, SpaceKind};
use weir_model::{DeviceId, IoError, Nanos, RequestError, VolumeId};

/// Failed commands logged per interval; further ones are counted.
const LOGGED_MAX: u32 = 10;
const LOG_INTERVAL: Nanos = Nanos::secs(10);

/// Keeps the log readable when a device fails thousands of commands.
#[derive(Debug, Default)]
pub(super) struct NoticeLog {
    began: Option<Nanos>,
    logged: u32,
    suppressed: u32,
    /// Requests that failed because data is not durable.
    failures: ThrottledEvents<RequestError>,
}

impl NoticeLog {
    /// Counts a reply. A client's own mistakes do not concern the operator, and failing devices have notices
    /// of their own; data that is not durable is reported.
    #[inline]
    pub(super) fn note_reply<T>(&mut self, result: &Result<T, RequestError>) {
        if let Err(error @ (RequestError::FlushFailed(_) | RequestError::ReadOnly)) = result {
            self.failures.note(*error);
        }
    }

    /// Returns the time when a line about such requests is due.
    pub(super) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        self.failures.due(now)
    }

    /// Logs the number of such requests, if a line is due. `name` maps a device to its name.
    pub(super) fn log_failures(&mut self, now: Nanos, name: impl Fn(DeviceId) -> String) {
        match self.failures.take_due(now) {
            Some((requests, error @ RequestError::FlushFailed(device))) => {
                tracing::warn!(device = name(device), requests, "requests failed, the latest: {error}");
            }
            Some((requests, error)) => tracing::warn!(requests, "requests failed, the latest: {error}"),
            None => {}
        }
    }

    /// Logs a notice; a failed command only if there have been few in the current interval. `name` maps a
    /// device to its name, `volume_name` a volume; `save` is the command that saves the contents of removed
    /// devices.
    pub(super) fn log_notice(
        &mut self,
        now: Nanos,
        notice: Notice,
        name: impl Fn(DeviceId) -> String,
        volume_name: impl Fn(VolumeId) -> String,
        save: impl Fn() -> Option<String>,
    ) {
        let named = |room| match room {
            SpaceKind::Data => "space",
            SpaceKind::Metadata => "space for metadata",
        };
        match notice {
            Notice::Filling { space: room, at, used, total } => {
                tracing::warn!(%used, of = %total, "more than {} % of the pool's {} is in use", at.0, named(room));
            }
            Notice::Full(room) => tracing::error!(
                "the pool has no {} left: writes that need more are refused or wait; trim or remove volumes",
                named(room)
            ),
            Notice::SpaceAvailable => tracing::info!("the pool has space again"),
            Notice::BackingStoreFull { device, at, len, error } => {
                if self.may_log(now) {
                    tracing::error!(
                        device = name(device),
                        %at,
                        %len,
                        "a write found no space below the device: {error}; make room in its file system or thin pool"
                    );
                }
            }
            Notice::ReadOnly { error: IoError::Removed } => tracing::error!(
                "the pool is read-only from now on: the device with its only metadata is gone once this server \
                 ends; save the device before you stop the server"
            ),
            Notice::ReadOnly { error } => tracing::error!(
                "the pool is read-only from now on, because its metadata cannot be written: {error}; \
                 once the cause is gone, restart the server"
            ),
            Notice::MovesStopped { volume, policy, estimate, pause } => tracing::warn!(
                took = %estimate.mean().0,
                without = %estimate.mean().1,
                commands = estimate.commands,
                "policy {policy}{} moves nothing for {pause}: commands took longer than they would have had nothing \
                 moved",
                volume_suffix(volume)
            ),
            Notice::MovesResumed { volume, policy } => {
                tracing::info!("policy {policy}{} moves again", volume_suffix(volume));
            }
            Notice::Remark { volume, policy, remark } => {
                tracing::warn!("policy {policy}{}: {remark}", volume_suffix(volume));
            }
            Notice::RemarkCleared { volume, policy, remark } => {
                tracing::info!("policy {policy}{}: no longer true: {remark}", volume_suffix(volume));
            }
            Notice::Failed { device, kind, at, len, error, is_retried: again } => {
                if self.may_log(now) {
                    let then = if again { "trying again" } else { "giving up" };
                    tracing::warn!(device = name(device), %at, %len, "{kind} failed: {error}; {then}");
                }
            }
            Notice::Removed { device } => tracing::error!(
                device = name(device),
                "the device's file was removed, or another file took its place: all that is on it is lost once this \
                 server ends, so every FLUSH of a volume with one copy fails from now on; {}",
                save()
                    .unwrap_or_else(|| "do not stop the server: weir pool status says what to do".to_owned())
            ),
            Notice::Lost { .. }
            | Notice::WritesInDoubt { .. }
            | Notice::Unreachable { .. }
            | Notice::UnreachableTotal { .. } => log_loss(notice, name, volume_name),
        }
    }

    fn may_log(&mut self, now: Nanos) -> bool {
        if self.began.is_none_or(|began| now.since(began) >= LOG_INTERVAL) {
            if self.suppressed > 0 {
                tracing::warn!(more = self.suppressed, "more commands failed");
            }
            (self.began, self.logged, self.suppressed) = (Some(now), 0, 0);
        }
        let may = self.logged < LOGGED_MAX;
        if may {
            self.logged += 1;
        } else {
            self.suppressed += 1;
        }
        may
    }
}

/// Logs data that is lost with a device, or may be.
fn log_loss(notice: Notice, name: impl Fn(DeviceId) -> String, volume_name: impl Fn(VolumeId) -> String) {
    match notice {
        Notice::Lost { device, reason: why } if why.is_damage() => tracing::error!(
            device = name(device),
            "the device is given up: {why}; data that was durable is gone with it, so every FLUSH of a volume with one \
             copy fails from now on; weir pool status says what to do"
        ),
        Notice::Lost { device, reason: why } => tracing::error!(
            device = name(device),
            "the device is given up: {why}; what needs it fails until the pool is opened again"
        ),
        Notice::WritesInDoubt { device, blocks } => tracing::error!(
            device = name(device),
            blocks,
            "writes since the last successful flush are lost; their blocks \
             fail with EIO until they are rewritten"
        ),
        Notice::Unreachable { device, volume, offset, len } => tracing::error!(
            device = name(device),
            volume = volume_name(volume),
            %offset,
            %len,
            "data unreachable: no other device holds it; open the pool with the device, or write the data again"
        ),
        Notice::UnreachableTotal { ranges, bytes } => tracing::error!(
            ranges,
            %bytes,
            "data unreachable until the device returns; the first ranges are listed above"
        ),
        // Notices with a text of their own are handled above; the rest are logged as they are rather than
        // dropped.
        other => tracing::warn!("{other:?}"),
    }
}

/// Names the volume of a policy, if it is not the pool's policy.
fn volume_suffix(volume: Option<VolumeId>) -> String {
    volume.map_or(String::new(), |volume| format!(" of volume number {}", volume.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_are_throttled() {
        let mut trouble = NoticeLog::default();
        let now = Nanos::secs(1);
        let name = |_| "data".to_owned();
        trouble.note_reply::<()>(&Err(RequestError::NoSpace));
        assert_eq!(trouble.deadline(now), None, "a client's own business");
        trouble.note_reply::<()>(&Err(RequestError::FlushFailed(DeviceId(0))));
        assert_eq!(trouble.deadline(now), Some(now));
        trouble.log_failures(now, name);
        assert_eq!(trouble.deadline(now), None, "told");
        (0..1000).for_each(|_| trouble.note_reply::<()>(&Err(RequestError::ReadOnly)));
        trouble.log_failures(now + Nanos::secs(1), name);
        let due = now + ThrottledEvents::<RequestError>::REPORT_INTERVAL;
        assert_eq!(
            (trouble.deadline(now), trouble.failures.take_due(due)),
            (Some(due), Some((1000, RequestError::ReadOnly)))
        );
    }

    #[test]
    fn notice_flood_is_throttled() {
        let mut trouble = NoticeLog::default();
        let told = |trouble: &mut NoticeLog, now| (0..100).filter(|_| trouble.may_log(now)).count();
        assert_eq!(told(&mut trouble, Nanos::secs(1)), LOGGED_MAX as usize);
        assert_eq!((told(&mut trouble, Nanos::secs(10)), trouble.suppressed), (0, 190));
        assert_eq!((told(&mut trouble, Nanos::secs(11)), trouble.suppressed), (LOGGED_MAX as usize, 90));
    }
}
