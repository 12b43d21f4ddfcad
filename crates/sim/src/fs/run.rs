//! Runs a load on a file system, in virtual time.

use super::clients::{Clients, Current, is_read};
use super::load::{FileLoad, FileOp, FileStep};
use super::outcome::{FsOutcome, HitShares};
use super::page_cache::PageCache;
use super::plan::{FastTier, FsPlan};
use super::space::{Space, data};
use super::tier::{Tier, Waiting};
use crate::SimError;
use crate::responses::ResponseHistogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use weir_model::{Bytes, Nanos};
use weir_policy::distribution::Distribution;
use weir_policy::eviction::items::FileKey;
use weir_policy::promotion::Promotion;

/// Time between two commits of the tiers' file systems, as ext4's.
pub(super) const COMMIT: Nanos = Nanos::secs(5);
/// The smallest fast tier.
const FAST_TIER_MIN: Bytes = Bytes::kib(64);

/// Runs a load on a file system until it ends or its time is over.
///
/// # Errors
/// Fails if there is no tier, if a drive is unknown, or if the fast tier is too small for anything.
pub fn simulate(load: &mut dyn FileLoad, plan: &FsPlan) -> Result<FsOutcome, SimError> {
    let mut run = FsRun::new(load, plan)?;
    run.play()?;
    Ok(run.outcome())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A client's operation is done, and the next one begins.
    Client(usize),
    /// The tiers' file systems commit.
    Commit,
}

pub(super) struct FsRun<'a> {
    pub(super) plan: &'a FsPlan,
    load: &'a mut dyn FileLoad,
    pub(super) space: Space,
    pub(super) memory: PageCache,
    pub(super) tiers: Vec<Tier>,
    pub(super) distribution: Box<dyn Distribution>,
    pub(super) promotion: Box<dyn Promotion>,
    pub(super) clients: Clients,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    event_count: u64,
    /// Changes in memory, oldest first, with the time from which on they are there.
    pub(super) ages: VecDeque<(Nanos, FileKey)>,
    pub(super) now: Nanos,
    /// When the measurement began, and when it ends at the latest.
    from: Option<Nanos>,
    until: Option<Nanos>,
    work: u64,
    transferred: u64,
    /// Accesses that found an item in the fast tier, in memory, and in a container.
    pub(super) hits: [u64; 3],
    reads: ResponseHistogram,
    writes: ResponseHistogram,
}

impl<'a> FsRun<'a> {
    pub(super) fn new(load: &'a mut dyn FileLoad, plan: &'a FsPlan) -> Result<Self, SimError> {
        let machine = &plan.machine;
        if plan.tiers.is_empty() {
            return Err(SimError::NoTier);
        }
        if plan.fast.size() < FAST_TIER_MIN {
            return Err(SimError::FastTierTooSmall { size: plan.fast.size(), least: FAST_TIER_MIN });
        }
        let items = plan.eviction.start(&plan.eviction_settings);
        let tiers = plan.tiers.iter().map(|tier| Tier::new(tier, machine)).collect::<Result<_, _>>()?;
        let clients = Clients::new(load.clients(), machine.processors);
        let mut run = Self {
            plan,
            load,
            space: Space::new(plan.fast, machine.metadata, items),
            memory: PageCache::new(machine.memory),
            tiers,
            distribution: plan.distribution.start(&plan.distribution_settings),
            promotion: plan.promotion.start(),
            clients,
            events: BinaryHeap::new(),
            event_count: 0,
            ages: VecDeque::new(),
            now: Nanos(0),
            from: None,
            until: None,
            work: 0,
            transferred: 0,
            hits: [0; 3],
            reads: ResponseHistogram::new(),
            writes: ResponseHistogram::new(),
        };
        (0..run.clients.current.len()).for_each(|client| run.push(Nanos(0), Event::Client(client)));
        run.push(COMMIT, Event::Commit);
        Ok(run)
    }

