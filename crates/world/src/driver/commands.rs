//! Several operator commands in flight at once, while clients send requests: volumes are created, removed and
//! changed, some with the same name.
//!
//! The engine judges a command when it is given, by the commands given before, durable or not. So it is known
//! at once which ones must be refused, and why. The others take effect in the order in which they were given.
//! After a crash, the state of a name is that after some number of its commands, which include all
//! acknowledged ones.

use super::{Crash, Driver, Failure, Health, RequestSpec, Volume, VolumeSpec};
use crate::Ticket;
use std::collections::BTreeMap;
use weir_engine::{AdminCommand, AdminError, AdminId, AdminReply};
use weir_map::Hardening;
use weir_model::{Bytes, Nanos, Op, RequestError};

/// Size of volumes beside those of the clients.
const SPARE: Bytes = Bytes::kib(256);

/// A command of an operator. Volumes are given by index, modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorCommand {
    /// Remove a volume, even while clients use it.
    Remove(usize),
    /// Create the successor of a volume whose removal was requested.
    CreateSuccessor(usize),
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
    Command(OperatorCommand),
    /// A request of a client.
    Request(RequestSpec),
}

/// The volume that bears a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameOwner {
    Nothing,
    /// The volume that had it when the commands began.
    First,
    Another,
}

/// The sequence of states of something, of which a crash leaves one.
#[derive(Clone, Debug)]
struct StateSequence<T> {
    states: Vec<T>,
    /// Index of the first state that a crash may leave.
    acknowledged: usize,
}

impl<T: Copy + PartialEq> StateSequence<T> {
    fn from(state: T) -> Self {
        Self { states: vec![state], acknowledged: 0 }
    }

    /// Adds the state after a command; returns its index.
    fn push(&mut self, state: T) -> usize {
        self.states.push(state);
        self.states.len() - 1
    }

    /// Handles the acknowledgement of a step.
    fn acknowledge(&mut self, step: usize) {
        self.acknowledged = self.acknowledged.max(step);
    }

    fn last(&self) -> T {
        self.states[self.states.len() - 1]
    }

    fn allows(&self, found: T) -> bool {
        self.states[self.acknowledged..].contains(&found)
    }
}

/// The required answer to a command.
#[derive(Clone, Debug)]
enum ExpectedAnswer {
    Named(String, usize),
    Removed(String, usize),
    Hardened(String, usize),
    Exists,
    NotFound,
    NoSpace,
}

/// Facts that only the engine knows when a command is given.
struct EngineFacts {
    /// A volume of the name exists. A volume being created can be addressed once its creation is durable, and
    /// the name of one being removed is free once its removal is: possibly before they are acknowledged.
    exists: bool,
    /// The metadata area has room for another volume; [`metadata_space`](super::metadata_space) checks that
    /// this is denied only for good reason.
    has_space: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    id: AdminId,
    what: String,
    expected: ExpectedAnswer,
}

/// Commands in flight, and their effects.
#[derive(Clone, Debug, Default)]
pub(super) struct Commands {
    pending: Vec<Pending>,
    names: BTreeMap<String, StateSequence<NameOwner>>,
    hardening: BTreeMap<String, StateSequence<Hardening>>,
    /// By volume, the name of its successor.
    successors: BTreeMap<usize, String>,
    /// By volume, when its removal was requested.
    removed: BTreeMap<usize, Ticket>,
}

impl Commands {
    fn of(volumes: &[Volume]) -> Self {
        let named = |volume: &Volume| (volume.name.clone(), StateSequence::from(NameOwner::First));
        let hard = |volume: &Volume| (volume.name.clone(), StateSequence::from(volume.spec.hardening));
        Self {
            names: volumes.iter().map(named).collect(),
            hardening: volumes.iter().map(hard).collect(),
            ..Self::default()
        }
    }

    fn bearer(&self, name: &str) -> NameOwner {
        self.names.get(name).map_or(NameOwner::Nothing, StateSequence::last)
    }

