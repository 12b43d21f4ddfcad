//! Placement: the device of each extent's data.

mod action;
mod adaptive;
mod allocation;
mod asymmetry;
mod chaos;
mod explain;
mod hierarchy;
mod hystor;
mod kept_places;
mod metadata_on_fast;
mod mirror;
mod sequential;
mod stripe;
mod tokens;
mod tuning;
mod user_optimal;
mod view;
mod wardrop;
mod weighted_stripe;

pub use action::{Access, Action, WriteTo};
pub use adaptive::Adaptive;
pub use asymmetry::Asymmetry;
pub use chaos::Chaos;
pub use explain::{Figure, Question, Reasons};
pub use hierarchy::Hierarchy;
pub use hystor::Hystor;
pub use kept_places::KeptPlaces;
pub use metadata_on_fast::MetadataOnFast;
pub use mirror::Mirror;
pub use sequential::Sequential;
pub use stripe::Stripe;
pub use tuning::{Key, Settings, ValueKind};
pub use user_optimal::UserOptimal;
pub use view::{
    DeviceView, MeasuredCommand, PlaceLookup, PlaceView, Places, PolicyContext, RESERVE, SizeClass, Traffic,
};
pub use wardrop::Wardrop;
pub use weighted_stripe::WeightedStripe;

use std::fmt;
use weir_model::{BlockRange, DeviceId, ExtentKey, ExtentSize, Nanos};

/// The events and questions that a policy subscribes to. Those it does not subscribe to cost requests
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscriptions {
    /// Whether to call [`Placement::accessed`].
    pub accesses: bool,
    /// Whether to call [`Placement::write_to`].
    pub writes: bool,
    /// Whether [`Access::run`] includes the sequential run that a request continues.
    pub runs: bool,
    /// Whether [`Access::hint`] marks metadata by the volume's own ext2/3/4 superblock if the client gives no
    /// hint.
    pub metadata: bool,
}

/// The choice among several places valid for a block that a client reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The place expected to answer soonest; places valid for the whole read come first.
    #[default]
    Soonest,
    /// A place in slots, as in a cache that answers every hit itself, even if that splits the read; among
    /// several the one expected to answer soonest.
    Slots,
}

/// A placement policy: decides where the data of new extents goes and, optionally, where it moves later.
///
/// Every call except the first few receives the [`PolicyContext`]: the time, the measured devices, the places
/// of extents, and the list of actions to append to.
pub trait Placement: fmt::Debug + Send {
    /// Returns the name in the pool file.
    fn name(&self) -> &'static str;

    /// Returns the device for the first write to an extent: one with free space; `None` only if there is
    /// none.
    fn allocate(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> Option<DeviceId>;

    /// Returns the events and questions it subscribes to. Called once.
    fn subscriptions(&self) -> Subscriptions {
        Subscriptions::default()
    }

    /// Returns which of several places reads go to. Called once.
    fn read_from(&self) -> ReadFrom {
        ReadFrom::default()
    }

    /// Reads what noting a read of these blocks will need, so that the processor waits for it while it waits
    /// for the map. Called before each read, of policies that subscribe to accesses; changes nothing. For
    /// those with much state per block or extent.
    fn prefetch(&self, key: ExtentKey, blocks: BlockRange, extent: ExtentSize) {
        let _ = (key, blocks, extent);
    }

    /// Notes an access to blocks: called once for each part of a request that is in one extent, when its
    /// places are known. It must be cheap, because every request calls it.
    fn accessed(&mut self, context: &mut PolicyContext<'_>, access: &Access) {
        let _ = (context, access);
    }

    /// Returns the target of a write to blocks of one extent. If the target is impossible (no free space, the
    /// device lost, too many places, the map still falling back on the blocks there), the write is in place
    /// instead; among several valid places it then goes to the one on that device. May be called several
    /// times for one write.
    fn write_to(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        let _ = (context, access);
        WriteTo::InPlace
    }

    /// Notes a write ([`Self::accessed`]) and returns its target ([`Self::write_to`]) in one call, for
    /// policies that compute the same for both.
    fn write(&mut self, context: &mut PolicyContext<'_>, access: &Access) -> WriteTo {
        self.accessed(context, access);
        self.write_to(context, access)
    }

    /// Returns which places of an extent besides one whole place it keeps on purpose; by default none. Other
    /// places may be dropped in idle time, and their total space is bounded.
    fn kept_places(&self) -> KeptPlaces {
        KeptPlaces::default()
    }

    /// Returns the interval of rounds; by default there are none. Called once.
    fn round_interval(&self) -> Option<Nanos> {
        None
    }

    /// Appends actions to [`PolicyContext::actions`]; called in each round.
    fn round(&mut self, context: &mut PolicyContext<'_>) {
        let _ = context;
    }

    /// Returns a remark for the administrator while it applies: the policy cannot do as configured. Called
    /// after each round.
    fn remark(&self) -> Option<&'static str> {
        None
    }

