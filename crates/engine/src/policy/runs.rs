//! Detection of sequential runs: which request continues which. A sequential run is cheap on a disk, however
//! it is split into requests. A log that rewrites its last, partial block continues its run.

use weir_model::{BLOCK, Bytes, VolumeId, VolumeOffset};

/// The number of runs remembered, the latest ones.
const RUNS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct SequentialRun {
    volume: VolumeId,
    end: VolumeOffset,
    len: Bytes,
}

/// The recent runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    runs: [SequentialRun; RUNS],
    /// The low 32 bits of the block in which each run ends: a quick check that no run ends near a request.
    ends: [u32; RUNS],
    /// The index of the run replaced next.
    next: usize,
}

impl Runs {
    /// Notes a request. Returns the length of the run that it continues.
    pub(crate) fn note(&mut self, volume: VolumeId, offset: VolumeOffset, len: Bytes) -> Bytes {
        let end = offset + len;
        let block = |at: VolumeOffset| (at.0 / BLOCK) as u32;
        // The loop has no branches, so that the compiler vectorizes it.
        let is_near = |any, at: &u32| any | (at.wrapping_sub(block(offset)) <= 1);
        if self.ends.iter().fold(false, is_near)
            && let Some(before) = self.extend(volume, offset, len)
        {
            return before;
        }
        self.runs[self.next] = SequentialRun { volume, end, len };
        self.ends[self.next] = block(end);
        self.next = (self.next + 1) % RUNS;
        Bytes(0)
    }

    /// Extends the run that a request continues, if there is one, and returns its length before.
    #[inline(never)]
    fn extend(&mut self, volume: VolumeId, offset: VolumeOffset, len: Bytes) -> Option<Bytes> {
        let end = offset + len;
        // An appended log rewrites its last, partial block. For a run that ends before the request this wraps
        // to a huge value.
        let again = |r: &SequentialRun| Bytes(r.end.0.wrapping_sub(offset.0));
        let goes_on = |r: &SequentialRun| (again(r).0 == 0 || end > r.end) && again(r) <= r.len;
        let continues =
            |r: &SequentialRun| again(r).0 <= BLOCK && r.len.0 > 0 && r.volume == volume && goes_on(r);
        let at = self.runs.iter().position(continues)?;
        let run = &mut self.runs[at];
        let before = run.len - again(run);
        *run = SequentialRun { volume, end, len: before + len };
        self.ends[at] = (end.0 / BLOCK) as u32;
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a naive twin, which looks at every run.
        #[test]
        fn runs_match_a_naive_search(
            requests in prop::collection::vec((0u32..2, 0u64..64, 1u64..24, prop::bool::weighted(0.1)), 1..200),
        ) {
            let (mut runs, mut twin) = (Runs::default(), Runs::default());
            for (volume, sector, sectors, far) in requests {
                let at = VolumeOffset(sector * 512 + if far { 1 << 45 } else { 0 });
                let (volume, len) = (VolumeId(volume), Bytes(sectors * 512));
                let continues = twin.extend(volume, at, len).unwrap_or_else(|| {
                    twin.runs[twin.next] = SequentialRun { volume, end: at + len, len };
                    twin.next = (twin.next + 1) % RUNS;
                    Bytes(0)
                });
                prop_assert_eq!(runs.note(volume, at, len), continues);
            }
        }
    }

    #[test]
    fn interleaved_runs_are_distinguished() {
        let mut runs = Runs::default();
        let mut note = |volume, at, len| runs.note(VolumeId(volume), VolumeOffset(at), Bytes(len)).0;
        assert_eq!(note(0, 0, 4096), 0, "nothing ends at the start of a volume");
        assert_eq!(note(1, 4096, 512), 0, "another volume");
        assert_eq!(note(0, 4096, 8192), 4096);
        assert_eq!(note(1, 4608, 512), 512);
        assert_eq!(note(0, 12288, 4096), 12288);
        (100..108).for_each(|i| assert_eq!(note(0, i << 20, 512), 0));
        assert_eq!(note(0, 16384, 4096), 0, "forgotten");
    }

    #[test]
    fn rewriting_the_last_block_continues_a_run() {
        let mut runs = Runs::default();
        let mut note = |at, len| runs.note(VolumeId(0), VolumeOffset(at), Bytes(len)).0;
        assert_eq!(note(65536, 12288), 0);
        assert_eq!(note(73728, 8192), 8192, "its last block once more, and another");
        assert_eq!(note(77824, 8192), 12288);
        assert_eq!(note(77824, 8192), 0, "all of it once more");
        assert_eq!(note(61440, 8192), 0, "before its beginning");
    }
}
