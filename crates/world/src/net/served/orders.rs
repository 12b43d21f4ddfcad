//! The operator's orders, and the checks of the answers.

use super::Served;
use crate::driver::Failure;
use crate::net::operator::{Asked, Order};
use serde_json::{Value, json};
use weir_engine::Engine;
use weir_map::Hardening;
use weir_model::Nanos;

/// A volume being removed, and its replacement.
#[derive(Clone, Debug)]
pub(super) struct Replacing {
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

impl Served {
    pub(super) fn order(&mut self, order: &Order) {
        match *order {
            Order::Record => return self.record(),
            Order::Churn(aide) => return self.churn(aide),
            _ => {}
        }
        self.operator.orders.push_back(*order);
    }

    /// Reports whether a volume's clients have to stay away.
    pub(super) fn is_being_replaced(&self, volume: usize) -> bool {
        self.replacing.as_ref().is_some_and(|replacing| replacing.volume == volume)
    }

    /// Lets the operator and the hostile clients act.
    pub(super) fn turn_of_others(&mut self) -> Result<(), Failure> {
        let now = self.world.now();
        self.visitors.iter_mut().for_each(|visitor| visitor.turn(now, &mut self.sockets));
        self.visitors.retain(|visitor| !visitor.is_gone());
        if self.operator.next(now, &self.sockets).is_none_or(|next| next > now) {
            let is_late = self.operator.is_late(now, self.ordered_within());
            return if is_late { Err(self.not_answered(&self.operator)) } else { Ok(()) };
        }
        let turn = self.operator.turn(now, &mut self.sockets);
        if let Some((asked, answer)) = turn.map_err(|what| self.operator_cut_off(&what))? {
            self.idle_events = 0;
            self.heard(&asked, &answer)?;
        }
        if !self.operator.is_asking()
            && self.operator.rests_until <= now
            && let Some(order) = self.operator.orders.pop_front()
        {
            self.give(&order, now);
        }
        Ok(())
    }

    fn give(&mut self, order: &Order, now: Nanos) {
        let of = |volume: usize| volume % self.volumes.len();
        let name = |volume: usize| self.volumes[of(volume)].name.clone();
        let (line, asked) = match *order {
            Order::Status => (json!({"do": "status"}), Asked::Status),
            Order::Explain(volume, at) => {
                let (volume, size) = (of(volume), self.volumes[of(volume)].spec.size);
                let line = json!({"do": "explain", "volume": name(volume), "offset_bytes": at.0 % size.0});
                (line, Asked::Explain { volume: name(volume), may_lack: self.is_being_replaced(volume) })
            }
            Order::Harden(volume, hardening) => {
                let volume = of(volume);
                if self.is_being_replaced(volume) {
                    return;
                }
                if hardening == Hardening::Flush {
                    self.oracle.first_writes_need_a_flush(volume);
                }
                let line = json!({"do": "set_hardening", "name": name(volume), "hardening": word(hardening)});
                (line, Asked::Harden(volume, hardening))
            }
            Order::Policy(policy) => (json!({"do": "set_policy", "name": policy}), Asked::Policy),
            Order::OwnPolicy(volume, policy) => {
                if self.is_being_replaced(of(volume)) {
                    return;
                }
                let line = json!({"do": "set_volume_policy", "volume": name(volume), "name": policy});
                (line, Asked::Policy)
            }
            Order::Replace(volume) => match self.begin_replacing(of(volume)) {
                Some(removal) => removal,
                None => return,
            },
            Order::RemoveUsed(volume) => {
                let volume = of(volume);
                if !self.is_used(volume) || self.is_being_replaced(volume) {
                    return;
                }
                let line = json!({"do": "remove_volume", "name": name(volume)});
                // If all clients disconnect before the server decides, the volume is removed after all.
                self.clients.iter_mut().flatten().filter(|c| c.volume() == volume).for_each(|c| c.may_lack());
                (line, Asked::RemoveUsed(volume))
            }
            Order::Stop => (json!({"do": "stop"}), Asked::Stop),
            Order::Record | Order::Churn(_) => return,
            Order::Garbage => (json!({"do": "dance"}), Asked::Garbage),
        };
        if asked.is_change() {
            self.unsettled = Some(asked.clone());
        }
        let is_listened_to = self.operator.ask(&line.to_string(), asked, now, &mut self.sockets);
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
        matches!(self.operator.asked(), Some(Asked::RemoveUsed(asked)) if *asked == volume)
    }

