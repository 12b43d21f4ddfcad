//! Power losses and damage in a history, and the expected states after them.

use super::History;
use crate::support::Rng;
use crate::support::pool::{META, POOL, open};
use crate::support::store::MemStore;
use crate::support::twin::{Effect, ModelExtent, State, whole};
use std::collections::BTreeSet;
use weir_map::check::{Report, Severity};
use weir_map::root::Root;
use weir_map::superblock::ROOT_AT;
use weir_map::{Chunk, Map, MapError, PAGE, Superblock};
use weir_model::{DeviceId, ExtentIndex, VolumeId};

impl History {
    /// Returns how many of the written frames are intact, from the first on.
    fn intact_frames(&self) -> usize {
        let is_intact = |effect: &&Effect| {
            let length = u32::from_le_bytes(std::array::from_fn(|i| effect.bytes[48 + i])) as usize;
            let mut bytes = Vec::with_capacity(length + PAGE);
            let mut number = effect.at / PAGE as u64;
            while bytes.len() < length {
                bytes.extend(self.store.page(META, number));
                number += 1;
            }
            bytes[..length] == effect.bytes[..length]
        };
        self.durable + self.effects[self.durable..].iter().take_while(is_intact).count()
    }

    fn state_at(&self, frames: usize) -> State {
        let mut state = self.base.clone();
        self.effects[..frames].iter().for_each(|effect| state.apply(effect));
        state.recovered()
    }

    pub(super) fn crash(&mut self, seed: u64, damage: bool) {
        let mut rng = Rng(seed);
        self.store.power_loss(&mut rng);
        let frames = self.intact_frames();
        self.coverage.torn_frames += (self.effects.len() - frames) as u64;
        let expected = self.state_at(frames);
        self.check_clean("after a power cut");
        if damage {
            (0..4).for_each(|_| self.damage(&mut rng, frames, &expected));
        }
        let (map, _) = self.recover(&mut self.store.clone(), &mut rng, true).expect("nothing is damaged");
        self.check_opened(&map, &expected);
        // The same again on the store itself.
        let mut store = std::mem::replace(&mut self.store, MemStore::new(0));
        let (map, older_root) = self.recover(&mut store, &mut rng, true).expect("nothing is damaged");
        assert!(!older_root, "the newest root is good");
        self.check_opened(&map, &expected);
        (self.map, self.store) = (map, store);
        self.check_clean("after recovery");
        self.restart_history(expected);
    }

    fn check(store: &mut MemStore, superblocks: &[Superblock]) -> Report {
        let sizes: Vec<_> = superblocks.iter().map(|sb| Some(sb.size)).collect();
        weir_map::check(store, &sizes)
    }

    fn check_clean(&self, when: &str) {
        let report = Self::check(&mut self.store.clone(), &self.superblocks);
        assert!(report.is_clean(), "{when}: {:#?}", report.findings);
    }

    /// Opens the pool, with power losses during the opening.
    fn recover(
        &mut self,
        store: &mut MemStore,
        rng: &mut Rng,
        intact: bool,
    ) -> Result<(Map, bool), MapError> {
        for _ in 0..rng.below(3) {
            store.fail_after(1 + rng.below(9));
            match open(store, &self.superblocks) {
                Err(MapError::Io { .. }) => {
                    self.coverage.cut_recoveries += 1;
                    store.power_loss(rng);
                    if intact {
                        let report = Self::check(store, &self.superblocks);
                        assert!(report.is_clean(), "after a cut in recovery: {:#?}", report.findings);
                    }
                }
                Ok(_) => store.power_loss(rng),
                damaged => return damaged,
            }
        }
        open(store, &self.superblocks)
    }

    fn check_opened(&self, map: &Map, expected: &State) {
        assert_eq!(&State::of(map), expected, "what was recovered");
        let owned = expected.owned();
        for sb in &self.superblocks {
            let space = map.space(sb.device);
            let slots = owned.iter().filter(|c| matches!(c, Chunk::Slot(d, _) if *d == sb.device));
            assert_eq!(space.slots() as usize, slots.clone().count());
            let cut: BTreeSet<_> = slots
                .map(|c| match c {
                    Chunk::Slot(_, slot) => slot.extent,
                    Chunk::Whole(whole) => whole.extent,
                })
                .collect();
            for extent in 0..sb.data_extents {
                let whole = whole(sb.device.0, extent);
                let taken = owned.contains(&Chunk::Whole(whole)) || cut.contains(&whole.extent);
                assert_eq!(space.is_allocated(whole.extent), taken, "{whole:?}");
            }
        }
        let keys = self.live.keys().chain(expected.extents.keys());
        for key in keys.filter(|key| expected.volumes.contains_key(&key.volume)) {
            let found = ModelExtent::of_found(&map.find(*key), self.blocks);
            assert_eq!(found, expected.extents.get(key).cloned().unwrap_or_default(), "{key}");
        }
        for (volume, _) in expected.volumes.iter() {
            let mapped = expected.extents.keys().filter(|key| key.volume == *volume);
            assert_eq!(map.mapped_extents(*volume), mapped.clone().count() as u64);
            assert_eq!(map.next_used(*volume, ExtentIndex(0)), mapped.map(|key| key.index).next());
        }
        assert!(map.pending_extents() == 0 && !map.has_uncommitted_changes() && !map.has_unwritten_changes());
    }

