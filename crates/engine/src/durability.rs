//! Durability: group commits, checkpoints on both metadata members, write intents, and blocks in doubt after
//! a failed flush.

pub(crate) mod checkpoint;
pub(crate) mod commit;
pub(crate) mod doubt;
pub(crate) mod intents;
pub(crate) mod lacking;
pub(crate) mod members;
pub(crate) mod notes;
mod waiting;

use checkpoint::Checkpoint;
use commit::Commits;
use doubt::Doubt;
use intents::Intents;
use lacking::Lacking;
use members::Members;

/// The state of durability.
#[derive(Debug)]
pub(crate) struct Durability {
    pub(crate) commits: Commits,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) members: Members,
    pub(crate) intents: Intents,
    pub(crate) doubt: Doubt,
    pub(crate) lacking: Lacking,
}

impl Durability {
    pub(crate) fn new(members: Members) -> Self {
        let (commits, checkpoint, intents, doubt, lacking) = Default::default();
        Self { commits, checkpoint, members, intents, doubt, lacking }
    }
}
