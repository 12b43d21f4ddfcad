//! Cache policies by name.

use super::play::Player;
use super::{BlockTrace, CacheOutcome};
use weir_policy::admission::{
    Admission, AdmissionSettings, AdmitAll, AdmitBoth, Sequential, TinyLfu, TouchCount,
};
use weir_policy::every_eviction_policy;
use weir_policy::eviction::{self, AccessKind, Belady, Block, CacheSize, Eviction, Insertion};

/// The contents of a cache under a policy that is known at run time: [`Eviction`] without the future.
pub(crate) trait Residents {
    /// As [`Eviction::hit`].
    fn hit(&mut self, block: Block, used: AccessKind) -> bool;
    /// As [`Eviction::insert`].
    fn insert(&mut self, block: Block, may_replace: &mut dyn FnMut(Block) -> bool) -> Insertion;
    /// As [`Eviction::remove`].
    fn remove(&mut self, block: Block) -> bool;
    /// As [`Eviction::prefetch`].
    fn prefetch(&self, blocks: &[Block]);
}

impl<E: Eviction> Residents for E {
    fn hit(&mut self, block: Block, used: AccessKind) -> bool {
        Eviction::hit(self, block, used)
    }
    fn insert(&mut self, block: Block, may_replace: &mut dyn FnMut(Block) -> bool) -> Insertion {
        Eviction::insert(self, block, may_replace)
    }
    fn remove(&mut self, block: Block) -> bool {
        Eviction::remove(self, block)
    }
    fn prefetch(&self, blocks: &[Block]) {
        Eviction::prefetch(self, blocks);
    }
}

/// An eviction policy.
#[derive(Clone, Copy, Debug)]
pub struct EvictionPolicy {
    /// Policy name.
    pub name: &'static str,
    /// Plays a trace to a cache with this policy.
    pub(super) play: fn(Player<'_>) -> CacheOutcome,
    /// Creates an empty cache; `None` if the policy needs the future.
    pub(crate) residents: Option<fn(CacheSize) -> Box<dyn Residents>>,
}

macro_rules! all {
    ($($name:literal: $module:ident::$policy:ident;)*) => {
        &[
            $(EvictionPolicy {
                name: $name,
                play: |player| player.play(eviction::$policy::new(player.cache_size())),
                residents: Some(|size| Box::new(eviction::$policy::new(size))),
            },)*
            EvictionPolicy {
                name: "belady",
                play: |player| {
                    let trace = player.trace;
                    player.play(Belady::new(player.cache_size(), trace.accesses(), trace.future()))
                },
                residents: None,
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
    pub(crate) new: NewAdmission,
}

/// Creates an admission policy for a cache of this size.
type NewAdmission = fn(CacheSize, &AdmissionSettings) -> Option<Box<dyn Admission>>;

impl AdmissionPolicy {
    /// All admission policies; the first admits every miss.
    pub const ALL: &[Self] = &[
        Self { name: "all", new: |_, _| None },
        Self { name: "sequential", new: |_, set| Some(Box::new(Sequential::new(set.sequences))) },
        Self { name: "touch_count", new: |_, set| Some(Box::new(TouchCount::new(set.touches))) },
        Self {
            name: "sequential+touch_count",
            new: |_, set| {
                Some(Box::new(AdmitBoth(Sequential::new(set.sequences), TouchCount::new(set.touches))))
            },
        },
        Self { name: "tinylfu", new: |room, _| Some(Box::new(TinyLfu::new(room))) },
    ];

    /// Creates the policy with its default settings for a cache of this size.
    pub(crate) fn admission(&self, room: CacheSize) -> Box<dyn Admission> {
        (self.new)(room, &AdmissionSettings::default()).unwrap_or_else(|| Box::new(AdmitAll))
    }

    /// Returns the policy of this name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|policy| policy.name == name)
    }
}

/// Returns the critical size of an admission policy: the number of distinct blocks that it admits in the
/// whole trace. A cache of that size never evicts one of them (HEC, section 3.3.1). Cost: a pass over the
/// trace.
pub fn critical_blocks(trace: &BlockTrace, policy: &AdmissionPolicy, settings: &AdmissionSettings) -> u32 {
    let room = CacheSize { blocks: trace.blocks(), capacity: trace.blocks().max(1) };
    let Some(mut admission) = (policy.new)(room, settings) else { return trace.blocks() };
    let mut is_admitted = vec![false; trace.blocks() as usize];
    let mut first = 0;
    for request in trace.request_runs().flat_map(|(requests, _)| requests.iter()) {
        if admission.request(trace.admission_request(request, first)) {
            trace.accesses()[first..request.end()].iter().for_each(|block| is_admitted[block.index()] = true);
        }
        first = request.end();
    }
    is_admitted.into_iter().filter(|admitted| *admitted).count() as u32
}
