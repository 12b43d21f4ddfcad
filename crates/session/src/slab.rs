//! A bounded table of entries with small, reused numbers; the numbers travel in request ids.

/// A bounded table. The number freed last is reused first; memory grows with use up to the bound.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u16>,
    capacity: u16,
}

impl<T> Slab<T> {
    /// Creates a table of at most `most` entries.
    pub(crate) fn new(capacity: u16) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), capacity }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= usize::from(self.capacity)
    }

    /// Returns the number that the next entry will get.
    pub(crate) fn next(&self) -> u16 {
        self.free.last().copied().unwrap_or(self.slots.len() as u16)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Inserts an entry and returns its number; returns the entry itself if the table is full.
    #[inline]
    pub(crate) fn insert(&mut self, thing: T) -> Result<u16, T> {
        if let Some(index) = self.free.pop() {
            self.slots[usize::from(index)] = Some(thing);
            return Ok(index);
        }
        if self.slots.len() >= usize::from(self.capacity) {
            return Err(thing);
        }
        self.slots.push(Some(thing));
        Ok(self.slots.len() as u16 - 1)
    }

    #[inline]
    pub(crate) fn get(&self, index: u16) -> Option<&T> {
        self.slots.get(usize::from(index))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u16) -> Option<&mut T> {
        self.slots.get_mut(usize::from(index))?.as_mut()
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u16) -> Option<T> {
        let thing = self.slots.get_mut(usize::from(index))?.take()?;
        self.free.push(index);
        Some(thing)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.as_ref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(index, slot)| Some((index, slot.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_bounded() {
        let mut slab = Slab::new(2);
        assert_eq!((slab.insert('a'), slab.insert('b'), slab.insert('c')), (Ok(0), Ok(1), Err('c')));
        assert_eq!((slab.remove(0), slab.remove(0)), (Some('a'), None));
        assert_eq!((slab.len(), slab.is_full()), (1, false));
        assert_eq!(slab.insert('d'), Ok(0));
        assert_eq!((slab.get(0), slab.get(7)), (Some(&'d'), None));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &'d'), (1, &'b')]);
    }
}
