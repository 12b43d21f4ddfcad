//! Pieces that can go on.

use crate::Engine;
use crate::ids::PieceId;
use crate::request::piece::{PieceState, WaitsFor, Work};
use crate::task::Task;
use std::collections::VecDeque;
use weir_model::{IoError, Memory};

/// Pieces that got what they waited for, in the order in which they did.
#[derive(Debug, Default)]
pub(crate) struct Ready(VecDeque<PieceId>);

impl Ready {
    /// The piece can go on.
    #[inline]
    pub(crate) fn push(&mut self, id: PieceId) {
        self.0.push_back(id);
    }
}

impl Task for Ready {
    fn can_run(engine: &Engine) -> bool {
        !engine.requests.ready.0.is_empty() || engine.core.abandoned.has_refused()
    }

    fn run<M: Memory>(engine: &mut Engine, memory: &mut M) {
        engine.run_ready(memory);
    }
}

impl Engine {
    /// Starts the pieces that got what they waited for. A queue rather than recursion: any number
    /// of them may end at once.
    #[inline]
    pub(crate) fn run_ready<M: Memory>(&mut self, memory: &mut M) {
        // Most calls find nothing: a completion rarely makes a piece ready.
        if !self.requests.ready.0.is_empty()
            || self.core.abandoned.has_refused()
            || self.reads.again.has_ended()
        {
            self.run_all_ready(memory);
        }
    }

    #[inline(never)]
    fn run_all_ready<M: Memory>(&mut self, memory: &mut M) {
        loop {
            if let Some(id) = self.requests.ready.0.pop_front() {
                debug_assert!(matches!(
                    self.requests.pieces[id.0 as usize].state,
                    PieceState::Waits(WaitsFor::Turn)
                ));
                match self.requests.pieces[id.0 as usize].work {
                    Work::Read => self.start_read(id, memory),
                    Work::Write { .. } => self.start_write(id, memory),
                    Work::Clear(clear) => self.start_clear(id, clear, memory),
                }
            } else if let Some(flight) = self.core.abandoned.next_refused() {
                self.end_flight(&flight, Err(IoError::Lost), memory);
            } else if let Some(id) = self.reads.again.next_ended() {
                self.answer_from_others(id, memory);
            } else {
                return;
            }
        }
    }
}