    pub(super) fn push(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.event_count, event)));
        self.event_count += 1;
    }

    /// Plays the load to its end.
    pub(super) fn play(&mut self) -> Result<(), SimError> {
        let mut active = self.clients.current.len();
        while active > 0 {
            let device = self.tiers.iter().filter_map(Tier::next).min();
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = device.into_iter().chain(event).min() else {
                return Err(SimError::Stuck(self.now));
            };
            self.now = self.now.max(next);
            if self.until.is_some_and(|until| self.now >= until) {
                self.now = self.until.unwrap_or(self.now);
                return Ok(());
            }
            if device == Some(next) {
                self.complete();
            } else if let Some(Reverse((_, _, event))) = self.events.pop() {
                match event {
                    Event::Commit => self.commit(),
                    Event::Client(client) => active -= usize::from(!self.advance(client)),
                }
            }
            let now = self.now;
            self.tiers.iter_mut().for_each(|tier| tier.submit(now));
            let is_idle = self.clients.is_waiting() && self.tiers.iter().all(Tier::is_idle);
            if is_idle && self.events.len() <= 1 {
                return Err(SimError::Stuck(self.now));
            }
        }
        Ok(())
    }

    /// Takes completions from the tiers.
    fn complete(&mut self) {
        let mut is_free = false;
        for at in 0..self.tiers.len() {
            while let Some(waiting) = self.tiers[at].pop(self.now) {
                match waiting {
                    Waiting::Client(client) => self.end_read(client),
                    Waiting::Space(space) => {
                        self.space.releasing = self.space.releasing - space;
                        is_free = true;
                    }
                    Waiting::Nobody => is_free = true,
                }
            }
        }
        if is_free && self.clients.is_waiting() {
            self.retry();
        }
    }

    fn end_read(&mut self, client: usize) {
        let Some(current) = &mut self.clients.current[client] else { return };
        current.reads -= 1;
        if current.reads == 0 {
            let ready = current.ready.max(self.now);
            self.push(ready, Event::Client(client));
        }
    }

    /// Lets the clients continue that waited and for which there is space now, in their order.
    pub(super) fn retry(&mut self) {
        while let Some((client, step, since)) = self.clients.first_waiter() {
            if self.obstacle(step.op).is_some() {
                break;
            }
            self.clients.end_wait(self.now);
            self.begin(client, step, since);
        }
        self.evict();
    }

    /// Ends a client's operation and begins its next one. Returns false if there is none.
    fn advance(&mut self, client: usize) -> bool {
        if let Some(Current { step, began, .. }) = self.clients.current[client].take()
            && self.from.is_some()
        {
            let responses = if is_read(step.op) { &mut self.reads } else { &mut self.writes };
            responses.add(self.now.since(began));
            self.work += u64::from(step.work);
        }
        let Some(step) = self.load.next_step(client) else { return false };
        if self.from.is_none() && self.load.is_warm() {
            self.start_measurement();
        }
        let needs = self.needs(step.op);
        if self.obstacle(step.op).is_some() || needs > Bytes(0) && self.clients.is_waiting() {
            self.clients.wait(client, step, self.now, needs);
        } else {
            self.begin(client, step, self.now);
        }
        self.evict();
        true
    }

    fn start_measurement(&mut self) {
        self.from = Some(self.now);
        let duration = match (self.plan.duration, self.load.duration()) {
            (Some(limit), Some(duration)) => Some(limit.min(duration)),
            (limit, duration) => limit.or(duration),
        };
        self.until = duration.map(|duration| self.now + duration);
        self.space.restart_counts();
        self.tiers.iter_mut().for_each(Tier::restart_counts);
        (self.clients.waits, self.clients.waited) = (0, Nanos(0));
        (self.work, self.transferred, self.hits) = (0, 0, [0; 3]);
    }

    /// Returns the space of the fast tier that an operation takes.
    fn needs(&self, op: FileOp) -> Bytes {
        let space = &self.space;
        match op {
            FileOp::Create(_, len) if space.is_large(len.0) => space.metadata_size(),
            FileOp::Create(_, len) => space.space_of(len.0) + space.metadata_size(),
            FileOp::Append(file, len) if self.tier_of(file).is_none() => {
                let before = space.files.get(&file).map_or(0, |of| of.len);
                space.space_of(before + len.0) - space.space_of(before)
            }
            FileOp::Append(..) | FileOp::Read(_) | FileOp::Stat(_) | FileOp::Remove(_) => Bytes(0),
        }
    }

    /// Returns the space that an operation has to wait for, zero if it waits for a tier to write; `None` if
    /// it can begin.
    pub(super) fn obstacle(&self, op: FileOp) -> Option<Bytes> {
        let needs = self.needs(op);
        let unwritten_max = self.plan.machine.unwritten_max();
        let is_behind = |tier: usize| self.tiers[tier].background() > unwritten_max;
        let waits_for_tier = match op {
            FileOp::Append(file, _) => self.tier_of(file).is_some_and(is_behind),
            FileOp::Create(_, len) if self.space.is_large(len.0) => (0..self.tiers.len()).any(is_behind),
            _ => false,
        };
        let lacks_space = needs > Bytes(0) && !self.space.fits(needs);
        (lacks_space || waits_for_tier).then_some(needs)
    }

    /// Returns the tier to which appends to a file go at once; `None` if they go to the fast tier. Without
    /// NVM they wait in memory.
    pub(super) fn tier_of(&self, file: FileKey) -> Option<usize> {
        let is_fast = matches!(self.plan.fast, FastTier::Memory(_)) || self.space.items.contains(data(file));
        let container = self.space.files.get(&file).and_then(|of| of.container);
        container.filter(|_| !is_fast)
    }

    /// Begins an operation that nothing keeps from it.
    fn begin(&mut self, client: usize, step: FileStep, began: Nanos) {
        let machine = &self.plan.machine;
        let (copied, reads) = match step.op {
            FileOp::Create(file, len) => (len, self.create(file, len)),
            FileOp::Append(file, len) => (len, self.append(file, len)),
            FileOp::Read(file) => self.read(file),
            FileOp::Stat(file) => (Bytes(0), self.access_metadata(file)),
            FileOp::Remove(file) => (Bytes(0), self.remove(file)),
        };
        self.transferred += copied.0;
        let copying = Nanos::from_secs_f64(copied.0 as f64 / machine.copy_rate.0.max(1) as f64);
        let time = machine.operation + copying + step.cpu;
        let ready = self.clients.compute(self.now, time);
        let mut count = 0;
        for (tier, file, only_header) in reads.into_iter().flatten() {
            for piece in self.tiers[tier].bottom.pieces(file, only_header) {
                self.tiers[tier].read(piece, client);
                count += 1;
            }
        }
        self.clients.current[client] = Some(Current { step, began, ready, reads: count });
        if count == 0 {
            self.push(ready, Event::Client(client));
        }
    }

    fn outcome(self) -> FsOutcome {
        let measured = self.now.since(self.from.unwrap_or(self.now));
        let seconds = measured.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut all = ResponseHistogram::new();
        [&self.reads, &self.writes].into_iter().for_each(|responses| all.merge(responses));
        let mut tiers: Vec<_> = self.tiers.iter().map(|tier| tier.outcome(measured)).collect();
        let evicted: u64 = tiers.iter().map(|tier| tier.evicted_bytes).sum();
        for tier in &mut tiers {
            tier.evicted_share = (evicted > 0).then(|| tier.evicted_bytes as f64 / evicted as f64);
        }
        let counts = self.space.counts;
        FsOutcome {
            measured_seconds: seconds,
            work: self.work,
            work_unit: self.load.work_unit(),
            work_per_second: per_second(self.work),
            bytes_per_second: per_second(self.transferred),
            all: all.responses(),
            reads: self.reads.responses(),
            writes: self.writes.responses(),
            hits: HitShares::new(self.hits),
            entered_bytes: counts.entered,
            evicted_bytes: counts.evicted,
            evicted_clean_bytes: counts.evicted_clean,
            removed_bytes: counts.removed,
            resident_bytes_at_first: counts.resident_at_first,
            resident_bytes: self.space.items.bytes().0,
            promoted_bytes: counts.promoted,
            waits: self.clients.waits,
            waited_seconds: self.clients.waited.as_secs_f64(),
            items_max: counts.items_max as u64,
            heap_bytes_max: counts.heap_max as u64,
            tiers,
        }
    }
}
