//! The end of a device command: it is measured, retried or failed, and passed to the module that issued it
//! (`dispatch_end`).

use crate::device::pacing::Ended;
use crate::flight::{DurableStep, Flight, Purpose, ReadIo, Whose, WriteIo, is_full};
use crate::ids::PieceId;
use crate::io::coalesce::may_join;
use crate::notice::LostWhy;
use crate::{Base, DataPath, Engine};
use weir_model::{DeviceId, Errno, IoDone, IoError, IoId, IoKind, Memory, Mutant, Nanos};
use weir_policy::placement::MeasuredCommand;

impl Engine {
    /// Takes the completion of a device command.
    #[inline]
    pub fn complete<M: Memory>(&mut self, now: Nanos, done: IoDone, memory: &mut M) {
        self.data.base.core.now = now;
        if let Some(parts) = self.data.base.core.commands.take_parts(done.id) {
            return self.complete_joined(done, &parts, memory);
        }
        self.finish_flight(done.id, done.result, memory);
    }

    #[inline(never)]
    fn complete_joined<M: Memory>(&mut self, done: IoDone, parts: &[IoId], memory: &mut M) {
        for id in std::iter::once(&done.id).chain(parts) {
            let Some(flight) = self.data.base.core.commands.get(*id) else { continue };
            match done.result {
                Err(error @ IoError::Os(_)) if may_join(flight) && !self.data.base.core.is_spoilt(flight) => {
                    let flight = self.data.base.core.commands.remove(*id);
                    self.data.base.core.send_alone(flight, error);
                }
                result => self.finish_flight(*id, result, memory),
            }
        }
    }

    /// Finishes one device command, or one part of a joined command.
    #[inline(always)]
    pub(crate) fn finish_flight<M: Memory>(&mut self, id: IoId, result: Result<(), IoError>, memory: &mut M) {
        let Some(flight) = self.data.base.core.commands.get(id) else { return };
        let (of, promise) = (flight.device, flight.promise);
        let is_plain = result.is_ok() && promise.is_none() && !self.data.base.core.is_spoilt(flight);
        match flight.purpose {
            // Fast path for most commands. `Flight` is large: a read is not moved out of the table.
            Purpose::Read(ReadIo::Run(piece)) if is_plain && !self.data.mover.awaits_client_reads() => {
                self.measure_flight(id, Whose::Client, IoKind::Read, Some(piece));
                self.data.base.core.commands.remove(id);
                self.data.part_read(piece, memory);
                self.data.base.reuse_any_released(of);
            }
            Purpose::Write(WriteIo::Data(piece)) if is_plain => {
                self.measure_flight(id, Whose::Client, IoKind::Write { fua: false }, Some(piece));
                let flight = self.data.base.core.commands.remove(id);
                self.data.base.counts.written.note(&flight);
                self.data.write_ended(piece, &flight, Ok(()));
                self.data.base.reuse_any_released(of);
            }
            _ => {
                self.flight_ended(id, result, memory);
                if promise.is_some() {
                    self.end_flushes(of, memory);
                }
            }
        }
        self.run_ready(memory);
    }

    /// Measures a device command that succeeded.
    #[inline(always)]
    fn measure_flight(&mut self, id: IoId, whose: Whose, kind: IoKind, piece: Option<PieceId>) {
        let DataPath { base: Base { core, .. }, mover, .. } = &mut self.data;
        let Some(flight) = core.commands.get(id) else { return };
        let device = &mut core.devices[flight.device.index()];
        let Ended { response, took, .. } = device.end(core.now, flight, whose, mover.share());
        let command = MeasuredCommand::new(!kind.is_read(), flight.len(), flight.depth, response, took);
        device.measure(kind, &command, core.now);
        let of = flight.device;
        let is_weighed = whose != Whose::Other || matches!(flight.purpose, Purpose::CurveProbe);
        core.views.set_in_flight(of, device.in_flight());
        core.views.measure(of, whose, &command);
        if is_weighed {
            self.data.base.weigh(of, piece, &command);
        }
    }

    /// Ends a device command without measuring it.
    pub(crate) fn end_at_device(&mut self, flight: &Flight, whose: Whose) {
        let device = &mut self.data.base.core.devices[flight.device.index()];
        device.end(self.data.base.core.now, flight, whose, self.data.mover.share());
        self.data.base.core.views.set_in_flight(flight.device, device.in_flight());
    }

