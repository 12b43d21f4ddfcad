//! Twins of the policies that admit by frequency.

use super::{insertion_result, take};
use crate::admission::{Admission as _, TinyLfu};
use crate::eviction::wtinylfu_libcachesim::Counts;
use crate::eviction::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// A twin that counts with [`TinyLfu`], whose sketch has a twin of its own.
pub(in crate::eviction::tests) struct WTinyLfu {
    capacity: usize,
    window: Vec<Block>,
    probation: Vec<Block>,
    protected: Vec<Block>,
    counts: TinyLfu,
}

impl WTinyLfu {
    pub(in crate::eviction::tests) fn new(size: CacheSize) -> Self {
        let [window, probation, protected] = Default::default();
        Self { capacity: size.capacity as usize, window, probation, protected, counts: TinyLfu::new(size) }
    }
    fn most_window(&self) -> usize {
        (self.capacity / 100).max(1)
    }
    fn most_main(&self) -> usize {
        self.capacity - self.most_window()
    }
}

impl Eviction for WTinyLfu {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        self.counts.block(block);
        if take(&mut self.window, block) {
            self.window.push(block);
        } else if take(&mut self.protected, block) || take(&mut self.probation, block) {
            self.protected.push(block);
            if self.protected.len() > self.most_main() * 4 / 5 {
                self.probation.push(self.protected.remove(0));
            }
        } else {
            return false;
        }
        true
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.window.len() == self.most_window() {
            let oldest = self.window[0];
            if self.probation.len() + self.protected.len() == self.most_main() {
                let main = self.probation.iter().chain(&self.protected).next();
                let loses = main.filter(|main| self.counts.may_replace(oldest, **main));
                leaving = Some(loses.copied().unwrap_or(oldest));
                if !leaving.is_none_or(may_replace) {
                    return Insertion::Refused;
                }
                leaving.map(|leaving| self.remove(leaving));
            }
            if take(&mut self.window, oldest) {
                self.probation.push(oldest);
            }
        }
        self.window.push(block);
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        [&mut self.window, &mut self.probation, &mut self.protected].into_iter().any(|list| take(list, block))
    }
}

/// A twin that counts as the policy does, whose filter has a test of its own.
pub(in crate::eviction::tests) struct WTinyLfuLibCacheSim {
    capacity: usize,
    window: Vec<Block>,
    probation: Vec<Block>,
    protected: Vec<Block>,
    /// A block that is out, but in its position until another block is inserted.
    dropped: Option<Block>,
    counts: Counts,
    hits: usize,
}

impl WTinyLfuLibCacheSim {
    pub(in crate::eviction::tests) fn new(size: CacheSize) -> Self {
        let [window, probation, protected] = Default::default();
        let capacity = size.capacity as usize;
        let counts = Counts::new((capacity - (capacity / 100).max(1)) as u32);
        Self { capacity, window, probation, protected, dropped: None, counts, hits: 0 }
    }
    fn most_main(&self) -> usize {
        self.capacity - (self.capacity / 100).max(1)
    }
    fn main(&self) -> usize {
        self.probation.len() + self.protected.len()
    }
    fn admit(&mut self, block: Block) {
        let is_full = self.probation.len() >= (self.most_main() / 5).max(1);
        let is_room = self.protected.len() < self.most_main() * 4 / 5;
        if is_full && is_room {
            self.protected.push(block);
        } else {
            self.probation.push(block);
        }
        self.counts.add(block);
    }
}

impl Eviction for WTinyLfuLibCacheSim {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        if take(&mut self.window, block) {
            self.window.push(block);
            return true;
        }
        if !take(&mut self.protected, block) {
            if !take(&mut self.probation, block) {
                return false;
            }
            if self.protected.len() == self.most_main() * 4 / 5 {
                let cooled = if self.protected.is_empty() { block } else { self.protected.remove(0) };
                self.probation.push(cooled);
                if cooled != block {
                    self.protected.push(block);
                }
                if self.probation.len() > (self.most_main() / 5).max(1) {
                    self.dropped = Some(self.probation.remove(0));
                }
            } else {
                self.protected.push(block);
            }
        } else {
            self.protected.push(block);
        }
        self.counts.add(block);
        self.hits += 1;
        if self.hits == 32 * self.most_main() {
            self.hits = 0;
            self.counts.halve();
        }
        true
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.window.len() + self.main() + usize::from(self.dropped.is_some()) == self.capacity {
            if let Some(dropped) = self.dropped {
                leaving = Some(dropped);
                if !may_replace(dropped) {
                    return Insertion::Refused;
                }
                self.dropped = None;
            } else {
                while self.main() < self.most_main() && !self.window.is_empty() {
                    let oldest = self.window.remove(0);
                    self.admit(oldest);
                }
                let main = self.probation.iter().chain(&self.protected).next().copied();
                let oldest = self.window.first().copied();
                let loses = oldest
                    .zip(main)
                    .is_some_and(|(oldest, main)| self.counts.of(oldest) > self.counts.of(main));
                leaving = if loses { main } else { oldest.or(main) };
                if !leaving.is_none_or(may_replace) {
                    return Insertion::Refused;
                }
                leaving.map(|leaving| self.remove(leaving));
                match oldest {
                    Some(oldest) if loses => {
                        take(&mut self.window, oldest);
                        self.admit(oldest);
                    }
                    Some(oldest) => self.counts.add(oldest),
                    None => {}
                }
            }
        }
        self.dropped = self.dropped.filter(|dropped| *dropped != block);
        self.window.push(block);
        self.counts.add(block);
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        let was_dropped = self.dropped.take_if(|dropped| *dropped == block).is_some();
        was_dropped
            || [&mut self.window, &mut self.probation, &mut self.protected]
                .into_iter()
                .any(|list| take(list, block))
    }
}
