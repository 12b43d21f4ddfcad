//! What the mover is asked for: a bounded queue, and the task that begins what is in it.

use crate::Engine;
use crate::ids::MoveId;
use crate::mover::Mover;
use crate::mover::piggyback::Feed;
use crate::mover::transfer::{Move, Stage};
use crate::task::Task;
use smallvec::SmallVec;
use weir_map::Found;
use weir_model::{BlockRange, ExtentKey, Memory, Nanos, PlaceKind};
use weir_policy::placement::Action;

/// Actions that wait for a buffer; more are not taken.
const QUEUE_MAX: usize = 64;

impl Mover {
    /// How many more actions are taken.
    pub(crate) fn room(&self) -> usize {
        QUEUE_MAX.saturating_sub(self.queue.len())
    }
}

impl Task for Mover {
    /// When a move that waits for time of its devices goes on.
    fn due(engine: &Engine) -> Option<Nanos> {
        engine.mover.moves.iter().filter_map(|(_, m)| engine.move_due(m)).min()
    }

    fn can_run(engine: &Engine) -> bool {
        engine.mover_can_begin()
    }

    /// Begins what is asked for, as far as there are buffers.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if !engine.mover.moves.is_empty() {
            engine.resume_moves();
        }
        while engine.mover_can_begin() {
            let Some(action) = engine.mover.queue.pop_front() else { return };
            engine.carry_out(action, None);
        }
    }

    /// Nothing is being moved.
    fn is_idle(engine: &Engine) -> bool {
        engine.mover.moves.is_empty()
    }
}

impl Engine {
    /// Asks the mover for something. It is done when there is a buffer, as far as it can be; beyond a
    /// bounded queue it is not taken. For drivers and tests; policies ask in their rounds.
    pub fn request_action(&mut self, action: Action) {
        if self.mover.queue.len() < QUEUE_MAX {
            self.mover.queue.push_back(action);
        }
    }

    /// Something is queued that could begin now.
    pub(crate) fn mover_can_begin(&self) -> bool {
        !self.mover.queue.is_empty() && self.scratch.has_run()
    }

    /// Something is queued that could begin now with the bytes of a client's read.
    #[inline]
    pub(crate) fn mover_can_be_fed(&self) -> bool {
        !self.mover.queue.is_empty()
    }

    /// Moves under way, and queued.
    pub(crate) fn mover_load(&self) -> usize {
        self.mover.queue.len() + self.mover.moves.len()
    }

    /// Fewer moves than this are under way, and none waits.
    pub(crate) fn mover_has_room(&self, moves: usize) -> bool {
        self.mover.queue.is_empty() && self.mover.moves.len() < moves
    }

    /// When a move goes on, if it waits for time of its devices; to its end at once, where nothing is to be
    /// moved any more.
    fn move_due(&self, task: &Move) -> Option<Nanos> {
        let ends = self.stopped_changes.is_some() || self.admin.is_being_removed(task.key.volume);
        match task.stage {
            Stage::WaitsForTime(at) => Some(if ends { self.now } else { at }),
            _ => None,
        }
    }

    /// Goes on with moves that waited for time of their devices.
    fn resume_moves(&mut self) {
        let due = |m: &Move| self.move_due(m).is_some_and(|at| at <= self.now);
        let due: SmallVec<[usize; 4]> =
            self.mover.moves.iter().filter(|(_, m)| due(m)).map(|(id, _)| id).collect();
        for id in due {
            self.mover.moves[id].stage = Stage::Begins;
            self.next_run(MoveId(id), None);
        }
    }

    /// Begins what is asked for, with the bytes of a read if one has them.
    pub(crate) fn carry_out(&mut self, action: Action, feed: Option<Feed>) {
        let volume = action.key().volume;
        let gone = self.map.volume(volume).is_none() || self.admin.is_being_removed(volume);
        if gone || self.stopped_changes.is_some() {
            return;
        }
        match action {
            Action::Copy { key, blocks, to } => self.begin_move(key, blocks, to, false, feed),
            Action::Move { key, blocks, to } => self.begin_move(key, blocks, to, true, feed),
            Action::Drop { key, blocks, from } => self.drop_from(key, blocks, from),
            Action::Refresh { key } => self.refresh(key),
        }
    }

    /// The next action queued about an extent, taken out of the queue, if it is one that is wanted.
    pub(crate) fn take_queued(&mut self, key: ExtentKey, wanted: impl Fn(&Action) -> bool) -> Option<Action> {
        let at = self.mover.queue.iter().position(|action| action.key() == key)?;
        let wanted = wanted(&self.mover.queue[at]);
        if wanted { self.mover.queue.remove(at) } else { None }
    }

    /// Whole places get what they lack.
    fn refresh(&mut self, key: ExtentKey) {
        let Found::Record(record) = self.map.find(key) else { return };
        let ids = record.places.iter().map(|p| p.at.id()).filter(|id| id.kind == PlaceKind::Whole);
        let places: Vec<_> = ids.collect();
        let blocks = BlockRange { first: 0, count: self.map.extent().blocks() };
        for to in places {
            self.request_action(Action::Copy { key, blocks, to });
        }
    }
}