    fn flight_ended<M: Memory>(&mut self, id: IoId, result: Result<(), IoError>, memory: &mut M) {
        if result.is_ok() && self.was_written(id) {
            return;
        }
        let Some(flight) = self.data.base.core.commands.get(id) else { return };
        let (of, whose, kind) = (flight.device.index(), flight.purpose.whose(), flight.kind);
        let is_abandoned = matches!(flight.purpose, Purpose::Abandoned);
        if let Some(promise) = flight.promise {
            self.data.base.core.devices[of].promises.end(promise);
        }
        // The page cache may have served this read, so its time says nothing about the device.
        let is_weighed = !matches!(flight.purpose, Purpose::Verify);
        if result.is_ok() && !is_abandoned && is_weighed {
            let piece = flight.purpose.piece();
            self.measure_flight(id, whose, kind, piece);
        }
        let flight = self.data.base.core.commands.remove(id);
        if result.is_ok() && !is_abandoned && !is_weighed {
            self.end_at_device(&flight, whose);
        }
        if is_abandoned {
            self.end_at_device(&flight, whose);
            self.data.base.core.abandoned.ended(id, memory);
            self.data.base.reuse_released(flight.device);
        } else if let Err(error) = result {
            self.flight_failed(flight, error, memory);
        } else {
            self.data.base.counts.written.note(&flight);
            if matches!(flight.purpose, Purpose::DataFlush(_)) {
                self.data
                    .base
                    .core
                    .views
                    .measure_flush(flight.device, self.data.base.core.now.since(flight.started));
            }
            if self.data.base.core.is_spoilt(&flight) {
                // A flush failed in the meantime; it may have reported the loss of this very write.
                self.end_flight(&flight, Err(IoError::Os(Errno::EIO)), memory);
            } else if matches!(flight.command(), IoKind::Flush)
                && !self.data.base.core.is_planted(Mutant::FlushCountsAtOnce)
            {
                self.data.base.core.devices[of].promises.defer(flight);
            } else {
                self.dispatch_end(&flight, Ok(()), memory);
            }
        }
    }

    /// Sends the flush of a durable write that takes two commands, once its bytes are written. Returns false
    /// if the command is not the first half of such a write, or if its result no longer matters.
    fn was_written(&mut self, id: IoId) -> bool {
        let Some(flight) = self.data.base.core.commands.get(id) else { return false };
        if flight.step != DurableStep::Writing
            || matches!(flight.purpose, Purpose::Abandoned)
            || self.data.base.core.is_spoilt(flight)
        {
            return false;
        }
        let flight = Flight { step: DurableStep::Flushing, ..self.data.base.core.commands.remove(id) };
        self.data.base.core.commands.send(flight);
        true
    }

    /// Handles a failed device command: retries it, or ends it and updates the device's state.
    fn flight_failed<M: Memory>(&mut self, flight: Flight, error: IoError, memory: &mut M) {
        let Some(flight) = self.data.base.core.retried(flight, error) else { return };
        let whose = flight.purpose.whose();
        self.end_at_device(&flight, whose);
        if let Some(id) = flight.purpose.written() {
            self.data.base.durability.note_unfinished(
                &mut self.data.base.core,
                &self.data.base.requests,
                id,
                flight.device,
            );
        }
        match error {
            IoError::Lost => self.lose(flight.device, LostWhy::Gone, memory),
            IoError::Short => self.lose(flight.device, LostWhy::CutShort, memory),
            IoError::Removed => self.data.base.removed(flight.device),
            IoError::Os(_) => {}
        }
        if flight.fails_promise() && !is_full(flight.command(), error, self.data.base.core.map.planted()) {
            self.data.base.flush_failed(flight.device, error);
        }
        self.end_flight(&flight, Err(error), memory);
    }

    /// Passes the result of a device command to the module that waits for it.
    #[inline(always)]
    fn dispatch_end<M: Memory>(&mut self, flight: &Flight, result: Result<(), IoError>, memory: &mut M) {
        match flight.purpose {
            Purpose::Read(ReadIo::Run(id)) => self.data.read_ended(id, flight, result, memory),
            Purpose::Write(WriteIo::Data(id)) => self.data.write_ended(id, flight, result),
            _ => self.dispatch_other_end(flight, result, memory),
        }
        self.data.base.reuse_any_released(flight.device);
    }

    /// Like `dispatch_end`, out of line: for failed commands, and for flushes that count.
    #[inline(never)]
    pub(crate) fn end_flight<M: Memory>(
        &mut self,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        self.dispatch_end(flight, result, memory);
    }

    #[inline(never)]
    fn dispatch_other_end<M: Memory>(
        &mut self,
        flight: &Flight,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        match flight.purpose {
            Purpose::Read(io) => self.data.read_io_ended(io, flight, result, memory),
            Purpose::Write(io) => self.data.write_io_ended(io, flight, result, memory),
            Purpose::Mover(io) => self.data.mover_io_ended(io, flight, result),
            Purpose::Metadata(io) => self.data.base.metadata_io_ended(io, flight.device, result, memory),
            Purpose::DataFlush(covered) => {
                self.data.base.durability.data_flush_ended(
                    &mut self.data.base.core,
                    flight.device,
                    covered,
                    result,
                );
            }
            Purpose::Verify => {
                if self.data.base.is_found_replaced(flight.device, result, memory) {
                    self.lose(flight.device, LostWhy::Replaced, memory);
                }
                self.data.base.verified(flight.device, memory);
            }
            Purpose::Survey => self.background.surveys.read_ended(&mut self.data, result, memory),
            Purpose::Probe(number) => {
                self.background.probing.ended(&mut self.data, number, flight, result);
            }
            Purpose::CurveProbe => self.data.base.curve_probe_ended(),
            Purpose::Abandoned => {}
        }
    }

    /// Ends the flushes that waited only for a flush or durable write of this device that has just ended.
    pub(crate) fn end_flushes<M: Memory>(&mut self, device: DeviceId, memory: &mut M) {
        while let Some(flush) = self.data.base.core.devices[device.index()].promises.next_counting() {
            self.end_flight(&flush, Ok(()), memory);
        }
    }
}
