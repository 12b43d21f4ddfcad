//! The rules as published, with vectors that have the oldest first and are searched linearly.

mod frequency;

pub(super) use frequency::{WTinyLfu, WTinyLfuLibCacheSim};

use crate::eviction::{AccessKind, Block, CacheSize, Eviction, Insertion};

/// Removes a block from a queue. Returns whether it was there.
pub(super) fn take(queue: &mut Vec<Block>, block: Block) -> bool {
    let at = queue.iter().position(|other| *other == block);
    at.map(|at| queue.remove(at)).is_some()
}

fn insertion_result(leaving: Option<Block>) -> Insertion {
    leaving.map_or(Insertion::Added, Insertion::Replaced)
}

/// Defines a policy with one queue, whose oldest leaves; a hit makes a block the newest if `renews` returns
/// true.
macro_rules! queue {
    ($name:ident, $renews:expr) => {
        pub(super) struct $name(usize, Vec<Block>);
        impl $name {
            pub(super) fn new(size: CacheSize) -> Self {
                Self(size.capacity as usize, Vec::new())
            }
        }
        impl Eviction for $name {
            fn hit(&mut self, block: Block, used: AccessKind) -> bool {
                let renews: fn(AccessKind) -> bool = $renews;
                let is_in = self.1.contains(&block);
                if is_in && renews(used) {
                    take(&mut self.1, block);
                    self.1.push(block);
                }
                is_in
            }
            fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
                let leaving = (self.1.len() == self.0).then(|| self.1[0]);
                if !leaving.is_none_or(may_replace) {
                    return Insertion::Refused;
                }
                self.1.drain(..usize::from(leaving.is_some()));
                self.1.push(block);
                insertion_result(leaving)
            }
            fn remove(&mut self, block: Block) -> bool {
                take(&mut self.1, block)
            }
        }
    };
}

queue!(Fifo, |_| false);
queue!(Lru, |_| true);
queue!(Lrw, |used| used == AccessKind::Write);

pub(super) struct Clock(usize, Vec<(Block, bool)>);

impl Clock {
    pub(super) fn new(size: CacheSize) -> Self {
        Self(size.capacity as usize, Vec::new())
    }
}

impl Eviction for Clock {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let entry = self.1.iter_mut().find(|entry| entry.0 == block);
        entry.map(|entry| entry.1 = true).is_some()
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.1.len() == self.0 {
            while self.1[0].1 {
                let (used, _) = self.1.remove(0);
                self.1.push((used, false));
            }
            leaving = Some(self.1[0].0);
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            self.1.remove(0);
        }
        self.1.push((block, false));
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        let before = self.1.len();
        self.1.retain(|entry| entry.0 != block);
        self.1.len() < before
    }
}

pub(super) struct Sieve {
    capacity: usize,
    queue: Vec<(Block, bool)>,
    hand: usize,
}

impl Sieve {
    pub(super) fn new(size: CacheSize) -> Self {
        Self { capacity: size.capacity as usize, queue: Vec::new(), hand: 0 }
    }
}

impl Eviction for Sieve {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let entry = self.queue.iter_mut().find(|entry| entry.0 == block);
        entry.map(|entry| entry.1 = true).is_some()
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.queue.len() == self.capacity {
            while self.queue[self.hand].1 {
                self.queue[self.hand].1 = false;
                self.hand = (self.hand + 1) % self.capacity;
            }
            leaving = Some(self.queue[self.hand].0);
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            self.remove(self.queue[self.hand].0);
        }
        self.queue.push((block, false));
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        let Some(at) = self.queue.iter().position(|entry| entry.0 == block) else { return false };
        self.queue.remove(at);
        if at < self.hand {
            self.hand -= 1;
        }
        if self.hand == self.queue.len() {
            self.hand = 0;
        }
        true
    }
}

pub(super) struct Lfu {
    capacity: usize,
    /// The block, its frequency, and the time at which it got that.
    entries: Vec<(Block, u32, u32)>,
    now: u32,
}

impl Lfu {
    pub(super) fn new(size: CacheSize) -> Self {
        Self { capacity: size.capacity as usize, entries: Vec::new(), now: 0 }
    }
}

