//! The operations that make a history's changes durable: volumes, flushes, commits, checkpoints.

use super::{Checkpointing, History, VOLUMES};
use crate::support::pool::{META, POOL};
use crate::support::twin::{Effect, ModelExtent, State, copies_of, key};
use std::collections::{BTreeMap, BTreeSet};
use weir_map::delta::Delta;
use weir_map::journal::Frame;
use weir_map::superblock::JOURNAL_AT;
use weir_map::{Hardening, Intent, IntentKind, PAGE, SpaceReservation, Word};
use weir_model::{Bytes, DeviceOffset, ExtentKey, Store, VolumeId};

impl History {
    pub(super) fn create_volume(&mut self, size: u8) {
        let made = self.admin.iter().filter(|d| matches!(d, Delta::Volume { .. })).count();
        if self.state.volumes.len() + made >= 4 || !self.map.has_metadata_space() {
            return;
        }
        let size = Bytes(VOLUMES[usize::from(size) % VOLUMES.len()] << self.shape.extent_log2);
        let name = format!("volume {}", self.volumes_created.len());
        let next = self.volumes_created.last().map_or(0, |last| last.0 + 1);
        let copies = copies_of(VolumeId(next));
        let id = self.map.create_volume(&name, size, Hardening::Flush, copies);
        assert_eq!(id.0, next);
        assert!(self.volumes_created.insert(id), "volume id {} was used before", id.0);
        self.admin.push_back(Delta::Volume { id, name, size, hardening: Hardening::Flush, copies });
    }

    fn queue(&mut self, delta: Delta) {
        self.map.queue(delta.clone());
        self.admin.push_back(delta);
    }

    pub(super) fn remove_volume(&mut self, volume: u8) {
        let Some(volume) = self.nth_volume(volume) else { return };
        let intent = Intent { kind: IntentKind::RemoveVolume, volume, progress: 0 };
        self.queue(Delta::Intent { id: volume.0, intent });
        self.clear_volume(volume);
    }

    pub(super) fn clear_volume(&mut self, volume: VolumeId) {
        self.volumes_being_removed.insert(volume);
        let all = key(volume, 0)..=key(volume, u64::MAX);
        let mut keys: BTreeSet<_> = self.live.range(all.clone()).map(|(key, _)| *key).collect();
        keys.extend(self.state.extents.range(all).map(|(key, _)| *key));
        for key in keys {
            self.clear(key, None, SpaceReservation::Release);
            self.release_empty_places(key);
            self.check_extent(key);
        }
    }

    /// Deletes volumes being removed once every extent has been freed durably.
    fn drop_volumes(&mut self) {
        for volume in self.volumes_being_removed.clone() {
            let all = key(volume, 0)..=key(volume, u64::MAX);
            let quiet = self.live.range(all.clone()).all(|(key, _)| !self.map.has_pending(*key));
            let is_empty = self.state.extents.range(all).next().is_none();
            if quiet && is_empty && self.volumes_to_drop.insert(volume) {
                self.live.retain(|key, _| key.volume != volume);
                self.queue(Delta::DropVolume { id: volume });
                self.queue(Delta::EndIntent { id: volume.0 });
                self.coverage.removed += 1;
            }
        }
    }

    pub(super) fn flush_data(&mut self, device: usize) {
        self.flushed_meanwhile = true;
        let device = &mut self.devices[device];
        device.flushed = Some(weir_map::Epoch(device.epoch));
        device.epoch += 1;
    }

    pub(super) fn commit_step(&mut self, eager: bool) {
        if self.commit.is_none() {
            self.drop_volumes();
            if !self.map.has_uncommitted_changes() {
                return;
            }
            self.map.begin_commit();
            let with_versions = self.live.iter().filter(|(_, live)| !live.versions.is_empty());
            let devices = &self.devices;
            let counted = with_versions.map(|(key, l)| (*key, (l.versions.len(), l.ready(devices))));
            self.commit = Some(counted.collect());
            self.touched.clear();
            self.flushed_meanwhile = false;
        }
        if !self.map.has_journal_space() {
            self.frames_durable();
            return self.free_journal_space();
        }
        let (devices, mut bytes) = (self.devices, Vec::new());
        match self.map.next_frame(|d| devices[d.index()].flushed, &mut bytes) {
            Some(to) => {
                self.frame(to, bytes);
                if eager {
                    self.frames_durable();
                }
            }
            None => {
                self.frames_durable();
                self.check_commit();
            }
        }
    }

