//! The policies a cache may have, by name.

use super::CacheOutcome;
use super::play::Player;
use weir_policy::admission::{Admission, All, Both, Sequential, TinyLfu, TouchCount, Touches};
use weir_policy::every_eviction_policy;
use weir_policy::eviction::{self, Belady, Room};

/// An eviction policy.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPolicy {
    /// Its name.
    pub name: &'static str,
    /// Plays a trace to a cache that has it.
    pub(super) play: fn(Player<'_>) -> CacheOutcome,
}

macro_rules! all {
    ($($name:literal: $module:ident::$policy:ident;)*) => {
        &[
            $(EvictionPolicy {
                name: $name,
                play: |player| player.play(eviction::$policy::new(player.room())),
            },)*
            EvictionPolicy {
                name: "belady",
                play: |player| {
                    let trace = player.trace;
                    player.play(Belady::new(player.room(), trace.accesses(), trace.future()))
                },
            },
        ]
    };
}

impl EvictionPolicy {
    /// Every one; the last is the bound.
    pub const ALL: &[Self] = every_eviction_policy!(all);

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|policy| policy.name == name)
    }
}

/// An admission policy.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionPolicy {
    /// Its name.
    pub name: &'static str,
    /// `None` if it admits every miss.
    pub(super) new: fn(Room) -> Option<Box<dyn Admission>>,
}

impl AdmissionPolicy {
    /// Every one; the first admits every miss.
    pub const ALL: &[Self] = &[
        Self { name: "all", new: |_| None },
        Self { name: "sequential", new: |_| Some(Box::new(Sequential::default())) },
        Self { name: "touch_count", new: |_| Some(Box::new(TouchCount::new(Touches::default()))) },
        Self {
            name: "sequential+touch_count",
            new: |_| Some(Box::new(Both(Sequential::default(), TouchCount::new(Touches::default())))),
        },
        Self { name: "tinylfu", new: |room| Some(Box::new(TinyLfu::new(room))) },
    ];

    /// The policy, for a cache of this size.
    pub(crate) fn admission(&self, room: Room) -> Box<dyn Admission> {
        (self.new)(room).unwrap_or_else(|| Box::new(All))
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|policy| policy.name == name)
    }
}