impl Eviction for Lfu {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        self.now += 1;
        let now = self.now;
        let entry = self.entries.iter_mut().find(|entry| entry.0 == block);
        entry.map(|entry| (entry.1, entry.2) = (entry.1 + 1, now)).is_some()
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        self.now += 1;
        let mut leaving = None;
        if self.entries.len() == self.capacity {
            leaving = self.entries.iter().min_by_key(|entry| (entry.1, entry.2)).map(|entry| entry.0);
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            self.entries.retain(|entry| Some(entry.0) != leaving);
        }
        self.entries.push((block, 1, self.now));
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.0 != block);
        self.entries.len() < before
    }
}

pub(super) struct Slru {
    capacity: usize,
    segments: [Vec<Block>; 4],
}

impl Slru {
    pub(super) fn new(size: CacheSize) -> Self {
        Self { capacity: size.capacity as usize, segments: Default::default() }
    }
    fn most(&self, segment: usize) -> usize {
        let quarter = self.capacity / 4;
        if segment == 0 { self.capacity - 3 * quarter } else { quarter }
    }
}

impl Eviction for Slru {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let Some(mut at) = self.segments.iter().position(|segment| segment.contains(&block)) else {
            return false;
        };
        take(&mut self.segments[at], block);
        at = (at + 1).min(3);
        self.segments[at].push(block);
        while self.segments[at].len() > self.most(at) && at > 0 {
            let cooled = self.segments[at].remove(0);
            at -= 1;
            self.segments[at].push(cooled);
        }
        true
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.segments.iter().map(Vec::len).sum::<usize>() == self.capacity {
            leaving = self.segments.iter().flatten().next().copied();
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            leaving.map(|leaving| self.remove(leaving));
        }
        let at = (0..4).find(|at| self.segments[*at].len() < self.most(*at)).unwrap_or(0);
        self.segments[at].push(block);
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        self.segments.iter_mut().any(|segment| take(segment, block))
    }
}

/// Adds a block at the new end of the remembered ones, at most `most`.
fn remember(ghosts: &mut Vec<Block>, most: usize, block: Block) {
    ghosts.push(block);
    if ghosts.len() > most {
        ghosts.remove(0);
    }
}

pub(super) struct TwoQ {
    capacity: usize,
    a1in: Vec<Block>,
    a1out: Vec<Block>,
    am: Vec<Block>,
}

impl TwoQ {
    pub(super) fn new(size: CacheSize) -> Self {
        let capacity = size.capacity as usize;
        Self { capacity, a1in: Vec::new(), a1out: Vec::new(), am: Vec::new() }
    }
}

impl Eviction for TwoQ {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        if take(&mut self.am, block) {
            self.am.push(block);
            return true;
        }
        self.a1in.contains(&block)
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let remembered = self.a1out.contains(&block);
        let mut leaving = None;
        if self.a1in.len() + self.am.len() == self.capacity {
            let from_in = self.a1in.len() > self.capacity / 4 || self.am.is_empty();
            leaving = Some(if from_in { self.a1in[0] } else { self.am[0] });
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            take(&mut self.a1out, block);
            if from_in {
                let gone = self.a1in.remove(0);
                remember(&mut self.a1out, self.capacity / 2, gone);
            } else {
                self.am.remove(0);
            }
        }
        take(&mut self.a1out, block);
        if remembered {
            self.am.push(block);
        } else {
            self.a1in.push(block);
        }
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        take(&mut self.a1in, block) || take(&mut self.am, block)
    }
}

pub(super) struct Arc {
    capacity: usize,
    p: f64,
    t1: Vec<Block>,
    t2: Vec<Block>,
    b1: Vec<Block>,
    b2: Vec<Block>,
}

impl Arc {
    pub(super) fn new(size: CacheSize) -> Self {
        let [t1, t2, b1, b2] = Default::default();
        Self { capacity: size.capacity as usize, p: 0.0, t1, t2, b1, b2 }
    }
}

