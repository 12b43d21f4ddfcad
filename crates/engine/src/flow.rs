//! What moves pieces on: commands begun and ended, blocks taken and given back, requests finished.

use crate::piece::{Flight, NewIo, Piece, PieceId, Purpose, Work};
use crate::retry::{EIO, is_full};
use crate::{Engine, LostWhy};
use smallvec::SmallVec;
use weir_map::{Chunk, Sabotage};
use weir_model::{BlockRange, DeviceId, ExtentKey, IoError, IoId, IoKind, Memory};

impl Engine {
    /// Starts a device command.
    pub(crate) fn launch(&mut self, io: NewIo, purpose: Purpose) {
        self.start(io.flight(purpose));
    }

    /// A device command has ended.
    #[inline(always)]
    pub(crate) fn finish_flight<M: Memory>(
        &mut self,
        id: IoId,
        flight: Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let (of, promise) = (flight.device, flight.is_promise());
        let device = &mut self.devices[of.index()];
        if promise {
            device.end_promise(flight.promise);
        }
        if matches!(flight.purpose, Purpose::Abandoned) {
            device.end(self.now, &flight, self.mover.share());
            self.abandoned_ended(id, memory);
            self.reuse_rested(flight.device);
        } else if let Err(error) = result {
            self.flight_failed(flight, error, memory);
        } else {
            let took = device.end(self.now, &flight, self.mover.share());
            let response = self.now.since(flight.started);
            device.measure(flight.kind, flight.len(), response);
            if flight.kind.is_read() {
                device.routing.answered(flight.len(), self.now);
            }
            self.advice.measure(&flight, response);
            self.weigh(&flight, response, took);
            self.written.note(&flight);
            if self.is_spoilt(&flight) {
                // A flush failed meanwhile, which may have been about this very write.
                self.end_flight(&flight, Err(IoError::Os(EIO)), memory);
            } else if matches!(flight.kind, IoKind::Flush) {
                self.devices[of.index()].hold(flight);
            } else {
                self.tell_ended(&flight, Ok(()), memory);
            }
        }
        if promise {
            self.end_flushes(of, memory);
        }
        self.run_ready(memory);
    }

    /// A device command has failed: tries it again, or ends it, with what follows for the device.
    fn flight_failed<M: Memory>(&mut self, flight: Flight, error: IoError, memory: &mut M) {
        let Some(flight) = self.retried(flight, error) else { return };
        self.devices[flight.device.index()].end(self.now, &flight, self.mover.share());
        if let Purpose::Write(id) = flight.purpose {
            self.note_unfinished(id, flight.device);
        }
        if error == IoError::Lost {
            self.lose(flight.device, LostWhy::Gone, memory);
        }
        if flight.is_promise() && !is_full(flight.kind, error) {
            self.flush_failed(flight.device, error);
        }
        self.end_flight(&flight, Err(error), memory);
    }

    /// Tells whoever waits for a device command how it ended.
    #[inline(always)]
    fn tell_ended<M: Memory>(&mut self, flight: &Flight, result: Result<(), IoError>, memory: &mut M) {
        match flight.purpose {
            Purpose::Read(id) => self.read_ended(id, flight, result, memory),
            Purpose::Write(id) => self.write_ended(id, flight, result),
            _ => self.tell_others_ended(flight, result, memory),
        }
        if self.devices[flight.device.index()].has_resting() {
            self.reuse_rested(flight.device);
        }
    }

    /// … out of the way of what ends well.
    #[inline(never)]
    pub(crate) fn end_flight<M: Memory>(
        &mut self,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        self.tell_ended(flight, result, memory);
    }

