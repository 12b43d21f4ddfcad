//! Mixes of histories: the general one, and some that aim at what it seldom brings together.

use clap::ValueEnum;
use weir_engine::Percent;
use weir_model::Seed;
use weir_policy::harm::{Moves, Rules};
use weir_world::campaign::{History, Kind};
use weir_world::net;

/// What the histories of a campaign are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// Something of everything.
    General,
    /// The same; the devices are looked at, and lost for good in copies of the pool.
    Audited,
    /// Two copies of every volume, failing devices, and a policy that moves at random.
    Mirrored,
    /// One copy, failing devices, and a policy that moves at random.
    Moving,
    /// Two copies, failing devices, and several volumes that fight over a few extents.
    Crowded,
    /// Two copies of what a policy buffers, failing devices.
    Duplexed,
    /// The whole server, and clients that speak NBD to it.
    Served,
    /// Each of these in turn, every second one general.
    All,
}

/// The order of [`Mix::All`].
const TURNS: [Mix; 10] = {
    use Mix::{Crowded, Duplexed, General, Mirrored, Moving, Served};
    [General, Mirrored, General, Moving, General, Crowded, General, Duplexed, General, Served]
};

impl Mix {
    /// The mix of a seed: which one's turn it is.
    pub(crate) fn of(self, seed: Seed) -> Self {
        if self == Self::All { TURNS[(seed.0 % TURNS.len() as u64) as usize] } else { self }
    }

    /// The history of a seed. Devices fail and deceive only with `faults`.
    pub(crate) fn history(self, seed: Seed, faults: bool) -> History {
        let mix = self.of(seed);
        if mix == Self::Served {
            return net::history(seed);
        }
        let kind = match mix {
            Self::General | Self::All => Kind::of(seed),
            Self::Audited => Kind { audits: true, ..Kind::of(seed) },
            Self::Crowded => Kind { crowded: true, ..FAILING },
            Self::Mirrored | Self::Moving | Self::Duplexed | Self::Served => FAILING,
        };
        let kind = Kind { faults: kind.faults && faults, rot: kind.rot && faults, ..kind };
        if matches!(mix, Self::General | Self::Audited) {
            return History::new(seed, &kind);
        }
        let copies = if matches!(mix, Self::Mirrored | Self::Crowded) { 2 } else { 1 };
        // The devices of a mirrored map are drawn with it.
        let nearby = (0u64..).map(|n| Seed(seed.0 ^ n.rotate_right(16)));
        let mut histories = nearby.map(|seed| History::new(seed, &kind));
        let history = histories.find(|history| history.setup.mirrored || copies == 1);
        let Some(mut history) = history else { return History::new(seed, &kind) };
        let setup = &mut history.setup;
        setup.policy = if mix == Self::Duplexed { "hystor-twice" } else { "chaos" }.to_owned();
        setup.mover_share = Percent(100);
        setup.moves = Moves::Free(Rules::default());
        for volume in &mut setup.volumes {
            (volume.copies, volume.policy) = (copies, None);
        }
        history
    }
}

const FAILING: Kind =
    Kind { faults: true, audits: true, devices_min: 3, volumes_min: 2, ..Kind::crashing(50, 350) };