impl Eviction for Arc {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let is_in = take(&mut self.t1, block) || take(&mut self.t2, block);
        if is_in {
            self.t2.push(block);
        }
        is_in
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let (in_b1, in_b2) = (self.b1.contains(&block), self.b2.contains(&block));
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let before = self.p;
        if in_b1 {
            self.p = (self.p + f64::max(b2 / b1, 1.0)).min(self.capacity as f64);
        }
        if in_b2 {
            self.p = (self.p - f64::max(b1 / b2, 1.0)).max(0.0);
        }
        let is_new = !in_b1 && !in_b2;
        let mut leaving = None;
        if self.t1.len() + self.t2.len() == self.capacity {
            // A miss that is not remembered, while T1 has all the space: its oldest is not remembered either.
            let for_good = is_new && self.t1.len() == self.capacity;
            let t1 = self.t1.len() as f64;
            let from_t1 =
                for_good || (t1 > 0.0 && (t1 > self.p || (t1 == self.p && in_b2))) || self.t2.is_empty();
            leaving = Some(if from_t1 { self.t1[0] } else { self.t2[0] });
            if !leaving.is_none_or(may_replace) {
                self.p = before;
                return Insertion::Refused;
            }
            if is_new && !for_good {
                if self.t1.len() + self.b1.len() >= self.capacity {
                    self.b1.remove(0);
                } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() >= 2 * self.capacity {
                    self.b2.remove(0);
                }
            }
            if for_good {
                self.t1.remove(0);
            } else if from_t1 {
                self.b1.push(self.t1.remove(0));
            } else {
                self.b2.push(self.t2.remove(0));
            }
        }
        take(&mut self.b1, block);
        take(&mut self.b2, block);
        if is_new {
            self.t1.push(block);
        } else {
            self.t2.push(block);
        }
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        take(&mut self.t1, block) || take(&mut self.t2, block)
    }
}

pub(super) struct S3Fifo {
    capacity: usize,
    small: Vec<(Block, u32)>,
    main: Vec<(Block, u32)>,
    ghost: Vec<Block>,
}

impl S3Fifo {
    pub(super) fn new(size: CacheSize) -> Self {
        let (small, main, ghost) = Default::default();
        Self { capacity: size.capacity as usize, small, main, ghost }
    }
    fn candidate(&mut self) -> Block {
        let most_main = self.capacity - self.capacity / 10;
        if self.main.len() <= most_main {
            while let Some(&(oldest, count)) = self.small.first() {
                if count < 2 {
                    return oldest;
                }
                self.small.remove(0);
                self.main.push((oldest, 0));
            }
        }
        loop {
            let (oldest, count) = self.main[0];
            if count == 0 {
                return oldest;
            }
            self.main.remove(0);
            self.main.push((oldest, count.min(3) - 1));
        }
    }
}

impl Eviction for S3Fifo {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let entry = self.small.iter_mut().chain(&mut self.main).find(|entry| entry.0 == block);
        entry.map(|entry| entry.1 += 1).is_some()
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let remembered = self.ghost.contains(&block);
        let mut leaving = None;
        if self.small.len() + self.main.len() == self.capacity {
            let candidate = self.candidate();
            leaving = Some(candidate);
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            take(&mut self.ghost, block);
            if self.small.iter().any(|entry| entry.0 == candidate) {
                remember(&mut self.ghost, self.capacity * 9 / 10, candidate);
            }
            self.remove(candidate);
        }
        take(&mut self.ghost, block);
        if remembered {
            self.main.push((block, 0));
        } else {
            self.small.push((block, 0));
        }
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        let before = self.small.len() + self.main.len();
        self.small.retain(|entry| entry.0 != block);
        self.main.retain(|entry| entry.0 != block);
        self.small.len() + self.main.len() < before
    }
}

/// The stack has the blocks that are LIR, in the queue, or remembered.
pub(super) struct Lirs {
    capacity: usize,
    most_lir: usize,
    stack: Vec<Block>,
    lir: Vec<Block>,
    queue: Vec<Block>,
    left: Vec<Block>,
}

