//! The measured part: requests go to the SSD's model at their times.

use super::{FlashMode, Run};
use crate::load::ClientAction;
use crate::responses::ResponseHistogram;
use crate::{Arrival, Client, Load, SimError};
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_flash::Counters;
use weir_model::{DeviceOffset, IoId, IoKind, Nanos, Op};
use weir_timing::Timing as _;

/// What was measured.
#[derive(Debug)]
pub(super) struct Timed {
    /// Counters at the start.
    pub(super) before: Counters,
    pub(super) reads: ResponseHistogram,
    pub(super) writes: ResponseHistogram,
    /// Bytes that the user wrote.
    pub(super) written: u64,
    pub(super) requests: u64,
    /// Requests answered late.
    pub(super) late: u64,
    /// Time from the first arrival to the last, and to the last reply.
    pub(super) arrivals: Nanos,
    pub(super) time: Nanos,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Pending {
    arrived: Nanos,
    is_read: bool,
    client: Option<Client>,
}

pub(super) struct TimedRun<'r, 'p> {
    run: &'r mut Run<'p>,
    load: &'r mut dyn Load,
    pending: FxHashMap<u64, Pending>,
    submitted: u64,
    /// Clients without a request in flight, and when they act next.
    clients: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Requests that clients in their think time will send.
    thinking: FxHashMap<usize, Arrival>,
    start: Nanos,
    /// Replies after this are late.
    late_after: Nanos,
    timed: Timed,
}

impl<'r, 'p> TimedRun<'r, 'p> {
    pub(super) fn new(run: &'r mut Run<'p>, load: &'r mut dyn Load) -> Self {
        let (start, before) = (run.now, run.counters());
        let clients = match run.plan.mode {
            FlashMode::Open => 0,
            FlashMode::Closed(clients) => clients,
        };
        let timed = Timed {
            before,
            reads: ResponseHistogram::new(),
            writes: ResponseHistogram::new(),
            written: 0,
            requests: 0,
            late: 0,
            arrivals: Nanos(0),
            time: Nanos(0),
        };
        let clients = (0..clients).map(|client| Reverse((start, client))).collect();
        let (pending, thinking) = (FxHashMap::default(), FxHashMap::default());
        Self { run, load, pending, submitted: 0, clients, thinking, start, late_after: Nanos::MAX, timed }
    }

    pub(super) fn run(mut self) -> Result<Timed, SimError> {
        let enough = self.run.counters().user + (self.run.plan.measured * f64::from(self.run.pages)) as u64;
        while self.run.counters().user < enough {
            match self.run.plan.mode {
                FlashMode::Open => self.next_of_open_loop()?,
                FlashMode::Closed(_) => self.next_of_closed_loop()?,
            }
            self.run.end_window(true);
        }
        // A late reply comes after the last arrival, so none has come yet.
        self.late_after = self.start + Nanos(self.timed.arrivals.0.saturating_mul(2));
        self.complete_until(Nanos::MAX);
        Ok(self.timed)
    }

    fn next_of_open_loop(&mut self) -> Result<(), SimError> {
        let arrival = self.load.next_arrival(self.run.now);
        self.complete_until(arrival.at);
        self.submit(&arrival, None)
    }

    /// Lets the next client act, or the next request complete.
    fn next_of_closed_loop(&mut self) -> Result<(), SimError> {
        let due = self.run.ssd.next();
        let Some(&Reverse((at, client))) = self.clients.peek() else {
            self.complete_until(due.ok_or(SimError::Stuck(self.run.now))?);
            return Ok(());
        };
        if let Some(due) = due.filter(|due| *due <= at) {
            self.complete_until(due);
            return Ok(());
        }
        self.clients.pop();
        let at = at.max(self.run.now);
        if let Some(arrival) = self.thinking.remove(&client) {
            return self.submit(&arrival, Some(Client(client)));
        }
        match self.load.next_action(Client(client), at) {
            ClientAction::Send(arrival) if arrival.at <= at => self.submit(&arrival, Some(Client(client))),
            action => {
                self.clients.push(Reverse((action.at(), client)));
                if let ClientAction::Send(arrival) = action {
                    self.thinking.insert(client, arrival);
                }
                Ok(())
            }
        }
    }

    fn submit(&mut self, arrival: &Arrival, client: Option<Client>) -> Result<(), SimError> {
        let now = arrival.at.max(self.run.now);
        self.run.now = now;
        self.timed.requests += 1;
        self.timed.arrivals = now - self.start;
        self.run.note_request(arrival)?;
        let kind = match arrival.op {
            Op::Read => IoKind::Read,
            Op::Write => IoKind::Write { fua: false },
            Op::Flush => IoKind::Flush,
            // Other requests change the log in no time.
            _ => {
                self.clients.extend(client.map(|Client(client)| Reverse((now, client))));
                return Ok(());
            }
        };
        let offset = if arrival.op == Op::Flush { 0 } else { self.run.offset(arrival)? };
        self.run.ssd.submit(now, IoId(self.submitted), kind, DeviceOffset(offset), arrival.len);
        self.run.flash().check()?;
        if arrival.op == Op::Write {
            self.timed.written += arrival.len.0;
        }
        let pending = Pending { arrived: arrival.at, is_read: arrival.op == Op::Read, client };
        self.pending.insert(self.submitted, pending);
        self.submitted += 1;
        Ok(())
    }

    fn complete_until(&mut self, now: Nanos) {
        while let Some(due) = self.run.ssd.next().filter(|due| *due <= now) {
            let Some(IoId(id)) = self.run.ssd.pop(due) else { continue };
            let Some(pending) = self.pending.remove(&id) else { continue };
            let histogram = if pending.is_read { &mut self.timed.reads } else { &mut self.timed.writes };
            histogram.add(due - pending.arrived);
            self.timed.time = self.timed.time.max(due - self.start);
            match pending.client {
                Some(Client(client)) => self.clients.push(Reverse((due, client))),
                None => self.timed.late += u64::from(due > self.late_after),
            }
        }
    }
}
