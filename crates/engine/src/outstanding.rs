//! Commands in flight, counted by generation: closing a generation and waiting for its end waits for
//! every command begun before, without knowing which they are.

use std::collections::VecDeque;

/// Commands in flight. Cost: constant for each that begins or ends.
#[derive(Debug)]
pub(crate) struct Outstanding {
    first: u64,
    counts: VecDeque<u32>,
}

impl Default for Outstanding {
    fn default() -> Self {
        Self { first: 0, counts: VecDeque::from([0]) }
    }
}

impl Outstanding {
    /// One begins; the generation goes to [`Self::end`].
    #[inline]
    pub(crate) fn begin(&mut self) -> u64 {
        if let Some(count) = self.counts.back_mut() {
            *count += 1;
        }
        self.first + self.counts.len() as u64 - 1
    }

    /// One of that generation has ended.
    #[inline]
    pub(crate) fn end(&mut self, generation: u64) {
        if let Some(count) = self.counts.get_mut((generation - self.first) as usize) {
            *count -= 1;
        }
        while self.counts.len() > 1 && self.counts[0] == 0 {
            self.counts.pop_front();
            self.first += 1;
        }
    }

    /// Ends the present generation; the number of the last one that must end, `u64::MAX` if none must.
    pub(crate) fn close(&mut self) -> u64 {
        let last = self.first + self.counts.len() as u64 - 1;
        if self.counts.back() == Some(&0) {
            // Nothing was begun in it: the one before decides (none, if this is the first).
            return last.wrapping_sub(1);
        }
        self.counts.push_back(0);
        last
    }

    /// Whether any is in flight.
    pub(crate) fn any(&self) -> bool {
        self.counts.len() > 1 || self.counts[0] > 0
    }

    fn has_ended(&self, generation: u64) -> bool {
        generation == u64::MAX || generation < self.first
    }
}

/// Things that wait until every command begun before them has ended, in order.
#[derive(Debug)]
pub(crate) struct Behind<T>(VecDeque<(u64, T)>);

impl<T> Default for Behind<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Behind<T> {
    /// One more, behind the commands in flight now.
    pub(crate) fn add(&mut self, thing: T, commands: &mut Outstanding) {
        self.0.push_back((commands.close(), thing));
    }

    /// The next that waits no more.
    pub(crate) fn next(&mut self, commands: &Outstanding) -> Option<T> {
        let (generation, _) = self.0.front()?;
        if commands.has_ended(*generation) { self.0.pop_front().map(|(_, thing)| thing) } else { None }
    }

    /// All that wait.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.0).into_iter().map(|(_, thing)| thing)
    }

    /// Whether none waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
