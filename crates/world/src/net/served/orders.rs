//! The operator's orders, and the checks of the answers.

use super::ServedPool;
use crate::driver::Failure;
use crate::net::operator::{OperatorRequest, SentRequest};
use serde_json::{Value, json};
use weir_engine::Engine;
use weir_map::Hardening;
use weir_model::Nanos;

/// A volume being removed, and its replacement.
#[derive(Clone, Debug)]
pub(super) struct PendingReplacement {
    volume: usize,
    new: String,
    removed: bool,
}

const fn word(hardening: Hardening) -> &'static str {
    match hardening {
        Hardening::Flush => "flush",
        Hardening::Write => "write",
    }
}

impl ServedPool {
    pub(super) fn queue_request(&mut self, order: &OperatorRequest) {
        match *order {
            OperatorRequest::Record => return self.record(),
            OperatorRequest::Churn(aide) => return self.churn(aide),
            _ => {}
        }
        self.operator.orders.push_back(*order);
    }

    /// Reports whether a volume's clients have to stay away.
    pub(super) fn is_being_replaced(&self, volume: usize) -> bool {
        self.replacing.as_ref().is_some_and(|replacing| replacing.volume == volume)
    }

    /// Lets the operator and the hostile clients act.
    pub(super) fn run_other_actors(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        self.hostile_clients.iter_mut().for_each(|visitor| visitor.turn(now, &mut self.sockets));
        self.hostile_clients.retain(|visitor| !visitor.is_closed());
        if self.operator.next(now, &self.sockets).is_none_or(|next| next > now) {
            let is_late = self.operator.is_late(now, self.control_timeout());
            return if is_late { Err(self.timeout_failure(&self.operator)) } else { Ok(()) };
        }
        let turn = self.operator.turn(now, &mut self.sockets);
        if let Some((asked, answer)) = turn.map_err(|what| self.operator_disconnected(&what))? {
            self.idle_events = 0;
            self.check_answer(&asked, &answer)?;
        }
        if !self.operator.is_waiting()
            && self.operator.pauses_until <= now
            && let Some(order) = self.operator.orders.pop_front()
        {
            self.send_to_server(&order, now);
        }
        Ok(())
    }

    fn send_to_server(&mut self, order: &OperatorRequest, now: Nanos) {
        let of = |volume: usize| volume % self.volumes.len();
        let name = |volume: usize| self.volumes[of(volume)].name.clone();
        let (line, asked) = match *order {
            OperatorRequest::Status => (json!({"do": "status"}), SentRequest::Status),
            OperatorRequest::Explain(volume, at) => {
                let (volume, size) = (of(volume), self.volumes[of(volume)].spec.size);
                let line = json!({"do": "explain", "volume": name(volume), "offset_bytes": at.0 % size.0});
                (
                    line,
                    SentRequest::Explain {
                        volume: name(volume),
                        volume_may_vanish: self.is_being_replaced(volume),
                    },
                )
            }
            OperatorRequest::Harden(volume, hardening) => {
                let volume = of(volume);
                if self.is_being_replaced(volume) {
                    return;
                }
                if hardening == Hardening::Flush {
                    self.oracle.first_writes_need_a_flush(volume);
                }
                let line = json!({"do": "set_hardening", "name": name(volume), "hardening": word(hardening)});
                (line, SentRequest::Harden(volume, hardening))
            }
            OperatorRequest::Policy(policy) => {
                (json!({"do": "set_policy", "name": policy}), SentRequest::Policy)
            }
            OperatorRequest::VolumePolicy(volume, policy) => {
                if self.is_being_replaced(of(volume)) {
                    return;
                }
                let line = json!({"do": "set_volume_policy", "volume": name(volume), "name": policy});
                (line, SentRequest::Policy)
            }
            OperatorRequest::Replace(volume) => match self.begin_replacing(of(volume)) {
                Some(removal) => removal,
                None => return,
            },
            OperatorRequest::RemoveUsed(volume) => {
                let volume = of(volume);
                if !self.is_used(volume) || self.is_being_replaced(volume) {
                    return;
                }
                let line = json!({"do": "remove_volume", "name": name(volume)});
                // If all clients disconnect before the server decides, the volume is removed after all.
                self.clients
                    .iter_mut()
                    .flatten()
                    .filter(|c| c.volume() == volume)
                    .for_each(|c| c.note_volume_may_vanish());
                (line, SentRequest::RemoveUsed(volume))
            }
            OperatorRequest::Stop => (json!({"do": "stop"}), SentRequest::Stop),
            OperatorRequest::Record | OperatorRequest::Churn(_) => return,
            OperatorRequest::Garbage => (json!({"do": "dance"}), SentRequest::Garbage),
        };
        if asked.is_change() {
            self.unsettled = Some(asked.clone());
        }
        let is_listened_to = self.operator.send_request(&line.to_string(), asked, now, &mut self.sockets);
        debug_assert!(is_listened_to || self.is_stopping, "somebody listens at the control socket");
    }

