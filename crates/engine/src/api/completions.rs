//! The end of a device command: it is measured, retried or failed, and passed to the module that issued it
//! (`dispatch_end`).

use crate::device::pacing::EndedCommand;
use crate::flight::{DurableStep, Flight, Origin, Purpose, ReadIo, WriteIo, is_out_of_space};
use crate::ids::PieceId;
use crate::io::coalesce::may_join;
use crate::notice::LossReason;
use crate::{Base, DataPath, Engine};
use weir_model::{DeviceId, Errno, IoCompletion, IoError, IoId, IoKind, Memory, Mutant, Nanos};
use weir_policy::placement::MeasuredCommand;

impl Engine {
    /// Takes the completion of a device command.
    #[inline]
    pub fn complete<M: Memory>(&mut self, now: Nanos, completion: IoCompletion, memory: &mut M) {
        self.data.base.core.now = now;
        if let Some(parts) = self.data.base.core.commands.take_parts(completion.id) {
            return self.complete_joined(completion, &parts, memory);
        }
        self.finish_flight(completion.id, completion.result, memory);
    }

    #[inline(never)]
    fn complete_joined<M: Memory>(&mut self, completion: IoCompletion, parts: &[IoId], memory: &mut M) {
        for id in std::iter::once(&completion.id).chain(parts) {
            let Some(flight) = self.data.base.core.commands.get(*id) else { continue };
            match completion.result {
                Err(error @ IoError::Os(_))
                    if may_join(flight) && !self.data.base.core.is_result_void(flight) =>
                {
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
        let (of, durability_number) = (flight.device, flight.durability_number);
        let is_plain =
            result.is_ok() && durability_number.is_none() && !self.data.base.core.is_result_void(flight);
        match flight.purpose {
            // Fast path for most commands. `Flight` is large: a read is not moved out of the table.
            Purpose::Read(ReadIo::Run(piece)) if is_plain && !self.data.mover.awaits_client_reads() => {
                self.measure_flight(id, Origin::Client, IoKind::Read, Some(piece));
                self.data.base.core.commands.remove(id);
                self.data.read_part_ended(piece, memory);
                self.data.base.reuse_any_released(of);
            }
            Purpose::Write(WriteIo::Data(piece)) if is_plain => {
                self.measure_flight(id, Origin::Client, IoKind::Write { fua: false }, Some(piece));
                let flight = self.data.base.core.commands.remove(id);
                self.data.base.counts.written.note(&flight);
                self.data.write_ended(piece, &flight, Ok(()));
                self.data.base.reuse_any_released(of);
            }
            _ => {
                self.flight_ended(id, result, memory);
                if durability_number.is_some() {
                    self.end_flushes(of, memory);
                }
            }
        }
        self.run_ready(memory);
    }

    /// Measures a device command that succeeded.
    #[inline(always)]
    fn measure_flight(&mut self, id: IoId, origin: Origin, kind: IoKind, piece: Option<PieceId>) {
        let DataPath { base: Base { core, .. }, mover, .. } = &mut self.data;
        let Some(flight) = core.commands.get(id) else { return };
        let device = &mut core.devices[flight.device.index()];
        let EndedCommand { response, service_time: took, .. } =
            device.end(core.now, flight, origin, mover.share());
        let command = MeasuredCommand::new(!kind.is_read(), flight.len(), flight.depth, response, took);
        device.measure(kind, &command, core.now);
        let of = flight.device;
        let is_weighed = origin != Origin::Other || matches!(flight.purpose, Purpose::CurveProbe);
        core.views.set_in_flight(of, device.in_flight());
        core.views.measure(of, origin, &command);
        if is_weighed {
            self.data.base.price_command(of, piece, &command);
        }
    }

    /// Ends a device command without measuring it.
    pub(crate) fn end_at_device(&mut self, flight: &Flight, origin: Origin) {
        let device = &mut self.data.base.core.devices[flight.device.index()];
        device.end(self.data.base.core.now, flight, origin, self.data.mover.share());
        self.data.base.core.views.set_in_flight(flight.device, device.in_flight());
    }

    fn flight_ended<M: Memory>(&mut self, id: IoId, result: Result<(), IoError>, memory: &mut M) {
        if result.is_ok() && self.begin_durable_flush(id) {
            return;
        }
        let Some(flight) = self.data.base.core.commands.get(id) else { return };
        let (of, origin, kind) = (flight.device.index(), flight.purpose.origin(), flight.kind);
        let is_abandoned = matches!(flight.purpose, Purpose::Abandoned);
        if let Some(promise) = flight.durability_number {
            self.data.base.core.devices[of].durability_order.end(promise);
        }
        // The page cache may have served this read, so its time says nothing about the device.
        let is_weighed = !matches!(flight.purpose, Purpose::Verify);
        if result.is_ok() && !is_abandoned && is_weighed {
            let piece = flight.purpose.piece();
            self.measure_flight(id, origin, kind, piece);
        }
        let flight = self.data.base.core.commands.remove(id);
        if result.is_ok() && !is_abandoned && !is_weighed {
            self.end_at_device(&flight, origin);
        }
        if is_abandoned {
            self.end_at_device(&flight, origin);
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
            if self.data.base.core.is_result_void(&flight) {
                // A flush failed in the meantime; it may have reported the loss of this very write.
                self.end_flight(&flight, Err(IoError::Os(Errno::EIO)), memory);
            } else if matches!(flight.command(), IoKind::Flush)
                && !self.data.base.core.is_planted(Mutant::FlushCountsAtOnce)
            {
                self.data.base.core.devices[of].durability_order.defer(flight);
            } else {
                self.dispatch_end(&flight, Ok(()), memory);
            }
        }
    }

    /// Sends the flush of a durable write that takes two commands, once its bytes are written. Returns false
    /// if the command is not the first half of such a write, or if its result no longer matters.
    fn begin_durable_flush(&mut self, id: IoId) -> bool {
        let Some(flight) = self.data.base.core.commands.get(id) else { return false };
        if flight.step != DurableStep::Writing
            || matches!(flight.purpose, Purpose::Abandoned)
            || self.data.base.core.is_result_void(flight)
        {
            return false;
        }
        let flight = Flight { step: DurableStep::Flushing, ..self.data.base.core.commands.remove(id) };
        self.data.base.core.commands.send(flight);
        true
    }

    /// Handles a failed device command: retries it, or ends it and updates the device's state.
    fn flight_failed<M: Memory>(&mut self, flight: Flight, error: IoError, memory: &mut M) {
        let Some(flight) = self.data.base.core.retry(flight, error) else { return };
        let origin = flight.purpose.origin();
        self.end_at_device(&flight, origin);
        if let Some(id) = flight.purpose.written() {
            self.data.base.durability.note_failed_write(
                &mut self.data.base.core,
                &self.data.base.requests,
                id,
                flight.device,
            );
        }
        match error {
            IoError::Lost => self.lose(flight.device, LossReason::Disconnected, memory),
            IoError::Short => self.lose(flight.device, LossReason::Truncated, memory),
            IoError::Removed => self.data.base.device_removed(flight.device),
            IoError::Os(_) => {}
        }
        if flight.may_fail_durability()
            && !is_out_of_space(flight.command(), error, self.data.base.core.map.planted())
        {
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
                if self.data.base.check_ended(flight.device, result, memory) {
                    self.lose(flight.device, LossReason::Replaced, memory);
                }
                self.data.base.resume_after_check(flight.device, memory);
            }
            Purpose::Survey => self.background.surveys.read_ended(&mut self.data, result, memory),
            Purpose::Probe(number) => {
                self.background.probing.probe_ended(&mut self.data, number, flight, result);
            }
            Purpose::CurveProbe => self.data.base.curve_probe_ended(),
            Purpose::Abandoned => {}
        }
    }

    /// Ends the flushes that waited only for a flush or durable write of this device that has just ended.
    pub(crate) fn end_flushes<M: Memory>(&mut self, device: DeviceId, memory: &mut M) {
        while let Some(flush) = self.data.base.core.devices[device.index()].durability_order.next_effective()
        {
            self.end_flight(&flush, Ok(()), memory);
        }
    }
}
