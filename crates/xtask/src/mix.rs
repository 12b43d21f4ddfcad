//! Mixes of histories: the general one, and some that aim at combinations which it rarely produces.

mod idle;
mod losing;
mod served_losing;
mod transforms;

use clap::ValueEnum;
use idle::add_idle_time;
use losing::add_repeated_failures;
use served_losing::add_served_failures;
use transforms::{
    add_contention, add_durable_changes, add_flushes, add_large_frames, audit_often, make_faults_hang,
};
use weir_engine::Percent;
use weir_model::{Rng, Seed};
use weir_policy::harm::{MoveControl, Rules};
use weir_world::campaign::{History, HistoryKind};
use weir_world::driver::{HistoryStep, SettingChange, Setup};
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
    /// Durable changes of a few blocks, with crashes as soon as they are acknowledged.
    Durable,
    /// Many requests at once for one or two blocks, which are read, written and cleared.
    Contended,
    /// Hundreds of extents or volumes, in a metadata area that they fill, and in every other history failing
    /// devices.
    Wide,
    /// The whole server, and flushes and writes that fail repeatedly.
    ServedLosing,
    /// `adaptive` with one fast device: whole regions are read, and copied while clients pause.
    Idle,
    /// Each mix in turn, those that find most more often.
    All,
}

/// The seeds of [`Mix::All`] by mix: so many of [`TURNS`] each. [`Mix::Losing`], which finds most hard
/// mutants, gets a third of the time. Of the others, those that find more in the same time, or take less of
/// it, get more.
const SHARES: [(Mix, u64); 20] = [
    (Mix::Losing, 25),
    (Mix::Idle, 1),
    (Mix::ServedLosing, 26),
    (Mix::Deceiving, 11),
    (Mix::Frames, 7),
    (Mix::Contended, 7),
    (Mix::Durable, 4),
    (Mix::Crowded, 4),
    (Mix::Moving, 4),
    (Mix::Served, 3),
    (Mix::General, 3),
    (Mix::Large, 3),
    (Mix::Mirrored, 3),
    (Mix::Audited, 3),
    (Mix::Hanging, 2),
    (Mix::Duplexed, 2),
    (Mix::Wide, 2),
    (Mix::Many, 1),
    (Mix::Flushing, 1),
    (Mix::Journal, 1),
];

/// The number of seeds after which the mixes repeat: the sum of [`SHARES`], a prime.
const TURNS: u64 = 113;

/// The turns from one seed to the next, so that neighbouring seeds have different mixes.
const STRIDE: u64 = 70;

impl Mix {
    /// Returns the mix of a seed.
    pub(crate) fn of(self, seed: Seed) -> Self {
        if self != Self::All {
            return self;
        }
        let mut turn = seed.0 % TURNS * STRIDE % TURNS;
        let is_at = |&&(_, share): &&(Self, u64)| {
            let is_here = turn < share;
            turn = turn.wrapping_sub(share);
            is_here
        };
        SHARES.iter().find(is_at).map_or(Self::General, |(mix, _)| *mix)
    }

    fn kind(self, seed: Seed) -> HistoryKind {
        match self {
            Self::General | Self::All => HistoryKind::of(seed),
            Self::Audited => HistoryKind { audits: true, ..HistoryKind::of(seed) },
            Self::Crowded => HistoryKind { crowded: true, ..FAILING },
            Self::Contended => {
                HistoryKind { crashes: 30, copies: 1, faults: choice(seed, 4) == 0, ..FAILING }
            }
            Self::Wide => {
                HistoryKind { many_extents: true, crashes: 6, faults: choice(seed, 2) == 0, ..FAILING }
            }
            Self::Idle => {
                HistoryKind { many_extents: true, crashes: 4, faults: choice(seed, 2) == 0, ..FAILING }
            }
            Self::Large => HistoryKind { large_extents: true, odd_sizes: true, crashes: 10, ..FAILING },
            Self::Many => HistoryKind { odd_sizes: true, devices_min: 5 + seed.0 / 16 % 6, ..FAILING },
            Self::Deceiving => HistoryKind { rot: true, faults: choice(seed, 2) == 0, ..FAILING },
            Self::Losing => HistoryKind { crashes: 12, requests: 250, ..FAILING },
            Self::Frames | Self::Durable => {
                HistoryKind { crashes: 12, requests: 200, faults: choice(seed, 2) == 0, ..FAILING }
            }
            Self::Duplexed => HistoryKind { faults: choice(seed, 2) == 0, ..FAILING },
            Self::Mirrored
            | Self::Hanging
            | Self::Moving
            | Self::Flushing
            | Self::Journal
            | Self::Served
            | Self::ServedLosing => FAILING,
        }
    }