    /// Explains for people why an extent is where it is, and what would make it move. Changes nothing. A
    /// policy that only allocates reports free space only.
    fn explain(&self, context: &PolicyContext<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        reasons.free_space(context.devices, about);
        reasons
    }
}

/// The description of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInfo {
    /// Its name in the pool file.
    pub name: &'static str,
    /// What it does, in one line of help.
    pub about: &'static str,
    /// Whether it moves data or keeps it in several places, which may take more space than the data needs.
    pub moves: bool,
    /// Its tunable constants.
    pub keys: &'static [Key],
    /// Creates the policy.
    pub create: fn(&Settings) -> Box<dyn Placement>,
}

/// A policy with its settings.
#[derive(Clone, Debug)]
pub struct TunedPolicy {
    /// The policy.
    pub info: &'static PolicyInfo,
    /// Its settings.
    pub settings: Settings,
}

impl TunedPolicy {
    /// Creates the policy in its initial state.
    pub fn create(&self) -> Box<dyn Placement> {
        (self.info.create)(&self.settings)
    }
}

/// Every placement policy. To add a policy, add a file and a line here.
pub const ALL: &[PolicyInfo] = &[
    PolicyInfo {
        name: "adaptive",
        about: "each block where it costs least, as measured; needs no tuning",
        moves: true,
        keys: adaptive::KEYS,
        create: |s| Box::new(Adaptive::new(s)),
    },
    PolicyInfo {
        name: "asymmetry",
        about: "each extent on the device where its mix of reads and writes costs least",
        moves: true,
        keys: asymmetry::KEYS,
        create: |s| Box::new(Asymmetry::new(s)),
    },
    PolicyInfo {
        name: "hierarchy",
        about: "new data on the fastest device with free space; moves nothing",
        moves: false,
        keys: &[],
        create: |_| Box::new(Hierarchy),
    },
    PolicyInfo {
        name: "hystor",
        about: "blocks of small, frequent requests cached on the fast device; \
         writes buffered there and written back in order",
        moves: true,
        keys: hystor::KEYS,
        create: |s| Box::new(Hystor::new(s)),
    },
    PolicyInfo {
        name: "metadata_on_fast",
        about: "metadata of file systems on the fastest device, all else on the slowest",
        moves: true,
        keys: metadata_on_fast::KEYS,
        create: |s| Box::new(MetadataOnFast::new(s)),
    },
    PolicyInfo {
        name: "mirror",
        about: "data that is read most on two devices; each read goes to the one expected to answer first",
        moves: true,
        keys: mirror::KEYS,
        create: |s| Box::new(Mirror::new(s)),
    },
    PolicyInfo {
        name: "sequential",
        about: "new data on one device after the other, in the pool file's order; moves nothing",
        moves: false,
        keys: &[],
        create: |_| Box::new(Sequential),
    },
    PolicyInfo {
        name: "stripe",
        about: "new data on all devices in turn; moves nothing",
        moves: false,
        keys: &[],
        create: |_| Box::new(Stripe::default()),
    },
    PolicyInfo {
        name: "user_optimal",
        about: "accessed blocks on the device that answers fastest, queue and network included",
        moves: true,
        keys: user_optimal::KEYS,
        create: |s| Box::new(UserOptimal::new(s)),
    },
    PolicyInfo {
        name: "wardrop",
        about: "data spread so that all devices answer equally fast",
        moves: true,
        keys: wardrop::KEYS,
        create: |s| Box::new(Wardrop::new(s)),
    },
    PolicyInfo {
        name: "weighted_stripe",
        about: "new data on all devices in fixed proportions; moves nothing",
        moves: false,
        keys: weighted_stripe::KEYS,
        create: |s| Box::new(WeightedStripe::new(s)),
    },
];

/// The policy that no pool file can name.
const CHAOS: PolicyInfo = PolicyInfo {
    name: "chaos",
    about: "data anywhere, for tests",
    moves: true,
    keys: &[],
    create: |_| Box::new(Chaos::default()),
};

/// Returns the policy of that name with default settings, including two for tests that no pool file can name:
/// `chaos`, and `hystor-twice`, which is `hystor` with two copies of dirty blocks.
pub fn for_tests(name: &str) -> Option<TunedPolicy> {
    if name == "hystor-twice" {
        return with_default_settings("hystor").map(hystor::duplexed);
    }
    let info = if name == CHAOS.name { Some(&CHAOS) } else { find_policy(name) };
    info.map(|info| TunedPolicy { info, settings: Settings::default() })
}

/// Returns the description of the policy of that name.
pub fn find_policy(name: &str) -> Option<&'static PolicyInfo> {
    ALL.iter().find(|info| info.name == name)
}

/// Returns the policy of that name with default settings.
pub fn with_default_settings(name: &str) -> Option<TunedPolicy> {
    find_policy(name).map(|info| TunedPolicy { info, settings: Settings::default() })
}

/// Creates the policy of that name with default settings.
pub fn by_name(name: &str) -> Option<Box<dyn Placement>> {
    with_default_settings(name).map(|policy| policy.create())
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
