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

use super::{Admission, BlockRequest};
use std::collections::VecDeque;
use weir_model::{Bytes, SECTOR};

const WINDOW: usize = 8;
const GAP: u64 = 4 * SECTOR;
const RUN_MAX: Bytes = Bytes::mib(4);

/// An admission policy that rejects long sequential runs.
#[derive(Debug, Default)]
pub struct Sequential {
    /// The last requests, the latest last.
    window: VecDeque<RunEnd>,
}

#[derive(Clone, Copy, Debug)]
struct RunEnd {
    disk: u32,
    end: u64,
    /// The length of the run up to there.
    run: u64,
}

impl Admission for Sequential {
    fn request(&mut self, request: BlockRequest) -> bool {
        let start = request.offset.0;
        let continues = |before: &&RunEnd| {
            before.disk == request.disk && (before.end..=before.end.saturating_add(GAP)).contains(&start)
        };
        let before = self.window.iter().rev().find(continues).map_or(0, |before| before.run);
        let run = before.saturating_add(request.len.0);
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(RunEnd { disk: request.disk, end: request.end(), run });
        before == 0 || run <= RUN_MAX.0
    }
}
