//! Free segments, in the order in which they are taken.

use std::collections::{BTreeSet, VecDeque};
use weir_policy::reclaim::Segment;

/// Which free segment is taken, if wear is levelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preference {
    /// The least worn, for data that is soon invalid.
    LeastWorn,
    /// The most worn, for data that stays valid.
    MostWorn,
}

#[derive(Debug)]
pub(crate) enum FreeSegments {
    /// The one that has been free for longest comes first.
    InOrder(VecDeque<Segment>),
    /// By erase count.
    ByWear(BTreeSet<(u32, Segment)>),
}

impl FreeSegments {
    pub(crate) fn new(segments: u32, by_wear: bool) -> Self {
        let all = (0..segments).map(Segment);
        if by_wear {
            Self::ByWear(all.map(|segment| (0, segment)).collect())
        } else {
            Self::InOrder(all.collect())
        }
    }

    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::InOrder(queue) => queue.len() as u32,
            Self::ByWear(set) => set.len() as u32,
        }
    }

    pub(crate) fn push(&mut self, segment: Segment, erases: u32) {
        match self {
            Self::InOrder(queue) => queue.push_back(segment),
            Self::ByWear(set) => drop(set.insert((erases, segment))),
        }
    }

    pub(crate) fn take(&mut self, preference: Preference) -> Option<Segment> {
        match self {
            Self::InOrder(queue) => queue.pop_front(),
            Self::ByWear(set) => {
                let (_, segment) = match preference {
                    Preference::LeastWorn => set.pop_first()?,
                    Preference::MostWorn => set.pop_last()?,
                };
                Some(segment)
            }
        }
    }
}
