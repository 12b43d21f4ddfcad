//! Filling a log without writing it.

use super::{AddressMap, AppendPoint, Log, LogError, Preference, Reclaim};

impl<M: AddressMap, R: Reclaim> Log<M, R> {
    /// Adds a closed segment in which the given addresses are valid and all other pages are invalid, as if
    /// they had been overwritten since. Segments closed later count as younger. Neither counters nor clock
    /// change, and no command is given: use it to begin a simulation near its steady state.
    ///
    /// # Errors
    /// Fails if an address is present already or out of range, if they do not fit into a segment or the log,
    /// or if the segment would be one of those that cleaning keeps.
    pub fn preload(&mut self, addresses: &[u64]) -> Result<(), LogError> {
        let count = addresses.len() as u64;
        if count > u64::from(self.data_pages)
            || self.config.limit.is_some_and(|limit| self.valid + count > limit)
        {
            return Err(LogError::Full { limit: self.config.limit.unwrap_or(u64::MAX) });
        }
        let is_wrong = |address: &&u64| **address >= self.map.addresses() || self.exists(**address);
        if let Some(&address) = addresses.iter().find(is_wrong) {
            return Err(LogError::Address { address, addresses: self.map.addresses() });
        }
        if self.free.len() <= self.config.thresholds.start + u32::from(self.config.append_points) {
            return Err(LogError::Full { limit: self.valid });
        }
        let target = self.points.len() - 1;
        self.take_free(target, Preference::LeastWorn).ok_or_else(|| self.stuck(0))?;
        for &address in addresses {
            let raw = self.append(target, address);
            match self.map.insert(address, raw) {
                Some(old) => self.invalidate(old),
                None => self.valid += 1,
            }
        }
        let AppendPoint { segment, next } = &mut self.points[target];
        *next = self.data_pages;
        let segment = *segment;
        self.mark_closed(segment);
        Ok(())
    }
}