    /// Writes a frame, and compares its changes with those that the twin would commit.
    fn frame(&mut self, to: DeviceOffset, bytes: Vec<u8>) {
        let ring = JOURNAL_AT.0..JOURNAL_AT.0 + self.shape.journal_pages * PAGE as u64;
        assert!(ring.contains(&to.0) && to.0 + bytes.len() as u64 <= ring.end);
        self.coverage.frames += 1;
        self.coverage.wraps += u64::from(to.0 < self.last_at);
        self.last_at = to.0;
        let range = to.0..to.0 + bytes.len() as u64;
        let needed = &self.effects[self.checkpointed.0..];
        let overlaps = |e: &Effect| e.at < range.end && range.start < e.at + e.bytes.len() as u64;
        assert!(!needed.iter().any(overlaps), "a frame overwrites one that a root needs");
        self.store.write(META, to, &bytes).expect("nothing fails here");
        let frame = Frame::decode(&bytes, POOL, self.blocks).expect("a frame just sealed");
        let mut effect = Effect {
            at: to.0,
            bytes,
            sequence: frame.sequence,
            durable: frame.durable,
            admin: Vec::new(),
            extents: Vec::new(),
        };
        let mut says: BTreeMap<ExtentKey, ModelExtent> = BTreeMap::new();
        for delta in &frame.deltas {
            if let Delta::Entry { key, word } = delta {
                match word {
                    Word::Empty => drop(says.insert(*key, ModelExtent::default())),
                    Word::Direct(whole) => drop(says.insert(*key, ModelExtent::full(*whole, self.blocks))),
                    Word::Record(id) => drop(self.owner.insert(*id, *key)),
                    Word::Child(_) => panic!("a leaf's word is no child"),
                }
            }
        }
        for delta in frame.deltas {
            match delta {
                Delta::Entry { .. } => {}
                Delta::Record { id, record } => {
                    drop(says.insert(self.owner[&id], ModelExtent::of_record(&record)));
                }
                Delta::DropRecord { id } => assert!(says.contains_key(&self.owner[&id])),
                other => {
                    assert_eq!(Some(&other), self.admin.front(), "queued work goes in order");
                    effect.admin.extend(self.admin.pop_front());
                }
            }
        }
        for (key, held) in says {
            assert!(self.touched.insert(key), "{key} is in a commit twice");
            let live = self.live.get_mut(&key).expect("something changed there");
            let ready = live.ready(&self.devices);
            let version = live.versions.drain(..ready).next_back();
            assert_eq!(Some(&held), version.as_ref().map(|v| &v.held), "what {key} commits");
            effect.extents.push((key, held));
        }
        self.effects.push(effect);
    }

    fn frames_durable(&mut self) {
        self.store.flush(META).expect("nothing fails here");
        let mut released = Vec::new();
        self.map.finish_commit(&mut released);
        for effect in &self.effects[self.durable..] {
            self.state.apply(effect);
        }
        self.durable = self.effects.len();
        if !released.is_empty() {
            let owned = self.state.owned();
            for chunk in released {
                assert!(self.released.remove(&chunk), "{chunk:?} was not given back");
                assert!(!owned.contains(&chunk), "{chunk:?} is released and durable");
                self.quarantined.push(chunk);
            }
        }
    }

    /// Checks, at a commit's end, that everything that was ready is durable.
    fn check_commit(&mut self) {
        let Some(begun) = self.commit.take() else { return };
        for (key, (versions, ready)) in begun {
            let Some(live) = self.live.get_mut(&key) else { continue };
            let looked_at_as_begun = !self.flushed_meanwhile && live.versions.len() == versions;
            if ready > 0 && looked_at_as_begun && !self.touched.contains(&key) {
                let durable = self.state.extents.get(&key).cloned().unwrap_or_default();
                assert_eq!(live.versions[ready - 1].held, durable, "{key} was ready and is not durable");
                live.versions.drain(..ready);
            }
        }
    }

    pub(super) fn checkpoint_step(&mut self, most: usize) {
        let Some((phase, rooted)) = self.checkpoint.take() else {
            if self.durable == self.effects.len() {
                self.map.begin_checkpoint().expect("room was kept for it");
                self.checkpoint = Some((Checkpointing::Pages, self.durable));
            }
            return;
        };
        let phase = match phase {
            Checkpointing::Pages => {
                let mut bytes = Vec::new();
                match self.map.next_pages(most, &mut bytes) {
                    Some(to) => {
                        let from = self.superblocks[0].pages_at().0;
                        let area = from..from + self.shape.meta_pages * PAGE as u64;
                        assert!(area.contains(&to.0) && bytes.len() <= most);
                        self.store.write(META, to, &bytes).expect("nothing fails here");
                        Checkpointing::Pages
                    }
                    None => Checkpointing::Flush,
                }
            }
            Checkpointing::Flush => {
                self.store.flush(META).expect("nothing fails here");
                let (root, page, to) = self.map.finished_root().expect("all pages were taken");
                self.store.write(META, to, &page[..]).expect("nothing fails here");
                Checkpointing::Root(Box::new(root))
            }
            Checkpointing::Root(root) => {
                self.store.flush(META).expect("nothing fails here");
                self.map.finish_checkpoint(*root);
                self.checkpointed = (self.checkpointed.1, rooted);
                self.coverage.checkpoints += 1;
                return;
            }
        };
        self.checkpoint = Some((phase, rooted));
    }

    fn free_journal_space(&mut self) {
        let mut begun = 0;
        while self.checkpoint.is_some() || !self.map.has_journal_space() {
            begun += u32::from(self.checkpoint.is_none());
            assert!(begun <= 2, "two checkpoints make room");
            self.checkpoint_step(8 * PAGE);
        }
    }

    /// Makes everything durable that can be.
    pub(super) fn settle(&mut self) {
        (0..2).for_each(|device| self.flush_data(device));
        for _ in 0..100_000 {
            if self.commit.is_none() && !self.map.has_uncommitted_changes() {
                break;
            }
            self.commit_step(false);
        }
        assert!(
            !self.map.has_uncommitted_changes()
                && self.released.is_empty()
                && self.map.pending_release_count() == 0
        );
        self.live.retain(|key, live| {
            let durable = self.state.extents.get(key).cloned().unwrap_or_default();
            let mut named = live.current.clone();
            // Nothing durable names a place in which nothing has been written yet.
            named.places.retain(|place| !place.blocks.is_empty() || durable.places.contains(place));
            assert_eq!(named.after_recovery(), durable, "{key} after everything was committed");
            live.versions.clear();
            live.current != durable
        });
        let keys: BTreeSet<_> = self.live.keys().chain(self.state.extents.keys()).copied().collect();
        keys.into_iter().for_each(|key| self.check_extent(key));
        assert_eq!(self.map.pending_extents(), self.live.len(), "extents held for writes under way");
        assert_eq!(State::of(&self.map), self.state);
    }
}
