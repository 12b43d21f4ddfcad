//! The mover's share of each device's time, which keeps moves from crowding out clients.
//!
//! Commands in flight share a device's time: with n of them, each is charged an n-th. The time of the mover's
//! commands is charged to an account of the device, which fills at the mover's share of the time; while the
//! account is overdrawn, no run of a move begins on that device. On a device that no client has used for
//! [`IDLE_AFTER`], moves are free; with a share of zero they begin only there. Copies that volumes require by
//! their own rules are not paced.
//!
//! Clients' commands that overlapped a move are measured apart from the others. If their p99 response time is
//! more than twice that of the others, the share is halved, again each second, down to a sixteenth; it is
//! doubled again once that is over.

use crate::flight::Origin;
use crate::units::Percent;
use weir_model::Nanos;

/// The time without client commands after which a device is idle.
const IDLE_AFTER: Nanos = Nanos::millis(5);
/// The time whose income the account can save up.
const CREDIT_MAX: Nanos = Nanos::millis(100);
/// The time within which any debt is paid, however long a command took: it may have been a pause of the
/// machine.
const DEBT_MAX: Nanos = Nanos::secs(10);
/// The time between reviews of clients' response times.
const REVIEW_INTERVAL: Nanos = Nanos::secs(1);
/// The maximum number of halvings of the share.
const HALVINGS_MAX: u8 = 4;
/// The minimum number of responses per second that say anything about moves.
const RESPONSES_MIN: u32 = 16;

/// The mover's use of a device's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoverShare {
    /// The maximum share of the device's time while clients use it, 0 to 1.
    pub share: f64,
    /// The service time of the mover's commands since the start, including time in which no client used the
    /// device.
    pub service_time: Nanos,
    /// The approximate p99 response time of clients' commands that overlapped no move.
    pub p99: Option<Nanos>,
    /// The approximate p99 response time of clients' commands that overlapped a move.
    pub p99_during_moves: Option<Nanos>,
}

/// A running 99th percentile. A sample above it raises it by a twentieth; a sample below lowers it by so
/// little that the two balance if one in a hundred is above. In 1024ths of a nanosecond; 0 before the first
/// sample.
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
    /// Nanoseconds of the device's time that the mover may still use; negative if overdrawn.
    credit: f64,
    /// The time up to which the share has been paid in.
    credited_until: Nanos,
    /// Commands in flight, and the end of the last one.
    clients_in_flight: u32,
    last_client_end: Nanos,
    moves_in_flight: u32,
    last_move_end: Nanos,
    service_time: Nanos,
    halvings: u8,
    p99_alone: P99,
    p99_during_moves: P99,
    /// Clients' commands that overlapped a move since the last review.
    overlaps: u32,
    reviewed_at: Nanos,
}

/// A command that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedCommand {
    pub(crate) origin: Origin,
    /// The time at which it began.
    pub(crate) started: Nanos,
    /// Its response time.
    pub(crate) response: Nanos,
    /// Its service time.
    pub(crate) service_time: Nanos,
}

impl Pacing {
    /// Notes that a command begins.
    #[inline]
    pub(crate) fn begin(&mut self, origin: Origin) {
        match origin {
            Origin::Client => self.clients_in_flight += 1,
            Origin::Mover => self.moves_in_flight += 1,
            Origin::Other => {}
        }
    }

    /// Notes that a command has ended, successfully or not.
    #[inline]
    pub(crate) fn end(&mut self, now: Nanos, ended: EndedCommand, share: Percent) {
        match ended.origin {
            Origin::Client => {
                self.clients_in_flight = self.clients_in_flight.saturating_sub(1);
                self.last_client_end = now;
                self.note_response(ended);
            }
            Origin::Mover => {
                self.moves_in_flight = self.moves_in_flight.saturating_sub(1);
                self.last_move_end = now;
                self.service_time += ended.service_time;
                if !self.is_idle(ended.started) {
                    self.credit -= ended.service_time.0 as f64;
                    self.add_credit(now, share);
                    self.credit = self.credit.max(-(DEBT_MAX.0 as f64) * self.share(share));
                }
            }
            Origin::Other => {}
        }
    }

    /// Returns the earliest time at which the mover may use the device.
    pub(crate) fn available_at(&mut self, now: Nanos, share: Percent) -> Nanos {
        self.review(now);
        self.add_credit(now, share);
        if self.is_idle(now) {
            return now;
        }
        if share.0 == 0 {
            // Nothing announces the end of the last client's command: it is asked again.
            return if self.clients_in_flight > 0 {
                now + IDLE_AFTER
            } else {
                self.last_client_end + IDLE_AFTER
            };
        }
        if share.0 >= 100 || self.credit >= 0.0 {
            return now;
        }
        let paid = now + Nanos((-self.credit / self.share(share)).ceil() as u64);
        let idle = if self.clients_in_flight == 0 { self.last_client_end + IDLE_AFTER } else { Nanos::MAX };
        paid.min(idle)
    }

    /// Returns the service time of the mover's commands.
    pub(crate) fn service_time(&self) -> Nanos {
        self.service_time
    }

    pub(crate) fn status(&self, share: Percent) -> MoverShare {
        let (p99, p99_beside) = (self.p99_alone.get(), self.p99_during_moves.get());
        MoverShare {
            share: self.share(share),
            service_time: self.service_time,
            p99,
            p99_during_moves: p99_beside,
        }
    }

    fn share(&self, of: Percent) -> f64 {
        f64::from(of.0) / 100.0 / f64::from(1u32 << self.halvings)
    }

    /// Whether no client has used the device for [`IDLE_AFTER`].
    pub(crate) fn is_idle(&self, now: Nanos) -> bool {
        self.clients_in_flight == 0 && now >= self.last_client_end + IDLE_AFTER
    }

