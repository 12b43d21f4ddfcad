//! Several operator commands in flight at once, while clients send requests: volumes are created, removed and
//! changed, some with the same name.
//!
//! The engine judges a command when it is given, by the commands given before, durable or not. So it is known
//! at once which ones must be refused, and why. The others take effect in the order in which they were given.
//! After a crash, the state of a name is that after some number of its commands, which include all
//! acknowledged ones.

use super::{Ask, Crash, Driver, Failure, Health, Volume, VolumeSpec};
use crate::Ticket;
use std::collections::BTreeMap;
use weir_engine::{AdminCommand, AdminError, AdminId, AdminReply};
use weir_map::Hardening;
use weir_model::{Bytes, Nanos, Op, RequestError};

/// Size of volumes beside those of the clients.
const SPARE: Bytes = Bytes::kib(256);

/// A command of an operator. Volumes are given by index, modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Remove a volume, even while clients use it.
    Remove(usize),
    /// Create the successor of a volume whose removal was requested.
    Succeed(usize),
    /// Create another volume with the name of this one.
    SameName(usize),
    /// Set when the volume's map is durable; its successor's, once that was requested.
    Harden(usize, Hardening),
    /// Create a volume that no client uses, with one of a few names.
    MakeSpare(usize),
    /// Remove it.
    RemoveSpare(usize),
}

/// One of several submissions made without waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Submission {
    /// A command of an operator.
    Order(Order),
    /// A request of a client.
    Ask(Ask),
}

/// The volume that bears a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bearer {
    Nothing,
    /// The volume that had it when the commands began.
    First,
    Another,
}

/// The sequence of states of something, of which a crash leaves one.
#[derive(Clone, Debug)]
struct Course<T> {
    states: Vec<T>,
    /// Index of the first state that a crash may leave.
    done: usize,
}

impl<T: Copy + PartialEq> Course<T> {
    fn from(state: T) -> Self {
        Self { states: vec![state], done: 0 }
    }

    /// Adds the state after a command; returns its index.
    fn push(&mut self, state: T) -> usize {
        self.states.push(state);
        self.states.len() - 1
    }

    /// Handles the acknowledgement of a step.
    fn acknowledge(&mut self, step: usize) {
        self.done = self.done.max(step);
    }

    fn last(&self) -> T {
        self.states[self.states.len() - 1]
    }

    fn allows(&self, found: T) -> bool {
        self.states[self.done..].contains(&found)
    }
}

/// The required answer to a command.
#[derive(Clone, Debug)]
enum Due {
    Named(String, usize),
    Removed(String, usize),
    Hardened(String, usize),
    Exists,
    NotFound,
    NoRoom,
}

/// Facts that only the engine knows when a command is given.
struct Known {
    /// A volume of the name exists. A volume being created can be addressed once its creation is durable, and
    /// the name of one being removed is free once its removal is: possibly before they are acknowledged.
    is_there: bool,
    /// The metadata area has room for another volume; [`metadata_room`](super::metadata_room) checks that
    /// this is denied only for good reason.
    has_room: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    id: AdminId,
    what: String,
    due: Due,
}

/// Commands in flight, and their effects.
#[derive(Clone, Debug, Default)]
pub(super) struct Commands {
    pending: Vec<Pending>,
    names: BTreeMap<String, Course<Bearer>>,
    hardening: BTreeMap<String, Course<Hardening>>,
    /// By volume, the name of its successor.
    successors: BTreeMap<usize, String>,
    /// By volume, when its removal was requested.
    removed: BTreeMap<usize, Ticket>,
}

impl Commands {
    fn of(volumes: &[Volume]) -> Self {
        let named = |volume: &Volume| (volume.name.clone(), Course::from(Bearer::First));
        let hard = |volume: &Volume| (volume.name.clone(), Course::from(volume.spec.hardening));
        Self {
            names: volumes.iter().map(named).collect(),
            hardening: volumes.iter().map(hard).collect(),
            ..Self::default()
        }
    }

