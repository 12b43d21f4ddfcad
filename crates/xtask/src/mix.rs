//! Mixes of histories: the general one, and some that aim at combinations which it rarely produces.

mod aims;

use aims::{audit_often, flushing, frames, hanging, losing};
use clap::ValueEnum;
use weir_engine::Percent;
use weir_model::{Rng, Seed};
use weir_policy::harm::{Moves, Rules};
use weir_world::campaign::{History, HistoryKind};
use weir_world::driver::{HistoryStep, Setup, Tune};
use weir_world::net;

/// Kinds of a campaign's histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// Something of everything.
    General,
    /// General, with audits, and permanent losses of devices in copies of the pool.
    Audited,
    /// Two copies of every volume, failing devices, and a policy that moves at random.
    Mirrored,
    /// Mirrored, with devices that hang for a while or permanently.
    Hanging,
    /// One copy, failing devices, and a policy that moves at random.
    Moving,
    /// Two copies, failing devices, and several volumes that compete for a few extents.
    Crowded,
    /// Two copies of buffered data, failing devices.
    Duplexed,
    /// The whole server with NBD clients.
    Served,
    /// Failing devices, and a flush for every few requests.
    Flushing,
    /// Failing devices, and a journal of a few pages.
    Journal,
    /// Extents of 512 KiB to 4 MiB, volumes of any size, failing devices.
    Large,
    /// Five to twelve failing devices, and volumes of any size.
    Many,
    /// Devices that deceive and, in every other history, fail at other times.
    Deceiving,
    /// Repeated failures of flushes and writes to a few blocks, with crashes and reads soon after.
    Losing,
    /// Frames and checkpoints of many changes, with crashes in the middle of them.
    Frames,
    /// Each mix in turn; every fourth one is general.
    All,
}

/// The order of [`Mix::All`].
const TURNS: [Mix; 30] = {
    use Mix::{
        Audited, Crowded, Deceiving, Duplexed, Flushing, Frames, General, Hanging, Journal, Large, Losing,
        Many, Mirrored, Moving, Served,
    };
    [
        General, Losing, Mirrored, Losing, Audited, Frames, Losing, Moving, Served, General, Losing, Crowded,
        Hanging, Losing, Duplexed, General, Losing, Mirrored, Frames, Losing, Flushing, Journal, Losing,
        Served, General, Losing, Many, Large, Losing, Deceiving,
    ]
};

impl Mix {
    /// Returns the mix of a seed.
    pub(crate) fn of(self, seed: Seed) -> Self {
        if self == Self::All { TURNS[(seed.0 % TURNS.len() as u64) as usize] } else { self }
    }

    fn kind(self, seed: Seed) -> HistoryKind {
        match self {
            Self::General | Self::All => HistoryKind::of(seed),
            Self::Audited => HistoryKind { audits: true, ..HistoryKind::of(seed) },
            Self::Crowded => HistoryKind { crowded: true, ..FAILING },
            Self::Large => HistoryKind { large: true, odd: true, crashes: 10, ..FAILING },
            Self::Many => HistoryKind { odd: true, devices_min: 5 + seed.0 / 16 % 6, ..FAILING },
            Self::Deceiving => HistoryKind { rot: true, faults: chosen(seed, 2) == 0, ..FAILING },
            Self::Losing => HistoryKind { crashes: 12, requests: 250, ..FAILING },
            Self::Frames => {
                HistoryKind { crashes: 12, requests: 200, faults: chosen(seed, 2) == 0, ..FAILING }
            }
            Self::Duplexed => HistoryKind { faults: chosen(seed, 2) == 0, ..FAILING },
            Self::Mirrored | Self::Hanging | Self::Moving | Self::Flushing | Self::Journal | Self::Served => {
                FAILING
            }
        }
    }

    /// Returns the history of a seed. Devices fail and deceive only with `faults`.
    pub(crate) fn history(self, seed: Seed, faults: bool) -> History {
        let mix = self.of(seed);
        if mix == Self::Served {
            return net::history(seed);
        }
        let kind = mix.kind(seed);
        let kind = HistoryKind { faults: kind.faults && faults, rot: kind.rot && faults, ..kind };
        if matches!(mix, Self::General | Self::Audited | Self::Large | Self::Many | Self::Deceiving) {
            return History::new(seed, &kind);
        }
        let two = match mix {
            Self::Mirrored | Self::Hanging | Self::Crowded => true,
            Self::Losing => chosen(seed, 2) == 0,
            _ => false,
        };
        let copies = if two { 2 } else { 1 };
        // The devices of a mirrored map are drawn together with it.
        let nearby = (0u64..).map(|n| Seed(seed.0 ^ n.rotate_right(16)));
        let mut histories = nearby.map(|seed| History::new(seed, &kind));
        let history = histories.find(|history| history.setup.mirrored || copies == 1);
        let Some(mut history) = history else { return History::new(seed, &kind) };
        match mix {
            Self::Flushing => return flushing(history),
            Self::Journal => {
                history.setup.journal_pages = 4 + seed.0 / 16 % 4;
                return history;
            }
            Self::Frames => return frames(history),
            Self::Losing if !kind.faults => {}
            Self::Losing if chosen(seed, 8) < 2 && copies == 1 => return losing(history),
            Self::Losing => history = losing(history),
            Self::Hanging => hanging(&mut history),
            Self::Duplexed if !kind.faults => history = audit_often(history),
            _ => {}
        }
        history
            .steps
            .retain(|step| !matches!(step, HistoryStep::Tune(Tune::PoolPolicy(_) | Tune::VolumePolicy(..))));
        let buffered = mix == Self::Duplexed || (mix == Self::Losing && copies == 1 && chosen(seed, 8) == 3);
        aim(&mut history.setup, if buffered { "hystor-twice" } else { "chaos" }, copies);
        history
    }
}

const FAILING: HistoryKind = HistoryKind {
    faults: true,
    audits: true,
    devices_min: 3,
    volumes_min: 2,
    ..HistoryKind::crashing(50, 350)
};

/// Returns a choice of `count` that a seed makes for its history, independent of its own value.
fn chosen(seed: Seed, count: u64) -> u64 {
    Rng::new(Seed(!seed.0)).word() % count
}

/// Sets one policy for all volumes, with unconditional moves, and the number of copies.
fn aim(setup: &mut Setup, policy: &str, copies: u8) {
    setup.policy = policy.to_owned();
    setup.mover_share = Percent(100);
    setup.moves = Moves::Free(Rules::default());
    for volume in &mut setup.volumes {
        (volume.copies, volume.policy) = (copies, None);
    }
}
