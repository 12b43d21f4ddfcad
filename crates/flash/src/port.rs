//! What the log exchanges with those who carry out its commands.

use weir_policy::reclaim::Segment;

/// A page of the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its segment.
    pub segment: Segment,
    /// Its index in the segment.
    pub page: u32,
}

/// An append point, numbered from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u8);

/// What a page is programmed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// The user's data for this address.
    User {
        /// Address of the data.
        address: u64,
    },
    /// The valid page at `from`, which is read first.
    Copy {
        /// Address of the data.
        address: u64,
        /// Where it was; erased only by a later command.
        from: Place,
    },
    /// Metadata of the log.
    Metadata,
}

/// Progress of an erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erase {
    /// It is complete.
    Done,
    /// It is in flight. Call [`Log::erased`](crate::Log::erased) when it is complete; until then the segment
    /// is not used.
    InFlight,
}

/// The valid pages of a segment, and of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Valid {
    /// Number of valid pages in the segment.
    pub in_segment: u32,
    /// Number of valid pages in the log.
    pub in_log: u64,
}

/// Carries out the log's commands, and decides which valid pages are kept.
///
/// Commands come in the order in which they must take effect: a page is programmed once between two erases,
/// in the order of its segment; a segment is erased after all valid pages in it were copied. A device that is
/// not durable at once must make copies durable before it erases where they came from.
pub trait Port {
    /// Programs a page.
    fn program(&mut self, place: Place, content: Content);

    /// Erases a segment.
    fn erase(&mut self, segment: Segment) -> Erase;

    /// Reports that a segment is to be cleaned, before anything is done to it. `addresses` are those of its
    /// valid pages, in the order of the segment; [`keeps`](Self::keeps) is called for each of them.
    #[inline]
    fn cleans(&mut self, victim: Segment, valid: Valid, addresses: impl Iterator<Item = u64>) {
        let _ = (victim, valid, addresses);
    }

    /// Returns the share of a segment's pages that are valid and may be dropped, because their owners have
    /// more than they are guaranteed. Victim policies that do not weigh it do not ask.
    #[inline]
    fn excess(&self, segment: Segment, valid: Valid) -> f64 {
        let _ = (segment, valid);
        0.0
    }

    /// Returns whether cleaning copies the valid page of this address; otherwise the address is forgotten, as
    /// by a trim. `valid` is the number of valid pages in the log, this one included.
    #[inline]
    fn keeps(&mut self, address: u64, valid: u64) -> bool {
        let _ = (address, valid);
        true
    }
}

/// A medium without data and time: every command is complete at once, and the log's counters say what was
/// done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulated;

impl Port for Simulated {
    #[inline]
    fn program(&mut self, _: Place, _: Content) {}
    #[inline]
    fn erase(&mut self, _: Segment) -> Erase {
        Erase::Done
    }
}