    /// Handles the removal of a volume. A client that uses it now has done so since before the server decided
    /// that it is unused.
    fn removed(&mut self, volume: usize) -> Result<(), Failure> {
        if self.is_used(volume) {
            return Err(Failure::Server(format!("volume {volume} was removed under its clients")));
        }
        self.make_way(volume);
        self.replacing.iter_mut().for_each(|replacing| replacing.removed = true);
        self.leave_volume(volume);
        self.operator.orders.push_front(Order::Replace(0));
        Ok(())
    }

    /// Begins to replace a volume by another one.
    fn make_way(&mut self, volume: usize) {
        if self.replacing.is_none() {
            self.names += 1;
            let new = format!("volume{volume}-{}", self.names);
            self.replacing = Some(Replacing { volume, new, removed: false });
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
    pub(super) fn note_removal_cut_short(&mut self) {
        if let Some(Asked::RemoveUsed(volume)) = self.operator.asked().cloned()
            && !self.is_used(volume)
        {
            self.make_way(volume);
        }
    }

    /// Disconnects all clients of a volume and requests its removal.
    fn begin_replacing(&mut self, volume: usize) -> Option<(Value, Asked)> {
        self.make_way(volume);
        let Replacing { volume, new, removed } = self.replacing.clone()?;
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
            (line, Asked::Create(volume))
        } else {
            (json!({"do": "remove_volume", "name": self.volumes[volume].name}), Asked::Remove(volume))
        })
    }

    /// Checks an answer.
    fn heard(&mut self, asked: &Asked, answer: &Value) -> Result<(), Failure> {
        self.world
            .note(answer.to_string().bytes().fold(7u64, |word, byte| word.rotate_left(5) ^ u64::from(byte)));
        let is_done = *answer == json!("done");
        let class = answer["failed"]["class"].as_str().unwrap_or_default();
        let refused = class == "refused" && answer["failed"]["message"].is_string();
        let is_right = match *asked {
            Asked::Status => self.agrees(&answer["status"]["volumes"]),
            Asked::Explain { ref volume, may_lack } => {
                answer["explained"]["volume"] == json!(volume) || (may_lack && class == "usage")
            }
            Asked::Harden(volume, hardening) if is_done => {
                self.volumes[volume].spec.hardening = hardening;
                if hardening == Hardening::Write {
                    self.oracle.first_writes_are_durable(volume);
                }
                true
            }
            Asked::Policy | Asked::Stop => is_done,
            Asked::Remove(_) if refused => {
                // The server may still have some of the disconnected clients.
                self.operator.rests_until = self.world.now() + Nanos::millis(1);
                self.operator.orders.push_front(Order::Replace(0));
                true
            }
            Asked::Remove(volume) | Asked::RemoveUsed(volume) if is_done => {
                self.removed(volume)?;
                true
            }
            Asked::Create(_) if is_done => {
                self.replaced();
                true
            }
            Asked::RemoveUsed(_) if refused => true,
            Asked::Garbage => class == "usage",
            Asked::RemoveUsed(volume) if self.is_used(volume) => {
                return Err(Failure::Server(format!(
                    "the removal of a volume in use is answered with {answer}"
                )));
            }
            Asked::Harden(..)
            | Asked::Remove(_)
            | Asked::RemoveUsed(_)
            | Asked::Create(_)
            | Asked::Side(..) => false,
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
    fn agrees(&self, names: &Value) -> bool {
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
        let Some(Replacing { volume, new, .. }) = self.replacing.take() else { return };
        self.recording.iter_mut().for_each(|recording| recording.forget(volume));
        for lost in self.lost.extract_if(.., |lost| lost.volume == volume) {
            self.oracle.given_up(lost.ticket);
        }
        self.volumes[volume].name = new;
        self.oracle.blank(volume);
        self.kept.forget_volume(volume);
    }

    /// Settles an order that a crash has interrupted: it was executed, or it was not.
    pub(super) fn settle_order(&mut self, engine: &Engine) -> Result<(), Failure> {
        if let Some(Asked::Harden(volume, wanted)) = self.unsettled.take() {
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
        let Some(Replacing { volume, new, removed }) = self.replacing.clone() else { return Ok(()) };
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
