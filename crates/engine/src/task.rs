//! What the engine does by itself, besides answering requests and commands: a bounded step at a time.

use crate::{Base, DataPath, Engine};
use weir_model::{Memory, Nanos};

/// Something the engine does by itself. All tasks are listed once, in `lib.rs`, in the order in which they
/// run; [`Engine::tick`], [`Engine::deadline`] and the end of a stop follow from that list.
pub(crate) trait Task {
    /// The layer it works on.
    type On: Layer;

    /// When its next step is due, if time decides that.
    fn due(_on: &Self::On) -> Option<Nanos> {
        None
    }

    /// Whether it could make a step now, whatever the time.
    fn can_run(_on: &Self::On) -> bool {
        false
    }

    /// Makes one bounded step, if there is anything to be done.
    fn run<M: Memory>(on: &mut Self::On, memory: &mut M);

    /// Whether nothing of it keeps a stop from ending: it has nothing in flight, and nothing is left to be
    /// done before the devices may be closed.
    fn is_idle(_on: &Self::On) -> bool {
        true
    }
}

/// A layer of the engine: itself, or one of those below.
pub(crate) trait Layer {
    /// The layer of this engine.
    fn of(engine: &Engine) -> &Self;

    /// The layer of this engine.
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

/// Makes of a list of tasks what the engine's face needs of them all. They are named, not looked up: no call
/// is indirect, and a task without a step of some kind costs nothing.
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

            /// When the first task is due.
            fn tasks_due(&self) -> Option<::weir_model::Nanos> {
                let due = [$(<$task as $crate::task::Task>::due($crate::task::Layer::of(self))),*];
                due.into_iter().flatten().min()
            }

            /// Whether no task keeps a stop from ending.
            fn tasks_are_idle(&self) -> bool {
                true $(&& <$task as $crate::task::Task>::is_idle($crate::task::Layer::of(self)))*
            }
        }
    };
}
pub(crate) use tasks;
