//! The mover's share of each device's time, so that moving never takes over.
//!
//! Commands under way share a device's time: while it has n of them, each takes an n-th. What the mover's
//! commands take is paid from an account of the device, which fills at the mover's share of the time; while
//! it is overdrawn, no run of a move begins there. On a device of which no client has wanted anything for
//! [`IDLE`] moves cost nothing. Copies that volumes are to have by their own rules are not paced.
//!
//! Of clients' commands those that met a move there are told apart from those that met none. If the p99
//! response of the former is above twice that of the latter, the share is halved, each second anew, down to
//! a sixteenth of what it was; and doubled again once it is not.

use crate::flight::Whose;
use crate::units::Percent;
use weir_model::Nanos;

/// A device of which no client has wanted anything for so long is idle.
const IDLE: Nanos = Nanos::millis(5);
/// What can be saved up is what comes in within this time.
const SAVED: Nanos = Nanos::millis(100);
/// However long a command took, what it leaves to be paid is paid within this time: it may have been a pause
/// of the machine.
const OWED: Nanos = Nanos::secs(10);
/// The time between two looks at clients' responses.
const REVIEW: Nanos = Nanos::secs(1);
/// The share is halved so often at most.
const HALVINGS_MAX: u8 = 4;
/// Responses in a second that say anything about moves.
const ENOUGH: u32 = 16;

/// What the mover has of a device's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoverShare {
    /// How much of it at most, while clients use the device: 0 to 1.
    pub share: f64,
    /// What its commands have taken since the start, time in which no client used the device included.
    pub taken: Nanos,
    /// 99 of 100 of clients' commands that met no move were answered within about this time.
    pub p99: Option<Nanos>,
    /// The same for clients' commands that met a move.
    pub p99_beside: Option<Nanos>,
}

/// A running 99th percentile: up by a twentieth for a sample above it, down by so little for one below that
/// the two are even if one in a hundred is above. In 1024ths of a nanosecond; 0 before the first sample.
#[derive(Clone, Copy, Debug, Default)]
struct P99(u64);

impl P99 {
    const UP: u64 = 20;
    const DOWN: u64 = 2000;
    const SHIFT: u32 = 10;

    #[inline]
    fn add(&mut self, response: Nanos) {
        let response = response.0.max(1) << Self::SHIFT;
        let at = if self.0 == 0 { response } else { self.0 };
        self.0 = if response > at { at + at / Self::UP } else { at - at / Self::DOWN };
    }

    fn get(self) -> Option<Nanos> {
        (self.0 > 0).then_some(Nanos(self.0 >> Self::SHIFT))
    }
}

/// The account of one device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacing {
    /// Nanoseconds of the device's time that the mover may still take; below zero if it has taken too much.
    credit: f64,
    /// Up to when the share has been paid in.
    since: Nanos,
    /// Commands in flight, and when the last one ended.
    clients: u32,
    client_ended: Nanos,
    moves: u32,
    move_ended: Nanos,
    taken: Nanos,
    halvings: u8,
    alone: P99,
    beside: P99,
    /// Clients' commands that met a move since the last review.
    met: u32,
    reviewed: Nanos,
}

/// A command that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) whose: Whose,
    /// When it began.
    pub(crate) started: Nanos,
    /// From then to its end.
    pub(crate) response: Nanos,
    /// What it took of the device's time.
    pub(crate) took: Nanos,
}

impl Pacing {
    /// A command begins.
    #[inline]
    pub(crate) fn begin(&mut self, whose: Whose) {
        match whose {
            Whose::Client => self.clients += 1,
            Whose::Mover => self.moves += 1,
            Whose::Other => {}
        }
    }

    /// A command has ended, well or not.
    #[inline]
    pub(crate) fn end(&mut self, now: Nanos, ended: Ended, share: Percent) {
        match ended.whose {
            Whose::Client => {
                self.clients = self.clients.saturating_sub(1);
                self.client_ended = now;
                self.note_response(ended);
            }
            Whose::Mover => {
                self.moves = self.moves.saturating_sub(1);
                self.move_ended = now;
                self.taken += ended.took;
                if !self.is_idle(ended.started) {
                    self.credit -= ended.took.0 as f64;
                    self.pay_in(now, share);
                    self.credit = self.credit.max(-(OWED.0 as f64) * self.share(share));
                }
            }
            Whose::Other => {}
        }
    }

    /// When the mover may take some of the device's time: now, or later.
    pub(crate) fn free_at(&mut self, now: Nanos, share: Percent) -> Nanos {
        self.review(now);
        self.pay_in(now, share);
        if share.0 >= 100 || self.credit >= 0.0 || self.is_idle(now) {
            return now;
        }
        let paid = now + Nanos((-self.credit / self.share(share)).ceil() as u64);
        let idle = if self.clients == 0 { self.client_ended + IDLE } else { Nanos::MAX };
        paid.min(idle)
    }

    /// What the mover's commands have taken of the device's time.
    pub(crate) fn taken(&self) -> Nanos {
        self.taken
    }

    pub(crate) fn status(&self, share: Percent) -> MoverShare {
        let (p99, p99_beside) = (self.alone.get(), self.beside.get());
        MoverShare { share: self.share(share), taken: self.taken, p99, p99_beside }
    }

    fn share(&self, of: Percent) -> f64 {
        f64::from(of.0) / 100.0 / f64::from(1u32 << self.halvings)
    }

