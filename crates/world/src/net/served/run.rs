//! The event loop.

use super::{IDLE_EVENTS_MAX, REPLY_TIMEOUT, ServedPool};
use crate::WorldMemory;
use crate::driver::Failure;
use crate::net::client::TurnResult;
use crate::net::sockets::{Report, Sockets};
use weir_engine::{Activity, Engine};
use weir_model::Nanos;
use weir_session::{Environment, Server, Volumes};

impl ServedPool {
    /// Runs a call of the server with its environment.
    pub(super) fn with_server<T>(
        &mut self,
        run: impl FnOnce(&mut Server<Engine, Sockets>, &mut Environment<'_, Sockets, WorldMemory>) -> T,
    ) -> Option<T> {
        let now = self.world.now();
        let mut outside = Environment { port: &mut self.sockets, memory: &mut self.world.memory, now };
        let result = self.server.as_mut().map(|server| run(server, &mut outside));
        while let Some(io) = self.sockets.next_io() {
            self.world.start(io);
        }
        self.record_faults();
        if self.space_guarantees.is_keeping()
            && self.server.as_ref().is_some_and(|server| !server.volumes().map().has_metadata_space())
        {
            self.space_guarantees.void_pending_guarantees();
        }
        result
    }

    /// Returns the time of the next event.
    fn next_event(&self) -> Option<Nanos> {
        let now = self.world.now();
        let clients =
            self.clients.iter().flatten().filter_map(|client| client.next(now, &self.sockets)).min();
        let visitors =
            self.hostile_clients.iter().filter_map(|visitor| visitor.next(now, &self.sockets)).min();
        let server = self.server.as_ref().and_then(|server| server.deadline(now));
        let others = [self.world.next_event(), self.sockets.next_event(), server];
        let operator = self.operator.next(now, &self.sockets);
        others
            .into_iter()
            .chain([clients, visitors, operator, self.next_control_event(now)])
            .flatten()
            .min()
            .map(|next| next.max(now))
    }

    /// Advances to the next event, at most to `limit`; returns false if there is none by then.
    pub(super) fn advance(&mut self, limit: Nanos) -> Result<bool, Failure> {
        if self.is_stopping {
            self.with_server(Server::advance_stop);
        }
        let Some(next) = self.next_event().filter(|next| *next <= limit) else { return Ok(false) };
        self.idle_events += 1;
        // Hung devices are eventually given up.
        let most = IDLE_EVENTS_MAX * if self.faults.is_broken { 5 } else { 1 };
        if self.idle_events > most {
            return Err(Failure::Server(self.describe_pending()));
        }
        let mut done = std::mem::take(&mut self.done);
        self.world.advance(next, &mut done);
        self.record_faults();
        for answer in done.drain(..) {
            self.with_server(|server, outside| server.completed(answer, outside));
        }
        self.done = done;
        let mut reports = std::mem::take(&mut self.reports);
        self.sockets.advance(self.world.now(), &mut self.world.memory, &mut reports);
        for report in reports.drain(..) {
            self.with_server(|server, outside| deliver_report(report, server, outside));
        }
        self.reports = reports;
        self.note_crowd();
        self.with_server(Server::turn);
        self.turn_of_clients()?;
        self.run_other_actors()?;
        self.run_recording()?;
        self.run_side_operators()?;
        self.count_event()?;
        Ok(true)
    }

    /// Describes pending work, for a server that runs without completing anything.
    pub(super) fn describe_pending(&self) -> String {
        let now = self.world.now();
        let clients: Vec<_> = self.clients.iter().flatten().map(|c| c.next(now, &self.sockets)).collect();
        let server = self.server.as_ref().and_then(|server| server.deadline(now));
        let volumes = self.server.as_ref().and_then(|server| Volumes::deadline(server.volumes()));
        let (world, sockets) = (self.world.next_event(), self.sockets.next_event());
        let operator = self.operator.next(now, &self.sockets);
        let doing = self.server.as_ref().map(Server::volumes).map(|engine| {
            Activity::ALL.into_iter().filter(|activity| engine.is_doing(*activity)).collect::<Vec<_>>()
        });
        let counts = self.server.as_ref().map(Server::counts);
        format!(
            "{doing:?}, {counts:?}: no end at {now}: due are the server {server:?} (its volumes \
             {volumes:?}), devices {world:?}, \
             sockets {sockets:?}, clients {clients:?}, the \
             operator {operator:?}, {} strangers",
            self.hostile_clients.len()
        )
    }

    /// Counts an event: the pending crash is one event nearer.
    fn count_event(&mut self) -> Result<(), Failure> {
        self.copies.count_event();
        self.crash_copies()?;
        if let Some((left, time)) = self.jump.take() {
            match left {
                0 | 1 => self.jump(time),
                _ => self.jump = Some((left - 1, time)),
            }
        }
        self.pending_crash.count_event()
    }

    /// Lets clients send and receive as much as they can.
    fn turn_of_clients(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        for number in 0..self.clients.len() {
            let Some(client) = &mut self.clients[number] else { continue };
            if client.next(now, &self.sockets).is_none_or(|next| next > now) {
                // The time limit of its next wait begins when it begins to wait.
                if !client.is_waiting() {
                    client.last_progress = now;
                }
                let is_late = now.since(client.last_progress) > REPLY_TIMEOUT && client.is_waiting();
                if is_late && !self.faults.is_broken {
                    return Err(self.stuck_failure(number));
                }
                continue;
            }
            let was_asking = client.admission_requested;
            let (mut judge, Some(client), sockets, moment) = self.judge(number) else { continue };
            let turn = client.turn(now, moment, sockets, &mut judge)?;
            let asked_in = client.admission_requested;
            self.world.add_to_digest(turn.digest_word ^ (number as u64).rotate_left(20) ^ turn.answered);
            if turn.made_progress || turn.is_over {
                self.idle_events = 0;
            }
            self.answered += turn.answered;
            self.answered_since_crash += turn.answered;
            self.statistics.requests += turn.answered;
            self.statistics.no_space += turn.no_space;
            self.statistics.errors += turn.errors;
            self.statistics.compared += turn.compared;
            self.statistics.damaged_data += turn.damaged;
            if asked_in != was_asking {
                let entered = &mut self.admission_times[self.front.clients[number].volume];
                *entered = (*entered).max(self.moment);
            }
            if turn.handshake_done {
                self.handshake_completed(number)?;
            }
            self.note_requests(&turn);
            if turn.volume_missing {
                self.forget(number);
            } else if turn.is_aborted {
                self.reconnect(number);
            } else if turn.is_over {
                self.connection_closed(number, turn.digest_word == 1)?;
            }
        }
        Ok(())
    }

    /// Passes clients' requests and replies to the recording's check.
    fn note_requests(&mut self, turn: &TurnResult) {
        self.client_requests.extend(turn.begun.iter().map(|(_, key)| *key));
        if let Some(recording) = &mut self.recording {
            turn.begun.iter().for_each(|(ticket, key)| recording.note_request(*ticket, *key));
            turn.ended.iter().for_each(|(ticket, _)| recording.note_reply(*ticket));
        }
    }

    fn stuck_failure(&self, number: usize) -> Failure {
        let what = match &self.clients[number] {
            Some(client) => format!("nothing moves since {}: {client:?}", client.last_progress),
            None => String::new(),
        };
        Failure::Client { client: number, what }
    }

    /// Advances until this many more requests are answered, or none is in flight.
    pub(super) fn wait(&mut self, answers: u64) -> Result<(), Failure> {
        let until = self.answered.saturating_add(answers);
        while self.answered < until && self.unanswered() > 0 {
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::Server(format!("{} requests are never answered", self.unanswered())));
            }
        }
        Ok(())
    }

    pub(super) fn drain(&mut self) -> Result<(), Failure> {
        self.wait(u64::MAX)
    }

    pub(super) fn advance_by(&mut self, time: Nanos) -> Result<(), Failure> {
        let until = self.world.now() + time;
        while self.advance(until)? {}
        self.world.advance(until, &mut self.done);
        Ok(())
    }
}

fn deliver_report(
    report: Report,
    server: &mut Server<Engine, Sockets>,
    outside: &mut Environment<'_, Sockets, WorldMemory>,
) {
    match report {
        Report::Accepted { conn, control: true, .. } => server.accepted_control(conn, outside),
        Report::Accepted { conn, peer, .. } => server.accepted(conn, peer, outside),
        Report::Received { conn, result } => server.received(conn, result, outside),
        Report::Sent { conn, result } => server.sent(conn, result, outside),
        Report::Closed { conn } => server.closed(conn, outside),
    }
}