    /// Reports whether a volume of this name is being removed.
    fn is_being_removed(&self, name: &str) -> bool {
        self.pending
            .iter()
            .any(|pending| matches!(&pending.expected, ExpectedAnswer::Removed(of, _) if of == name))
    }

    fn push_owner(&mut self, name: &str, bearer: NameOwner) -> usize {
        self.names
            .entry(name.to_owned())
            .or_insert_with(|| StateSequence::from(NameOwner::Nothing))
            .push(bearer)
    }

    /// Reports whether a volume of this name is being created.
    fn is_being_created(&self, name: &str) -> bool {
        self.pending
            .iter()
            .any(|pending| matches!(&pending.expected, ExpectedAnswer::Named(of, _) if of == name))
    }

    /// Returns the required answer to a command that is given now.
    fn expected_answer(&mut self, command: &AdminCommand, known: &EngineFacts) -> ExpectedAnswer {
        match command {
            AdminCommand::CreateVolume { name, .. }
                if self.bearer(name) != NameOwner::Nothing
                    || (self.is_being_removed(name) && known.exists) =>
            {
                ExpectedAnswer::Exists
            }
            AdminCommand::CreateVolume { .. } if !known.has_space => ExpectedAnswer::NoSpace,
            AdminCommand::CreateVolume { name, hardening, .. } => {
                self.hardening.insert(name.clone(), StateSequence::from(*hardening));
                ExpectedAnswer::Named(name.clone(), self.push_owner(name, NameOwner::Another))
            }
            AdminCommand::RemoveVolume { name } | AdminCommand::SetHardening { name, .. }
                if self.bearer(name) == NameOwner::Nothing
                    || (self.is_being_created(name) && !known.exists) =>
            {
                ExpectedAnswer::NotFound
            }
            AdminCommand::RemoveVolume { name } => {
                ExpectedAnswer::Removed(name.clone(), self.push_owner(name, NameOwner::Nothing))
            }
            AdminCommand::SetHardening { name, hardening } => {
                let course =
                    self.hardening.entry(name.clone()).or_insert_with(|| StateSequence::from(*hardening));
                ExpectedAnswer::Hardened(name.clone(), course.push(*hardening))
            }
        }
    }

