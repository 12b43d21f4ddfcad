//! `sequential`: long sequential runs are not admitted (SSEQR, selective sequential rejection).
//!
//! Source: HEC (the dissertation behind it, section 3.4.1).
//!
//! Rule: the last k requests are kept. A request whose start is at the end of one of them, or at most G
//! sectors after it, continues it, and their common run is as long as both. A request that continues a run
//! longer than L then is not admitted; shorter runs are, because they may be loops, and so is a single
//! request, of whatever length.
//!
//! Constants: k = 8, G = 4 sectors, L = 4 MB (taken as 4 MiB), as published. Among several it may continue,
//! the latest.
//!
//! When not: where long runs are read again and would fit.

use super::{Admission, Asked};
use std::collections::VecDeque;
use weir_model::{Bytes, SECTOR};

const WINDOW: usize = 8;
const GAP: u64 = 4 * SECTOR;
const LONGEST: Bytes = Bytes::mib(4);

/// An admission policy that rejects long sequential runs.
#[derive(Debug, Default)]
pub struct Sequential {
    /// The last requests, the latest last.
    window: VecDeque<Ended>,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    disk: u32,
    end: u64,
    /// The length of the run up to there.
    run: u64,
}

impl Admission for Sequential {
    fn request(&mut self, asked: Asked) -> bool {
        let start = asked.offset.0;
        let continues = |before: &&Ended| {
            before.disk == asked.disk && (before.end..=before.end.saturating_add(GAP)).contains(&start)
        };
        let before = self.window.iter().rev().find(continues).map_or(0, |before| before.run);
        let run = before.saturating_add(asked.len.0);
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(Ended { disk: asked.disk, end: asked.end(), run });
        before == 0 || run <= LONGEST.0
    }
}
