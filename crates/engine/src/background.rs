//! Background tasks: work that the engine does on its own while clients use the pool.

pub(crate) mod consolidate;
pub(crate) mod probe;
pub(crate) mod reclaim;
pub(crate) mod resync;
pub(crate) mod survey;
pub(crate) mod unreachable;

use crate::task::Task;
use crate::{DataPath, Engine};
use weir_model::{Memory, Nanos};

/// A background task: like a [`Task`], with its state in [`Background`].
pub(crate) trait BackgroundTask {
    /// Returns the time of its next step, if time decides that.
    fn due(&self, _: &DataPath) -> Option<Nanos> {
        None
    }

    /// Makes one bounded step, if there is work.
    fn run<M: Memory>(&mut self, _: &mut DataPath, _: &mut M) {}
}

/// Defines [`Background`] from a list of tasks: it contains their state, and runs them in that order.
macro_rules! background {
    ($($name:ident: $task:ty),* $(,)?) => {
        /// All background tasks.
        #[derive(Debug, Default)]
        pub(crate) struct Background {
            $(pub(crate) $name: $task,)*
        }

        impl Task for Background {
            type On = Engine;

            fn due(engine: &Engine) -> Option<Nanos> {
                let mut first = None;
                $(first = crate::task::earlier(first, engine.background.$name.due(&engine.data));)*
                first
            }

            fn run<M: Memory>(engine: &mut Engine, memory: &mut M) {
                let Engine { data, background, .. } = engine;
                $(background.$name.run(data, memory);)*
            }
        }
    };
}

background!(
    probing: probe::IdleProbes,
    surveys: survey::Surveys,
    unreachable: unreachable::UnreachableData,
    resync: resync::Resync,
    reclaim: reclaim::ReclaimWalk,
    consolidation: consolidate::Consolidation,
);
