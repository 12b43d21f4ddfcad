//! Placement: on which device an extent's data goes.

mod action;
mod adaptive;
mod allocation;
mod asymmetry;
mod chaos;
mod explain;
mod hierarchy;
mod hystor;
mod keeps;
mod metadata_on_fast;
mod mirror;
mod sequential;
mod stripe;
mod tokens;
mod tuning;
mod view;
mod wardrop;

pub use action::{Access, Action, WriteTo};
pub use adaptive::Adaptive;
pub use asymmetry::Asymmetry;
pub use chaos::Chaos;
pub use explain::{Figure, Question, Reasons};
pub use hierarchy::Hierarchy;
pub use hystor::Hystor;
pub use keeps::Keeps;
pub use metadata_on_fast::MetadataOnFast;
pub use mirror::Mirror;
pub use sequential::Sequential;
pub use stripe::Stripe;
pub use tuning::{Key, Settings, ValueKind};
pub use view::{
    DeviceView, MeasuredCommand, Moment, PlaceView, Places, RESERVE, SizeClass, Traffic, Whereabouts,
};
pub use wardrop::Wardrop;

use std::fmt;
use weir_model::{DeviceId, Nanos};

/// What a policy wants to be told and asked. What it does not costs requests nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watches {
    /// [`Placement::accessed`] is to be called.
    pub accesses: bool,
    /// [`Placement::write_to`] is to be called.
    pub writes: bool,
    /// [`Access::run`] is to count what a request continues.
    pub runs: bool,
    /// [`Access::hint`] is to say what is metadata by the volume's own ext2/3/4 superblock, where the client
    /// does not say.
    pub metadata: bool,
}

/// Which of several places that hold a block a client's read of it goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The one expected to answer soonest; places that hold all that is read come first.
    #[default]
    Soonest,
    /// One in slots, as in a cache that answers every hit itself, though that splits the read; of several the
    /// one expected to answer soonest.
    Slots,
}

/// Decides where data goes: that of new extents, and, if it wants, what becomes of it later.
///
/// Every call but the first few is given the [`Moment`]: the time, the devices as measured, where
/// extents are, and where to put what is to be done.
pub trait Placement: fmt::Debug + Send {
    /// The name in the pool file.
    fn name(&self) -> &'static str;

    /// The device a first write is allocated on: one with free space; `None` only if there is none.
    fn allocate(&mut self, moment: &mut Moment<'_>, access: &Access) -> Option<DeviceId>;

    /// What it wants to be told and asked. Asked once.
    fn watches(&self) -> Watches {
        Watches::default()
    }

    /// Which of several places reads go to. Asked once.
    fn read_from(&self) -> ReadFrom {
        ReadFrom::default()
    }

    /// Blocks were asked for: once for each part of a request that falls into one extent, when it is
    /// known where they are. Must be cheap: it is on every request's way.
    fn accessed(&mut self, moment: &mut Moment<'_>, access: &Access) {
        let _ = (moment, access);
    }

    /// Where a write to blocks of one extent goes. What cannot be had (nothing free there, the device lost,
    /// too many places, the map still falling back on what is there) is a write in place instead; of several
    /// places that hold the blocks it is then the one on that device. May be asked several times about one
    /// write.
    fn write_to(&mut self, moment: &mut Moment<'_>, access: &Access) -> WriteTo {
        let _ = (moment, access);
        WriteTo::InPlace
    }

    /// A write of which [`Self::accessed`] is to tell, and [`Self::write_to`] to ask, both at once: for
    /// policies that work out the same for both.
    fn write(&mut self, moment: &mut Moment<'_>, access: &Access) -> WriteTo {
        self.accessed(moment, access);
        self.write_to(moment, access)
    }

    /// Which places of an extent besides one whole place it means to keep; none unless it says so. The others
    /// may be given up in idle time, and the space all take is bounded.
    fn keeps(&self) -> Keeps {
        Keeps::default()
    }

    /// How often there is to be a round; never, by default. Asked once.
    fn round_every(&self) -> Option<Nanos> {
        None
    }

    /// A round: time to append actions to [`Moment::actions`].
    fn round(&mut self, moment: &mut Moment<'_>) {
        let _ = moment;
    }

    /// What whoever looks after the pool should know, while it holds: that something cannot be done as it was
    /// asked for. Looked at after each round.
    fn remark(&self) -> Option<&'static str> {
        None
    }