    fn restart_history(&mut self, state: State) {
        self.allocated = state.owned();
        self.live.clear();
        self.effects.clear();
        self.released.clear();
        self.quarantined.clear();
        self.admin.clear();
        (self.durable, self.checkpointed, self.commit, self.checkpoint) = (0, (0, 0), None, None);
        self.devices.iter_mut().for_each(|device| device.flushed = None);
        // Ids of volumes that never were durable may be used again; others may not.
        self.volumes_created = (0..self.map.catalogue().next_volume).map(VolumeId).collect();
        self.volumes_being_removed.clear();
        self.volumes_to_drop.clear();
        self.base = state.clone();
        self.state = state;
        for intent in self.state.intents.values().copied().collect::<Vec<_>>() {
            self.clear_volume(intent.volume);
        }
    }

    /// Makes one fault on a copy of the store: it opens with the right contents, or is refused as damaged.
    fn damage(&mut self, rng: &mut Rng, frames: usize, expected: &State) {
        let mut store = self.store.clone();
        let (device, number, has_another) = self.victim(rng);
        let pages: Vec<_> = store.pages(device).collect();
        let mut page = store.page(device, number);
        match rng.below(5) {
            0 => page[rng.below(8) as usize * 512..][..512].fill(0),
            // A misdirected write: a page meant for another location.
            1 => page = store.page(device, pages[rng.below(pages.len() as u64) as usize]),
            // A write that was acknowledged but never made.
            2 => page = store.stale(device, number),
            _ => {
                let bit = rng.below(PAGE as u64 * 8) as usize;
                page[bit / 8] ^= 1 << (bit % 8);
            }
        }
        store.set_page(device, number, page);
        let report = Self::check(&mut store, &self.superblocks);
        let damage = report.worst_severity() == Some(Severity::Damage);
        match self.recover(&mut store, rng, false) {
            Ok((map, older_root)) => {
                assert!(!damage, "page {number} of device {device}, yet it opens: {:#?}", report.findings);
                assert!(!older_root || !report.is_clean(), "page {number} of device {device} is damaged");
                self.coverage.damage_survived += 1;
                self.coverage.older_roots += u64::from(older_root);
                match self.looks_torn(device, number, frames) {
                    Some(hit) if State::of(&map) != *expected => {
                        self.check_opened(&map, &self.state_at(hit));
                    }
                    _ => self.check_opened(&map, expected),
                }
            }
            Err(MapError::Damaged { .. }) if !has_another => {
                assert!(damage, "page {number} of device {device} was not noticed");
                self.coverage.damage_refused += 1;
            }
            Err(error) => panic!("page {number} of device {device}: {error}"),
        }
    }

    /// Selects a page to damage: device, number, and whether the pool must open without it.
    fn victim(&self, rng: &mut Rng) -> (DeviceId, u64, bool) {
        let any = |pages: &[u64], rng: &mut Rng| pages[rng.below(pages.len() as u64) as usize];
        let slots = ROOT_AT.map(|at| at.0 / PAGE as u64);
        let roots = slots.map(|n| Root::decode(&self.store.page(META, n), POOL).map(|r| (r.sequence, n)));
        let pages: Vec<_> = self.store.pages(META).collect();
        match (rng.below(8), roots) {
            (0, _) => (DeviceId(1), any(&self.store.pages(DeviceId(1)).collect::<Vec<_>>(), rng), true),
            (1, _) => (META, [0, pages[pages.len() - 1]][rng.below(2) as usize], true),
            (2, [Some(_), Some(_)]) => (META, any(&slots, rng), true),
            // A page that only the newest root reaches, or that root itself: the older root replaces it.
            (3 | 4, [Some(a), Some(b)]) => {
                let (newest, at) = a.max(b);
                let area = self.superblocks[0].pages_at().0 / PAGE as u64;
                let sequence = |n: u64| self.store.page(META, n)[32..40] == newest.to_le_bytes();
                let mut only: Vec<_> = pages.iter().copied().filter(|n| *n >= area && sequence(*n)).collect();
                only.push(at);
                (META, any(&only, rng), true)
            }
            _ => (META, any(&pages, rng), false),
        }
    }

    /// Returns the frame that a page belongs to, if damage to it cannot be distinguished from a torn write:
    /// no root contains it and no later frame says it was durable.
    fn looks_torn(&self, device: DeviceId, page: u64, frames: usize) -> Option<usize> {
        let at = page * PAGE as u64;
        let covers = |effect: &Effect| (effect.at..effect.at + effect.bytes.len() as u64).contains(&at);
        let hit = self.effects.iter().rposition(covers).filter(|_| device == META)?;
        let sequence = self.effects[hit].sequence;
        let vouched = self.effects[..frames].iter().any(|e| e.sequence > sequence && e.durable >= sequence);
        (hit < frames && hit >= self.checkpointed.1 && !vouched).then_some(hit)
    }
}
