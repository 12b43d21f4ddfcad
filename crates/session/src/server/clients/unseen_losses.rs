//! Losses of writes that disconnected clients may not have seen.
//!
//! A client that reconnects repeats the FLUSH whose reply it has missed, and that must not succeed then. The
//! server does not know which client returns. So each client that connects within [`REMEMBERED`] of the
//! disconnection gets the error of any loss since from its first FLUSH, whatever other clients have seen; and
//! the volume's next FLUSH fails, whoever requests it, in case the client returns later.

use std::collections::BTreeMap;
use weir_engine::Loss;
use weir_model::{Nanos, VolumeId};

/// How long clients that connect after a disconnection may be the one that disconnected.
const REMEMBERED: Nanos = Nanos::secs(3600);

/// Maximum number of remembered disconnections with different numbers of losses seen.
const REMEMBERED_MAX: usize = 256;

/// The numbers of losses that disconnected clients are known to have seen.
#[derive(Debug, Default)]
pub(super) struct UnseenLosses {
    /// Disconnections since the last [`UnseenLosses::take_new`].
    new: Vec<(VolumeId, u64)>,
    /// When disconnections are forgotten.
    remembered: BTreeMap<(VolumeId, u64), Nanos>,
}

impl UnseenLosses {
    /// Notes that a client of the volume, which has seen `known` losses, disconnected just now.
    pub(super) fn note(&mut self, volume: VolumeId, known: u64) {
        self.new.push((volume, known));
    }

    /// Returns the number of losses that a client which connects to the volume now has certainly seen, if it
    /// is one that disconnected; otherwise `last`, that of all losses.
    pub(super) fn seen_by_newcomer(&self, volume: VolumeId, last: u64, now: Nanos) -> u64 {
        let of_volume = self.remembered.range((volume, 0)..=(volume, u64::MAX));
        let remembered = of_volume.filter(|(_, until)| **until > now).map(|((_, known), _)| *known);
        let new = self.new.iter().filter(|(of, _)| *of == volume).map(|(_, known)| *known);
        remembered.chain(new).fold(last, u64::min)
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
        for (volume, known) in self.new.drain(..) {
            self.remembered.insert((volume, known), now + REMEMBERED);
            unseen.extend(last_loss(volume).filter(|loss| loss.number > known).map(|loss| (volume, loss)));
        }
        while self.remembered.len() > REMEMBERED_MAX {
            self.remembered.pop_first();
        }
        unseen
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
        let seen = |losses: &UnseenLosses, volume, now| losses.seen_by_newcomer(volume, 4, now);
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
    fn remembered_disconnections_are_bounded() {
        let mut losses = UnseenLosses::default();
        (0..1000).for_each(|known| losses.note(VOLUME, known));
        losses.take_new(Nanos(0), |_| None);
        assert_eq!(losses.remembered.len(), REMEMBERED_MAX);
    }
}
