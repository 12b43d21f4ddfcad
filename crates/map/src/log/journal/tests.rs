//! Frames wrap around the ring; torn tails end replay, and damage before them is detected.

use super::*;
use crate::format::value::Word;
use proptest::prelude::*;
use weir_model::{ExtentIndex, ExtentKey, Planted, VolumeId};

const POOL: PoolId = PoolId([5; 16]);
const FIRST: JournalPosition =
    JournalPosition { journal: 3, offset: 0, sequence: 1, chain: 0, incarnation: 2 };

fn delta(n: u64) -> Delta {
    let key = ExtentKey { volume: VolumeId(1), index: ExtentIndex(n) };
    Delta::Entry { key, word: Word::Empty }
}

/// A ring with frames and roots.
struct Filled {
    ring: Vec<u8>,
    journal: Journal,
    /// The positions of the older and the newest root.
    roots: [JournalPosition; 2],
    /// All frames, also those overwritten since.
    frames: Vec<Vec<Delta>>,
}

impl Filled {
    fn since(&self, root: JournalPosition) -> &[Vec<Delta>] {
        &self.frames[(root.sequence - FIRST.sequence) as usize..]
    }
}

/// Writes frames of the given delta counts into a ring, with a root whenever it is full.
fn filled(counts: &[usize], ring_pages: usize) -> Filled {
    let mut ring = vec![0; ring_pages * PAGE];
    let mut journal = Journal::new(POOL, Bytes(ring.len() as u64), FIRST, Planted::for_tests());
    let (mut builder, mut out) = (FrameBuilder::new(FRAME_MAX), Vec::new());
    let (mut frames, mut roots, mut n) = (Vec::new(), [journal.position(); 2], 0);
    for &count in counts {
        let deltas: Vec<_> = (0..count as u64).map(|i| delta(n + i)).collect();
        n += count as u64;
        assert!(builder.add(&deltas, 32));
        while !journal.has_space(builder.stored_len()) {
            journal.mark_root_durable(journal.head());
            roots = [roots[1], journal.position()];
        }
        let offset = journal.append(&mut builder, &mut out) as usize;
        ring[offset..offset + out.len()].copy_from_slice(&out);
        journal.mark_all_durable();
        frames.push(deltas);
    }
    Filled { ring, journal, roots, frames }
}

fn replayed(ring: &[u8], from: JournalPosition) -> (Vec<Vec<Delta>>, JournalPosition, ReplayEnd) {
    let mut found = Vec::new();
    let (at, end) = replay(&[ring.to_vec()], from, POOL, 32, Planted::for_tests(), |f| found.push(f.deltas));
    (found, at, end)
}

proptest! {
    #[test]
    fn frames_since_either_root_are_replayed(
        counts in prop::collection::vec(1usize..1500, 1..80),
        ring_pages in 20usize..60,
    ) {
        let filled = filled(&counts, ring_pages);
        for root in filled.roots {
            let (found, at, end) = replayed(&filled.ring, root);
            prop_assert_eq!(&found, filled.since(root));
            prop_assert_eq!((at, end), (filled.journal.position(), ReplayEnd::Tail));
        }
    }

    #[test]
    fn damaged_frame_is_distinguished_from_torn_tail(
        counts in prop::collection::vec(1usize..400, 3..20),
        victim in any::<prop::sample::Index>(),
        bit in any::<prop::sample::Index>(),
    ) {
        let Filled { mut ring, roots: [_, from], frames: since, .. } = filled(&counts, 200);
        let victim = victim.index(since.len());
        let mut at = from.offset as usize;
        for _ in 0..victim {
            at += Frame::decode(&ring[at..], POOL, 32).unwrap().stored as usize;
        }
        let stored = Frame::decode(&ring[at..], POOL, 32).unwrap().stored as usize;
        // The damage is in the frame's bytes, not in the padding after them.
        let length = u32::from_le_bytes(std::array::from_fn(|i| ring[at + 48 + i])) as usize;
        let bit = bit.index(length * 8);
        ring[at + bit / 8] ^= 1 << (bit % 8);
        let (found, stopped, end) = replayed(&ring, from);
        prop_assert_eq!(&found[..], &since[..victim]);
        prop_assert!(stored > 0 && stopped.sequence == victim as u64 + 1);
        // The last frame looks torn; the last frame says that one before it was durable.
        let last = victim + 1 == since.len();
        prop_assert_eq!(matches!(end, ReplayEnd::Tail), last);
    }

    #[test]
    fn arbitrary_ring_never_panics(mut ring in prop::collection::vec(any::<u8>(), PAGE * 2)) {
        ring[..4].copy_from_slice(&MAGIC);
        let from = JournalPosition { journal: 0, ..FIRST };
        prop_assert_eq!(replayed(&ring, from).2, ReplayEnd::Tail);
    }
}

#[test]
fn foreign_journal_frame_is_not_replayed() {
    let Filled { ring, roots: [_, from], .. } = filled(&[3, 3], 20);
    let other = JournalPosition { journal: from.journal + 1, ..from };
    let stale = JournalPosition { incarnation: from.incarnation + 1, ..from };
    let branched = JournalPosition { chain: from.chain ^ 1, ..from };
    for from in [other, stale, branched] {
        assert_eq!(replayed(&ring, from).0, Vec::<Vec<Delta>>::new());
    }
}

#[test]
fn later_journal_supersedes_unless_rolled_back() {
    for (incarnation, counts) in [(1, false), (2, true), (3, true)] {
        let later = JournalPosition { journal: FIRST.journal + 1, incarnation, ..FIRST };
        let mut journal = Journal::new(POOL, Bytes(20 * PAGE as u64), later, Planted::for_tests());
        let (mut builder, mut ring) = (FrameBuilder::new(FRAME_MAX), Vec::new());
        assert!(builder.add(&[delta(0)], 32));
        journal.append(&mut builder, &mut ring);
        ring.resize(20 * PAGE, 0);
        let superseded = ReplayEnd::Superseded { journal: later.journal, offset: 0 };
        let expected = if counts { superseded } else { ReplayEnd::Tail };
        assert_eq!(replayed(&ring, FIRST).2, expected, "incarnation {incarnation} beside {FIRST:?}");
    }
}

#[test]
fn replay_takes_each_frame_from_intact_copy() {
    let Filled { ring, journal, roots: [_, from], frames: since } = filled(&[3, 3, 3, 3], 20);
    let (mut a, mut b) = (ring.clone(), ring);
    a[PAGE + 70] ^= 1;
    b[3 * PAGE + 70] ^= 1;
    let mut found = Vec::new();
    let (at, end) =
        replay(&[a.clone(), b.clone()], from, POOL, 32, Planted::for_tests(), |f| found.push(f.deltas));
    assert_eq!((found, at, end), (since, journal.position(), ReplayEnd::Tail));
    b[PAGE + 70] ^= 1;
    let (at, end) = replay(&[a, b], from, POOL, 32, Planted::for_tests(), |_| {});
    assert_eq!((at.sequence, end), (2, ReplayEnd::Damaged { sequence: 2, offset: PAGE as u64 }));
}