    fn bearer(&self, name: &str) -> Bearer {
        self.names.get(name).map_or(Bearer::Nothing, Course::last)
    }

    /// Reports whether a volume of this name is being removed.
    fn is_leaving(&self, name: &str) -> bool {
        self.pending.iter().any(|pending| matches!(&pending.due, Due::Removed(of, _) if of == name))
    }

    fn go_to(&mut self, name: &str, bearer: Bearer) -> usize {
        self.names.entry(name.to_owned()).or_insert_with(|| Course::from(Bearer::Nothing)).push(bearer)
    }

    /// Reports whether a volume of this name is being created.
    fn is_coming(&self, name: &str) -> bool {
        self.pending.iter().any(|pending| matches!(&pending.due, Due::Named(of, _) if of == name))
    }

    /// Returns the required answer to a command that is given now.
    fn foresee(&mut self, command: &AdminCommand, known: &Known) -> Due {
        match command {
            AdminCommand::CreateVolume { name, .. }
                if self.bearer(name) != Bearer::Nothing || (self.is_leaving(name) && known.is_there) =>
            {
                Due::Exists
            }
            AdminCommand::CreateVolume { .. } if !known.has_room => Due::NoRoom,
            AdminCommand::CreateVolume { name, hardening, .. } => {
                self.hardening.insert(name.clone(), Course::from(*hardening));
                Due::Named(name.clone(), self.go_to(name, Bearer::Another))
            }
            AdminCommand::RemoveVolume { name } | AdminCommand::SetHardening { name, .. }
                if self.bearer(name) == Bearer::Nothing || (self.is_coming(name) && !known.is_there) =>
            {
                Due::NotFound
            }
            AdminCommand::RemoveVolume { name } => {
                Due::Removed(name.clone(), self.go_to(name, Bearer::Nothing))
            }
            AdminCommand::SetHardening { name, hardening } => {
                let course = self.hardening.entry(name.clone()).or_insert_with(|| Course::from(*hardening));
                Due::Hardened(name.clone(), course.push(*hardening))
            }
        }
    }

    /// Handles the successful answer to a command.
    fn acknowledge(&mut self, due: &Due) {
        let (name, step) = match due {
            Due::Named(name, step) | Due::Removed(name, step) => (name, *step),
            Due::Hardened(name, step) => {
                let course = self.hardening.get_mut(name);
                return course.into_iter().for_each(|course| course.acknowledge(*step));
            }
            Due::Exists | Due::NotFound | Due::NoRoom => return,
        };
        self.names.get_mut(name).into_iter().for_each(|course| course.acknowledge(step));
    }
}

impl Driver {
    /// Submits everything in order, then waits for the answers. With failing devices they may never arrive:
    /// then a power loss repairs the devices.
    pub(super) fn submit_all(&mut self, all: &[Submission]) -> Result<(), Failure> {
        self.commands = Some(Commands::of(&self.volumes));
        let submitted = all.iter().try_for_each(|submission| match submission {
            Submission::Order(order) => self.give_order(*order),
            Submission::Ask(ask) => self.ask(*ask),
        });
        match submitted.and_then(|()| self.end_commands()) {
            Err(Failure::Admin { error: AdminError::Failed(_) | AdminError::Damaged(_), .. })
                if self.health == Health::Broken =>
            {
                Err(self.armed.now(&Crash::at_once()))
            }
            other => other,
        }
    }

