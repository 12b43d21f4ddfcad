//! What every part of the engine needs: the time, the map, the devices, the commands under way, and what is
//! told. It stands below all others and knows none of them.

use crate::StoppedChanges;
use crate::device::Device;
use crate::device::abandoned::Abandoned;
use crate::io::commands::Commands;
use crate::notice::Notices;
use weir_map::Map;
use weir_model::{Mutant, Nanos};

/// See the module. Its fields are open: whoever uses two of them at a time borrows them apart.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) now: Nanos,
    pub(crate) map: Map,
    pub(crate) devices: Vec<Device>,
    pub(crate) commands: Commands,
    pub(crate) abandoned: Abandoned,
    pub(crate) notices: Notices,
    /// Why changes are no longer accepted.
    pub(crate) stopped_changes: Option<StoppedChanges>,
}

impl Core {
    pub(crate) fn new(now: Nanos, map: Map, devices: Vec<Device>) -> Self {
        let commands = Commands::new(map.planted());
        let (abandoned, notices) = Default::default();
        Self { now, map, devices, commands, abandoned, notices, stopped_changes: None }
    }

    /// Whether this mutant is planted.
    #[inline(always)]
    pub(crate) fn is_planted(&self, mutant: Mutant) -> bool {
        self.map.planted().is(mutant)
    }
}
