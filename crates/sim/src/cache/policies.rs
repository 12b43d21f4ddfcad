//! Cache policies by name.

use super::CacheOutcome;
use super::play::Player;
use weir_policy::admission::{
    Admission, AdmitAll, AdmitBoth, Sequential, TinyLfu, TouchCount, TouchSettings,
};
use weir_policy::every_eviction_policy;
use weir_policy::eviction::{self, Belady, CacheSize};

/// An eviction policy.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPolicy {
    /// Policy name.
    pub name: &'static str,
    /// Plays a trace to a cache with this policy.
    pub(super) play: fn(Player<'_>) -> CacheOutcome,
}

macro_rules! all {
    ($($name:literal: $module:ident::$policy:ident;)*) => {
        &[
            $(EvictionPolicy {
                name: $name,
                play: |player| player.play(eviction::$policy::new(player.cache_size())),
            },)*
            EvictionPolicy {
                name: "belady",
                play: |player| {
                    let trace = player.trace;
                    player.play(Belady::new(player.cache_size(), trace.accesses(), trace.future()))
                },
            },
        ]
    };
}

impl EvictionPolicy {
    /// All eviction policies; the last is the offline bound.
    pub const ALL: &[Self] = every_eviction_policy!(all);

    /// Returns the policy of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|policy| policy.name == name)
    }
}

/// An admission policy.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionPolicy {
    /// Policy name.
    pub name: &'static str,
    /// `None` if it admits every miss.
    pub(super) new: fn(CacheSize) -> Option<Box<dyn Admission>>,
}

impl AdmissionPolicy {
    /// All admission policies; the first admits every miss.
    pub const ALL: &[Self] = &[
        Self { name: "all", new: |_| None },
        Self { name: "sequential", new: |_| Some(Box::new(Sequential::default())) },
        Self { name: "touch_count", new: |_| Some(Box::new(TouchCount::new(TouchSettings::default()))) },
        Self {
            name: "sequential+touch_count",
            new: |_| {
                Some(Box::new(AdmitBoth(Sequential::default(), TouchCount::new(TouchSettings::default()))))
            },
        },
        Self { name: "tinylfu", new: |room| Some(Box::new(TinyLfu::new(room))) },
    ];

    /// Creates the policy for a cache of this size.
    pub(crate) fn admission(&self, room: CacheSize) -> Box<dyn Admission> {
        (self.new)(room).unwrap_or_else(|| Box::new(AdmitAll))
    }

    /// Returns the policy of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|policy| policy.name == name)
    }
}
