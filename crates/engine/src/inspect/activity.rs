//! The engine's current activity, for tests that check whether every state was covered.

use crate::Engine;
use crate::flight::{MetadataIo, Purpose};
use std::fmt;

/// An activity of several steps, at any of which a crash may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// A client's bytes are being read.
    Reading,
    /// A client's bytes are being written.
    Writing,
    /// A device is being flushed for a commit.
    Flushing,
    /// A journal frame is being written.
    Frame,
    /// The journal has gone around its ring since the pool was opened.
    JournalWrapped,
    /// Pages of a checkpoint are being written.
    CheckpointPages,
    /// The pages of a checkpoint are being made durable.
    CheckpointFlush,
    /// A checkpoint's root is being written.
    CheckpointRoot,
    /// A volume is being removed.
    Removal,
    /// Freed space cannot be reused yet.
    SpaceQuarantined,
    /// A write waits for space.
    WaitingForSpace,
    /// The mover is copying blocks to another place.
    Moving,
    /// Two copies may differ: a write intent is open.
    IntentOpen,
    /// The map is on only one of its two members.
    Degraded,
    /// Blocks read as EIO because a flush failed or a device was lost.
    InDoubt,
}

impl Activity {
    /// All activities.
    pub const ALL: [Self; 15] = [
        Self::Reading,
        Self::Writing,
        Self::Flushing,
        Self::Frame,
        Self::JournalWrapped,
        Self::CheckpointPages,
        Self::CheckpointFlush,
        Self::CheckpointRoot,
        Self::Removal,
        Self::SpaceQuarantined,
        Self::WaitingForSpace,
        Self::Moving,
        Self::IntentOpen,
        Self::Degraded,
        Self::InDoubt,
    ];
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reading => "reading",
            Self::Writing => "writing",
            Self::Flushing => "flushing",
            Self::Frame => "frame in flight",
            Self::JournalWrapped => "journal wrapped",
            Self::CheckpointPages => "checkpoint pages",
            Self::CheckpointFlush => "checkpoint flush",
            Self::CheckpointRoot => "checkpoint root",
            Self::Removal => "removal",
            Self::SpaceQuarantined => "space quarantined",
            Self::WaitingForSpace => "waiting for space",
            Self::Moving => "mover copying",
            Self::IntentOpen => "intent open",
            Self::Degraded => "one mirror only",
            Self::InDoubt => "blocks in doubt",
        })
    }
}

impl Engine {
    /// Whether the complete state is durable, so that it survives a restart. Cost: linear in the devices.
    pub fn is_settled(&self) -> bool {
        self.data.base.durability.is_settled(&self.data.base.core)
    }

    /// Whether this activity is in progress. Cost: linear in the commands in flight.
    pub fn is_doing(&self, activity: Activity) -> bool {
        let in_flight =
            |is: fn(&Purpose) -> bool| self.data.base.core.commands.iter().any(|flight| is(&flight.purpose));
        match activity {
            Activity::Reading => in_flight(|p| p.piece().is_some() && p.written().is_none()),
            Activity::Writing => in_flight(|p| p.written().is_some()),
            Activity::Flushing => in_flight(|p| matches!(p, Purpose::DataFlush(_))),
            Activity::Frame => in_flight(|p| matches!(p, Purpose::Metadata(MetadataIo::Frame))),
            Activity::JournalWrapped => self.data.base.core.map.journal_has_wrapped(),
            Activity::CheckpointPages => in_flight(|p| matches!(p, Purpose::Metadata(MetadataIo::Pages))),
            Activity::CheckpointFlush => {
                in_flight(|p| matches!(p, Purpose::Metadata(MetadataIo::PagesFlush)))
            }
            Activity::CheckpointRoot => in_flight(|p| matches!(p, Purpose::Metadata(MetadataIo::Root))),
            Activity::Removal => self.admin.is_removing(),
            Activity::SpaceQuarantined => {
                self.data.base.core.devices.iter().any(|device| device.quarantined.has_chunks())
            }
            Activity::WaitingForSpace => self.data.base.space.state.has_waiters(),
            Activity::Moving => in_flight(|p| matches!(p, Purpose::Mover(_))),
            Activity::IntentOpen => !self.data.base.durability.intents.is_empty(),
            Activity::Degraded => {
                self.data.base.core.map.is_mirrored() && self.data.base.core.map.members().len() < 2
            }
            Activity::InDoubt => !self.data.base.durability.doubt.is_empty(),
        }
    }
}
