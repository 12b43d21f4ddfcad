//! The policy's view: reported accesses and questions.

use super::harness::Harness;
use std::sync::{Arc, Mutex};
use weir_model::{Bytes, DeviceId, ExtentKey, Nanos, Op, PlaceId, PlaceKind};
use weir_policy::placement::{
    Access, Action, DeviceView, Placement, PolicyContext, Subscriptions, by_name, with_default_settings,
};

#[derive(Debug, Default)]
struct Seen {
    accesses: Vec<Access>,
    devices: Vec<DeviceView>,
    asked: usize,
    rounds: Vec<Nanos>,
    /// The places of the first extent it saw, as found in its first round.
    found: Option<ExtentKey>,
}

/// A policy that records its calls, and in its first round requests a move of the first extent it saw.
#[derive(Debug, Clone)]
struct Spy {
    watches: Subscriptions,
    seen: Arc<Mutex<Seen>>,
}

impl Placement for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, _: &Access) -> Option<DeviceId> {
        moment.devices.iter().find(|d| d.free > 0).map(|d| d.id)
    }
    fn subscriptions(&self) -> Subscriptions {
        self.watches
    }
    fn accessed(&mut self, moment: &mut PolicyContext<'_>, access: &Access) {
        let mut seen = self.seen.lock().expect("one thread");
        seen.accesses.push(*access);
        seen.devices = moment.devices.to_vec();
    }
    fn write_to(&mut self, _: &mut PolicyContext<'_>, _: &Access) -> weir_policy::placement::WriteTo {
        self.seen.lock().expect("one thread").asked += 1;
        weir_policy::placement::WriteTo::InPlace
    }
    fn round_interval(&self) -> Option<Nanos> {
        Some(Nanos::millis(10))
    }
    fn round(&mut self, moment: &mut PolicyContext<'_>) {
        let mut seen = self.seen.lock().expect("one thread");
        if let (true, Some(access)) = (seen.rounds.is_empty(), seen.accesses.first()) {
            let to = PlaceId { device: DeviceId(1), kind: PlaceKind::Whole };
            assert_eq!(moment.map.places(access.key).device(), Some(DeviceId(0)));
            let blocks = weir_model::BlockRange { first: 0, count: moment.extent.blocks() };
            moment.actions.push(Action::Move { key: access.key, blocks, to });
            seen.found = moment.map.next(seen.accesses[0].key);
        }
        seen.rounds.push(moment.now);
    }
}

fn spied(watches: Subscriptions) -> (Harness, Arc<Mutex<Seen>>) {
    let mut h = Harness::new(2, "sequential");
    let seen = Arc::default();
    let spy = Spy { watches, seen: Arc::clone(&seen) };
    h.engine.set_policy(h.now(), Box::new(spy));
    (h, seen)
}

const EVERYTHING: Subscriptions = Subscriptions { accesses: true, writes: true, runs: true, metadata: true };

#[test]
fn each_piece_is_reported_once_with_places_and_run() {
    let (mut h, seen) = spied(EVERYTHING);
    h.write(0, &[1; 4096]);
    h.write(4096, &[2; 8192]);
    h.read(512, 1024);
    // The read crosses an extent boundary.
    h.read((128 << 10) - 4096, 8192);
    h.request(Op::Trim, 0, &[0; 4096], false).expect("a trim");
    let seen = seen.lock().expect("one thread");
    let short = |a: &Access| (a.op, a.key.index.0, a.blocks.first, a.blocks.count, a.bytes.0, a.run.0);
    let told: Vec<_> = seen.accesses.iter().map(short).collect();
    assert_eq!(
        told,
        [
            (Op::Write, 0, 0, 1, 4096, 4096),
            (Op::Write, 0, 1, 2, 8192, 12288),
            (Op::Read, 0, 0, 1, 1024, 1024),
            (Op::Read, 0, 31, 1, 4096, 8192),
            (Op::Read, 1, 0, 1, 4096, 8192),
            (Op::Trim, 0, 0, 1, 4096, 4096),
        ]
    );
    let held: Vec<_> = seen.accesses.iter().map(|a| a.places.as_slice()).collect();
    let at = |i: usize| held[i].iter().map(|p| (p.id.device.0, p.blocks, p.of_extent)).collect::<Vec<_>>();
    assert_eq!([at(0), at(1), at(2)], [vec![], vec![(0, 0, 1)], vec![(0, 1, 3)]]);
    assert_eq!((at(3), at(4)), (vec![(0, 0, 3)], vec![]));
    let device = &seen.devices[0];
    assert_eq!((device.writes.count, device.writes.bytes), (2, Bytes(12288)), "clients' commands alone");
    assert_eq!(device.reads.count, 1);
    assert!(device.reads.response.get().is_some() && device.idle_response < Nanos::MAX && device.is_usable);
    assert!(device.writes.response_to(Bytes::kib(8)).is_some());
    assert_eq!(seen.asked, 2);
}

#[test]
fn unwatched_events_are_not_reported() {
    let (mut h, seen) = spied(Subscriptions::default());
    h.write(0, &[1; 4096]);
    h.read(0, 4096);
    let seen = seen.lock().expect("one thread");
    assert_eq!((seen.accesses.len(), seen.asked), (0, 0));
}

#[test]
fn new_policy_moves_nothing_until_its_round() {
    let (mut h, seen) = spied(EVERYTHING);
    h.write(0, &[1; 128 << 10]);
    h.engine.set_policy(h.now(), by_name("stripe").expect("a policy"));
    h.wait(Nanos::millis(100));
    assert_eq!((seen.lock().expect("one thread").rounds.len(), h.engine.mover_status().copied), (0, 0));
    h.engine.set_policy(h.now(), Box::new(Spy { watches: EVERYTHING, seen: Arc::clone(&seen) }));
    for _ in 0..3 {
        h.wait(Nanos::millis(10));
    }
    assert_eq!(seen.lock().expect("one thread").rounds.len(), 3);
    assert_eq!(h.engine.mover_status().copied, 32);
    assert_eq!(h.read(0, 128 << 10).1, vec![1; 128 << 10]);
    let seen = seen.lock().expect("one thread");
    assert_eq!(seen.found, Some(seen.accesses[0].key));
    let last = seen.accesses.last().expect("the read");
    assert_eq!(last.places.device(), Some(DeviceId(1)));
    let moved = seen.devices[1].writes.by_size.iter().filter(|m| m.get().is_some()).count();
    assert_eq!((seen.devices[1].writes.count, moved), (0, 1), "the mover counts by size alone");
}

#[test]
fn pool_policy_ignores_volumes_with_own_policy() {
    let (mut h, seen) = spied(EVERYTHING);
    let told = |seen: &Mutex<Seen>| seen.lock().expect("one thread").accesses.len();
    let own = |h: &Harness| h.engine.volumes().next().expect("a volume").policy;
    h.write(0, &[1; 128 << 10]);
    h.engine.set_volume_policy(h.now(), "vol", with_default_settings("stripe"));
    h.write(128 << 10, &[2; 4096]);
    assert_eq!((told(&seen), own(&h)), (1, Some("stripe")));
    h.wait(Nanos::millis(30));
    let found = seen.lock().expect("one thread").found;
    assert_eq!((found, h.engine.mover_status().copied), (None, 0), "neither found nor moved");
    h.remove_volume().expect("removed");
    h.create_volume().expect("created");
    assert_eq!(own(&h), Some("stripe"), "it was chosen for the name");
    h.engine.set_volume_policy(h.now(), "vol", None);
    h.write(0, &[1; 4096]);
    assert_eq!((told(&seen), own(&h)), (2, None));
}
