//! The requests of a trace.

use std::ops::Range;
use weir_model::Nanos;
use weir_policy::eviction::AccessKind;

const NANOS_PER_MS: u64 = 1_000_000;

/// A read or write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The index after its last access.
    end: u32,
    used: AccessKind,
    edges: Edges,
    at_ms: u32,
}

/// The bytes of a request's blocks that are not in it: those before it in its first block, and those after it
/// in its last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edges {
    pub(super) leading: u32,
    pub(super) trailing: u32,
}

impl Request {
    /// Creates a request whose last access precedes the index `end`. Its time is kept in milliseconds, at
    /// most seven weeks.
    pub(super) fn new(end: u32, used: AccessKind, edges: Edges, at: Nanos) -> Self {
        Self { end, used, edges, at_ms: u32::try_from(at.0 / NANOS_PER_MS).unwrap_or(u32::MAX) }
    }

    #[inline]
    pub(crate) fn used(self) -> AccessKind {
        self.used
    }

    /// Returns its time since the start of the trace.
    #[inline]
    pub(crate) fn at(self) -> Nanos {
        Nanos::millis(self.at_ms.into())
    }

    /// Returns the bytes of its first block that are not part of the request.
    #[inline]
    pub(crate) fn leading_bytes(self) -> u64 {
        u64::from(self.edges.leading)
    }

    /// Returns the bytes of its last block that are not part of the request.
    #[inline]
    pub(crate) fn trailing_bytes(self) -> u64 {
        u64::from(self.edges.trailing)
    }

    #[inline]
    pub(crate) fn end(self) -> usize {
        self.end as usize
    }
}

/// All requests of a trace, in order. Memory: 4 bytes and a bit for each; another 4 if their times differ,
/// and 8 if their [`Edges`] do.
#[derive(Debug, Default)]
pub(super) struct RequestStore {
    ends: Vec<u32>,
    /// Whether each is a write, 64 in a word.
    writes: Vec<u64>,
    times_ms: Column<u32>,
    edges: Column<Edges>,
}

impl RequestStore {
    pub(super) fn push(&mut self, request: Request) {
        let index = self.ends.len();
        if index.is_multiple_of(64) {
            self.writes.push(0);
        }
        self.writes[index / 64] |= u64::from(request.used == AccessKind::Write) << (index % 64);
        self.times_ms.push(index, request.at_ms);
        self.edges.push(index, request.edges);
        self.ends.push(request.end);
    }

    /// Returns the number of requests.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the requests with these indices.
    pub(super) fn range(&self, indices: Range<usize>) -> Requests<'_> {
        Requests { store: self, indices }
    }

    #[inline]
    fn get(&self, index: usize) -> Request {
        let is_write = self.writes[index / 64] >> (index % 64) & 1 != 0;
        Request {
            end: self.ends[index],
            used: if is_write { AccessKind::Write } else { AccessKind::Read },
            edges: self.edges.get(index),
            at_ms: self.times_ms.get(index),
        }
    }
}

/// Values by index. As long as all equal the first, only that is stored.
#[derive(Debug, Default)]
struct Column<T> {
    first: T,
    /// All up to the last one that differs from the first.
    values: Vec<T>,
}

impl<T: Copy + PartialEq> Column<T> {
    /// Adds the value of the next index.
    fn push(&mut self, index: usize, value: T) {
        if index == 0 {
            self.first = value;
        } else if value != self.first {
            self.values.resize(index, self.first);
            self.values.push(value);
        }
    }

    #[inline]
    fn get(&self, index: usize) -> T {
        self.values.get(index).copied().unwrap_or(self.first)
    }
}

/// Some successive requests.
#[derive(Clone, Debug)]
pub(crate) struct Requests<'t> {
    store: &'t RequestStore,
    indices: Range<usize>,
}

impl<'t> Requests<'t> {
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Returns the first requests, at most `count`, and the others.
    pub(crate) fn split_at(&self, count: usize) -> (Self, Self) {
        let Range { start, end } = self.indices;
        let middle = start + count.min(self.len());
        (self.store.range(start..middle), self.store.range(middle..end))
    }

    /// Returns them in pieces of this many.
    pub(super) fn pieces(self, count: usize) -> impl Iterator<Item = Self> {
        let Range { start, end } = self.indices;
        (start..end).step_by(count).map(move |first| self.store.range(first..end.min(first + count)))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Request> + use<'t> {
        let store = self.store;
        self.indices.clone().map(|index| store.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request() -> impl Strategy<Value = Request> {
        let edges = prop_oneof![9 => Just([0, 7]), 1 => any::<[u32; 2]>()];
        let times = prop_oneof![9 => Just(0), 1 => any::<u64>()];
        (any::<u32>(), any::<bool>(), edges, times).prop_map(|(end, is_write, [leading, trailing], at)| {
            let used = if is_write { AccessKind::Write } else { AccessKind::Read };
            Request::new(end, used, Edges { leading, trailing }, Nanos(at))
        })
    }

    proptest! {
        #[test]
        fn requests_are_returned_as_they_were_added(
            all in prop::collection::vec(request(), 0..300),
            (split, piece) in (0_usize..300, 1_usize..100),
        ) {
            let mut store = RequestStore::default();
            all.iter().for_each(|request| store.push(*request));
            prop_assert_eq!(store.len(), all.len());
            let (before, after) = store.range(0..all.len()).split_at(split);
            prop_assert_eq!(before.len(), split.min(all.len()));
            prop_assert!(before.iter().chain(after.iter()).eq(all.iter().copied()));
            let listed = |piece: Requests<'_>| piece.iter().collect::<Vec<_>>();
            let pieces: Vec<_> = after.clone().pieces(piece).map(listed).collect();
            let expected: Vec<_> = all[split.min(all.len())..].chunks(piece).map(<[_]>::to_vec).collect();
            prop_assert_eq!(pieces, expected);
            prop_assert_eq!(after.is_empty(), all.len() <= split);
        }
    }

    #[test]
    fn values_that_are_always_the_same_take_no_memory() {
        let mut store = RequestStore::default();
        let edges = Edges { leading: 0, trailing: 4095 };
        let request = |end| Request::new(end, AccessKind::Read, edges, Nanos(0));
        (1..=100).for_each(|end| store.push(request(end)));
        assert!(store.times_ms.values.is_empty() && store.edges.values.is_empty());
        store.push(Request::new(
            101,
            AccessKind::Write,
            Edges { leading: 512, trailing: 0 },
            Nanos::millis(3),
        ));
        assert_eq!(
            (store.times_ms.values.len(), store.edges.values.len(), store.writes.len()),
            (101, 101, 2)
        );
        assert_eq!((store.get(99), store.get(100).leading_bytes()), (request(100), 512));
        assert_eq!(store.get(100).at(), Nanos::millis(3));
    }
}