    fn give_order(&mut self, order: Order) -> Result<(), Failure> {
        let of = |volume: usize| volume % self.volumes.len();
        let Some(commands) = &self.commands else { return Ok(()) };
        let command = match order {
            Order::Remove(volume) => {
                let name = self.volumes[of(volume)].name.clone();
                if commands.bearer(&name) == Bearer::First {
                    return self.begin_removal(of(volume));
                }
                AdminCommand::RemoveVolume { name }
            }
            Order::Succeed(volume) => match commands.successors.get(&of(volume)) {
                Some(name) => create(name, &self.volumes[of(volume)].spec),
                None => return Ok(()),
            },
            Order::SameName(volume) => create(&self.volumes[of(volume)].name, &self.volumes[of(volume)].spec),
            Order::Harden(volume, hardening) => {
                let volume = of(volume);
                if hardening == Hardening::Flush {
                    self.oracle.first_writes_are_not_durable(volume);
                }
                let successor = commands.successors.get(&volume);
                let successor = successor.filter(|name| commands.bearer(name) != Bearer::Nothing);
                let name = successor.unwrap_or(&self.volumes[volume].name).clone();
                AdminCommand::SetHardening { name, hardening }
            }
            Order::MakeSpare(number) => {
                let spec = VolumeSpec { size: SPARE, hardening: Hardening::Flush, copies: 1, policy: None };
                create(&format!("spare{number}"), &spec)
            }
            Order::RemoveSpare(number) => AdminCommand::RemoveVolume { name: format!("spare{number}") },
        };
        self.give(command)
    }

    /// Requests the removal of a volume: no request submitted from now on may be executed.
    fn begin_removal(&mut self, volume: usize) -> Result<(), Failure> {
        self.names += 1;
        let new = format!("volume{volume}-{}", self.names);
        let name = self.volumes[volume].name.clone();
        // Earlier requests may be answered while the command is given.
        self.pump()?;
        let latest = self.oracle.latest();
        if let Some(commands) = &mut self.commands {
            commands.successors.insert(volume, new);
            commands.removed.insert(volume, latest);
        }
        self.give(AdminCommand::RemoveVolume { name })
    }

    /// Gives a command, after handling the answers to earlier ones.
    fn give(&mut self, command: AdminCommand) -> Result<(), Failure> {
        self.hear_answers()?;
        let Some(commands) = &self.commands else { return Ok(()) };
        if let AdminCommand::CreateVolume { name, .. } = &command {
            let is_known = commands.bearer(name) != Bearer::Nothing || commands.is_leaving(name);
            // Its removal had begun before a crash, and is continuing.
            if !is_known && self.engine.map().catalogue().by_name(name).is_some() {
                return Ok(());
            }
        }
        self.give_foreseen(command)
    }

    /// Checks answers to commands against the required ones.
    fn hear_answers(&mut self) -> Result<(), Failure> {
        while let Some(AdminReply { id, result }) = self.engine.next_admin_reply() {
            self.idle_events = 0;
            let Some(commands) = &mut self.commands else { return Ok(()) };
            let at = commands.pending.iter().position(|pending| pending.id == id);
            let Some(at) = at else { return Err(Failure::StrayAnswer(id)) };
            let Pending { what, due, .. } = commands.pending.remove(at);
            match (&due, result) {
                (Due::Exists, Err(AdminError::Exists(_)))
                | (Due::NotFound, Err(AdminError::NotFound(_)))
                | (Due::NoRoom, Err(AdminError::Failed(RequestError::NoSpace))) => {}
                (Due::Exists | Due::NotFound | Due::NoRoom, Ok(_)) => {
                    return Err(Failure::Done { command: what });
                }
                (_, Err(error)) => return Err(Failure::Admin { command: what, error }),
                (Due::Named(..) | Due::Removed(..) | Due::Hardened(..), Ok(_)) => commands.acknowledge(&due),
            }
            if let Due::Removed(name, _) = &due {
                self.check_drained(name)?;
            }
        }
        Ok(())
    }

    /// Checks that no request to a removed volume is in flight, except flushes, which have nothing left to
    /// do.
    fn check_drained(&self, name: &str) -> Result<(), Failure> {
        let Some(volume) = self.volumes.iter().position(|volume| volume.name == name) else { return Ok(()) };
        let mut left = self.under_way.values().map(|request| request.ask);
        match left.find(|ask| ask.volume == volume && ask.op != Op::Flush) {
            Some(ask) => Err(Failure::RemovedUnder { ask }),
            None => Ok(()),
        }
    }

