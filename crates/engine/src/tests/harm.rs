//! Actions that continue, and actions that do not, while a policy's moves are stopped; and requests that
//! never wait for a move.

use super::harness::{EXTENT, Harness, Shape};
use crate::{Notice, Options};
use std::sync::{Arc, Mutex};
use weir_model::{BlockRange, DeviceId, Errno, IoError, IoKind, Nanos, Op, PlaceId, PlaceKind};
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::{Access, Action, Placement, PolicyContext, Subscriptions, WriteTo};

const ALL: BlockRange = BlockRange { first: 0, count: 32 };
const WHOLE: fn(u8) -> PlaceId = |device| PlaceId { device: DeviceId(device), kind: PlaceKind::Whole };
const FINE: fn(u8) -> PlaceId = |device| PlaceId { device: DeviceId(device), kind: PlaceKind::Fine };

/// A policy that requests an action with every access, and sends every write to a set target.
#[derive(Clone, Debug, Default)]
struct Asks(Arc<Mutex<(Option<Action>, WriteTo)>>);

impl Placement for Asks {
    fn name(&self) -> &'static str {
        "asks"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|d| d.free > 0).map(|d| d.id)
    }
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions { accesses: true, writes: true, ..Subscriptions::default() }
    }
    fn accessed(&mut self, moment: &mut PolicyContext<'_>, _: &Access) {
        moment.actions.extend(self.0.lock().expect("one thread").0);
    }
    fn write_to(&mut self, _: &mut PolicyContext<'_>, _: &Access) -> WriteTo {
        self.0.lock().expect("one thread").1
    }
}

struct Asked {
    h: Harness,
    asks: Asks,
}

impl Asked {
    /// Sets up an extent on the first device, without a requested action.
    fn new() -> Self {
        let (mut h, asks) = (Harness::new(3, "sequential"), Asks::default());
        h.engine.set_policy(h.now(), Box::new(asks.clone()));
        h.write(0, &[1; EXTENT]);
        h.flush().expect("a flush");
        h.devices.log.clear();
        Self { h, asks }
    }

    fn sends(&self, to: WriteTo) {
        self.asks.0.lock().expect("one thread").1 = to;
    }

    /// Requests an action with a read of the first block, and none afterwards.
    fn asks(&mut self, action: Action) {
        self.asks.0.lock().expect("one thread").0 = Some(action);
        self.h.read(0, 4096);
        self.asks.0.lock().expect("one thread").0 = None;
        self.h.run();
    }

    fn stop(&mut self) {
        self.h.set_options(Options { moves: MoveControl::Disabled, ..Options::default() });
    }
}

#[test]
fn stopped_moves_disable_moves_and_redirects() {
    let mut a = Asked::new();
    let key = a.h.key(0);
    a.stop();
    a.sends(WriteTo::Fine(DeviceId(1)));
    for to in [WHOLE(1), FINE(1)] {
        a.asks(Action::Copy { key, blocks: ALL, to });
        a.asks(Action::Move { key, blocks: ALL, to });
    }
    a.asks(Action::Refresh { key });
    a.h.write(4096, &[2; 4096]);
    assert_eq!(a.h.places(0), [(WHOLE(0), 32)]);
    a.h.set_options(Options::default());
    a.h.write(8192, &[3; 4096]);
    assert_eq!(a.h.places(0), [(WHOLE(0), 31), (FINE(1), 1)]);
    a.asks(Action::Copy { key, blocks: ALL, to: WHOLE(2) });
    assert_eq!(a.h.places(0).len(), 3);
}

#[test]
fn write_back_and_drops_continue_while_moves_stopped() {
    let mut a = Asked::new();
    let key = a.h.key(0);
    a.sends(WriteTo::Fine(DeviceId(1)));
    a.h.write(4096, &[2; 4096]);
    a.h.flush().expect("a flush");
    assert_eq!(a.h.places(0), [(WHOLE(0), 31), (FINE(1), 1)]);
    a.stop();
    a.sends(WriteTo::InPlace);
    a.asks(Action::Copy { key, blocks: ALL, to: WHOLE(0) });
    assert_eq!(a.h.places(0), [(WHOLE(0), 32), (FINE(1), 1)], "scrubbed");
    a.asks(Action::Drop { key, blocks: ALL, from: FINE(1) });
    assert_eq!(a.h.places(0), [(WHOLE(0), 32)]);
    assert_eq!(a.h.read(0, EXTENT).1[4095..4097], [1, 2]);
}

