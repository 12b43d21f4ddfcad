//! What the mover is asked for: a bounded queue, and the task that begins what is in it.

use crate::Engine;
use crate::ids::MoveId;
use crate::mover::Mover;
use crate::mover::piggyback::Feed;
use crate::mover::transfer::{Move, Stage};
use crate::space::Space;
use crate::task::Task;
use smallvec::SmallVec;
use std::collections::VecDeque;
use weir_map::Found;
use weir_model::{BlockRange, ExtentKey, Memory, Nanos, PlaceKind};
use weir_policy::placement::Action;

/// Actions asked for that wait; more are not taken.
const MAX: usize = 64;

/// What the mover has yet to begin.
#[derive(Debug, Default)]
pub(super) struct Queue {
    asked: VecDeque<Action>,
    /// Copies that are owed: they begin before what policies ask for, which may be something all the time.
    owed: VecDeque<Action>,
}

impl Queue {
    /// Adds what a policy asks for, unless too much waits.
    pub(super) fn push(&mut self, action: Action) {
        if self.room() > 0 {
            self.asked.push_back(action);
        }
    }

    /// The next one to begin.
    pub(super) fn pop(&mut self) -> Option<Action> {
        self.owed.pop_front().or_else(|| self.asked.pop_front())
    }

    /// The next one about an extent, taken out if it is one that is wanted.
    pub(super) fn take(&mut self, key: ExtentKey, wanted: impl Fn(&Action) -> bool) -> Option<Action> {
        let of_extent = |queue: &VecDeque<Action>| queue.iter().position(|action| action.key() == key);
        let (queue, at) = match of_extent(&self.owed) {
            Some(at) => (&mut self.owed, at),
            None => {
                let at = of_extent(&self.asked)?;
                (&mut self.asked, at)
            }
        };
        if wanted(&queue[at]) { queue.remove(at) } else { None }
    }

    /// How many more that policies ask for are taken.
    pub(super) fn room(&self) -> usize {
        MAX.saturating_sub(self.asked.len())
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len() + self.owed.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Mover {
    /// How many more actions are taken.
    pub(crate) fn room(&self) -> usize {
        self.queue.room()
    }
}

impl Task for Mover {
    /// When a move that waits for time of its devices goes on.
    fn due(engine: &Engine) -> Option<Nanos> {
        engine.mover.moves.iter().filter_map(|(_, m)| engine.move_due(m)).min()
    }

    fn can_run(engine: &Engine) -> bool {
        engine.mover.mover_can_begin(&engine.space)
    }

    /// Begins what is asked for, as far as there are buffers.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if !engine.mover.moves.is_empty() {
            engine.resume_moves();
        }
        while engine.mover.mover_can_begin(&engine.space) {
            let Some(action) = engine.mover.queue.pop() else { return };
            engine.carry_out(action, None);
        }
    }

    /// Nothing is being moved.
    fn is_idle(engine: &Engine) -> bool {
        engine.mover.moves.is_empty()
    }
}

impl Mover {
    /// Asks for a copy that is owed.
    pub(crate) fn request_owed(&mut self, action: Action) {
        self.queue.owed.push_back(action);
    }

    /// No copy that is owed waits to be begun.
    pub(crate) fn has_begun_what_is_owed(&self) -> bool {
        self.queue.owed.is_empty()
    }

    /// Something is queued that could begin now with the bytes of a client's read.
    #[inline]
    pub(crate) fn mover_can_be_fed(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Moves under way, and queued.
    pub(crate) fn mover_load(&self) -> usize {
        self.queue.len() + self.moves.len()
    }

    /// The extents something is being moved in.
    pub(crate) fn moving(&self) -> impl Iterator<Item = ExtentKey> + '_ {
        self.moves.iter().map(|(_, task)| task.key)
    }

    /// The next action queued about an extent, taken out of the queue, if it is one that is wanted.
    pub(crate) fn take_queued(&mut self, key: ExtentKey, wanted: impl Fn(&Action) -> bool) -> Option<Action> {
        self.queue.take(key, wanted)
    }
}

impl Mover {
    /// Something is queued that could begin now.
    pub(crate) fn mover_can_begin(&self, space: &Space) -> bool {
        !self.queue.is_empty() && space.scratch.has_run()
    }
}

impl Engine {
    /// Asks the mover for something. It is done when there is a buffer, as far as it can be; beyond a
    /// bounded queue it is not taken. For drivers and tests; policies ask in their rounds.
    pub fn request_action(&mut self, action: Action) {
        self.mover.queue.push(action);
    }

    /// When a move goes on, if it waits for time of its devices; to its end at once, where nothing is to be
    /// moved any more.
    fn move_due(&self, task: &Move) -> Option<Nanos> {
        let ends = self.core.stopped_changes.is_some() || self.admin.is_being_removed(task.key.volume);
        match task.stage {
            Stage::WaitsForTime(at) => Some(if ends { self.core.now } else { at }),
            _ => None,
        }
    }

    /// Goes on with moves that waited for time of their devices.
    fn resume_moves(&mut self) {
        let due = |m: &Move| self.move_due(m).is_some_and(|at| at <= self.core.now);
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
        let gone = self.core.map.volume(volume).is_none() || self.admin.is_being_removed(volume);
        if gone || self.core.stopped_changes.is_some() {
            return;
        }
        match action {
            Action::Copy { key, blocks, to } => self.begin_move(key, blocks, to, false, feed),
            Action::Move { key, blocks, to } => self.begin_move(key, blocks, to, true, feed),
            Action::Drop { key, blocks, from } => self.mover.drop_from(
                &mut self.core,
                &mut self.requests,
                &mut self.durability,
                key,
                blocks,
                from,
            ),
            Action::Refresh { key } => self.refresh(key),
        }
    }

    /// Whole places get what they lack.
    fn refresh(&mut self, key: ExtentKey) {
        let Found::Record(record) = self.core.map.find(key) else { return };
        let ids = record.places.iter().map(|p| p.at.id()).filter(|id| id.kind == PlaceKind::Whole);
        let places: Vec<_> = ids.collect();
        let blocks = BlockRange { first: 0, count: self.core.map.extent().blocks() };
        for to in places {
            self.request_action(Action::Copy { key, blocks, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::{ExtentIndex, VolumeId};

    #[test]
    fn what_is_owed_comes_before_what_policies_ask_for() {
        let about =
            |index| Action::Refresh { key: ExtentKey { volume: VolumeId(1), index: ExtentIndex(index) } };
        let mut queue = Queue::default();
        queue.push(about(1));
        queue.owed.push_back(about(2));
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(about(2)), Some(about(1)), None));
    }
}
