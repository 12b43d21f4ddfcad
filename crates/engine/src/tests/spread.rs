//! Extents in several places: the bound on their space, and their consolidation while the pool is idle.

use super::harness::{EXTENT, Harness};
use super::redirect::{Redirect, WHOLE};
use crate::{Percent, QUIET_PERIOD, SpaceRules};
use std::sync::{Arc, Mutex};
use weir_model::{BlockRange, DeviceId, DeviceSet, Nanos, PlaceId, PlaceKind};
use weir_policy::placement::{Access, Action, KeptPlaces, Placement, PolicyContext, Subscriptions, WriteTo};

const FINE: fn(u8) -> PlaceId = |device| PlaceId { device: DeviceId(device), kind: PlaceKind::Fine };

/// Like [`Redirect`], but also keeps copies on some devices.
#[derive(Debug)]
struct Keeping(Redirect, KeptPlaces);

impl Placement for Keeping {
    fn name(&self) -> &'static str {
        "keeping"
    }
    fn allocate(&mut self, moment: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId> {
        self.0.allocate(moment, access)
    }
    fn subscriptions(&self) -> Subscriptions {
        self.0.subscriptions()
    }
    fn write_to(&mut self, moment: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        self.0.write_to(moment, access)
    }
    fn kept_places(&self) -> KeptPlaces {
        self.1
    }
}

struct Torn {
    h: Harness,
    to: Arc<Mutex<WriteTo>>,
}

impl Torn {
    fn new(devices: usize, keeps: KeptPlaces, rules: SpaceRules) -> Self {
        let mut h = Harness::new(devices, "sequential");
        let to = Arc::<Mutex<WriteTo>>::default();
        h.engine.set_policy(h.now(), Box::new(Keeping(Redirect(to.clone()), keeps)));
        h.set_space_rules(rules);
        Self { h, to }
    }

    fn write(&mut self, to: WriteTo, block: u64, byte: u8) {
        *self.to.lock().expect("one thread") = to;
        self.h.write(block * 4096, &[byte; 4096]);
        *self.to.lock().expect("one thread") = WriteTo::InPlace;
    }

    /// Lets some time pass without client requests, with a commit at its end.
    fn rest(&mut self) {
        for _ in 0..400 {
            self.h.wait(Nanos::millis(20));
        }
        self.h.flush().expect("a flush");
        self.h.wait(Nanos::millis(20));
    }
}

fn rules() -> SpaceRules {
    SpaceRules { quiet: Some(QUIET_PERIOD), ..SpaceRules::default() }
}

const fn on(device: u8) -> WriteTo {
    WriteTo::Whole(DeviceId(device))
}

const fn slots(device: u8) -> WriteTo {
    WriteTo::Fine(DeviceId(device))
}

#[test]
fn idle_pool_consolidates_extents() {
    let mut t = Torn::new(3, KeptPlaces::default(), rules());
    let free = t.h.free();
    for extent in 0..4u64 {
        t.h.write(extent * EXTENT as u64, &[1 + extent as u8; EXTENT]);
    }
    t.h.flush().expect("a flush");
    let mut expected: Vec<u8> = (0..4).flat_map(|extent| [1 + extent; EXTENT]).collect();
    // The extents are split between two whole places, between a whole place and slots, and both.
    for (to, block) in [(on(1), 3), (on(1), 4), (slots(2), 32), (on(1), 70), (slots(2), 71), (slots(1), 72)] {
        t.write(to, block, 100 + block as u8);
        expected[block as usize * 4096..][..4096].fill(100 + block as u8);
    }
    t.h.flush().expect("a flush");
    let torn = t.h.engine.status().spread;
    assert_eq!((torn.fragmented, torn.redirects), (3, 6));
    assert!(free - t.h.free() > 4 && torn.extra.0 >= 2 * EXTENT as u64, "{torn:?}");
    t.rest();
    for extent in 0..4 {
        let places = t.h.places(extent);
        assert!(matches!(places[..], [(id, 32)] if id.kind == PlaceKind::Whole), "{extent}: {places:?}");
    }
    let whole = t.h.engine.status().spread;
    assert_eq!((whole.fragmented, whole.extra.0, free - t.h.free()), (0, 0, 4));
    assert_eq!(t.h.read(0, 4 * EXTENT).1, expected);
    t.h.reopen();
    assert_eq!(t.h.read(0, 4 * EXTENT).1, expected);
}

