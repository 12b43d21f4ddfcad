//! Several commands of operators under way at once, while clients ask: volumes come, go and change,
//! some of the same name.
//!
//! The engine judges a command when it is given, by what was asked for before, durable or not: so it is
//! known at once which ones must be refused, and why. The others take effect in the order in which they
//! were given. After a crash a name is as some number of its commands has left it, those that were
//! acknowledged among them.

use super::{Ask, Crash, Driver, Failure, Health, Volume, VolumeSpec};
use crate::Ticket;
use std::collections::BTreeMap;
use weir_engine::{AdminCommand, AdminError, AdminId, AdminReply};
use weir_map::Hardening;
use weir_model::{Bytes, Nanos, Op, RequestError};

/// The size of volumes beside those that clients use.
const SPARE: Bytes = Bytes::kib(256);

/// What an operator wants. Volumes are named by their position, taken modulo their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A volume is removed, whatever its clients are doing.
    Remove(usize),
    /// The volume that takes the place of one whose removal was asked for.
    Succeed(usize),
    /// Another volume under the name of this one.
    SameName(usize),
    /// When the volume's map is durable; that of its successor, once that was asked for.
    Harden(usize, Hardening),
    /// A volume that no client uses, of which there are a few names.
    MakeSpare(usize),
    /// It goes again.
    RemoveSpare(usize),
}

/// One of several things that are asked for without waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Submission {
    /// By an operator.
    Order(Order),
    /// By a client.
    Ask(Ask),
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bearer {
    Nothing,
    /// The volume that had it when the commands began.
    First,
    Another,
}

/// The states something goes through, of which a crash leaves one.
#[derive(Clone, Debug)]
struct Course<T> {
    states: Vec<T>,
    /// The first of those that a crash may leave.
    done: usize,
}

impl<T: Copy + PartialEq> Course<T> {
    fn from(state: T) -> Self {
        Self { states: vec![state], done: 0 }
    }

    /// A command was given; which step it is.
    fn push(&mut self, state: T) -> usize {
        self.states.push(state);
        self.states.len() - 1
    }

    /// A step was acknowledged.
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

/// What the answer to a command must be.
#[derive(Clone, Debug)]
enum Due {
    Named(String, usize),
    Removed(String, usize),
    Hardened(String, usize),
    Exists,
    NotFound,
    NoRoom,
}

/// What only the engine can say when a command is given.
struct Known {
    /// A volume of the name is there. One that is being made can be named once that is durable, and the name
    /// of one that is being removed is free once that is: which may be before it is acknowledged.
    is_there: bool,
    /// The metadata area takes another volume; [`metadata_room`](super::metadata_room) sees to it that this
    /// is denied only for good reason.
    has_room: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    id: AdminId,
    what: String,
    due: Due,
}

/// Commands under way, and what they have come to.
#[derive(Clone, Debug, Default)]
pub(super) struct Commands {
    pending: Vec<Pending>,
    names: BTreeMap<String, Course<Bearer>>,
    hardening: BTreeMap<String, Course<Hardening>>,
    /// By volume, the name of the one to come in its place.
    successors: BTreeMap<usize, String>,
    /// By volume, when its removal was asked for.
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

    /// Whether a volume of this name is on its way out.
    fn is_leaving(&self, name: &str) -> bool {
        self.pending.iter().any(|pending| matches!(&pending.due, Due::Removed(of, _) if of == name))
    }

    fn go_to(&mut self, name: &str, bearer: Bearer) -> usize {
        self.names.entry(name.to_owned()).or_insert_with(|| Course::from(Bearer::Nothing)).push(bearer)
    }

    /// Whether a volume of this name is being made.
    fn is_coming(&self, name: &str) -> bool {
        self.pending.iter().any(|pending| matches!(&pending.due, Due::Named(of, _) if of == name))
    }

    /// What becomes of a command that is given now.
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

    /// A command was carried out.
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
    /// Everything is asked for in turn, and then waited for. Where devices fail that may not be done:
    /// then the power is cut to have them mended.
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

    /// The removal of a volume is asked for: of what is asked from now on nothing is carried out.
    fn begin_removal(&mut self, volume: usize) -> Result<(), Failure> {
        self.names += 1;
        let new = format!("volume{volume}-{}", self.names);
        let name = self.volumes[volume].name.clone();
        // What was asked before may be answered while the command is given.
        self.pump()?;
        let latest = self.oracle.latest();
        if let Some(commands) = &mut self.commands {
            commands.successors.insert(volume, new);
            commands.removed.insert(volume, latest);
        }
        self.give(AdminCommand::RemoveVolume { name })
    }

    /// A command is given, and what has come of earlier ones is heard.
    fn give(&mut self, command: AdminCommand) -> Result<(), Failure> {
        self.hear_answers()?;
        let Some(commands) = &self.commands else { return Ok(()) };
        if let AdminCommand::CreateVolume { name, .. } = &command {
            let is_known = commands.bearer(name) != Bearer::Nothing || commands.is_leaving(name);
            // Before a crash its removal had begun, and it is going on.
            if !is_known && self.engine.map().catalogue().by_name(name).is_some() {
                return Ok(());
            }
        }
        self.give_foreseen(command)
    }

    /// Answers to commands are what was foreseen.
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

    /// Nothing is under way to a volume that has been removed; of flushes nothing is left to be done.
    fn check_drained(&self, name: &str) -> Result<(), Failure> {
        let Some(volume) = self.volumes.iter().position(|volume| volume.name == name) else { return Ok(()) };
        let mut left = self.under_way.values().map(|request| request.ask);
        match left.find(|ask| ask.volume == volume && ask.op != Op::Flush) {
            Some(ask) => Err(Failure::RemovedUnder { ask }),
            None => Ok(()),
        }
    }

    /// Whether the volume of a request is being removed, and whether that was asked for before the request.
    pub(super) fn is_being_removed(&self, volume: usize, ticket: Ticket) -> Option<bool> {
        let at = self.commands.as_ref()?.removed.get(&volume)?;
        Some(ticket > *at)
    }

    /// A command is noted, with what must become of it, and given.
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

    /// Whether a request to a volume that is being removed may be answered like this. None that was asked for
    /// after the removal is carried out.
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

    /// Waits for all commands, and puts the pool in order: each volume, or its successor, is there, and
    /// no other one.
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

    /// A successor that was not asked for, or refused, is made.
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

    /// A volume has made way for its successor.
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

    /// All commands that change when maps are durable have ended.
    fn learn_hardening(&mut self) {
        let Some(commands) = &self.commands else { return };
        let last = |name: &String| commands.hardening.get(name).map(Course::last);
        let all: Vec<_> = self.volumes.iter().map(|volume| last(&volume.name)).collect();
        for (volume, hardening) in all.into_iter().enumerate() {
            hardening.into_iter().for_each(|hardening| self.hardened(volume, hardening));
        }
    }

    /// A crash caught commands somewhere on their way: each is done or not, and those that were
    /// acknowledged are. What is lacking then is made, and what is too much removed.
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