    fn add_credit(&mut self, now: Nanos, share: Percent) {
        let share = self.share(share);
        let income = now.since(self.credited_until).0 as f64 * share;
        self.credit = (self.credit + income).min(CREDIT_MAX.0 as f64 * share);
        self.credited_until = now;
    }

    #[inline]
    fn note_response(&mut self, ended: EndedCommand) {
        let met = self.moves_in_flight > 0 || self.last_move_end > ended.started;
        if met {
            self.overlaps += 1;
            self.p99_during_moves.add(ended.response);
        } else {
            self.p99_alone.add(ended.response);
        }
    }

    /// Adjusts the share if moves slow clients down.
    fn review(&mut self, now: Nanos) {
        if now.since(self.reviewed_at) < REVIEW_INTERVAL {
            return;
        }
        let in_the_way = match (self.p99_alone.get(), self.p99_during_moves.get()) {
            (Some(alone), Some(beside)) => self.overlaps >= RESPONSES_MIN && beside > alone + alone,
            _ => false,
        };
        self.halvings =
            if in_the_way { HALVINGS_MAX.min(self.halvings + 1) } else { self.halvings.saturating_sub(1) };
        (self.overlaps, self.reviewed_at) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::millis;
    const SHARE: Percent = Percent(20);

    /// Simulates a move of length `took` that begins at `at`, while a client uses the device.
    fn run_move(pacing: &mut Pacing, at: Nanos, took: Nanos) -> Nanos {
        pacing.begin(Origin::Mover);
        let now = at + took;
        pacing.end(
            now,
            EndedCommand { origin: Origin::Mover, started: at, response: took, service_time: took },
            SHARE,
        );
        now
    }

    #[test]
    fn moves_are_limited_only_on_busy_devices() {
        let mut pacing = Pacing::default();
        pacing.begin(Origin::Client);
        let (end, mut now, mut moves) = (Nanos::secs(10), Nanos(0), 0);
        while now < end {
            now = pacing.available_at(now, SHARE);
            now = run_move(&mut pacing, now, MS(5));
            moves += 1;
        }
        assert!((395..=420).contains(&moves), "2 s of 10, and what was saved up: {moves}");
        pacing.end(
            now,
            EndedCommand { origin: Origin::Client, started: Nanos(0), response: now, service_time: now },
            SHARE,
        );
        let free = pacing.available_at(now, SHARE);
        assert!(
            free <= now + IDLE_AFTER && pacing.available_at(now + IDLE_AFTER, SHARE) == now + IDLE_AFTER,
            "{free}"
        );
        now += IDLE_AFTER;
        for _ in 0..100 {
            assert_eq!(pacing.available_at(now, SHARE), now);
            now = run_move(&mut pacing, now, MS(50));
        }
    }

    #[test]
    fn mover_share_adapts_to_client_response_times() {
        let mut pacing = Pacing::default();
        let client = |pacing: &mut Pacing, at: Nanos, response: Nanos| {
            pacing.begin(Origin::Client);
            pacing.end(
                at + response,
                EndedCommand { origin: Origin::Client, started: at, response, service_time: response },
                SHARE,
            );
        };
        (0..200).for_each(|i| client(&mut pacing, MS(1000 + i), MS(1)));
        let share = |pacing: &mut Pacing, now: Nanos| {
            pacing.available_at(now, SHARE);
            pacing.status(SHARE).share
        };
        let second = |pacing: &mut Pacing, n: u64, response: Nanos| {
            for i in 0..50 {
                pacing.begin(Origin::Mover);
                client(pacing, MS(n * 1000 + i * 10), response);
                let now = MS(n * 1000 + i * 10 + 9);
                pacing.end(
                    now,
                    EndedCommand {
                        origin: Origin::Mover,
                        started: now,
                        response: Nanos(0),
                        service_time: Nanos(0),
                    },
                    SHARE,
                );
            }
            share(pacing, MS(n * 1000 + 999))
        };
        let falling: Vec<_> = (2..9).map(|n| second(&mut pacing, n, MS(4))).collect();
        assert!(falling[0] > falling[3] && (falling[6] - 0.0125).abs() < 1e-9, "{falling:?}");
        // It takes a while until the percentile has fallen.
        let rising: Vec<_> = (9..70).map(|n| second(&mut pacing, n, MS(1))).collect();
        assert!((rising[60] - 0.2).abs() < 1e-9, "{rising:?}");
    }

    #[test]
    fn without_a_share_moves_wait_until_no_client_uses_the_device() {
        let (mut pacing, none) = (Pacing::default(), Percent(0));
        pacing.begin(Origin::Client);
        assert!(pacing.available_at(MS(50), none) > MS(50));
        let ended = EndedCommand {
            origin: Origin::Client,
            started: Nanos(0),
            response: MS(60),
            service_time: MS(60),
        };
        pacing.end(MS(60), ended, none);
        assert_eq!(pacing.available_at(MS(61), none), MS(60) + IDLE_AFTER);
        let idle = MS(60) + IDLE_AFTER;
        assert_eq!(pacing.available_at(idle, none), idle);
    }

    #[test]
    fn unlimited_share_never_waits() {
        let mut pacing = Pacing::default();
        pacing.begin(Origin::Client);
        let now = run_move(&mut pacing, Nanos(0), Nanos::secs(5));
        assert_eq!(pacing.available_at(now, Percent(100)), now);
        let free = pacing.available_at(now, SHARE);
        assert!(free > now + Nanos::secs(9) && free <= now + DEBT_MAX, "{free}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Compares with a naive twin that sorts all response times.
        #[test]
        fn running_p99_approximates_the_exact_one(seed: u64, spread in 1u64..100) {
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
