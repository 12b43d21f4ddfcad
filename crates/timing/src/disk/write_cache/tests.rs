use super::*;
use proptest::prelude::*;

fn cache(sectors: u64, run: u64) -> DirtyRuns {
    DirtyRuns::new(Bytes(sectors * SECTOR), Bytes(run * SECTOR), 12)
}

#[test]
fn neighbours_merge_up_to_the_limit() {
    let mut c = cache(100, 20);
    assert!(c.admit(0, 8) && c.admit(8, 16) && c.admit(2, 6));
    assert_eq!((c.runs.len(), c.sectors), (1, 16));
    assert!(c.admit(16, 24));
    assert_eq!((c.runs.len(), c.sectors), (2, 24));
    assert!(c.holds(3, 16) && c.holds(16, 24) && !c.holds(15, 17));
}

proptest! {
    /// Compares the cache with a list of writes not yet on the media: the space in use is that of the runs, a
    /// stamp is settled exactly when no run up to it is cached or being written, and there is something to
    /// write out unless the cache is empty.
    #[test]
    fn cache_matches_naive_model(ops in prop::collection::vec((0u8..4, 0u64..64, 1u64..12), 1..200)) {
        let mut c = cache(100, 16);
        let mut landing = None;
        let mut stamps = vec![];
        for (op, first, len) in ops {
            match op {
                0 | 1 => {
                    let before = (c.sectors, c.runs.len());
                    let admitted = c.admit(first, first + len);
                    prop_assert!(admitted || before.0 + len > 100 || before.1 + 1 >= 12);
                    prop_assert!(!admitted || c.holds(first, first + len));
                    stamps.push(c.last());
                }
                2 if landing.is_none() => {
                    let choice = if len % 2 == 0 { c.near(first, 4).next() } else { c.oldest() };
                    prop_assert_eq!(choice.is_none(), c.is_empty());
                    if let Some(run) = choice {
                        c.start(run.start);
                        landing = Some(run);
                    }
                }
                _ => {
                    c.finish_write();
                    landing = None;
                }
            }
            let held: u64 = c.runs.iter().map(|(first, run)| run.end - first).sum();
            prop_assert_eq!(c.sectors, held + c.writing.map_or(0, |(_, n)| n));
            prop_assert!(c.sectors <= 100 && c.runs.len() <= 12);
            for stamp in &stamps {
                let open = c.runs.values().map(|run| run.stamp).chain(c.writing.map(|l| l.0));
                prop_assert_eq!(c.is_on_media(*stamp), open.into_iter().all(|s| s > *stamp));
            }
        }
    }
}