impl Lirs {
    pub(super) fn new(size: CacheSize) -> Self {
        let capacity = size.capacity as usize;
        let [stack, lir, queue, left] = Default::default();
        Self { capacity, most_lir: capacity - (capacity / 100).max(1), stack, lir, queue, left }
    }
    /// Makes the bottom LIR, and keeps remembered blocks only in the stack.
    fn prune(&mut self) {
        while self.stack.first().is_some_and(|bottom| !self.lir.contains(bottom)) {
            self.stack.remove(0);
        }
        while self.stack.len() > 2 * self.capacity && self.left.iter().any(|block| self.stack.contains(block))
        {
            let first = self.left.remove(0);
            take(&mut self.stack, first);
        }
        let Self { stack, left, .. } = self;
        left.retain(|block| stack.contains(block));
    }
    fn make_lir(&mut self, block: Block) {
        self.lir.push(block);
        self.prune();
        if self.lir.len() > self.most_lir {
            let bottom = self.stack.remove(0);
            take(&mut self.lir, bottom);
            self.queue.push(bottom);
        }
    }
    fn move_to_top(&mut self, block: Block) -> bool {
        let was_in = take(&mut self.stack, block);
        self.stack.push(block);
        was_in
    }
}

impl Eviction for Lirs {
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let is_in_queue = self.queue.contains(&block);
        if !self.lir.contains(&block) && !is_in_queue {
            return false;
        }
        let was_in_stack = self.move_to_top(block);
        if is_in_queue {
            take(&mut self.queue, block);
            if was_in_stack {
                self.make_lir(block);
            } else {
                self.queue.push(block);
            }
        }
        if !is_in_queue || was_in_stack || self.stack.len() > 2 * self.capacity {
            self.prune();
        }
        true
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let is_full = self.lir.len() + self.queue.len() == self.capacity;
        let leaving = if is_full { self.queue.first().copied() } else { None };
        if !leaving.is_none_or(may_replace) {
            return Insertion::Refused;
        }
        if let Some(leaving) = leaving {
            take(&mut self.queue, leaving);
            if self.stack.contains(&leaving) {
                self.left.push(leaving);
            }
        }
        let remembered = take(&mut self.left, block);
        self.move_to_top(block);
        if remembered || self.lir.len() < self.most_lir {
            self.make_lir(block);
            self.prune();
        } else {
            self.queue.push(block);
            if self.stack.len() > 2 * self.capacity {
                self.prune();
            }
        }
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        let was_lir = take(&mut self.lir, block);
        let was_in = take(&mut self.queue, block) || was_lir;
        if was_in && take(&mut self.stack, block) {
            self.prune();
        }
        was_in
    }
}

pub(super) struct Belady<'t> {
    capacity: usize,
    accesses: &'t [Block],
    now: usize,
    /// The blocks in the order of their last uses.
    queue: Vec<Block>,
}

impl<'t> Belady<'t> {
    pub(super) fn new(size: CacheSize, accesses: &'t [Block]) -> Self {
        Self { capacity: size.capacity as usize, accesses, now: 0, queue: Vec::new() }
    }
    /// Returns the distance to the next use of a block, from the access before the present one; the present
    /// one does not count.
    fn next_use_distance(&self, block: Block) -> usize {
        let later = self.accesses.iter().skip(self.now + 1).position(|other| *other == block);
        later.unwrap_or(usize::MAX)
    }
}

impl Eviction for Belady<'_> {
    fn advance_to(&mut self, access: u32) {
        self.now = access as usize;
    }
    fn hit(&mut self, block: Block, _: AccessKind) -> bool {
        let is_in = take(&mut self.queue, block);
        if is_in {
            self.queue.push(block);
        }
        is_in
    }
    fn insert(&mut self, block: Block, may_replace: impl FnOnce(Block) -> bool) -> Insertion {
        let mut leaving = None;
        if self.queue.len() == self.capacity {
            leaving = self.queue.iter().copied().max_by_key(|block| self.next_use_distance(*block));
            if !leaving.is_none_or(may_replace) {
                return Insertion::Refused;
            }
            leaving.map(|leaving| take(&mut self.queue, leaving));
        }
        self.queue.push(block);
        insertion_result(leaving)
    }
    fn remove(&mut self, block: Block) -> bool {
        take(&mut self.queue, block)
    }
}
