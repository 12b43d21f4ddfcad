//! Removal of volumes: under power loss, and with requests in flight.

use super::harness::{Harness, Shape};
use crate::{AdminCommand, AdminError, AdminId};
use std::collections::BTreeSet;
use weir_map::delta::Delta;
use weir_map::{Hardening, Intent, IntentKind};
use weir_model::{Bytes, DeviceId, Errno, IoError, IoKind, Op, ReadShape};

#[test]
fn removal_of_missing_volume_ends() {
    let mut h = Harness::new(2, "sequential");
    let volume = h.volume;
    let intent = Intent { kind: IntentKind::RemoveVolume, volume, progress: 0 };
    // All steps of a removal except the last, as a full frame would leave it.
    h.engine.data.base.core.map.queue(Delta::Intent { id: volume.0, intent });
    h.engine.data.base.core.map.queue(Delta::DropVolume { id: volume });
    h.stop();
    assert_eq!(h.engine.map().catalogue().intents.len(), 1, "not ended yet");
    h.reopen();
    assert!(h.engine.volumes().next().is_none());
    h.stop();
    h.reopen();
    assert!(h.engine.map().catalogue().intents.is_empty());
    h.create_volume().expect("a volume");
    assert!(h.free() > 0);
}

#[test]
fn removal_waits_for_requests_in_flight() {
    let mut h = Harness::new(2, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Read);
    h.begin(Op::Read, 0, 4096);
    h.engine.admin(h.now(), AdminId(3), AdminCommand::RemoveVolume { name: "vol".into() });
    h.run();
    assert!(h.engine.next_admin_reply().is_none() && h.engine.map().volume(h.volume).is_some());
    h.release(None);
    assert_eq!(h.answer(), Some((78, Ok(ReadShape::Data))));
    assert!(h.engine.next_admin_reply().is_some_and(|reply| reply.result == Ok(h.volume)));
    assert!(h.engine.map().volume(h.volume).is_none());
}

/// Sets up a removal that waits for a read in flight.
fn removal_behind_a_read() -> Harness {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.devices.delay_next = Some(IoKind::Read);
    h.begin(Op::Read, 0, 4096);
    h.engine.admin(h.now(), AdminId(3), AdminCommand::RemoveVolume { name: "vol".into() });
    h.run();
    assert!(h.engine.next_admin_reply().is_none(), "the read is in flight");
    h
}

/// A removal waits for a read in flight when the metadata fails.
#[test]
fn removal_in_progress_fails_with_the_metadata() {
    let mut h = removal_behind_a_read();
    h.devices.broken.push((DeviceId(0), IoKind::Write { fua: true }, IoError::Os(Errno::EIO)));
    let other = AdminCommand::CreateVolume {
        name: "other".into(),
        size: Bytes::mib(1),
        hardening: Hardening::Flush,
        copies: 1,
    };
    h.engine.admin(h.now(), AdminId(4), other);
    h.run();
    h.release(None);
    let failed: Vec<_> = std::iter::from_fn(|| h.engine.next_admin_reply()).collect();
    let ids: BTreeSet<_> = failed.iter().map(|reply| reply.id.0).collect();
    assert_eq!(ids, BTreeSet::from([3, 4]), "{failed:?}");
    assert!(failed.iter().all(|reply| matches!(reply.result, Err(AdminError::Failed(_)))), "{failed:?}");
    h.devices.broken.clear();
    h.reopen();
    assert!(h.engine.volumes().next().is_none(), "the next opening takes it up again");
}

/// A removal waits for a read in flight while the engine is stopped.
#[test]
fn removal_in_progress_fails_when_the_engine_stops() {
    let mut h = removal_behind_a_read();
    h.begin_stop();
    // Devices are verified once more at the end.
    h.devices.delay_next = None;
    h.release(None);
    assert_failed_by_a_stop(h);
}

/// The engine is stopped before a removal has begun durably.
#[test]
fn a_removal_that_begins_while_the_engine_stops_fails() {
    let mut h = Harness::new(1, "sequential");
    h.write(0, &[1; 4096]);
    h.flush().expect("a flush");
    h.engine.admin(h.now(), AdminId(3), AdminCommand::RemoveVolume { name: "vol".into() });
    h.begin_stop();
    assert_failed_by_a_stop(h);
}

fn assert_failed_by_a_stop(mut h: Harness) {
    while h.engine.next_reply().is_some() {}
    // Everything is at rest now: the stop completes.
    h.run();
    let reply = h.engine.next_admin_reply().expect("an answer to the removal");
    assert_eq!(reply.result, Err(AdminError::Stopping("vol".into())));
    assert!(h.engine.stopped());
    h.reopen();
    assert!(h.engine.volumes().next().is_none(), "the next opening takes it up again");
}

#[test]
fn removal_frees_last_extent_of_volume_ending_within_a_block() {
    let size = (1 << 20) + 512;
    let mut h = Harness::of(Shape { volume: size, ..Shape::default() }, "sequential");
    let free = h.free();
    h.write(size - 3, &[7; 3]);
    assert_eq!(h.free(), free - 1);
    h.remove_volume().expect("removed");
    assert_eq!(h.free(), free);
}
