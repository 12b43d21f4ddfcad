//! The task that begins queued actions (the queue is in `policy/actions.rs`) and resumes paced moves.

use crate::DataPath;
use crate::ids::MoveId;
use crate::mover::Mover;
use crate::mover::piggyback::PiggybackRead;
use crate::mover::transfer::{Move, Stage};
use crate::task::Task;
use smallvec::SmallVec;
use weir_map::ExtentState;
use weir_model::{BlockRange, ExtentKey, Memory, Nanos, PlaceKind};
use weir_policy::placement::Action;

impl Task for Mover {
    type On = DataPath;

    /// Returns the time at which the first paced move continues.
    fn due(data: &DataPath) -> Option<Nanos> {
        data.mover.moves.iter().filter_map(|(_, m)| data.move_due(m)).min()
    }

    fn can_run(data: &DataPath) -> bool {
        data.mover_can_begin()
    }

    /// Begins queued actions, as far as there are buffers.
    fn run<M: Memory>(data: &mut DataPath, _: &mut M) {
        if !data.mover.moves.is_empty() {
            data.resume_moves();
        }
        while data.mover_can_begin() {
            let Some(action) = data.base.host.actions.pop() else { return };
            data.begin_action(action, None);
        }
    }

    /// Whether no move is in flight.
    fn is_idle(data: &DataPath) -> bool {
        data.mover.moves.is_empty()
    }
}

impl Mover {
    /// Returns the extents with a move in flight.
    pub(crate) fn moving_extents(&self) -> impl Iterator<Item = ExtentKey> + '_ {
        self.moves.iter().map(|(_, task)| task.key)
    }
}

impl DataPath {
    /// Returns the number of moves in flight and queued.
    pub(crate) fn mover_load(&self) -> usize {
        self.base.host.actions.len() + self.mover.moves.len()
    }

    /// Whether a queued action could begin now.
    fn mover_can_begin(&self) -> bool {
        !self.base.host.actions.is_empty() && self.base.space.scratch.has_run()
    }

    /// Returns when a paced move continues: at once if it must end, because changes have stopped or its
    /// volume is being removed.
    fn move_due(&self, task: &Move) -> Option<Nanos> {
        let ends =
            self.base.core.stopped_changes.is_some() || self.base.requests.is_being_removed(task.key.volume);
        match task.stage {
            Stage::Paced(at) => Some(if ends { self.base.core.now } else { at }),
            _ => None,
        }
    }

    /// Resumes the paced moves that are due.
    fn resume_moves(&mut self) {
        let due = |m: &Move| self.move_due(m).is_some_and(|at| at <= self.base.core.now);
        let due: SmallVec<[usize; 4]> =
            self.mover.moves.iter().filter(|(_, m)| due(m)).map(|(id, _)| id).collect();
        for id in due {
            self.mover.moves[id].stage = Stage::Starting;
            self.next_run(MoveId(id), None);
        }
    }

    /// Begins an action, with the bytes of a client's read if one can deliver them.
    pub(crate) fn begin_action(&mut self, action: Action, client_read: Option<PiggybackRead>) {
        let volume = action.key().volume;
        let gone = self.base.core.map.volume(volume).is_none() || self.base.requests.is_being_removed(volume);
        if gone || self.base.core.stopped_changes.is_some() {
            return;
        }
        match action {
            Action::Copy { key, blocks, to } => self.begin_move(key, blocks, to, false, client_read),
            Action::Move { key, blocks, to } => self.begin_move(key, blocks, to, true, client_read),
            Action::Drop { key, blocks, from } => self.drop_from(key, blocks, from),
            Action::Refresh { key } => self.refresh(key),
        }
    }

    /// Brings the extent's whole places up to date.
    fn refresh(&mut self, key: ExtentKey) {
        let ExtentState::Record(record) = self.base.core.map.find(key) else { return };
        let ids = record.places.iter().map(|p| p.at.id()).filter(|id| id.kind == PlaceKind::Whole);
        let places: Vec<_> = ids.collect();
        let blocks = BlockRange { first: 0, count: self.base.core.map.extent().blocks() };
        for to in places {
            self.base.host.actions.push(Action::Copy { key, blocks, to });
        }
    }
}