    /// Returns the history of a seed. Devices fail and deceive only with `faults`. `crashes`: the mean
    /// number of copies that crash at random moments for each crash of the pool; those that a mix aims at are
    /// added. With 0 no copy crashes.
    pub(crate) fn history(self, seed: Seed, faults: bool, crashes: Option<u64>) -> History {
        let history = match (self.of(seed), crashes) {
            (Self::Served, None) => net::history(seed),
            (Self::Served, Some(crashes)) => net::history(seed).with_copies(crashes),
            (Self::ServedLosing, None) => add_served_failures(net::history(seed)),
            (Self::ServedLosing, Some(crashes)) => {
                add_served_failures(net::history(seed).with_copies(crashes))
            }
            (mix, _) => mix.without_server(seed, faults, crashes),
        };
        if crashes == Some(0) { history.without_copies() } else { history }
    }

    /// Returns the history of a seed in a mix without a server.
    fn without_server(self, seed: Seed, faults: bool, crashes: Option<u64>) -> History {
        let kind = self.kind(seed);
        let (faults, rot) = (kind.faults && faults, kind.rot && faults);
        let kind = HistoryKind { faults, rot, copies: crashes.unwrap_or(kind.copies), ..kind };
        if matches!(
            self,
            Self::General | Self::Audited | Self::Wide | Self::Large | Self::Many | Self::Deceiving
        ) {
            return History::new(seed, &kind);
        }
        let two = match self {
            Self::Mirrored | Self::Hanging | Self::Crowded => true,
            Self::Losing => choice(seed, 2) == 0,
            Self::Durable => choice(seed, 8) < 3,
            _ => false,
        };
        let copies = if two { 2 } else { 1 };
        // The devices of a mirrored map are drawn together with it.
        let nearby = (0u64..).map(|n| Seed(seed.0 ^ n.rotate_right(16)));
        let mut histories = nearby.map(|seed| History::new(seed, &kind));
        let is_fit = |history: &History| match self {
            // Few volumes are large ones.
            Self::Idle => history.setup.volumes.len() < 8,
            _ => history.setup.mirrored || copies == 1,
        };
        let history = histories.find(is_fit);
        let Some(mut history) = history else { return History::new(seed, &kind) };
        match self {
            Self::Flushing => return add_flushes(history),
            Self::Journal => {
                history.setup.journal_pages = 4 + seed.0 / 16 % 4;
                return history;
            }
            Self::Frames => return add_large_frames(history),
            Self::Contended => return add_contention(history),
            Self::Durable if !two => return add_durable_changes(history),
            Self::Durable => history = add_durable_changes(history),
            Self::Losing if !kind.faults => {}
            Self::Losing if choice(seed, 8) < 2 && copies == 1 => return add_repeated_failures(history),
            Self::Losing => history = add_repeated_failures(history),
            Self::Hanging => make_faults_hang(&mut history),
            Self::Idle => history = add_idle_time(history, kind.faults),
            Self::Duplexed if !kind.faults => history = audit_often(history),
            _ => {}
        }
        history.steps.retain(|step| {
            !matches!(step, HistoryStep::Tune(SettingChange::PoolPolicy(_) | SettingChange::VolumePolicy(..)))
        });
        let policy = match (self, choice(seed, 8)) {
            (Self::Duplexed, _) => "hystor-twice",
            (Self::Idle, _) => "adaptive",
            (Self::Losing, 3) if copies == 1 => "hystor-twice",
            // Nothing moves: what is in doubt stays so, while everything else becomes durable.
            (Self::Losing, 4..6) => "sequential",
            _ => "chaos",
        };
        set_policy(&mut history.setup, policy, copies);
        history
    }
}

