//! Eviction from the fast tier, distribution over the tiers below, and their commits.

use super::bottom::Piece;
use super::plan::{FastTier, RateSource};
use super::run::{COMMIT, Event, FsRun};
use super::space::data;
use super::tier::Tier;
use weir_model::{Bytes, Nanos};
use weir_policy::distribution::TierLoad;
use weir_policy::eviction::items::{Item, Part};

/// Age at which changes in memory are written back, as Linux does.
const AGE_MAX: Nanos = Nanos::secs(30);

impl FsRun<'_> {
    /// Adds what an application moves to the load of a tier.
    pub(super) fn add_load(&mut self, tier: usize, len: Bytes) {
        let mut loads = self.loads();
        let default_rate = weir_policy::distribution::default_rate(&loads);
        loads[tier].add(len, default_rate);
        self.tiers[tier].load = loads[tier].load;
    }

    fn loads(&mut self) -> Vec<TierLoad> {
        let now = self.now;
        let given = |nth: usize| match &self.plan.rates {
            RateSource::Measured => None,
            RateSource::Given(rates) => rates.get(nth).copied(),
        };
        let load = |(nth, tier): (usize, &mut Tier)| {
            let rate = given(nth).or_else(|| tier.rate(now));
            TierLoad { seeks: tier.seeks, load: tier.load, rate }
        };
        self.tiers.iter_mut().enumerate().map(load).collect()
    }

    /// Distributes items over the tiers, and adds them to their loads.
    pub(super) fn distribute(&mut self, sizes: &[Bytes]) -> Vec<usize> {
        let mut loads = self.loads();
        let targets = self.distribution.distribute(sizes, &mut loads);
        for (tier, load) in self.tiers.iter_mut().zip(loads) {
            tier.load = load.load;
        }
        targets
    }

    /// Evicts down to the low watermark, if the high one is exceeded or clients wait for space.
    pub(super) fn evict(&mut self) {
        let (marks, size) = (self.plan.watermarks, self.space.size);
        let wanted = self.clients.wanted();
        if !marks.starts(self.space.used(), wanted, size) {
            return;
        }
        let excess = marks.excess(self.space.items.bytes(), wanted, size);
        let (mut batch, mut evicted) = (Vec::new(), 0);
        while evicted < excess.0 {
            let Some((item, history)) = self.space.items.evict() else { break };
            evicted += history.size.0;
            batch.push((item, history.size));
        }
        self.write_batch(batch);
        // What was clean is free at once.
        if self.clients.first_waiter().is_some_and(|(_, step, _)| self.obstacle(step.op).is_none()) {
            self.retry();
        }
    }

    /// Writes evicted items to tiers; clean ones are in their containers already. Metadata goes to the
    /// container of its data, which leaves first; so does what memory has besides a container.
    fn write_batch(&mut self, batch: Vec<(Item, Bytes)>) {
        self.space.counts.evicted += batch.iter().map(|(_, size)| size.0).sum::<u64>();
        let mut writes: Vec<Vec<_>> = self.tiers.iter().map(|_| Vec::new()).collect();
        for part in [Part::Data, Part::Metadata] {
            let mut new = Vec::new();
            for (item, size) in batch.iter().copied().filter(|(item, _)| item.part == part) {
                let of = self.space.files.get(&item.file).copied().unwrap_or_default();
                let stays = part == Part::Metadata || matches!(self.plan.fast, FastTier::Memory(_));
                match of.container {
                    Some(_) if part == Part::Data && of.is_clean => {
                        self.space.counts.evicted_clean += size.0;
                    }
                    Some(tier) if stays => writes[tier].push(self.write_to_container(item, size, tier)),
                    _ => new.push((item, size)),
                }
            }
            let sizes: Vec<Bytes> = new.iter().map(|(_, size)| *size).collect();
            let targets = self.distribute(&sizes);
            for ((item, size), target) in new.into_iter().zip(targets) {
                writes[target].push(self.write_new_container(item, size, target));
            }
        }
        let buffered_max = match self.plan.fast {
            FastTier::Nvm(_) if self.plan.machine.evicts_to_memory => self.plan.machine.unwritten_max(),
            _ => Bytes(0),
        };
        for (tier, writes) in self.tiers.iter_mut().zip(writes) {
            let free = tier.evict(writes, buffered_max);
            self.space.releasing = self.space.releasing - free;
        }
    }

    /// Writes an item to a new container on a tier; an old one elsewhere is removed.
    fn write_new_container(&mut self, item: Item, size: Bytes, target: usize) -> (Piece, Bytes) {
        if let Some(of) = self.space.files.get_mut(&item.file)
            && let Some(old) = of.container.replace(target).filter(|old| *old != target)
        {
            self.tiers[old].bottom.remove(item.file);
        }
        self.memory.insert(item, size);
        self.space.releasing += size;
        (self.tiers[target].bottom.rewrite(item.file, size), size)
    }

    /// Writes an item to the container that its file has: metadata to its first block, data to its end.
    fn write_to_container(&mut self, item: Item, size: Bytes, tier: usize) -> (Piece, Bytes) {
        self.add_load(tier, size);
        self.space.releasing += size;
        let len = self.space.files.get(&item.file).map_or(size, |of| Bytes(of.len));
        self.memory.insert(item, if item.part == Part::Data { len } else { size });
        let bottom = &mut self.tiers[tier].bottom;
        let header = bottom.pieces(item.file, true).first().copied();
        match header.filter(|_| item.part == Part::Metadata) {
            Some(header) => {
                bottom.change_header(item.file);
                (header, size)
            }
            None => (bottom.write(item.file, size), size),
        }
    }

    /// Commits the tiers' file systems, and writes back what is old.
    pub(super) fn commit(&mut self) {
        let mut old = Vec::new();
        while let Some((_, file)) =
            self.ages.front().copied().filter(|(since, _)| self.now.since(*since) >= AGE_MAX)
        {
            self.ages.pop_front();
            old.extend(self.space.items.remove(data(file)).map(|size| (data(file), size)));
        }
        self.write_batch(old);
        for tier in &mut self.tiers {
            let (reads, writes) = tier.bottom.commit();
            reads.into_iter().for_each(|piece| tier.read_in_background(piece));
            tier.write_in_background(writes);
        }
        self.push(self.now + COMMIT, Event::Commit);
    }
}