    /// Reports whether the volume of a request is being removed, and whether the removal was requested before
    /// the request.
    pub(super) fn is_being_removed(&self, volume: usize, ticket: Ticket) -> Option<bool> {
        let at = self.commands.as_ref()?.removed.get(&volume)?;
        Some(ticket > *at)
    }

    /// Registers a command with its required answer, and gives it.
    fn give_foreseen(&mut self, command: AdminCommand) -> Result<(), Failure> {
        let Some(commands) = &mut self.commands else { return Ok(()) };
        let (AdminCommand::CreateVolume { name, .. }
        | AdminCommand::RemoveVolume { name }
        | AdminCommand::SetHardening { name, .. }) = &command;
        let map = self.engine.map();
        let is_there = map.catalogue().by_name(name).is_some();
        let due = commands.foresee(&command, &Known { is_there, has_room: map.has_metadata_room() });
        let (id, what) = (AdminId(self.admins + 1), format!("{command:?}"));
        commands.pending.push(Pending { id, what, due });
        self.command(command)?;
        self.hear_answers()
    }

    /// Checks the answer to a request to a volume that is being removed. No request submitted after the
    /// removal may be executed.
    pub(super) fn check_removal(
        &self,
        ask: Ask,
        ticket: Ticket,
        error: Option<RequestError>,
    ) -> Result<(), Failure> {
        if self.is_being_removed(ask.volume, ticket) == Some(true) && error != Some(RequestError::NoVolume) {
            return Err(Failure::AfterRemoval { ask });
        }
        Ok(())
    }

    fn wait_for_answers(&mut self) -> Result<(), Failure> {
        loop {
            self.hear_answers()?;
            let pending = self.commands.as_ref().and_then(|commands| commands.pending.first());
            let Some(Pending { what, .. }) = pending else { return Ok(()) };
            let what = what.clone();
            if !self.advance(Nanos::MAX)? {
                return Err(Failure::NeverDone(what));
            }
        }
    }

    /// Waits for all commands, and restores the pool: each volume, or its successor, exists, and no other
    /// one.
    fn end_commands(&mut self) -> Result<(), Failure> {
        self.wait_for_answers()?;
        let Some(commands) = &self.commands else { return Ok(()) };
        let missing = |(_, name): &(&usize, &String)| commands.bearer(name) == Bearer::Nothing;
        let missing: Vec<_> =
            commands.successors.iter().filter(missing).map(|(v, n)| (*v, n.clone())).collect();
        for (volume, name) in missing {
            self.create_missing(volume, &name)?;
        }
        self.wait_for_answers()?;
        let successors =
            self.commands.as_ref().map(|commands| commands.successors.clone()).unwrap_or_default();
        for (volume, name) in successors {
            while self.under_way.values().any(|request| request.ask.volume == volume) {
                self.wait(1)?;
            }
            self.succeeded_by(volume, name)?;
        }
        self.learn_hardening();
        let is_spare = |name: &String| self.volumes.iter().all(|volume| volume.name != *name);
        let spare: Vec<_> = self.engine.volumes().map(|volume| volume.name).filter(is_spare).collect();
        for name in spare {
            self.give(AdminCommand::RemoveVolume { name })?;
        }
        self.wait_for_answers()?;
        self.commands = None;
        self.check_volumes()
    }

    /// Creates a successor whose creation was not requested, or was refused.
    fn create_missing(&mut self, volume: usize, name: &str) -> Result<(), Failure> {
        let command = create(name, &self.volumes[volume].spec);
        let give = |driver: &mut Self| {
            driver.give_foreseen(command.clone())?;
            let bearer = driver.commands.as_ref().map(|commands| commands.bearer(name));
            Ok(bearer != Some(Bearer::Nothing))
        };
        if give(self)? {
            return Ok(());
        }
        if self.health != Health::Whole {
            let error = AdminError::Failed(RequestError::NoSpace);
            return Err(Failure::Admin { command: format!("{command:?}"), error });
        }
        self.wait_for_answers()?;
        self.make_metadata_room(give)
    }

