//! Periodic and background work of the engine, in bounded steps.

use crate::{Base, DataPath, Engine};
use weir_model::{Memory, Nanos};

/// A piece of work that the engine does on its own. `lib.rs` lists all tasks once, in the order in which they
/// run; [`Engine::tick`], [`Engine::deadline`] and the end of a stop derive from that list.
pub(crate) trait Task {
    /// The layer that the task works on.
    type On: Layer;

    /// Returns the time of the next step, if time decides that.
    fn due(_on: &Self::On) -> Option<Nanos> {
        None
    }

    /// Whether the task could make a step now, whatever the time.
    fn can_run(_on: &Self::On) -> bool {
        false
    }

    /// Makes one bounded step, if there is work.
    fn run<M: Memory>(on: &mut Self::On, memory: &mut M);

    /// Whether the task lets a stop end: it has nothing in flight, and nothing to do before the devices are
    /// closed.
    fn is_idle(_on: &Self::On) -> bool {
        true
    }
}

/// A layer of the engine: `Engine` itself, or one below it.
pub(crate) trait Layer {
    /// Returns this layer of the engine.
    fn of(engine: &Engine) -> &Self;

    /// Returns this layer of the engine, mutably.
    fn of_mut(engine: &mut Engine) -> &mut Self;
}

impl Layer for Engine {
    fn of(engine: &Engine) -> &Self {
        engine
    }

    fn of_mut(engine: &mut Engine) -> &mut Self {
        engine
    }
}

impl Layer for DataPath {
    fn of(engine: &Engine) -> &Self {
        &engine.data
    }

    fn of_mut(engine: &mut Engine) -> &mut Self {
        &mut engine.data
    }
}

impl Layer for Base {
    fn of(engine: &Engine) -> &Self {
        &engine.data.base
    }

    fn of_mut(engine: &mut Engine) -> &mut Self {
        &mut engine.data.base
    }
}

/// Returns the earlier of two times, if there is one.
#[inline]
pub(crate) fn earlier(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Generates the methods that run and query all tasks of a list. The calls are static: none is indirect, and
/// a task without a step of some kind costs nothing.
macro_rules! tasks {
    ($($task:ty),* $(,)?) => {
        impl $crate::Engine {
            /// Makes a step of every task, in order.
            fn run_tasks<M: ::weir_model::Memory>(&mut self, memory: &mut M) {
                $(
                    <$task as $crate::task::Task>::run($crate::task::Layer::of_mut(self), memory);
                    self.handle_effects();
                )*
            }

            /// Whether some task could make a step now.
            fn can_run_tasks(&self) -> bool {
                false $(|| <$task as $crate::task::Task>::can_run($crate::task::Layer::of(self)))*
            }

            /// Returns the time at which the first task is due.
            fn tasks_due(&self) -> Option<::weir_model::Nanos> {
                let mut first = None;
                $(
                    let due = <$task as $crate::task::Task>::due($crate::task::Layer::of(self));
                    first = $crate::task::earlier(first, due);
                )*
                first
            }

            /// Whether every task lets a stop end.
            fn tasks_are_idle(&self) -> bool {
                true $(&& <$task as $crate::task::Task>::is_idle($crate::task::Layer::of(self)))*
            }
        }
    };
}
pub(crate) use tasks;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_ignores_what_is_never_due() {
        let times = [None, Some(Nanos(1)), Some(Nanos(2))];
        for (one, other) in times.into_iter().flat_map(|one| times.map(|other| (one, other))) {
            assert_eq!(earlier(one, other), [one, other].into_iter().flatten().min());
        }
    }
}
