//! Durability: group commits, checkpoints on both metadata members, write intents, and blocks in doubt after
//! a failed flush.

pub(crate) mod checkpoint;
pub(crate) mod commit;
mod commit_waiters;
pub(crate) mod doubt;
pub(crate) mod doubt_records;
pub(crate) mod intents;
pub(crate) mod members;
pub(crate) mod missing_copies;

use checkpoint::Checkpoint;
use commit::Commits;
use doubt::Doubt;
use intents::Intents;
use members::Members;
use missing_copies::MissingCopies;

/// The state of durability.
#[derive(Debug)]
pub(crate) struct Durability {
    pub(crate) commits: Commits,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) members: Members,
    pub(crate) intents: Intents,
    pub(crate) doubt: Doubt,
    pub(crate) missing_copies: MissingCopies,
}

impl Durability {
    pub(crate) fn new(members: Members) -> Self {
        let (commits, checkpoint, intents, doubt, lacking) = Default::default();
        Self { commits, checkpoint, members, intents, doubt, missing_copies: lacking }
    }
}
