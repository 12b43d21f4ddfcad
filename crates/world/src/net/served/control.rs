//! Further use of the control socket: recordings, and volumes that are created and removed beside those of
//! the clients.

use super::ServedPool;
use crate::driver::Failure;
use crate::net::operator::{Operator, SentRequest};
use crate::net::recording::{Recording, RecordingProgress};
use serde_json::json;
use std::collections::BTreeMap;
use weir_engine::Engine;
use weir_model::Nanos;

/// Volumes that no client writes to, by name: true if the volume is known to exist, false while it is being
/// created or removed.
pub(super) type SideVolumes = BTreeMap<String, bool>;

impl ServedPool {
    /// Begins a recording, or ends one.
    pub(super) fn record(&mut self) {
        if let Some(recording) = &mut self.recording {
            return recording.end(&mut self.sockets);
        }
        let all: Vec<usize> = (0..self.volumes.len()).filter(|n| !self.is_being_replaced(*n)).collect();
        let names: Vec<String> = all.iter().map(|number| self.volumes[*number].name.clone()).collect();
        let is_next = std::mem::replace(&mut self.has_recorded, true);
        self.recording = Recording::begin(all, &names, is_next, &mut self.sockets);
    }

    /// Lets the recording receive.
    pub(super) fn run_recording(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        let Some(recording) =
            self.recording.take_if(|r| r.next(now, &self.sockets).is_some_and(|at| at <= now))
        else {
            return Ok(());
        };
        match recording.turn(&mut self.sockets).map_err(Failure::Server)? {
            RecordingProgress::Active(recording) => self.recording = Some(recording),
            RecordingProgress::Complete(recording) => {
                recording.check(&self.client_requests).map_err(Failure::Server)?;
            }
            RecordingProgress::Refused => {}
        }
        Ok(())
    }

    /// Lets a second operator create a volume, or remove one.
    pub(super) fn churn(&mut self, aide: usize) {
        let aide = aide % self.side_operators.len();
        if self.side_operators[aide].is_waiting() {
            return;
        }
        let other = &self.side_operators[1 - aide];
        let is_of =
            |name: &String| matches!(other.sent(), Some(SentRequest::SideVolume(of, _)) if of == name);
        let is_free = |name: &&String| !is_of(name);
        let known = self.side_volumes.iter().filter(|(_, is_known)| **is_known).map(|(name, _)| name);
        let there: Vec<String> = known.filter(is_free).cloned().collect();
        let (now, many) = (self.world.now(), there.len() >= 3);
        let (name, line, creates) =
            match there.into_iter().next().filter(|_| many || self.world.fork_rng().chance(0.4)) {
                Some(name) => (name.clone(), json!({"do": "remove_volume", "name": name}), false),
                None => {
                    self.names += 1;
                    let name = format!("side{}", self.names);
                    (name.clone(), json!({"do": "create_volume", "name": name, "size_bytes": 262_144}), true)
                }
            };
        self.side_volumes.insert(name.clone(), false);
        self.side_operators[aide].send_request(
            &line.to_string(),
            SentRequest::SideVolume(name, creates),
            now,
            &mut self.sockets,
        );
    }

    /// Lets the aides receive their answers.
    pub(super) fn run_side_operators(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        for aide in 0..self.side_operators.len() {
            if self.side_operators[aide].is_late(now, self.control_timeout()) {
                return Err(self.timeout_failure(&self.side_operators[aide]));
            }
            if self.side_operators[aide].next(now, &self.sockets).is_none_or(|next| next > now) {
                continue;
            }
            let asked = self.side_operators[aide].sent().cloned();
            match (self.side_operators[aide].turn(now, &mut self.sockets), asked) {
                (Ok(None), _) => {}
                (Ok(Some((SentRequest::SideVolume(name, creates), answer))), _) => {
                    self.idle_events = 0;
                    self.check_side_answer(&name, creates, &answer.to_string())?;
                }
                (Ok(Some((asked, answer))), _) => {
                    return Err(Failure::Server(format!("{asked:?} is answered with {answer}")));
                }
                // The server evicted it before it had sent its request.
                (Err(_), Some(SentRequest::SideVolume(..)))
                    if self.side_operators[aide].may_be_disconnected() || self.is_stopping =>
                {
                    self.side_operators[aide].disconnect(&mut self.sockets);
                    self.side_operators[aide] = Operator::default();
                }
                (Err(what), _) => return Err(Failure::Server(what)),
            }
        }
        Ok(())
    }

    /// Handles the answer about a volume beside the others. It is not removed while strangers use it, and not
    /// created if the pool is full. In any case it is then known whether it exists.
    fn check_side_answer(&mut self, name: &str, creates: bool, answer: &str) -> Result<(), Failure> {
        let engine = self.server.as_ref().map(weir_session::Server::volumes);
        let is_there = engine.is_some_and(|engine| engine.volumes().any(|volume| volume.name == name));
        let is_refused = answer.contains("\"refused\"") || answer.contains("\"environment\"");
        let is_done = answer == "\"done\"" && is_there == creates;
        if !is_done && !is_refused {
            return Err(Failure::Server(format!("volume {name} was to come or to go: {answer}")));
        }
        if !is_done && self.faults.is_broken {
            // The change may be in a frame that is found at the next crash.
            return Ok(());
        }
        if is_there {
            self.side_volumes.insert(name.to_owned(), true);
        } else {
            self.side_volumes.remove(name);
        }
        Ok(())
    }

    /// After a crash: volumes that existed still do, and for the others it becomes known whether they do.
    pub(super) fn settle_side_volumes(&mut self, engine: &Engine) -> Result<(), Failure> {
        let found: Vec<String> = engine.volumes().map(|volume| volume.name).collect();
        if let Some((gone, _)) =
            self.side_volumes.iter().find(|(name, there)| **there && !found.contains(name))
        {
            let expected = format!("{gone}, which was made");
            return Err(Failure::Volumes { found: format!("{found:?}"), expected });
        }
        self.side_volumes.retain(|name, _| found.contains(name));
        self.side_volumes.values_mut().for_each(|there| *there = true);
        Ok(())
    }

    /// Returns the time of the next action of aides or a recording.
    pub(super) fn next_control_event(&self, now: Nanos) -> Option<Nanos> {
        let aides = self.side_operators.iter().filter_map(|aide| aide.next(now, &self.sockets));
        aides.chain(self.recording.as_ref().and_then(|recording| recording.next(now, &self.sockets))).min()
    }

    /// Waits for the control socket's requests, and ends all sessions.
    pub(super) fn end_control(&mut self) -> Result<(), Failure> {
        loop {
            self.end_orders(true)?;
            let Some(recording) = &mut self.recording else { return Ok(()) };
            recording.end(&mut self.sockets);
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::Server("a recording never ends".to_owned()));
            }
        }
    }

    /// Waits for the answer to the operator, and to the aides if `of_aides` is set.
    pub(super) fn end_orders(&mut self, of_aides: bool) -> Result<(), Failure> {
        while self.operator.is_waiting()
            || !self.operator.orders.is_empty()
            || (of_aides && self.side_operators.iter().any(Operator::is_waiting))
        {
            if !self.advance(Nanos::MAX)? {
                return Err(self.timeout_failure(&self.operator));
            }
        }
        Ok(())
    }
}