    /// Handles the successful answer to a command.
    fn acknowledge(&mut self, due: &ExpectedAnswer) {
        let (name, step) = match due {
            ExpectedAnswer::Named(name, step) | ExpectedAnswer::Removed(name, step) => (name, *step),
            ExpectedAnswer::Hardened(name, step) => {
                let course = self.hardening.get_mut(name);
                return course.into_iter().for_each(|course| course.acknowledge(*step));
            }
            ExpectedAnswer::Exists | ExpectedAnswer::NotFound | ExpectedAnswer::NoSpace => return,
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
            Submission::Command(order) => self.submit_operator_command(*order),
            Submission::Request(ask) => self.submit_request(*ask),
        });
        match submitted.and_then(|()| self.end_commands()) {
            Err(Failure::Admin { error: AdminError::Failed(_) | AdminError::Damaged(_), .. })
                if self.health == Health::Broken =>
            {
                Err(self.pending_crash.crash_now(&Crash::power_loss_now()))
            }
            other => other,
        }
    }

    fn submit_operator_command(&mut self, order: OperatorCommand) -> Result<(), Failure> {
        let of = |volume: usize| volume % self.volumes.len();
        let Some(commands) = &self.commands else { return Ok(()) };
        let command = match order {
            OperatorCommand::Remove(volume) => {
                let name = self.volumes[of(volume)].name.clone();
                if commands.bearer(&name) == NameOwner::First {
                    return self.begin_removal(of(volume));
                }
                AdminCommand::RemoveVolume { name }
            }
            OperatorCommand::CreateSuccessor(volume) => match commands.successors.get(&of(volume)) {
                Some(name) => create(name, &self.volumes[of(volume)].spec),
                None => return Ok(()),
            },
            OperatorCommand::SameName(volume) => {
                create(&self.volumes[of(volume)].name, &self.volumes[of(volume)].spec)
            }
            OperatorCommand::Harden(volume, hardening) => {
                let volume = of(volume);
                if hardening == Hardening::Flush {
                    self.oracle.first_writes_are_not_durable(volume);
                }
                let successor = commands.successors.get(&volume);
                let successor = successor.filter(|name| commands.bearer(name) != NameOwner::Nothing);
                let name = successor.unwrap_or(&self.volumes[volume].name).clone();
                AdminCommand::SetHardening { name, hardening }
            }
            OperatorCommand::MakeSpare(number) => {
                let spec = VolumeSpec { size: SPARE, hardening: Hardening::Flush, copies: 1, policy: None };
                create(&format!("spare{number}"), &spec)
            }
            OperatorCommand::RemoveSpare(number) => {
                AdminCommand::RemoveVolume { name: format!("spare{number}") }
            }
        };
        self.submit_when_ready(command)
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
        self.submit_when_ready(AdminCommand::RemoveVolume { name })
    }

    /// Gives a command, after handling the answers to earlier ones.
    fn submit_when_ready(&mut self, command: AdminCommand) -> Result<(), Failure> {
        self.check_answers()?;
        let Some(commands) = &self.commands else { return Ok(()) };
        if let AdminCommand::CreateVolume { name, .. } = &command {
            let is_known = commands.bearer(name) != NameOwner::Nothing || commands.is_being_removed(name);
            // Its removal had begun before a crash, and is continuing.
            if !is_known && self.engine.map().catalogue().by_name(name).is_some() {
                return Ok(());
            }
        }
        self.submit_with_expectation(command)
    }

    /// Checks answers to commands against the required ones.
    fn check_answers(&mut self) -> Result<(), Failure> {
        while let Some(AdminReply { id, result }) = self.engine.next_admin_reply() {
            self.idle_events = 0;
            let Some(commands) = &mut self.commands else { return Ok(()) };
            let at = commands.pending.iter().position(|pending| pending.id == id);
            let Some(at) = at else { return Err(Failure::StrayAnswer(id)) };
            let Pending { what, expected: due, .. } = commands.pending.remove(at);
            match (&due, result) {
                (ExpectedAnswer::Exists, Err(AdminError::Exists(_)))
                | (ExpectedAnswer::NotFound, Err(AdminError::NotFound(_)))
                | (ExpectedAnswer::NoSpace, Err(AdminError::Failed(RequestError::NoSpace))) => {}
                (ExpectedAnswer::Exists | ExpectedAnswer::NotFound | ExpectedAnswer::NoSpace, Ok(_)) => {
                    return Err(Failure::NotRefused { command: what });
                }
                (_, Err(error)) => return Err(Failure::Admin { command: what, error }),
                (
                    ExpectedAnswer::Named(..) | ExpectedAnswer::Removed(..) | ExpectedAnswer::Hardened(..),
                    Ok(_),
                ) => commands.acknowledge(&due),
            }
            if let ExpectedAnswer::Removed(name, _) = &due {
                self.check_drained(name)?;
            }
        }
        Ok(())
    }

    /// Checks that no request to a removed volume is in flight, except flushes, which have nothing left to
    /// do.
    fn check_drained(&self, name: &str) -> Result<(), Failure> {
        let Some(volume) = self.volumes.iter().position(|volume| volume.name == name) else { return Ok(()) };
        let mut left = self.in_flight.values().map(|request| request.ask);
        match left.find(|ask| ask.volume == volume && ask.op != Op::Flush) {
            Some(ask) => Err(Failure::RemovedWhileInUse { ask }),
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
    fn submit_with_expectation(&mut self, command: AdminCommand) -> Result<(), Failure> {
        let Some(commands) = &mut self.commands else { return Ok(()) };
        let (AdminCommand::CreateVolume { name, .. }
        | AdminCommand::RemoveVolume { name }
        | AdminCommand::SetHardening { name, .. }) = &command;
        let map = self.engine.map();
        let is_there = map.catalogue().by_name(name).is_some();
        let due = commands.expected_answer(
            &command,
            &EngineFacts { exists: is_there, has_space: map.has_metadata_space() },
        );
        let (id, what) = (AdminId(self.admins + 1), format!("{command:?}"));
        commands.pending.push(Pending { id, what, expected: due });
        self.submit_command(command)?;
        self.check_answers()
    }

    /// Checks the answer to a request to a volume that is being removed. No request submitted after the
    /// removal may be executed.
    pub(super) fn check_removal(
        &self,
        ask: RequestSpec,
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
            self.check_answers()?;
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
        let missing = |(_, name): &(&usize, &String)| commands.bearer(name) == NameOwner::Nothing;
        let missing: Vec<_> =
            commands.successors.iter().filter(missing).map(|(v, n)| (*v, n.clone())).collect();
        for (volume, name) in missing {
            self.create_missing(volume, &name)?;
        }
        self.wait_for_answers()?;
        let successors =
            self.commands.as_ref().map(|commands| commands.successors.clone()).unwrap_or_default();
        for (volume, name) in successors {
            while self.in_flight.values().any(|request| request.ask.volume == volume) {
                self.wait(1)?;
            }
            self.adopt_successor(volume, name)?;
        }
        self.adopt_hardening();
        let is_spare = |name: &String| self.volumes.iter().all(|volume| volume.name != *name);
        let spare: Vec<_> = self.engine.volumes().map(|volume| volume.name).filter(is_spare).collect();
        for name in spare {
            self.submit_when_ready(AdminCommand::RemoveVolume { name })?;
        }
        self.wait_for_answers()?;
        self.commands = None;
        self.check_volumes()
    }

    /// Creates a successor whose creation was not requested, or was refused.
    fn create_missing(&mut self, volume: usize, name: &str) -> Result<(), Failure> {
        let command = create(name, &self.volumes[volume].spec);
        let give = |driver: &mut Self| {
            driver.submit_with_expectation(command.clone())?;
            let bearer = driver.commands.as_ref().map(|commands| commands.bearer(name));
            Ok(bearer != Some(NameOwner::Nothing))
        };
        if give(self)? {
            return Ok(());
        }
        if self.health != Health::Healthy {
            let error = AdminError::Failed(RequestError::NoSpace);
            return Err(Failure::Admin { command: format!("{command:?}"), error });
        }
        self.wait_for_answers()?;
        self.free_metadata_space(give)
    }

    /// Replaces a volume by its successor.
    fn adopt_successor(&mut self, volume: usize, name: String) -> Result<(), Failure> {
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
            commands.names.insert(name, StateSequence::from(NameOwner::First));
        }
        Ok(())
    }

    /// Adopts the hardening of all volumes, after all commands that change it have ended.
    fn adopt_hardening(&mut self) {
        let Some(commands) = &self.commands else { return };
        let last = |name: &String| commands.hardening.get(name).map(StateSequence::last);
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
                None => NameOwner::Nothing,
                Some(volume) if own == Some(volume.id) => NameOwner::First,
                Some(_) => NameOwner::Another,
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
            left.hardening.insert(volume.name.clone(), StateSequence::from(volume.hardening));
            left.names.entry(volume.name.clone()).or_insert_with(|| StateSequence::from(NameOwner::Another));
        }
        let is_gone = |volume: &Volume| found.iter().all(|found| found.id != volume.id);
        for (volume, name) in commands.successors {
            if is_gone(&self.volumes[volume]) {
                let old = self.volumes[volume].name.clone();
                let other = found.iter().any(|found| found.name == old);
                let bearer = if other { NameOwner::Another } else { NameOwner::Nothing };
                left.names.insert(old, StateSequence::from(bearer));
                left.successors.insert(volume, name);
            }
        }
        self.commands = Some(left);
        match self.end_commands() {
            Err(Failure::Admin { error: AdminError::Failed(_) | AdminError::Damaged(_), .. })
                if self.health == Health::Broken =>
            {
                self.crash(&Crash::power_loss_now())
            }
            other => other,
        }
    }
}

fn create(name: &str, spec: &VolumeSpec) -> AdminCommand {
    let VolumeSpec { size, hardening, copies, .. } = *spec;
    AdminCommand::CreateVolume { name: name.to_owned(), size, hardening, copies }
}
