//! Queues of segments, one per bucket, in which a segment is in at most one. All operations take constant
//! time. Eight bytes per segment and per bucket.

use super::Segment;

#[derive(Clone, Copy, Debug)]
struct Link {
    previous: u32,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Buckets {
    /// Circular lists: the segments, then the head of each bucket.
    links: Vec<Link>,
    /// Index of the first bucket's head.
    heads: u32,
    /// Lower bound of the buckets in use.
    lowest: u32,
}

impl Buckets {
    pub(super) fn new(segments: u32, buckets: u32) -> Self {
        let links = (0..segments + buckets).map(|at| Link { previous: at, next: at }).collect();
        Self { links, heads: segments, lowest: buckets }
    }

    /// Appends a segment, which is in no bucket.
    #[inline]
    pub(super) fn push(&mut self, bucket: u32, segment: Segment) {
        let head = self.heads + bucket;
        let last = self.links[head as usize].previous;
        self.links[segment.0 as usize] = Link { previous: last, next: head };
        self.links[last as usize].next = segment.0;
        self.links[head as usize].previous = segment.0;
        self.lowest = self.lowest.min(bucket);
    }

    /// Removes a segment from its bucket.
    #[inline]
    pub(super) fn remove(&mut self, segment: Segment) {
        let Link { previous, next } = self.links[segment.0 as usize];
        self.links[previous as usize].next = next;
        self.links[next as usize].previous = previous;
    }

    /// Returns the first segment of a bucket.
    pub(super) fn first(&self, bucket: u32) -> Option<Segment> {
        let first = self.links[(self.heads + bucket) as usize].next;
        (first < self.heads).then_some(Segment(first))
    }

    /// Returns the lowest bucket in use; amortised constant time, because only [`push`](Self::push) lowers
    /// it.
    pub(super) fn lowest(&mut self) -> Option<u32> {
        while self.heads + self.lowest < self.links.len() as u32 {
            if self.first(self.lowest).is_some() {
                return Some(self.lowest);
            }
            self.lowest += 1;
        }
        None
    }
}
