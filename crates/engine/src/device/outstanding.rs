//! Commands in flight, counted by generation. Closing a generation and waiting for its end waits for every
//! command begun before, without knowing which they are.

use std::collections::VecDeque;

/// The commands in flight. Cost: constant for each begin and end.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    /// The current generation, and the number of its commands in flight.
    newest: u64,
    count: u32,
    /// The counts of the generations before, oldest first. The oldest is never zero.
    older: VecDeque<u32>,
}

impl Outstanding {
    /// Notes that a command begins. The caller passes the generation to [`Self::end`].
    #[inline]
    pub(crate) fn begin(&mut self) -> u64 {
        self.count += 1;
        self.newest
    }

    /// Notes that a command of that generation has ended.
    #[inline]
    pub(crate) fn end(&mut self, generation: u64) {
        if generation == self.newest { self.count -= 1 } else { self.end_older(generation) }
    }

    #[inline(never)]
    fn end_older(&mut self, generation: u64) {
        let first = self.oldest();
        if let Some(count) = self.older.get_mut((generation - first) as usize) {
            *count -= 1;
        }
        while self.older.front() == Some(&0) {
            self.older.pop_front();
        }
    }

    /// Returns the oldest generation in flight.
    fn oldest(&self) -> u64 {
        self.newest - self.older.len() as u64
    }

    /// Closes the current generation. Returns the last generation that must end, or `u64::MAX` if none must.
    pub(crate) fn close(&mut self) -> u64 {
        if self.count == 0 {
            // No command of this generation is in flight: the one before decides (none, if this is the
            // first).
            return self.newest.wrapping_sub(1);
        }
        let last = self.newest;
        self.older.push_back(std::mem::take(&mut self.count));
        self.newest += 1;
        last
    }

    /// Whether any command is in flight.
    pub(crate) fn is_any_in_flight(&self) -> bool {
        self.count > 0 || !self.older.is_empty()
    }

    fn has_ended(&self, generation: u64) -> bool {
        generation == u64::MAX || generation < self.oldest()
    }
}

/// A queue of things, each of which waits until every command begun before it has ended.
#[derive(Debug)]
pub(crate) struct BarrierQueue<T>(VecDeque<(u64, T)>);

impl<T> Default for BarrierQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> BarrierQueue<T> {
    /// Adds a thing that waits for the commands in flight now.
    pub(crate) fn add(&mut self, item: T, commands: &mut Outstanding) {
        self.0.push_back((commands.close(), item));
    }

    /// Returns the next thing whose wait is over.
    pub(crate) fn next(&mut self, commands: &Outstanding) -> Option<T> {
        let (generation, _) = self.0.front()?;
        if commands.has_ended(*generation) { self.0.pop_front().map(|(_, thing)| thing) } else { None }
    }

    /// Takes all things that wait.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.0).into_iter().map(|(_, thing)| thing)
    }

    /// Whether nothing waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