    /// Reports whether a client uses a volume, so that it is not removed.
    fn is_used(&self, volume: usize) -> bool {
        let mut users = self.clients.iter().flatten().filter(|client| client.is_steady(&self.sockets));
        users.any(|client| client.volume() == volume)
    }

    /// Reports whether a volume may be removed although a client used it when the removal was requested: the
    /// last client may have disconnected before the server decided.
    pub(super) fn may_be_removed(&self, volume: usize) -> bool {
        matches!(self.operator.sent(), Some(SentRequest::RemoveUsed(asked)) if *asked == volume)
    }

    /// Handles the removal of a volume. A client that uses it now has done so since before the server decided
    /// that it is unused.
    fn removed(&mut self, volume: usize) -> Result<(), Failure> {
        if self.is_used(volume) {
            return Err(Failure::Server(format!("volume {volume} was removed under its clients")));
        }
        self.schedule_replacement(volume);
        self.replacing.iter_mut().for_each(|replacing| replacing.removed = true);
        self.leave_volume(volume);
        self.operator.orders.push_front(OperatorRequest::Replace(0));
        Ok(())
    }

    /// Begins to replace a volume by another one.
    fn schedule_replacement(&mut self, volume: usize) {
        if self.replacing.is_none() {
            self.names += 1;
            let new = format!("volume{volume}-{}", self.names);
            self.replacing = Some(PendingReplacement { volume, new, removed: false });
        }
    }

    /// Closes the connections of all clients of a volume.
    fn leave_volume(&mut self, volume: usize) {
        let of_it = |number: &usize| self.front.clients[*number].volume == volume;
        let all: Vec<usize> = (0..self.clients.len()).filter(of_it).collect();
        all.into_iter().for_each(|number| self.forget(number));
    }

    /// Handles an abrupt stop: a volume whose removal was requested while a client used it may be gone if
    /// none uses it any more.
    pub(super) fn note_interrupted_removal(&mut self) {
        if let Some(SentRequest::RemoveUsed(volume)) = self.operator.sent().cloned()
            && !self.is_used(volume)
        {
            self.schedule_replacement(volume);
        }
    }

    /// Disconnects all clients of a volume and requests its removal.
    fn begin_replacing(&mut self, volume: usize) -> Option<(Value, SentRequest)> {
        self.schedule_replacement(volume);
        let PendingReplacement { volume, new, removed } = self.replacing.clone()?;
        if !removed {
            // Clients may have connected since the last attempt.
            self.leave_volume(volume);
        }
        let spec = self.volumes[volume].spec;
        Some(if removed {
            let (size, hardening) = (spec.size.0, word(spec.hardening));
            let line = json!({
                "do": "create_volume", "name": new, "size_bytes": size, "hardening": hardening, "copies": spec.copies,
            });
            (line, SentRequest::Create(volume))
        } else {
            (json!({"do": "remove_volume", "name": self.volumes[volume].name}), SentRequest::Remove(volume))
        })
    }

