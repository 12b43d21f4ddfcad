//! A history of a pool beside its naive twin: steps, power cuts, damage, and what must hold after
//! each. Everything panics where the map and the twin differ.

use super::Rng;
use super::store::MemStore;
use super::twin::{Effect, Held, Live, MiniDevice, State, Version, bits, key};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_map::delta::Delta;
use weir_map::journal::Frame;
use weir_map::root::Root;
use weir_map::superblock::{JOURNAL_AT, ROOT_AT};
use weir_map::{
    FrameWrite, Hardening, Intent, IntentKind, KeepSpace, Map, MapError, Needs, PAGE, PoolId, RecordId,
    Superblock, Whole, Word,
};
use weir_model::{
    BlockRange, Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentIndex, ExtentKey, ExtentSize, Store,
    VolumeId,
};

/// The device that carries the map.
pub const META: DeviceId = DeviceId(0);
pub const POOL: PoolId = PoolId([9; 16]);
/// Extents of the volumes there may be: trees of one, two and three levels.
const VOLUMES: [u64; 3] = [300, 5000, 600_000];
const SLOTS: u64 = 200;

/// Sizes of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of an extent, as a power of two: 16 to 18.
    pub extent_log2: u8,
    pub journal_pages: u64,
    pub meta_pages: u64,
}

/// An extent: of the n-th volume, the n-th of those used.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    pub volume: u8,
    pub slot: u8,
}

/// A run of blocks, fitted to the extent size; `None` is all of them.
pub type Run = Option<(u16, u16)>;

#[derive(Clone, Debug)]
pub enum Step {
    Create(u8),
    Remove(u8),
    Place(Spot, u8),
    Write {
        at: Spot,
        place: u8,
        run: Run,
        durable: bool,
    },
    Many {
        first: Spot,
        count: u8,
        run: Run,
    },
    Clear {
        at: Spot,
        run: Run,
        keep: u8,
    },
    GiveBack(Spot),
    Flush(u8),
    Reuse(u8),
    /// So many steps of a commit; whether frames are made durable one by one.
    Commit {
        steps: u8,
        eager: bool,
    },
    /// So many steps of a checkpoint, with this many pages at once.
    Checkpoint {
        steps: u8,
        pages: u8,
    },
    Settle,
    Cut {
        seed: u64,
        damage: bool,
    },
}

/// What histories have met, to know that they reach the corners.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    pub frames: u64,
    pub wraps: u64,
    pub checkpoints: u64,
    pub torn_frames: u64,
    pub no_metadata_room: u64,
    pub no_space: u64,
    pub damage_refused: u64,
    pub damage_survived: u64,
    pub older_roots: u64,
    pub cut_recoveries: u64,
    pub removed: u64,
}

#[derive(Debug)]
enum Checkpointing {
    Pages,
    Flush,
    Root(Box<Root>),
}

pub struct History {
    shape: Shape,
    blocks: u16,
    superblocks: Vec<Superblock>,
    store: MemStore,
    map: Map,
    devices: [MiniDevice; 2],
    /// As opened, and the frames written since.
    base: State,
    effects: Vec<Effect>,
    /// So many of them are durable, which makes:
    durable: usize,
    state: State,
    /// So many are in the older and in the newest durable root.
    rooted: (usize, usize),
    live: BTreeMap<ExtentKey, Live>,
    owner: BTreeMap<RecordId, ExtentKey>,
    allocated: BTreeSet<Whole>,
    given_back: BTreeSet<Whole>,
    resting: Vec<Whole>,
    admin: VecDeque<Delta>,
    volumes_made: BTreeSet<VolumeId>,
    /// Being removed, and those of them whose end is queued.
    going: BTreeSet<VolumeId>,
    dropping: BTreeSet<VolumeId>,
    /// The commit under way: what could be committed when it began (how many versions, how many
    /// ready), and what its frames had.
    commit: Option<BTreeMap<ExtentKey, (usize, usize)>>,
    touched: BTreeSet<ExtentKey>,
    flushed_meanwhile: bool,
    checkpoint: Option<(Checkpointing, usize)>,
    last_at: u64,
    pub met: Met,
}

