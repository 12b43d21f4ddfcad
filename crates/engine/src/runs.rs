//! Sequential runs: which request continues which, since what is read or written in one go costs a
//! disk little however it is cut up. A log whose last block was not full writes it once more, and continues.

use weir_model::{BLOCK, Bytes, VolumeId, VolumeOffset};

/// Runs remembered, the latest ones.
const RUNS: usize = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    volume: VolumeId,
    end: VolumeOffset,
    len: Bytes,
}

/// The runs of late.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    runs: [Run; RUNS],
    /// Which one is forgotten next.
    next: usize,
}

impl Runs {
    /// Notes a request; how long the run was that it continues.
    pub(crate) fn note(&mut self, volume: VolumeId, offset: VolumeOffset, len: Bytes) -> Bytes {
        let end = offset + len;
        // Who appends to a log writes its last block, which was not full, once more. Of a run that ends before the
        // request this is vast: one comparison rules most runs out.
        let again = |r: &Run| Bytes(r.end.0.wrapping_sub(offset.0));
        let goes_on = |r: &Run| (again(r).0 == 0 || end > r.end) && again(r) <= r.len;
        let is_near = |r: &Run| again(r).0 <= BLOCK;
        let continues = |r: &&mut Run| is_near(r) && r.len.0 > 0 && r.volume == volume && goes_on(r);
        let continued = self.runs.iter_mut().find(continues);
        if let Some(run) = continued {
            let before = run.len - again(run);
            *run = Run { volume, end, len: before + len };
            return before;
        }
        self.runs[self.next] = Run { volume, end, len };
        self.next = (self.next + 1) % RUNS;
        Bytes(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_runs_are_told_apart() {
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
    fn a_log_that_writes_its_last_block_again_is_a_run() {
        let mut runs = Runs::default();
        let mut note = |at, len| runs.note(VolumeId(0), VolumeOffset(at), Bytes(len)).0;
        assert_eq!(note(65536, 12288), 0);
        assert_eq!(note(73728, 8192), 8192, "its last block once more, and another");
        assert_eq!(note(77824, 8192), 12288);
        assert_eq!(note(77824, 8192), 0, "all of it once more");
        assert_eq!(note(61440, 8192), 0, "before its beginning");
    }
}
