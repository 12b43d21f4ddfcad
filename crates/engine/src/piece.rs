//! Pieces: the part of a request that falls into one extent; and the device commands under way.

use crate::request::ActiveId;
use crate::{Engine, probe};
use smallvec::SmallVec;
use weir_map::{Epoch, Whole};
use weir_model::{
    BlockRange, Buffer, Bytes, DeviceId, DeviceOffset, ExtentKey, IoError, IoKind, Memory, Nanos,
    RequestError, Span,
};

/// A piece in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PieceId(pub(crate) u32);

/// What a piece does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Fetch the span.
    Read,
    /// Store the span: the client's bytes, or zeros (the part-blocks at the ends of a write-zeroes).
    Write {
        /// The bytes are zeros, and there is nothing to do for blocks that read as zeros anyway.
        zeros: bool,
    },
    /// Make blocks read as zeros without writing.
    Clear(crate::clear::Clear),
}

/// The part of a request that falls into one extent.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) request: ActiveId,
    pub(crate) key: ExtentKey,
    pub(crate) span: Span,
    pub(crate) work: Work,
    /// The blocks taken in [`crate::lock`], if the piece changes anything.
    pub(crate) range: BlockRange,
    /// Reads and writes: the touched blocks.
    pub(crate) buffer: Buffer,
    /// Device commands still to end.
    pub(crate) left: u32,
    pub(crate) error: Option<RequestError>,
    /// Reads: some blocks hold data; some are zeros.
    pub(crate) found: (bool, bool),
    /// Writes: where the bytes go.
    pub(crate) target: Option<crate::write::Target>,
}

/// What a device command is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Bytes of a read piece.
    Read(PieceId),
    /// An old block, for the part of it a write does not carry.
    Merge(PieceId),
    /// The bytes of a write piece.
    Write(PieceId),
    /// Measures an idle device.
    Probe(probe::Probe),
    /// Makes an epoch's data durable.
    DataFlush(Epoch),
    /// A journal frame.
    Frame,
    /// Pages of a checkpoint.
    CheckpointPages,
    /// … made durable.
    CheckpointFlush,
    /// … and the root.
    Root,
}

/// A device command under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) purpose: Purpose,
    pub(crate) device: DeviceId,
    pub(crate) kind: IoKind,
    pub(crate) at: DeviceOffset,
    pub(crate) len: Bytes,
    pub(crate) started: Nanos,
    pub(crate) generation: u64,
}

/// A device command to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewIo {
    pub(crate) device: DeviceId,
    pub(crate) kind: IoKind,
    pub(crate) at: DeviceOffset,
    pub(crate) buffer: Buffer,
}

impl NewIo {
    pub(crate) fn flight(self, purpose: Purpose) -> Flight {
        let Self { device, kind, at, buffer } = self;
        let len = Bytes(buffer.len.into());
        Flight { purpose, device, kind, at, len, started: Nanos(0), generation: 0 }
    }

    pub(crate) fn flush(device: DeviceId) -> Self {
        Self { device, kind: IoKind::Flush, at: DeviceOffset(0), buffer: Buffer::EMPTY }
    }
}

impl Flight {
    pub(crate) fn error(&self, error: IoError) -> RequestError {
        RequestError::Io { device: self.device, kind: self.kind, at: self.at, len: self.len, error }
    }
}

impl Engine {
    /// Starts a device command.
    pub(crate) fn launch(&mut self, io: NewIo, purpose: Purpose) {
        self.start(io, io.flight(purpose));
    }

    /// A device command has ended.
    pub(crate) fn finish_flight<M: Memory>(
        &mut self,
        flight: Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let device = &mut self.devices[flight.device.index()];
        device.end(flight.generation);
        match result {
            Ok(()) => device.measure(flight.kind, flight.len, self.now.since(flight.started)),
            Err(_) => device.errors += 1,
        }
        match flight.purpose {
            Purpose::Read(id) => self.read_ended(id, &flight, result),
            Purpose::Merge(id) => self.merge_ended(id, &flight, result, memory),
            Purpose::Write(id) => self.write_ended(id, &flight, result),
            Purpose::Probe(ref probe) => {
                let probe = *probe;
                self.probe_ended(probe, &flight, result);
            }
            Purpose::DataFlush(covered) => self.data_flush_ended(flight.device, covered, result),
            Purpose::Frame => self.frame_ended(result),
            Purpose::CheckpointPages => self.checkpoint_pages_ended(result),
            Purpose::CheckpointFlush => self.checkpoint_flush_ended(result),
            Purpose::Root => self.root_ended(result),
        }
        if self.devices[flight.device.index()].has_resting() {
            self.reuse_rested(flight.device);
        }
        self.run_ready(memory);
    }

    /// Space whose release is durable can be handed out once the commands begun before have ended.
    pub(crate) fn reuse_rested(&mut self, device: DeviceId) {
        while let Some(whole) = self.devices[device.index()].rested() {
            self.map.reuse(whole);
            self.retry_waiting_space();
        }
    }

    pub(crate) fn rest(&mut self, whole: Whole) {
        self.devices[whole.device.index()].rest(whole);
        self.reuse_rested(whole.device);
    }

    /// Starts the pieces that got what they waited for. A queue rather than recursion: any number
    /// of them may end at once.
    pub(crate) fn run_ready<M: Memory>(&mut self, memory: &mut M) {
        while let Some(id) = self.ready.pop_front() {
            match self.pieces[id.0 as usize].work {
                Work::Read => self.start_read(id, memory),
                Work::Write { .. } => self.start_write(id, memory),
                Work::Clear(clear) => self.start_clear(id, clear),
            }
        }
    }

    /// Makes a piece; a changing one runs once it has its blocks.
    pub(crate) fn add_piece(&mut self, piece: Piece) {
        let (key, range) = (piece.key, piece.range);
        let changes = piece.work != Work::Read;
        self.active[piece.request.0].left += 1;
        let id = PieceId(self.pieces.insert(piece) as u32);
        if !changes || self.locks.take(key, range, id) {
            self.ready.push_back(id);
        }
    }

    /// The piece is done: gives its blocks back and tells its request.
    pub(crate) fn piece_ended(&mut self, id: PieceId) {
        let piece = self.pieces.remove(id.0 as usize);
        if piece.work != Work::Read {
            let mut granted = SmallVec::new();
            if self.locks.release(piece.key, piece.range, &mut granted) {
                self.map.give_back(piece.key);
                self.note_change();
            }
            self.ready.extend(granted);
        }
        let active = &mut self.active[piece.request.0];
        active.error = active.error.or(piece.error);
        active.found.0 |= piece.found.0;
        active.found.1 |= piece.found.1;
        active.left -= 1;
        if active.left == 0 {
            self.request_ended(piece.request);
        }
    }
}
