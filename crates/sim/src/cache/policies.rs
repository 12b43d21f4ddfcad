//! The policies a cache may have, by name.

use super::CacheOutcome;
use super::play::Player;
use weir_policy::admission::{Admission, All, Both, Sequential, TinyLfu, TouchCount, Touches};
use weir_policy::eviction::{
    Arc, Belady, Clock, Fifo, Lfu, Lirs, Lru, Lrw, Room, S3Fifo, Sieve, Slru, TwoQ, WTinyLfu,
    WTinyLfuLibCacheSim,
};

/// An eviction policy.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPolicy {
    /// Its name.
    pub name: &'static str,
    /// Plays a trace to a cache that has it.
    pub(super) play: fn(Player<'_>) -> CacheOutcome,
}

impl EvictionPolicy {
    /// Every one.
    pub const ALL: &[Self] = &[
        Self { name: "fifo", play: |player| player.play(Fifo::new(player.room())) },
        Self { name: "lru", play: |player| player.play(Lru::new(player.room())) },
        Self { name: "lrw", play: |player| player.play(Lrw::new(player.room())) },
        Self { name: "clock", play: |player| player.play(Clock::new(player.room())) },
        Self { name: "lfu", play: |player| player.play(Lfu::new(player.room())) },
        Self { name: "slru", play: |player| player.play(Slru::new(player.room())) },
        Self { name: "2q", play: |player| player.play(TwoQ::new(player.room())) },
        Self { name: "arc", play: |player| player.play(Arc::new(player.room())) },
        Self { name: "lirs", play: |player| player.play(Lirs::new(player.room())) },
        Self { name: "sieve", play: |player| player.play(Sieve::new(player.room())) },
        Self { name: "s3fifo", play: |player| player.play(S3Fifo::new(player.room())) },
        Self { name: "wtinylfu", play: |player| player.play(WTinyLfu::new(player.room())) },
        Self {
            name: "wtinylfu-libcachesim",
            play: |player| player.play(WTinyLfuLibCacheSim::new(player.room())),
        },
        Self {
            name: "belady",
            play: |player| {
                let trace = player.trace;
                player.play(Belady::new(player.room(), trace.accesses(), trace.future()))
            },
        },
    ];

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