    /// Checks an answer.
    fn check_answer(&mut self, asked: &SentRequest, answer: &Value) -> Result<(), Failure> {
        self.world.add_to_digest(
            answer.to_string().bytes().fold(7u64, |word, byte| word.rotate_left(5) ^ u64::from(byte)),
        );
        let is_done = *answer == json!("done");
        let class = answer["failed"]["class"].as_str().unwrap_or_default();
        let refused = class == "refused" && answer["failed"]["message"].is_string();
        let is_right = match *asked {
            SentRequest::Status => self.lists_existing_volumes(&answer["status"]["volumes"]),
            SentRequest::Explain { ref volume, volume_may_vanish: may_lack } => {
                answer["explained"]["volume"] == json!(volume) || (may_lack && class == "usage")
            }
            SentRequest::Harden(volume, hardening) if is_done => {
                self.volumes[volume].spec.hardening = hardening;
                if hardening == Hardening::Write {
                    self.oracle.first_writes_are_durable(volume);
                }
                true
            }
            SentRequest::Policy | SentRequest::Stop => is_done,
            SentRequest::Remove(_) if refused => {
                // The server may still have some of the disconnected clients.
                self.operator.pauses_until = self.world.now() + Nanos::millis(1);
                self.operator.orders.push_front(OperatorRequest::Replace(0));
                true
            }
            SentRequest::Remove(volume) | SentRequest::RemoveUsed(volume) if is_done => {
                self.removed(volume)?;
                true
            }
            SentRequest::Create(_) if is_done => {
                self.replaced();
                true
            }
            SentRequest::RemoveUsed(_) if refused => true,
            SentRequest::Garbage => class == "usage",
            SentRequest::RemoveUsed(volume) if self.is_used(volume) => {
                return Err(Failure::Server(format!(
                    "the removal of a volume in use is answered with {answer}"
                )));
            }
            SentRequest::Harden(..)
            | SentRequest::Remove(_)
            | SentRequest::RemoveUsed(_)
            | SentRequest::Create(_)
            | SentRequest::SideVolume(..) => false,
        };
        if is_right {
            self.unsettled = None;
            return Ok(());
        }
        if asked.is_change() && answer["failed"]["message"].is_string() {
            return Err(self.change_failed(asked, answer));
        }
        Err(Failure::Server(format!("at the control socket: {asked:?} is answered with {answer}")))
    }

    /// Reports whether these are the names of the existing volumes.
    fn lists_existing_volumes(&self, names: &Value) -> bool {
        let Some(names) = names.as_array() else { return false };
        let is_replaced = |number: usize| self.is_being_replaced(number);
        let expected = self.volumes.iter().enumerate().filter(|(number, _)| !is_replaced(*number));
        let expected: Vec<_> = expected.map(|(_, volume)| json!(volume.name)).collect();
        // Other volumes are created and removed meanwhile.
        let is_own = |name: &&Value| !name.as_str().is_some_and(|name| name.starts_with("side"));
        let others: Vec<_> = names.iter().filter(is_own).collect();
        let spare = usize::from(self.replacing.is_some());
        (expected.len()..=expected.len() + spare).contains(&others.len())
            && expected.iter().all(|name| others.contains(&name))
    }

    /// Handles the creation of the new volume, which is blank.
    fn replaced(&mut self) {
        let Some(PendingReplacement { volume, new, .. }) = self.replacing.take() else { return };
        self.recording.iter_mut().for_each(|recording| recording.forget(volume));
        for lost in self.lost_changes.extract_if(.., |lost| lost.volume == volume) {
            self.oracle.abandon_change(lost.ticket);
        }
        self.volumes[volume].name = new;
        self.oracle.reset_volume(volume);
        self.space_guarantees.forget_volume(volume);
    }

    /// Settles an order that a crash has interrupted: it was executed, or it was not.
    pub(super) fn settle_request(&mut self, engine: &Engine) -> Result<(), Failure> {
        if let Some(SentRequest::Harden(volume, wanted)) = self.unsettled.take() {
            let found = engine.volumes().find(|found| found.name == self.volumes[volume].name);
            let Some(found) = found.map(|found| found.hardening) else { return Ok(()) };
            if found == wanted {
                self.volumes[volume].spec.hardening = wanted;
            }
            match self.volumes[volume].spec.hardening {
                Hardening::Write => self.oracle.first_writes_are_durable(volume),
                Hardening::Flush => self.oracle.first_writes_need_a_flush(volume),
            }
        }
        let Some(PendingReplacement { volume, new, removed }) = self.replacing.clone() else { return Ok(()) };
        let old = &self.volumes[volume].name;
        match engine.volumes().find(|found| found.name == new || found.name == *old) {
            Some(found) if found.name == *old && removed => {
                Err(Failure::Volumes { found: found.name, expected: "none, it was removed".to_owned() })
            }
            // It was not removed.
            Some(found) if found.name == *old => {
                self.replacing = None;
                Ok(())
            }
            // The new one exists, or will be created.
            _ => {
                self.replaced();
                Ok(())
            }
        }
    }
}