    #[inline(never)]
    fn tell_others_ended<M: Memory>(&mut self, flight: &Flight, result: Result<(), IoError>, memory: &mut M) {
        match flight.purpose {
            Purpose::Read(id) | Purpose::ReadElsewhere(id, _) => self.read_ended(id, flight, result, memory),
            Purpose::Fetch(id) => self.fetch_ended(id, flight, result, memory),
            Purpose::Merge(id) | Purpose::MergeElsewhere(id, _) => {
                self.merge_ended(id, flight, result, memory);
            }
            Purpose::Write(id) => self.write_ended(id, flight, result),
            Purpose::MoveRead(id) => self.move_read_ended(id, result),
            Purpose::MoveWrite(id) => self.move_write_ended(id, flight, result),
            Purpose::Survey => self.survey_read(result, memory),
            Purpose::Probe(ref probe) => {
                let probe = *probe;
                self.probe_ended(probe, flight, result);
            }
            Purpose::CurveProbe(buffer) => self.curve_probe_ended(buffer),
            Purpose::DataFlush(covered) => self.data_flush_ended(flight.device, covered, result),
            Purpose::Frame => self.frame_ended(flight.device, result),
            Purpose::CheckpointPages | Purpose::CheckpointFlush | Purpose::Root => {
                self.checkpoint_step_ended(flight.device, result);
            }
            Purpose::Superblock => self.superblock_ended(flight.device, result, memory),
            Purpose::Abandoned => {}
        }
    }

    /// Space whose release is durable can be handed out once the commands begun before have ended.
    pub(crate) fn reuse_rested(&mut self, device: DeviceId) {
        while let Some(chunk) = self.devices[device.index()].rested() {
            self.map.reuse(chunk);
            self.note_used();
            self.retry_waiting_space();
        }
    }

    pub(crate) fn rest(&mut self, chunk: Chunk) {
        if Sabotage::ReusedWhileInUse.is_on() {
            return self.map.reuse(chunk);
        }
        self.devices[chunk.device().index()].rest(chunk);
        self.reuse_rested(chunk.device());
    }

    /// Starts the pieces that got what they waited for. A queue rather than recursion: any number
    /// of them may end at once.
    #[inline]
    pub(crate) fn run_ready<M: Memory>(&mut self, memory: &mut M) {
        // Most calls find nothing: a completion rarely makes a piece ready.
        if !self.ready.is_empty() || self.abandoned.has_refused() || self.again.has_ended() {
            self.run_all_ready(memory);
        }
    }

    #[inline(never)]
    fn run_all_ready<M: Memory>(&mut self, memory: &mut M) {
        loop {
            if let Some(id) = self.ready.pop_front() {
                match self.pieces[id.0 as usize].work {
                    Work::Read => self.start_read(id, memory),
                    Work::Write { .. } => self.start_write(id, memory),
                    Work::Clear(clear) => self.start_clear(id, clear, memory),
                }
            } else if let Some(flight) = self.abandoned.next_refused() {
                self.end_flight(&flight, Err(IoError::Lost), memory);
            } else if let Some(id) = self.again.next_ended() {
                self.answer_from_others(id, memory);
            } else {
                return;
            }
        }
    }

    /// Makes a piece, which its request waits for.
    #[inline]
    pub(crate) fn insert_piece(&mut self, piece: Piece) -> PieceId {
        self.active[piece.request.0].left += 1;
        PieceId(self.pieces.insert(piece) as u32)
    }

    /// Makes a piece; a changing one runs once it has its blocks.
    pub(crate) fn add_piece(&mut self, piece: Piece) {
        let (key, range) = (piece.key, piece.range);
        let takes_blocks = piece.takes_blocks;
        let id = self.insert_piece(piece);
        if !takes_blocks || self.locks.take(key, range, id) {
            self.ready.push_back(id);
        }
    }

    /// The piece is done: gives its blocks back and tells its request.
    pub(crate) fn piece_ended(&mut self, id: PieceId) {
        // Only what is needed is copied out of the table: a piece is large.
        let Piece { request, key, range, takes_blocks, error, found, .. } = self.pieces[id.0 as usize];
        self.pieces.remove(id.0 as usize);
        if takes_blocks {
            self.give_back_blocks(key, range);
        }
        let active = &mut self.active[request.0];
        active.error = active.error.or(error);
        active.found.0 |= found.0;
        active.found.1 |= found.1;
        active.left -= 1;
        if active.left == 0 {
            self.request_ended(request);
        }
    }

    fn give_back_blocks(&mut self, key: ExtentKey, range: BlockRange) {
        let mut granted = SmallVec::new();
        if self.locks.release(key, range, &mut granted) {
            self.map.give_back(key);
            self.note_change();
            if self.space.is_waited_for() && self.map.releasing() > 0 {
                self.request_commit();
            }
        }
        if !granted.is_empty() {
            self.ready.extend(granted);
        }
    }
}