    /// Replaces a volume by its successor.
    fn succeeded_by(&mut self, volume: usize, name: String) -> Result<(), Failure> {
        let Some(found) = self.engine.volumes().find(|found| found.name == name) else {
            return Err(Failure::Volumes { found: "no successor".to_owned(), expected: name });
        };
        let spec = self.volumes[volume].spec;
        let choice = spec.policy.and_then(weir_policy::placement::for_tests);
        self.engine.set_volume_policy(self.world.now(), &name, choice);
        self.replaced(volume, Volume { id: found.id, name: name.clone(), spec });
        if let Some(commands) = &mut self.commands {
            commands.successors.remove(&volume);
            commands.removed.remove(&volume);
            commands.names.insert(name, Course::from(Bearer::First));
        }
        Ok(())
    }

    /// Adopts the hardening of all volumes, after all commands that change it have ended.
    fn learn_hardening(&mut self) {
        let Some(commands) = &self.commands else { return };
        let last = |name: &String| commands.hardening.get(name).map(Course::last);
        let all: Vec<_> = self.volumes.iter().map(|volume| last(&volume.name)).collect();
        for (volume, hardening) in all.into_iter().enumerate() {
            hardening.into_iter().for_each(|hardening| self.hardened(volume, hardening));
        }
    }

    /// Settles commands that a crash has interrupted: each was executed or not, and the acknowledged ones
    /// were. Missing volumes are then created, and surplus ones removed.
    pub(super) fn settle_commands(&mut self) -> Result<(), Failure> {
        let Some(commands) = self.commands.take() else { return Ok(()) };
        let found: Vec<_> = self.engine.volumes().collect();
        for (name, course) in &commands.names {
            let volume = found.iter().find(|volume| volume.name == *name);
            let own = self.volumes.iter().find(|volume| volume.name == *name).map(|volume| volume.id);
            let bearer = match volume {
                None => Bearer::Nothing,
                Some(volume) if own == Some(volume.id) => Bearer::First,
                Some(_) => Bearer::Another,
            };
            if !course.allows(bearer) {
                let (found, expected) = (format!("{name}: {bearer:?}"), format!("{course:?}"));
                return Err(Failure::Volumes { found, expected });
            }
            let (Some(volume), Some(course)) = (volume, commands.hardening.get(name)) else { continue };
            if !course.allows(volume.hardening) {
                let (found, expected) = (format!("{name}: {:?}", volume.hardening), format!("{course:?}"));
                return Err(Failure::Volumes { found, expected });
            }
        }
        let mut left = Commands::of(&self.volumes);
        for volume in &found {
            left.hardening.insert(volume.name.clone(), Course::from(volume.hardening));
            left.names.entry(volume.name.clone()).or_insert_with(|| Course::from(Bearer::Another));
        }
        let is_gone = |volume: &Volume| found.iter().all(|found| found.id != volume.id);
        for (volume, name) in commands.successors {
            if is_gone(&self.volumes[volume]) {
                let old = self.volumes[volume].name.clone();
                let other = found.iter().any(|found| found.name == old);
                let bearer = if other { Bearer::Another } else { Bearer::Nothing };
                left.names.insert(old, Course::from(bearer));
                left.successors.insert(volume, name);
            }
        }
        self.commands = Some(left);
        match self.end_commands() {
            Err(Failure::Admin { error: AdminError::Failed(_) | AdminError::Damaged(_), .. })
                if self.health == Health::Broken =>
            {
                self.crash(&Crash::at_once())
            }
            other => other,
        }
    }
}

fn create(name: &str, spec: &VolumeSpec) -> AdminCommand {
    let VolumeSpec { size, hardening, copies, .. } = *spec;
    AdminCommand::CreateVolume { name: name.to_owned(), size, hardening, copies }
}