const FAILING: HistoryKind = HistoryKind {
    faults: true,
    audits: true,
    devices_min: 3,
    volumes_min: 2,
    ..HistoryKind::with_crashes(50, 350)
};

/// Returns a choice of `count` that a seed makes for its history, independent of its own value.
fn choice(seed: Seed, count: u64) -> u64 {
    Rng::new(Seed(!seed.0)).word() % count
}

/// Sets one policy for all volumes, with unconditional moves, and the number of copies.
fn set_policy(setup: &mut Setup, policy: &str, copies: u8) {
    setup.policy = policy.to_owned();
    setup.mover_share = Percent(100);
    setup.moves = MoveControl::NeverPaused(Rules::default());
    for volume in &mut setup.volumes {
        (volume.copies, volume.policy) = (copies, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::DeviceId;
    use weir_world::Driver;

    #[test]
    fn aimed_crashes_stay_whatever_the_number_of_random_ones() {
        let count = |crashes| {
            let steps = Mix::Losing.history(Seed(7), true, crashes).steps;
            steps.iter().filter(|step| step.crashes_copy()).count()
        };
        assert!(count(None) > 100, "{}", count(None));
        assert_eq!((count(Some(30)), count(Some(0))), (count(None), 0));
    }

    /// In the pauses of the mix made for that, regions are copied to the fast device. Copies of single
    /// blocks, which reads cause, have ended by then.
    #[test]
    fn regions_are_copied_in_pauses() {
        let copied_to_fast = |seed| {
            let history = Mix::Idle.history(Seed(seed), false, Some(0));
            let fast = DeviceId(history.setup.devices.len() as u8 - 1);
            let free = |driver: &Driver| driver.map().space(fast).free();
            let mut driver = Driver::new(history.setup).expect("a pool");
            let mut copied = 0;
            for step in &history.steps {
                let before = free(&driver);
                driver.step(step).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
                if matches!(step, HistoryStep::Pass(time) if *time > idle::SINGLE_COPIES) {
                    copied += before.saturating_sub(free(&driver));
                }
            }
            copied
        };
        let copied = (1..=16).map(copied_to_fast).sum::<u32>();
        assert!(copied > 60, "{copied} extents in 16 histories");
    }

    #[test]
    fn every_mix_has_its_share_of_the_seeds() {
        let mixes: Vec<_> = (1000..1000 + TURNS).map(|seed| Mix::All.of(Seed(seed))).collect();
        for mix in Mix::value_variants().iter().filter(|mix| **mix != Mix::All) {
            let share = SHARES.iter().find(|(of, _)| of == mix).map(|(_, share)| *share);
            let seeds = mixes.iter().filter(|of| *of == mix).count() as u64;
            assert_eq!(Some(seeds), share, "{mix:?}");
        }
        let alternate = mixes.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(alternate > mixes.len() * 9 / 10, "{mixes:?}");
    }

    #[test]
    fn copies_do_not_change_the_rest_of_a_history() {
        for seed in (0..TURNS).map(Seed) {
            let without = Mix::All.history(seed, true, Some(0));
            for crashes in [None, Some(1), Some(30)] {
                let with = Mix::All.history(seed, true, crashes).without_copies();
                assert!(with == without, "seed {seed}, {:?}: {crashes:?}", Mix::All.of(seed));
            }
        }
    }
}