pub fn superblocks(shape: Shape) -> Vec<Superblock> {
    let extent = ExtentSize::new(Bytes(1 << shape.extent_log2)).expect("a valid size");
    let superblock = |device: u8, data_extents: u32| {
        let member = device == META.0;
        let (journal_pages, meta_pages) =
            if member { (shape.journal_pages, shape.meta_pages) } else { (0, 0) };
        let metadata = JOURNAL_AT.0 + (journal_pages + meta_pages) * PAGE as u64;
        let data_at = metadata.next_multiple_of(extent.bytes().0);
        Superblock {
            pool: POOL,
            generation: 1,
            size: Bytes(data_at + u64::from(data_extents) * extent.bytes().0 + PAGE as u64),
            device: DeviceId(device),
            devices: 2,
            extent,
            class: DeviceClass::Ssd,
            incarnation: 0,
            journal_pages,
            meta_pages,
            data_at: DeviceOffset(data_at),
            data_extents,
            pool_name: "histories".into(),
            device_name: format!("device {device}"),
        }
    };
    vec![superblock(0, 150), superblock(1, 250)]
}

/// A pool as `create` makes it, but with metadata areas as small as a test wants.
pub fn create(store: &mut MemStore, superblocks: &[Superblock]) -> Result<(), MapError> {
    for sequence in 1..=2 {
        let root = Root::empty(sequence, 1);
        let page = ROOT_AT[root.slot()].0 / PAGE as u64;
        store.set_page(META, page, *root.encode(POOL));
    }
    superblocks.iter().try_for_each(|sb| weir_map::create::write_superblock(store, sb))
}

pub fn open(store: &mut MemStore, sizes: &[Superblock]) -> Result<(Map, bool), MapError> {
    let mut found = Vec::new();
    for sb in sizes {
        let read = weir_map::create::read_superblock(store, sb.device, sb.size)?;
        found.push(read.expect("a pool was created"));
    }
    let (map, recovery) = weir_map::open(store, found)?;
    Ok((map, recovery.older_root))
}

impl History {
    pub fn new(shape: Shape) -> Self {
        let superblocks = superblocks(shape);
        let mut store = MemStore::new(2);
        create(&mut store, &superblocks).expect("nothing is wrong with the devices");
        let (map, _) = open(&mut store, &superblocks).expect("a new pool opens");
        Self {
            shape,
            blocks: map.extent().blocks(),
            superblocks,
            store,
            map,
            devices: [MiniDevice::default(); 2],
            base: State::default(),
            effects: Vec::new(),
            durable: 0,
            state: State::default(),
            rooted: (0, 0),
            live: BTreeMap::new(),
            owner: BTreeMap::new(),
            allocated: BTreeSet::new(),
            given_back: BTreeSet::new(),
            resting: Vec::new(),
            admin: VecDeque::new(),
            volumes_made: BTreeSet::new(),
            going: BTreeSet::new(),
            dropping: BTreeSet::new(),
            commit: None,
            touched: BTreeSet::new(),
            flushed_meanwhile: false,
            checkpoint: None,
            last_at: 0,
            met: Met::default(),
        }
    }

