//! What the engine does by itself, besides answering requests and commands: a bounded step at a time.

use crate::Engine;
use weir_model::{Memory, Nanos};

/// Something the engine does by itself. All tasks are listed once, in `lib.rs`, in the order in which they
/// run; [`Engine::tick`], [`Engine::deadline`] and the end of a stop follow from that list.
pub(crate) trait Task {
    /// When its next step is due, if time decides that.
    fn due(_engine: &Engine) -> Option<Nanos> {
        None
    }

    /// Whether it could make a step now, whatever the time.
    fn can_run(_engine: &Engine) -> bool {
        false
    }

    /// Makes one bounded step, if there is anything to be done.
    fn run<M: Memory>(engine: &mut Engine, memory: &mut M);

    /// Whether nothing of it keeps a stop from ending: it has nothing in flight, and nothing is left to be
    /// done before the devices may be closed.
    fn is_idle(_engine: &Engine) -> bool {
        true
    }
}

/// Makes of a list of tasks what the engine's face needs of them all. They are named, not looked up: no call
/// is indirect, and a task without a step of some kind costs nothing.
macro_rules! tasks {
    ($($task:ty),* $(,)?) => {
        impl $crate::Engine {
            /// Makes a step of every task, in order.
            fn run_tasks<M: ::weir_model::Memory>(&mut self, memory: &mut M) {
                $(<$task as $crate::task::Task>::run(self, memory);)*
            }

            /// Whether some task could make a step now.
            fn can_run_tasks(&self) -> bool {
                false $(|| <$task as $crate::task::Task>::can_run(self))*
            }

            /// When the first task is due.
            fn tasks_due(&self) -> Option<::weir_model::Nanos> {
                [$(<$task as $crate::task::Task>::due(self)),*].into_iter().flatten().min()
            }

            /// Whether no task keeps a stop from ending.
            fn tasks_are_idle(&self) -> bool {
                true $(&& <$task as $crate::task::Task>::is_idle(self))*
            }
        }
    };
}
pub(crate) use tasks;
