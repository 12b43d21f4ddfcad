//! Mixes of histories: the general one, and some that aim at what it seldom brings together.

use clap::ValueEnum;
use weir_engine::Percent;
use weir_model::{Nanos, Op, Rng, Seed};
use weir_policy::harm::{Moves, Rules};
use weir_world::campaign::{History, Kind};
use weir_world::driver::{Setup, Step, Tune};
use weir_world::{Fault, net};

/// What the histories of a campaign are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// Something of everything.
    General,
    /// The same; the devices are looked at, and lost for good in copies of the pool.
    Audited,
    /// Two copies of every volume, failing devices, and a policy that moves at random.
    Mirrored,
    /// The same; devices hang for a while or for good.
    Hanging,
    /// One copy, failing devices, and a policy that moves at random.
    Moving,
    /// Two copies, failing devices, and several volumes that fight over a few extents.
    Crowded,
    /// Two copies of what a policy buffers, failing devices.
    Duplexed,
    /// The whole server, and clients that speak NBD to it.
    Served,
    /// Failing devices, and a flush for every few requests.
    Flushing,
    /// Failing devices, and a journal of a few pages.
    Journal,
    /// Extents of 512 KiB to 4 MiB, volumes of any size, failing devices.
    Large,
    /// Five to twelve devices that fail and volumes of any size.
    Many,
    /// Devices that fail and, at other times, deceive.
    Deceiving,
    /// Each of these in turn, every fourth one general.
    All,
}

/// The order of [`Mix::All`].
const TURNS: [Mix; 18] = {
    use Mix::{
        Audited, Crowded, Deceiving, Duplexed, Flushing, General, Hanging, Journal, Large, Many, Mirrored,
        Moving, Served,
    };
    [
        General, Mirrored, Audited, Moving, Served, General, Crowded, Hanging, Duplexed, General, Mirrored,
        Flushing, Journal, Served, General, Many, Large, Deceiving,
    ]
};

impl Mix {
    /// The mix of a seed: which one's turn it is.
    pub(crate) fn of(self, seed: Seed) -> Self {
        if self == Self::All { TURNS[(seed.0 % TURNS.len() as u64) as usize] } else { self }
    }

    fn kind(self, seed: Seed) -> Kind {
        match self {
            Self::General | Self::All => Kind::of(seed),
            Self::Audited => Kind { audits: true, ..Kind::of(seed) },
            Self::Crowded => Kind { crowded: true, ..FAILING },
            Self::Large => Kind { large: true, odd: true, crashes: 10, ..FAILING },
            Self::Many => Kind { odd: true, devices_min: 5 + seed.0 / 16 % 6, ..FAILING },
            Self::Deceiving => Kind { rot: true, ..FAILING },
            Self::Mirrored
            | Self::Hanging
            | Self::Moving
            | Self::Duplexed
            | Self::Flushing
            | Self::Journal
            | Self::Served => FAILING,
        }
    }

    /// The history of a seed. Devices fail and deceive only with `faults`.
    pub(crate) fn history(self, seed: Seed, faults: bool) -> History {
        let mix = self.of(seed);
        if mix == Self::Served {
            return net::history(seed);
        }
        let kind = mix.kind(seed);
        let kind = Kind { faults: kind.faults && faults, rot: kind.rot && faults, ..kind };
        if matches!(mix, Self::General | Self::Audited | Self::Large | Self::Many | Self::Deceiving) {
            return History::new(seed, &kind);
        }
        let copies = if matches!(mix, Self::Mirrored | Self::Hanging | Self::Crowded) { 2 } else { 1 };
        // The devices of a mirrored map are drawn with it.
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
            Self::Hanging => hanging(&mut history),
            _ => {}
        }
        history
            .steps
            .retain(|step| !matches!(step, Step::Tune(Tune::PoolPolicy(_) | Tune::VolumePolicy(..))));
        aim(&mut history.setup, if mix == Self::Duplexed { "hystor-twice" } else { "chaos" }, copies);
        history
    }
}

const FAILING: Kind =
    Kind { faults: true, audits: true, devices_min: 3, volumes_min: 2, ..Kind::crashing(50, 350) };

/// One policy for all volumes, which moves whatever comes of it, and so many copies.
fn aim(setup: &mut Setup, policy: &str, copies: u8) {
    setup.policy = policy.to_owned();
    setup.mover_share = Percent(100);
    setup.moves = Moves::Free(Rules::default());
    for volume in &mut setup.volumes {
        (volume.copies, volume.policy) = (copies, None);
    }
}

/// Whatever goes wrong with a device, it hangs: mostly for good, or until shortly before or after it is given up.
fn hanging(history: &mut History) {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let deadline = history.setup.deadline.0;
    for step in &mut history.steps {
        if let Step::Break(_, fault) = step {
            let from = Nanos::micros(rng.below(20_000));
            let lasts = [u64::MAX, deadline / 2, deadline + deadline / 2][rng.below(3) as usize];
            *fault = Fault::Hang { during: from..Nanos(from.0.saturating_add(lasts)) };
        }
    }
}

/// After every few requests one of its volume's flushes, or several at once.
fn flushing(mut history: History) -> History {
    let mut rng = Rng::new(Seed(!history.setup.seed.0));
    let mut steps = Vec::with_capacity(history.steps.len() * 2);
    for step in history.steps.drain(..) {
        let ask = if let Step::Ask(ask) = &step { Some(*ask) } else { None };
        let is_own = !matches!(step, Step::CrashCopy(_));
        steps.push(step);
        if !is_own {
            continue;
        }
        let flushes = [0, 0, 0, 1, 1, 4][rng.below(6) as usize];
        let flush = |mut ask: weir_world::driver::Ask| {
            (ask.op, ask.fua) = (Op::Flush, false);
            Step::Ask(ask)
        };
        steps.extend(ask.into_iter().flat_map(|ask| (0..flushes).map(move |_| flush(ask))));
    }
    history.steps = steps;
    history
}