    /// Why an extent is where it is, and what would make it move, for people. Changes nothing. What only
    /// allocates has nothing to say but where there is room.
    fn explain(&self, moment: &Moment<'_>, about: &Question<'_>) -> Reasons {
        let mut reasons = Reasons::default();
        reasons.free_space(moment.devices, about);
        reasons
    }
}

/// A policy there is.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name in the pool file.
    pub name: &'static str,
    /// What it does, in one line of help.
    pub about: &'static str,
    /// It moves data or has it in several places, which may take more space than the data needs.
    pub moves: bool,
    /// What of it may be tuned.
    pub keys: &'static [Key],
    /// Makes one.
    pub make: fn(&Settings) -> Box<dyn Placement>,
}

/// A policy, and how it is tuned.
#[derive(Clone, Debug)]
pub struct TunedPolicy {
    /// The policy.
    pub known: &'static Known,
    /// How it is tuned.
    pub settings: Settings,
}

impl TunedPolicy {
    /// The policy, with nothing known yet.
    pub fn make(&self) -> Box<dyn Placement> {
        (self.known.make)(&self.settings)
    }
}

/// Every placement policy. A new policy is a file and a line here.
pub const ALL: &[Known] = &[
    Known {
        name: "adaptive",
        about: "each block where it costs least, as measured; needs no tuning",
        moves: true,
        keys: adaptive::KEYS,
        make: |s| Box::new(Adaptive::new(s)),
    },
    Known {
        name: "asymmetry",
        about: "each extent on the device where its mix of reads and writes costs least",
        moves: true,
        keys: asymmetry::KEYS,
        make: |s| Box::new(Asymmetry::new(s)),
    },
    Known {
        name: "hierarchy",
        about: "new data on the fastest device with free space; moves nothing",
        moves: false,
        keys: &[],
        make: |_| Box::new(Hierarchy),
    },
    Known {
        name: "hystor",
        about: "blocks of small, frequent requests cached on the fast device; \
         writes buffered there and written back in order",
        moves: true,
        keys: hystor::KEYS,
        make: |s| Box::new(Hystor::new(s)),
    },
    Known {
        name: "metadata_on_fast",
        about: "metadata of file systems on the fastest device, all else on the slowest",
        moves: true,
        keys: &[],
        make: |_| Box::new(MetadataOnFast),
    },
    Known {
        name: "mirror",
        about: "data that is read most on two devices; each read goes to the one expected to answer first",
        moves: true,
        keys: mirror::KEYS,
        make: |s| Box::new(Mirror::new(s)),
    },
    Known {
        name: "sequential",
        about: "new data on one device after the other, in the pool file's order; moves nothing",
        moves: false,
        keys: &[],
        make: |_| Box::new(Sequential),
    },
    Known {
        name: "stripe",
        about: "new data on all devices in turn; moves nothing",
        moves: false,
        keys: &[],
        make: |_| Box::new(Stripe::default()),
    },
    Known {
        name: "wardrop",
        about: "data spread so that all devices answer equally fast",
        moves: true,
        keys: wardrop::KEYS,
        make: |s| Box::new(Wardrop::new(s)),
    },
];

/// The one that no pool file can name.
const CHAOS: Known = Known {
    name: "chaos",
    about: "data anywhere, for tests",
    moves: true,
    keys: &[],
    make: |_| Box::new(Chaos::default()),
};

/// The policy of that name, untuned, or one for tests that no pool file can name: `chaos`, and
/// `hystor-twice`, which is `hystor` with two copies of what is dirty.
pub fn for_tests(name: &str) -> Option<TunedPolicy> {
    if name == "hystor-twice" {
        return untuned("hystor").map(hystor::duplexed);
    }
    let known = if name == CHAOS.name { Some(&CHAOS) } else { known(name) };
    known.map(|known| TunedPolicy { known, settings: Settings::default() })
}

/// What is known of the policy of that name.
pub fn known(name: &str) -> Option<&'static Known> {
    ALL.iter().find(|known| known.name == name)
}

/// The policy of that name, untuned.
pub fn untuned(name: &str) -> Option<TunedPolicy> {
    known(name).map(|known| TunedPolicy { known, settings: Settings::default() })
}

/// The policy of that name, untuned.
pub fn by_name(name: &str) -> Option<Box<dyn Placement>> {
    untuned(name).map(|policy| policy.make())
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