#[test]
fn no_consolidation_when_busy_or_disabled() {
    for quiet in [None, Some(QUIET_PERIOD)] {
        let mut t = Torn::new(2, KeptPlaces::default(), SpaceRules { quiet, ..rules() });
        t.h.write(0, &[1; EXTENT]);
        t.h.flush().expect("a flush");
        t.write(on(1), 3, 2);
        for _ in 0..100 {
            t.h.wait(Nanos::millis(100));
            if quiet.is_some() {
                t.h.read(40 * 4096, 4096);
                t.h.read(0, 4096);
            }
        }
        assert_eq!(t.h.places(0), [(WHOLE(0), 31), (WHOLE(1), 1)], "{quiet:?}");
    }
}

/// Slots on a device that the policy keeps stay; of the other places one is left, and it is whole.
#[test]
fn consolidation_spares_kept_places() {
    let kept: DeviceSet = [DeviceId(2)].into_iter().collect();
    let mut t = Torn::new(3, KeptPlaces::OnDevices(kept), rules());
    t.h.write(0, &[1; EXTENT]);
    t.h.write(EXTENT as u64, &[1; EXTENT]);
    t.h.flush().expect("a flush");
    for (to, block) in [(slots(2), 1), (on(1), 3), (slots(1), 4), (slots(2), 33)] {
        t.write(to, block, 2);
    }
    t.rest();
    let first = t.h.places(0);
    assert_eq!(first, [(WHOLE(0), 31), (FINE(2), 1)], "what was not kept is at home");
    assert_eq!(t.h.places(1), [(WHOLE(0), 31), (FINE(2), 1)]);
    let mut expected = [1; EXTENT];
    [1, 3, 4].into_iter().for_each(|block| expected[block * 4096..][..4096].fill(2));
    assert_eq!(t.h.read(0, EXTENT).1, expected);
    let mut all = Torn::new(2, KeptPlaces::All, rules());
    all.h.write(0, &[1; EXTENT]);
    all.write(on(1), 3, 2);
    all.rest();
    assert_eq!(all.h.places(0), [(WHOLE(0), 31), (WHOLE(1), 1)], "the policy sees to it itself");
}

/// Redirected writes and copies use no more than their share of the space; moves continue.
#[test]
fn extra_space_is_bounded() {
    let bounded = SpaceRules { extra: Some(Percent(10)), ..SpaceRules::default() };
    for to in [on(1), slots(1)] {
        let mut t = Torn::new(2, KeptPlaces::default(), bounded.clone());
        let all = t.h.free();
        let extents = u64::from(all) / 4;
        (0..extents).for_each(|extent| t.h.write(extent * EXTENT as u64, &[1; EXTENT]));
        t.h.flush().expect("a flush");
        for extent in 0..extents {
            (0..32).step_by(2).for_each(|block| t.write(to, extent * 32 + block, 2));
            if extent % 3 == 0 {
                t.h.flush().expect("a flush");
            }
        }
        let copies = BlockRange { first: 1, count: 8 };
        for extent in 0..extents {
            let key = t.h.key(extent);
            t.h.act(Action::Copy {
                key,
                blocks: copies,
                to: PlaceId { device: DeviceId(1), kind: PlaceKind::Fine },
            });
        }
        t.h.flush().expect("a flush");
        let spread = t.h.engine.status().spread;
        assert_eq!(spread.extra_limit.map(|most| most.0), Some(u64::from(all / 10) * EXTENT as u64));
        let used = all - t.h.free();
        assert!(
            u64::from(used) <= extents + u64::from(all) / 10 + 1,
            "{used} for {extents} of {all}, {to:?}"
        );
        assert!(u64::from(used) >= extents + u64::from(all) / 10 - 1, "as much as may be: {used}, {to:?}");
        let key = t.h.key(extents - 1);
        t.h.act(Action::Move { key, blocks: BlockRange { first: 0, count: 32 }, to: WHOLE(1) });
        t.h.flush().expect("a flush");
        assert_eq!(t.h.places(extents - 1), [(WHOLE(1), 32)], "a whole extent is moved all the same");
    }
}