    pub fn run(&mut self, steps: &[Step]) {
        // Something to work on from the start.
        for step in [Step::Create(0), Step::Create(1), Step::Settle].iter().chain(steps) {
            self.step(step);
        }
        self.settle();
        self.cut(1, false);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create(size) => self.create_volume(size),
            Step::Remove(volume) => self.remove_volume(volume),
            Step::Place(at, device) => self.with(at, |h, key| h.place(key, device)),
            Step::Write { at, place, run, durable } => {
                self.with(at, |h, key| h.write(key, place, run, durable));
            }
            Step::Many { first, count, run } => {
                for slot in first.slot..first.slot.saturating_add(count) {
                    self.with(Spot { slot, ..first }, |h, key| {
                        if h.current(key).places.is_empty() {
                            h.place(key, slot % 2);
                        }
                        h.write(key, 0, run, false);
                    });
                }
            }
            Step::Clear { at, run, keep } => {
                let keep = [KeepSpace::AsIs, KeepSpace::Yes, KeepSpace::No][usize::from(keep % 3)];
                self.with(at, |h, key| h.clear(key, run, keep));
            }
            Step::GiveBack(at) => self.with(at, |h, key| h.give_back(key)),
            Step::Flush(device) => self.flush_data(usize::from(device % 2)),
            Step::Reuse(count) => {
                for whole in self.resting.drain(..usize::from(count).min(self.resting.len())) {
                    self.map.reuse(whole);
                    assert!(self.allocated.remove(&whole));
                }
            }
            Step::Commit { steps, eager } => (0..steps).for_each(|_| self.commit_step(eager)),
            Step::Checkpoint { steps, pages } => {
                (0..steps).for_each(|_| self.checkpoint_step(usize::from(pages.max(1)) * PAGE));
            }
            Step::Settle => self.settle(),
            Step::Cut { seed, damage } => self.cut(seed, damage),
        }
        self.check_space();
    }

    fn nth_volume(&self, n: u8) -> Option<VolumeId> {
        let all: Vec<_> = self.state.volumes.keys().filter(|v| !self.going.contains(v)).collect();
        (!all.is_empty()).then(|| *all[usize::from(n) % all.len()])
    }

    /// Does something to an extent, if there is a volume, and compares what is found there after.
    fn with(&mut self, at: Spot, act: impl FnOnce(&mut Self, ExtentKey)) {
        let Some(volume) = self.nth_volume(at.volume) else { return };
        let extents = self.state.volumes[&volume].1.0 >> self.shape.extent_log2;
        let key = key(volume, u64::from(at.slot) % SLOTS * (extents / SLOTS));
        act(self, key);
        self.check_extent(key);
    }

    fn current(&self, key: ExtentKey) -> Held {
        let durable = || self.state.extents.get(&key).cloned().unwrap_or_default();
        self.live.get(&key).map_or_else(durable, |live| live.current.clone())
    }

    fn check_extent(&self, key: ExtentKey) {
        let found = Held::of_found(&self.map.find(key), self.blocks);
        assert_eq!(found, self.current(key), "what is found at {key}");
    }

    /// Makes `held` the extent's current value, as a new version if there are needs to name.
    fn change(&mut self, key: ExtentKey, held: Held, version: Option<Option<Needs>>) {
        let live = self.live.entry(key).or_default();
        if let Some(needs) = version {
            live.versions.push(Version { needs, held: held.settled(self.blocks) });
        }
        live.current = held;
    }

    fn range(&self, run: Run) -> BlockRange {
        let blocks = self.blocks;
        run.map_or(BlockRange { first: 0, count: blocks }, |(first, count)| {
            let first = first % blocks;
            BlockRange { first, count: 1 + count % (blocks - first) }
        })
    }

    fn place(&mut self, key: ExtentKey, device: u8) {
        let mut held = self.current(key);
        if held.places.len() >= 3 {
            return;
        }
        if !self.map.has_metadata_room() {
            self.met.no_metadata_room += 1;
            return;
        }
        let Some(whole) = self.map.allocate(DeviceId(device % 2)) else {
            self.met.no_space += 1;
            return;
        };
        assert!(self.allocated.insert(whole), "{whole:?} was handed out twice");
        self.map.place(key, whole);
        held.places.push((whole, 0));
        self.change(key, held, None);
    }

    fn write(&mut self, key: ExtentKey, place: u8, run: Run, durable: bool) {
        let mut held = self.current(key);
        if held.places.is_empty() {
            return;
        }
        let range = self.range(run);
        let place = usize::from(place) % held.places.len();
        let whole = held.places[place].0;
        let epoch = weir_map::Epoch(self.devices[whole.device.index()].epoch);
        let needs = (!durable).then_some(Needs { device: whole.device, epoch });
        self.map.written(key, whole, range, needs);
        for (i, (_, valid)) in held.places.iter_mut().enumerate() {
            if i == place {
                *valid |= bits(range);
            } else {
                *valid &= !bits(range);
            }
        }
        held.keep &= !held.is_one_full(self.blocks);
        self.change(key, held, Some(needs));
    }

    fn clear(&mut self, key: ExtentKey, run: Run, keep: KeepSpace) {
        let range = self.range(run);
        self.map.cleared(key, range, keep);
        let mut held = self.current(key);
        if held.places.is_empty() {
            return;
        }
        held.places.iter_mut().for_each(|(_, valid)| *valid &= !bits(range));
        held.keep = match keep {
            KeepSpace::AsIs => held.keep,
            KeepSpace::Yes => true,
            KeepSpace::No => false,
        };
        self.change(key, held, Some(None));
    }

    fn give_back(&mut self, key: ExtentKey) {
        self.map.give_back(key);
        let mut held = self.current(key);
        if held.keep || held.places.iter().all(|(_, valid)| *valid != 0) {
            return;
        }
        let empty = held.places.iter().filter(|(_, valid)| *valid == 0).map(|(whole, _)| *whole);
        for whole in empty {
            assert!(self.given_back.insert(whole));
        }
        held.places.retain(|(_, valid)| *valid != 0);
        self.change(key, held, Some(None));
    }

    fn create_volume(&mut self, size: u8) {
        let made = self.admin.iter().filter(|d| matches!(d, Delta::Volume { .. })).count();
        if self.state.volumes.len() + made >= 4 || !self.map.has_metadata_room() {
            return;
        }
        let size = Bytes(VOLUMES[usize::from(size) % VOLUMES.len()] << self.shape.extent_log2);
        let name = format!("volume {}", self.volumes_made.len());
        let id = self.map.create_volume(&name, size, Hardening::Flush);
        assert!(self.volumes_made.insert(id), "volume id {} was used before", id.0);
        self.admin.push_back(Delta::Volume { id, name, size, hardening: Hardening::Flush, copies: 1 });
    }

    fn queue(&mut self, delta: Delta) {
        self.map.queue(delta.clone());
        self.admin.push_back(delta);
    }

    fn remove_volume(&mut self, volume: u8) {
        let Some(volume) = self.nth_volume(volume) else { return };
        let intent = Intent { kind: IntentKind::RemoveVolume, volume, progress: 0 };
        self.queue(Delta::Intent { id: volume.0, intent });
        self.clear_volume(volume);
    }

    fn clear_volume(&mut self, volume: VolumeId) {
        self.going.insert(volume);
        let all = key(volume, 0)..=key(volume, u64::MAX);
        let mut keys: BTreeSet<_> = self.live.range(all.clone()).map(|(key, _)| *key).collect();
        keys.extend(self.state.extents.range(all).map(|(key, _)| *key));
        for key in keys {
            self.clear(key, None, KeepSpace::No);
            self.give_back(key);
            self.check_extent(key);
        }
    }

    /// Volumes being removed go when every extent has been given back durably.
    fn drop_volumes(&mut self) {
        for volume in self.going.clone() {
            let all = key(volume, 0)..=key(volume, u64::MAX);
            let quiet = self.live.range(all.clone()).all(|(key, _)| !self.map.has_pending(*key));
            let is_empty = self.state.extents.range(all).next().is_none();
            if quiet && is_empty && self.dropping.insert(volume) {
                self.live.retain(|key, _| key.volume != volume);
                self.queue(Delta::DropVolume { id: volume });
                self.queue(Delta::EndIntent { id: volume.0 });
                self.met.removed += 1;
            }
        }
    }

    fn flush_data(&mut self, device: usize) {
        self.flushed_meanwhile = true;
        let device = &mut self.devices[device];
        device.flushed = Some(weir_map::Epoch(device.epoch));
        device.epoch += 1;
    }

    fn commit_step(&mut self, eager: bool) {
        if self.commit.is_none() {
            self.drop_volumes();
            if !self.map.has_uncommitted() {
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
        if !self.map.has_journal_room() {
            self.frames_durable();
            return self.make_room();
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

    /// Writes a frame, and compares what it says with what the twin would commit.
    fn frame(&mut self, to: FrameWrite, bytes: Vec<u8>) {
        let ring = JOURNAL_AT.0..JOURNAL_AT.0 + self.shape.journal_pages * PAGE as u64;
        assert!(to.device == META && ring.contains(&to.at.0) && to.at.0 + bytes.len() as u64 <= ring.end);
        self.met.frames += 1;
        self.met.wraps += u64::from(to.at.0 < self.last_at);
        self.last_at = to.at.0;
        let range = to.at.0..to.at.0 + bytes.len() as u64;
        let needed = &self.effects[self.rooted.0..];
        let overlaps = |e: &Effect| e.at < range.end && range.start < e.at + e.bytes.len() as u64;
        assert!(!needed.iter().any(overlaps), "a frame overwrites one that a root needs");
        self.store.write(to.device, to.at, &bytes).expect("nothing fails here");
        let frame = Frame::decode(&bytes, POOL, self.blocks).expect("a frame just sealed");
        let mut effect = Effect {
            at: to.at.0,
            bytes,
            sequence: frame.sequence,
            durable: frame.durable,
            admin: Vec::new(),
            extents: Vec::new(),
        };
        let mut says: BTreeMap<ExtentKey, Held> = BTreeMap::new();
        for delta in &frame.deltas {
            if let Delta::Entry { key, word } = delta {
                match word {
                    Word::Empty => drop(says.insert(*key, Held::default())),
                    Word::Direct(whole) => drop(says.insert(*key, Held::full(*whole, self.blocks))),
                    Word::Record(id) => drop(self.owner.insert(*id, *key)),
                    Word::Child(_) => panic!("a leaf's word is no child"),
                }
            }
        }
        for delta in frame.deltas {
            match delta {
                Delta::Entry { .. } => {}
                Delta::Record { id, record } => {
                    drop(says.insert(self.owner[&id], Held::of_record(&record)));
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
        self.map.commit_durable(&mut released);
        for effect in &self.effects[self.durable..] {
            self.state.apply(effect);
        }
        self.durable = self.effects.len();
        if !released.is_empty() {
            let owned = self.state.owned();
            for whole in released {
                assert!(self.given_back.remove(&whole), "{whole:?} was not given back");
                assert!(!owned.contains(&whole), "{whole:?} is released and durable");
                self.resting.push(whole);
            }
        }
    }

    /// At a commit's end everything that was ready is durable.
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

    fn checkpoint_step(&mut self, most: usize) {
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
                        assert!(area.contains(&to.at.0) && bytes.len() <= most);
                        self.store.write(to.device, to.at, &bytes).expect("nothing fails here");
                        Checkpointing::Pages
                    }
                    None => Checkpointing::Flush,
                }
            }
            Checkpointing::Flush => {
                self.store.flush(META).expect("nothing fails here");
                let (root, page, to) = self.map.finished_root().expect("all pages were taken");
                self.store.write(to.device, to.at, &page[..]).expect("nothing fails here");
                Checkpointing::Root(Box::new(root))
            }
            Checkpointing::Root(root) => {
                self.store.flush(META).expect("nothing fails here");
                self.map.checkpoint_durable(*root);
                self.rooted = (self.rooted.1, rooted);
                self.met.checkpoints += 1;
                return;
            }
        };
        self.checkpoint = Some((phase, rooted));
    }

    fn make_room(&mut self) {
        let mut begun = 0;
        while self.checkpoint.is_some() || !self.map.has_journal_room() {
            begun += u32::from(self.checkpoint.is_none());
            assert!(begun <= 2, "two checkpoints make room");
            self.checkpoint_step(8 * PAGE);
        }
    }

    /// Everything that can become durable does.
    fn settle(&mut self) {
        (0..2).for_each(|device| self.flush_data(device));
        for _ in 0..100_000 {
            if self.commit.is_none() && !self.map.has_uncommitted() {
                break;
            }
            self.commit_step(false);
        }
        assert!(!self.map.has_uncommitted() && self.given_back.is_empty() && self.map.releasing() == 0);
        self.live.retain(|key, live| {
            let durable = self.state.extents.get(key).cloned().unwrap_or_default();
            let mut named = live.current.clone();
            // A place nothing was written in yet is not named by anything durable.
            named.places.retain(|(whole, valid)| *valid != 0 || durable.places.contains(&(*whole, 0)));
            assert_eq!(named.settled(self.blocks), durable, "{key} after everything was committed");
            live.versions.clear();
            live.current != durable
        });
        let keys: BTreeSet<_> = self.live.keys().chain(self.state.extents.keys()).copied().collect();
        keys.into_iter().for_each(|key| self.check_extent(key));
        assert_eq!(self.map.pending(), self.live.len(), "extents held for writes under way");
        assert_eq!(State::of(&self.map), self.state);
    }

    fn check_space(&self) {
        for sb in &self.superblocks {
            let taken = self.allocated.iter().filter(|w| w.device == sb.device).count() as u32;
            assert_eq!(self.map.space(sb.device).free(), sb.data_extents - taken, "device {}", sb.device);
        }
    }

    /// How many of the frames written are there, one after the other.
    fn intact(&self) -> usize {
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
        state
    }

    fn cut(&mut self, seed: u64, damage: bool) {
        let mut rng = Rng(seed);
        self.store.power_cut(&mut rng);
        let frames = self.intact();
        self.met.torn_frames += (self.effects.len() - frames) as u64;
        let expected = self.state_at(frames);
        if damage {
            (0..4).for_each(|_| self.damage(&mut rng, frames, &expected));
        }
        let (map, _) = self.recover(&mut self.store.clone(), &mut rng).expect("nothing is damaged");
        self.check_opened(&map, &expected);
        // The same again on the store itself.
        let mut store = std::mem::replace(&mut self.store, MemStore::new(0));
        let (map, older_root) = self.recover(&mut store, &mut rng).expect("nothing is damaged");
        assert!(!older_root, "the newest root is good");
        self.check_opened(&map, &expected);
        (self.map, self.store) = (map, store);
        self.begin_anew(expected);
    }

    /// Opens the pool, with power cuts on the way.
    fn recover(&mut self, store: &mut MemStore, rng: &mut Rng) -> Result<(Map, bool), MapError> {
        for _ in 0..rng.below(3) {
            store.fail_after(1 + rng.below(9));
            match open(store, &self.superblocks) {
                Err(MapError::Io { .. }) => {
                    self.met.cut_recoveries += 1;
                    store.power_cut(rng);
                }
                Ok(_) => store.power_cut(rng),
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
            for extent in 0..sb.data_extents {
                let whole = super::twin::whole(sb.device.0, extent);
                assert_eq!(space.is_taken(whole.extent), owned.contains(&whole), "{whole:?}");
            }
        }
        let keys = self.live.keys().chain(expected.extents.keys());
        for key in keys.filter(|key| expected.volumes.contains_key(&key.volume)) {
            let found = Held::of_found(&map.find(*key), self.blocks);
            assert_eq!(found, expected.extents.get(key).cloned().unwrap_or_default(), "{key}");
        }
        for (volume, _) in expected.volumes.iter() {
            let mapped = expected.extents.keys().filter(|key| key.volume == *volume);
            assert_eq!(map.mapped_extents(*volume), mapped.clone().count() as u64);
            assert_eq!(map.next_mapped(*volume, ExtentIndex(0)), mapped.map(|key| key.index).next());
        }
        assert!(map.pending() == 0 && !map.has_uncommitted() && !map.has_unwritten());
    }

    fn begin_anew(&mut self, state: State) {
        self.allocated = state.owned();
        self.live.clear();
        self.effects.clear();
        self.given_back.clear();
        self.resting.clear();
        self.admin.clear();
        (self.durable, self.rooted, self.commit, self.checkpoint) = (0, (0, 0), None, None);
        self.devices.iter_mut().for_each(|device| device.flushed = None);
        // Ids of volumes that never were durable may come again; others may not.
        self.volumes_made = (0..self.map.catalogue().next_volume).map(VolumeId).collect();
        self.going.clear();
        self.dropping.clear();
        self.base = state.clone();
        self.state = state;
        for intent in self.state.intents.values().copied().collect::<Vec<_>>() {
            self.clear_volume(intent.volume);
        }
    }

    /// One fault on a copy of the store: it opens with the right contents, or is refused as damaged.
    fn damage(&mut self, rng: &mut Rng, frames: usize, expected: &State) {
        let mut store = self.store.clone();
        let (device, number, has_another) = self.victim(rng);
        let pages: Vec<_> = store.pages(device).collect();
        let mut page = store.page(device, number);
        match rng.below(5) {
            0 => page[rng.below(8) as usize * 512..][..512].fill(0),
            // Misdirected: a page meant for another place.
            1 => page = store.page(device, pages[rng.below(pages.len() as u64) as usize]),
            // A write that was acknowledged and never done.
            2 => page = store.stale(device, number),
            _ => {
                let bit = rng.below(PAGE as u64 * 8) as usize;
                page[bit / 8] ^= 1 << (bit % 8);
            }
        }
        store.set_page(device, number, page);
        match self.recover(&mut store, rng) {
            Ok((map, older_root)) => {
                self.met.damage_survived += 1;
                self.met.older_roots += u64::from(older_root);
                match self.looks_torn(device, number, frames) {
                    Some(hit) if State::of(&map) != *expected => {
                        self.check_opened(&map, &self.state_at(hit));
                    }
                    _ => self.check_opened(&map, expected),
                }
            }
            Err(MapError::Damaged { .. }) if !has_another => self.met.damage_refused += 1,
            Err(error) => panic!("page {number} of device {device}: {error}"),
        }
    }

    /// A page to damage: device, number, and whether the pool must open without it.
    fn victim(&self, rng: &mut Rng) -> (DeviceId, u64, bool) {
        let any = |pages: &[u64], rng: &mut Rng| pages[rng.below(pages.len() as u64) as usize];
        let slots = ROOT_AT.map(|at| at.0 / PAGE as u64);
        let roots = slots.map(|n| Root::decode(&self.store.page(META, n), POOL).map(|r| (r.sequence, n)));
        let pages: Vec<_> = self.store.pages(META).collect();
        match (rng.below(8), roots) {
            (0, _) => (DeviceId(1), any(&self.store.pages(DeviceId(1)).collect::<Vec<_>>(), rng), true),
            (1, _) => (META, [0, pages[pages.len() - 1]][rng.below(2) as usize], true),
            (2, [Some(_), Some(_)]) => (META, any(&slots, rng), true),
            // What only the newest root reaches, or the root itself: the older one does.
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

    /// The frame a page belongs to, if damage to it cannot be told from a torn write: no root contains
    /// it and no later frame calls it durable.
    fn looks_torn(&self, device: DeviceId, page: u64, frames: usize) -> Option<usize> {
        let at = page * PAGE as u64;
        let covers = |effect: &Effect| (effect.at..effect.at + effect.bytes.len() as u64).contains(&at);
        let hit = self.effects.iter().rposition(covers).filter(|_| device == META)?;
        let sequence = self.effects[hit].sequence;
        let vouched = self.effects[..frames].iter().any(|e| e.sequence > sequence && e.durable >= sequence);
        (hit < frames && hit >= self.rooted.1 && !vouched).then_some(hit)
    }
}
