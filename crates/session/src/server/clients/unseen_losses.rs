//! Losses of writes that disconnected clients may not have seen.
//!
//! A client that reconnects repeats the FLUSH whose reply it has missed, and that must not succeed then. The
//! server does not know which client returns. So each client that connects within [`REMEMBERED`] of the
//! disconnection gets the error of any loss since from its first FLUSH, whatever other clients have seen; and
//! the volume's next FLUSH fails, whoever requests it, in case the client returns later.

use crate::connection::PastLosses;
use std::collections::BTreeMap;
use weir_engine::Loss;
use weir_model::{Nanos, VolumeId};

/// How long clients that connect after a disconnection may be the one that disconnected.
const REMEMBERED: Nanos = Nanos::secs(3600);

/// Maximum number of disconnections remembered for a volume.
const REMEMBERED_MAX: usize = 8;

/// The numbers of losses that disconnected clients are known to have seen.
#[derive(Debug, Default)]
pub(super) struct UnseenLosses {
    /// Disconnections since the last [`UnseenLosses::take_new`].
    new: Vec<(VolumeId, u64)>,
    /// When disconnections are forgotten, by volume and the number of losses seen.
    remembered: BTreeMap<(VolumeId, u64), Nanos>,
}

impl UnseenLosses {
    /// Notes that a client of the volume, which has seen `known` losses, disconnected just now.
    pub(super) fn note(&mut self, volume: VolumeId, known: u64) {
        self.new.push((volume, known));
    }

    /// Returns the losses before a client that connects to the volume now, after `count` of them: it may be
    /// any of those that disconnected.
    pub(super) fn before(&self, volume: VolumeId, count: u64, now: Nanos) -> PastLosses {
        let remembered = self.of_volume(volume).filter(|(_, until)| *until > now).map(|(known, _)| known);
        let new = self.new.iter().filter(|(of, _)| *of == volume).map(|(_, known)| *known);
        PastLosses { count, seen: remembered.chain(new).fold(count, u64::min) }
    }

    /// Remembers the new disconnections; returns the losses that these clients may not have seen, by volume.
    pub(super) fn take_new(
        &mut self,
        now: Nanos,
        last_loss: impl Fn(VolumeId) -> Option<Loss>,
    ) -> Vec<(VolumeId, Loss)> {
        if self.new.is_empty() {
            return Vec::new();
        }
        self.remembered.retain(|_, until| *until > now);
        let mut unseen = Vec::new();
        for (volume, known) in std::mem::take(&mut self.new) {
            self.remember(volume, known, now + REMEMBERED);
            unseen.extend(last_loss(volume).filter(|loss| loss.number > known).map(|loss| (volume, loss)));
        }
        unseen
    }

    /// Remembers a disconnection. If there are too many, the one that had seen least stands for the next one,
    /// too: a loss is rather reported once more than not at all.
    fn remember(&mut self, volume: VolumeId, known: u64, until: Nanos) {
        self.remembered.insert((volume, known), until);
        let all: Vec<_> = self.of_volume(volume).collect();
        if all.len() > REMEMBERED_MAX
            && let [(least, until), (next, until_next), ..] = all[..]
        {
            self.remembered.remove(&(volume, next));
            self.remembered.insert((volume, least), until.max(until_next));
        }
    }

    /// Returns the number of losses seen, and when that is forgotten, of each disconnection of the volume.
    fn of_volume(&self, volume: VolumeId) -> impl Iterator<Item = (u64, Nanos)> + '_ {
        let range = self.remembered.range((volume, 0)..=(volume, u64::MAX));
        range.map(|((_, known), until)| (*known, *until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::DeviceId;

    const VOLUME: VolumeId = VolumeId(3);

    #[test]
    fn clients_that_connect_soon_after_a_disconnection_have_seen_no_more_than_that_client() {
        let mut losses = UnseenLosses::default();
        losses.note(VOLUME, 1);
        losses.note(VOLUME, 2);
        let seen = |losses: &UnseenLosses, volume, now| losses.before(volume, 4, now).seen;
        assert_eq!(seen(&losses, VOLUME, Nanos(0)), 1, "also before it is remembered");
        let last = |_| Some(Loss { number: 2, device: DeviceId(0) });
        let unseen = losses.take_new(Nanos(0), last);
        assert_eq!(unseen.len(), 1, "one of them has seen everything");
        assert_eq!((seen(&losses, VOLUME, Nanos(0)), seen(&losses, VolumeId(4), Nanos(0))), (1, 4));
        losses.note(VOLUME, 2);
        losses.take_new(Nanos(5), last);
        assert_eq!(seen(&losses, VOLUME, REMEMBERED), 2, "each is forgotten in its own time");
        assert_eq!(seen(&losses, VOLUME, REMEMBERED + Nanos(5)), 4);
    }

    #[test]
    fn bounded_number_of_disconnections_forgets_no_loss() {
        let mut losses = UnseenLosses::default();
        for known in 0..1000 {
            losses.note(VOLUME, known);
            losses.take_new(Nanos(known), |_| None);
            assert!(losses.remembered.len() <= REMEMBERED_MAX);
        }
        assert_eq!(losses.before(VOLUME, 1000, REMEMBERED + Nanos(900)), PastLosses { count: 1000, seen: 0 });
        assert_eq!(losses.before(VOLUME, 1000, REMEMBERED + Nanos(999)).seen, 1000);
    }
}