#[test]
fn required_copies_continue_while_moves_stopped() {
    let mut h = Harness::of(Shape { devices: 2, members: 2, copies: 2, ..Shape::default() }, "sequential");
    h.engine.set_policy(h.now(), Box::new(Asks::default()));
    h.set_options(Options { moves: MoveControl::Disabled, ..Options::default() });
    h.write(0, &[1; EXTENT]);
    h.flush().expect("a flush");
    // The first copy of a block fails at every attempt.
    h.write(0, &[1; 4096]);
    let write = IoKind::Write { fua: false };
    h.fail_next(write, IoError::Os(Errno::EIO));
    h.pass_next(write);
    (0..2).for_each(|_| h.fail_next(write, IoError::Os(Errno::EIO)));
    h.write(4096, &[2; 4096]);
    let degraded = |h: &Harness| h.engine.volumes().map(|volume| volume.degraded.0).sum::<u64>();
    assert_eq!((degraded(&h), h.places(0)), (EXTENT as u64, vec![(WHOLE(0), 31), (WHOLE(1), 32)]));
    h.wait(Nanos::secs(10));
    assert_eq!((degraded(&h), h.places(0)), (0, vec![(WHOLE(0), 32), (WHOLE(1), 32)]));
}

#[test]
fn stop_and_resumption_of_moves_are_reported() {
    let mut a = Asked::new();
    // With this margin every result counts as harm.
    let rules = Rules {
        sample: 1,
        window: Nanos::secs(2),
        commands: 2,
        margin: -1.0,
        pause: Nanos::secs(10),
        longest_pause: Nanos::secs(10),
    };
    a.h.set_options(Options { moves: MoveControl::Judged(rules), ..Options::default() });
    let told = |h: &mut Harness| {
        let notices = std::iter::from_fn(|| h.engine.next_notice());
        notices
            .map(|notice| matches!(notice, Notice::MovesStopped { pause, .. } if pause == Nanos::secs(10)))
            .collect::<Vec<_>>()
    };
    for _ in 0..4 {
        a.h.pass(Nanos::secs(1));
        a.h.read(0, 4096);
    }
    let status = a.h.engine.status().moves;
    assert!(status.stopped.is_some_and(|left| left <= Nanos::secs(10)) && status.stops == 1, "{status:?}");
    assert_eq!(told(&mut a.h), [true]);
    a.h.pass(Nanos::secs(11));
    a.h.read(0, 4096);
    assert_eq!((told(&mut a.h), a.h.engine.status().moves.stopped), (vec![false], None));
}

#[test]
fn stale_curve_of_idle_device_is_probed() {
    let mut a = Asked::new();
    let rules = Rules { sample: 1, ..Rules::default() };
    a.h.set_options(Options { moves: MoveControl::Judged(rules), ..Options::default() });
    let key = a.h.key(0);
    // The extent is on the first device first, and then read from the second one.
    a.h.read(0, 4096);
    a.asks(Action::Move { key, blocks: ALL, to: WHOLE(1) });
    assert_eq!(a.h.places(0), [(WHOLE(1), 32)]);
    a.h.devices.log.clear();
    for _ in 0..60 {
        a.h.pass(Nanos::secs(1));
        a.h.read(0, 4096);
    }
    let reads = |device| {
        let from = |io: &&weir_model::Io| io.kind == IoKind::Read && io.device == DeviceId(device);
        a.h.devices.log.iter().filter(from).count()
    };
    assert!((3..=7).contains(&reads(0)), "one in ten seconds: {}", reads(0));
    assert_eq!((reads(1), reads(2)), (60, 0));
}

#[test]
fn a_request_that_causes_a_promotion_does_not_wait_for_it() {
    for (to, alone) in [(WHOLE(1), false), (FINE(1), false), (WHOLE(1), true), (FINE(1), true)] {
        let mut a = Asked::new();
        let (key, blocks) = (a.h.key(0), BlockRange { first: 0, count: 1 });
        let action = if alone { Action::Move { key, blocks, to } } else { Action::Copy { key, blocks, to } };
        // The copy's write gets no answer; the read that delivered its bytes does.
        a.h.devices.delay_next = Some(IoKind::Write { fua: false });
        a.asks(action);
        assert_eq!(
            (a.h.devices.delayed.len(), a.h.engine.mover_status().in_flight),
            (1, 1),
            "the copy is being written"
        );
        assert_eq!(a.h.engine.mover_status().piggybacked, 1);
        a.h.release(None);
        a.h.run();
        assert_eq!(a.h.engine.mover_status().copied, 1);
    }
}

#[test]
fn redirected_write_writes_only_its_own_bytes() {
    for to in [WriteTo::Fine(DeviceId(1)), WriteTo::Whole(DeviceId(1))] {
        let mut a = Asked::new();
        a.sends(to);
        a.h.request(Op::Write, 8192, &[5; 12288], false).expect("a write");
        let data: Vec<_> = a.h.devices.log.iter().map(|io| (io.device, io.kind, io.buffer.len)).collect();
        assert_eq!(data, [(DeviceId(1), IoKind::Write { fua: false }, 12288)], "{to:?}");
    }
}