    /// Whether no client has wanted anything of the device for [`IDLE`].
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        self.clients == 0 && now >= self.client_ended + IDLE
    }

    fn pay_in(&mut self, now: Nanos, share: Percent) {
        let share = self.share(share);
        let income = now.since(self.since).0 as f64 * share;
        self.credit = (self.credit + income).min(SAVED.0 as f64 * share);
        self.since = now;
    }

    #[inline]
    fn note_response(&mut self, ended: Ended) {
        let met = self.moves > 0 || self.move_ended > ended.started;
        if met {
            self.met += 1;
            self.beside.add(ended.response);
        } else {
            self.alone.add(ended.response);
        }
    }

    /// Whether moves get in the way.
    fn review(&mut self, now: Nanos) {
        if now.since(self.reviewed) < REVIEW {
            return;
        }
        let in_the_way = match (self.alone.get(), self.beside.get()) {
            (Some(alone), Some(beside)) => self.met >= ENOUGH && beside > alone + alone,
            _ => false,
        };
        self.halvings =
            if in_the_way { HALVINGS_MAX.min(self.halvings + 1) } else { self.halvings.saturating_sub(1) };
        (self.met, self.reviewed) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::millis;
    const SHARE: Percent = Percent(20);

    /// A move takes the device for so long from `at` on, while a client keeps it in use.
    fn moved(pacing: &mut Pacing, at: Nanos, took: Nanos) -> Nanos {
        pacing.begin(Whose::Mover);
        let now = at + took;
        pacing.end(now, Ended { whose: Whose::Mover, started: at, response: took, took }, SHARE);
        now
    }

    #[test]
    fn moves_take_their_share_of_a_device_in_use_and_all_of_an_idle_one() {
        let mut pacing = Pacing::default();
        pacing.begin(Whose::Client);
        let (end, mut now, mut moves) = (Nanos::secs(10), Nanos(0), 0);
        while now < end {
            now = pacing.free_at(now, SHARE);
            now = moved(&mut pacing, now, MS(5));
            moves += 1;
        }
        assert!((395..=420).contains(&moves), "2 s of 10, and what was saved up: {moves}");
        pacing.end(now, Ended { whose: Whose::Client, started: Nanos(0), response: now, took: now }, SHARE);
        let free = pacing.free_at(now, SHARE);
        assert!(free <= now + IDLE && pacing.free_at(now + IDLE, SHARE) == now + IDLE, "{free}");
        now += IDLE;
        for _ in 0..100 {
            assert_eq!(pacing.free_at(now, SHARE), now);
            now = moved(&mut pacing, now, MS(50));
        }
    }

    #[test]
    fn the_share_is_halved_while_clients_wait_twice_as_long_and_doubled_when_they_do_not() {
        let mut pacing = Pacing::default();
        let client = |pacing: &mut Pacing, at: Nanos, response: Nanos| {
            pacing.begin(Whose::Client);
            pacing.end(
                at + response,
                Ended { whose: Whose::Client, started: at, response, took: response },
                SHARE,
            );
        };
        (0..200).for_each(|i| client(&mut pacing, MS(1000 + i), MS(1)));
        let share = |pacing: &mut Pacing, now: Nanos| {
            pacing.free_at(now, SHARE);
            pacing.status(SHARE).share
        };
        let second = |pacing: &mut Pacing, n: u64, response: Nanos| {
            for i in 0..50 {
                pacing.begin(Whose::Mover);
                client(pacing, MS(n * 1000 + i * 10), response);
                let now = MS(n * 1000 + i * 10 + 9);
                pacing.end(
                    now,
                    Ended { whose: Whose::Mover, started: now, response: Nanos(0), took: Nanos(0) },
                    SHARE,
                );
            }
            share(pacing, MS(n * 1000 + 999))
        };
        let falling: Vec<_> = (2..9).map(|n| second(&mut pacing, n, MS(4))).collect();
        assert!(falling[0] > falling[3] && (falling[6] - 0.0125).abs() < 1e-9, "{falling:?}");
        // It takes a while until the percentile is believed to be lower.
        let rising: Vec<_> = (9..70).map(|n| second(&mut pacing, n, MS(1))).collect();
        assert!((rising[60] - 0.2).abs() < 1e-9, "{rising:?}");
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pacing = Pacing::default();
        pacing.begin(Whose::Client);
        let now = moved(&mut pacing, Nanos(0), Nanos::secs(5));
        assert_eq!(pacing.free_at(now, Percent(100)), now);
        let free = pacing.free_at(now, SHARE);
        assert!(free > now + Nanos::secs(9) && free <= now + OWED, "{free}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Beside a naive twin, all responses sorted.
        #[test]
        fn the_running_percentile_is_about_right(seed: u64, spread in 1u64..100) {
            let mut random = weir_model::Rng::new(weir_model::Seed(seed));
            let mut all: Vec<u64> = (0..20_000).map(|_| 100_000 + random.below(spread * 10_000)).collect();
            let mut p99 = P99::default();
            all.iter().for_each(|ns| p99.add(Nanos(*ns)));
            all.sort_unstable();
            let found = p99.get().unwrap_or_default().0 as f64;
            let (low, high) = (all[all.len() * 96 / 100] as f64 * 0.9, all[all.len() - 1] as f64 * 1.06);
            prop_assert!((low..=high).contains(&found), "{found} not in {low}..{high}");
        }
    }
}
