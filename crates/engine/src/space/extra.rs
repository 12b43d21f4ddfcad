//! Space beyond one place per extent: slots, and second whole places. It is bounded, unless the policy bounds
//! it itself.
//!
//! The bound is a share of the pool's space for data, plus the devices on which the policy keeps copies on
//! purpose ([`KeptPlaces`]): those that are really faster than others. At the bound, writes are in place and
//! no copies are made. A move of a whole extent takes its second place only for the time of the move, and is
//! not delayed.

use crate::core::Core;
use crate::policy::Host;
use crate::policy::index::PolicyIndex;
use crate::space::Space;
use crate::units::Percent;
use weir_model::{Bytes, DeviceId, VolumeId};
use weir_policy::placement::KeptPlaces;

/// The default bound.
pub const EXTRA_SPACE: Percent = Percent(3);

/// The counters of extra space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extra {
    /// Second whole places made since the last commit, which the durable map does not count yet.
    new_second_places: u64,
    /// Writes redirected instead of written in place.
    redirects: u64,
}

/// The placement of extents on the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Extents that are not in one whole place per copy, as of the last commit.
    pub fragmented: u64,
    /// Space used beyond one place per extent: extents divided into slots, and second whole places.
    pub extra: Bytes,
    /// The bound of `extra`; `None` if the pool's policy bounds it itself, or it is unbounded.
    pub extra_limit: Option<Bytes>,
    /// Writes since the start that were redirected instead of written in place.
    pub redirects: u64,
}

impl Space {
    /// Counts a redirected write.
    #[inline]
    pub(crate) fn note_redirect(&mut self) {
        self.extra.redirects += 1;
    }

    /// Counts a second whole place of an extent.
    pub(crate) fn note_second_place(&mut self) {
        self.extra.new_second_places += 1;
    }

    /// Resets the count of second places after a commit: the durable map counts them now.
    pub(crate) fn reset_second_places(&mut self) {
        self.extra.new_second_places = 0;
    }

    /// Returns the extents used beyond one place per extent.
    fn extra_extents(&self, core: &Core) -> u64 {
        let cut: u64 =
            core.map.devices().iter().map(|sb| u64::from(core.map.space(sb.device).slotted())).sum();
        cut + core.map.extra_places() + self.extra.new_second_places
    }
}

impl Space {
    /// Returns the bound in extents; `None` without a bound.
    fn extra_limit(&self, core: &Core, host: &Host, policy_index: PolicyIndex) -> Option<u64> {
        let part = self.state.rules().extra?;
        let KeptPlaces::OnDevices(kept) = kept_places(host, policy_index) else { return None };
        let extents = |device: DeviceId| u64::from(core.map.space(device).extents());
        let all = || core.map.devices().iter().map(|sb| sb.device);
        let total: u64 = all().map(extents).sum();
        let kept: u64 = all().filter(|device| kept.contains(*device)).map(extents).sum();
        Some(total * u64::from(part.0) / 100 + kept)
    }

    /// Whether the policy's copies and redirected writes may take more space. Cost: linear in the devices.
    #[inline]
    pub(crate) fn may_take_extra(&self, core: &Core, host: &Host, policy_index: PolicyIndex) -> bool {
        self.extra_limit(core, host, policy_index).is_none_or(|most| self.extra_extents(core) < most)
    }

    /// Whether the volume's policy may take more space for copies and redirected writes.
    pub(crate) fn volume_may_take_extra(&self, core: &Core, host: &Host, volume: VolumeId) -> bool {
        self.may_take_extra(core, host, host.policies.index_of(volume))
    }

    /// Returns the placement of extents on the devices.
    pub(crate) fn spread(&self, core: &Core, host: &Host) -> Spread {
        let extent = core.map.extent().bytes().0;
        Spread {
            fragmented: core.map.fragmented_extents(),
            extra: Bytes(self.extra_extents(core) * extent),
            extra_limit: self.extra_limit(core, host, PolicyIndex(0)).map(|extents| Bytes(extents * extent)),
            redirects: self.extra.redirects,
        }
    }
}

/// Returns where a policy keeps copies besides one place per extent.
pub(crate) fn kept_places(host: &Host, policy_index: PolicyIndex) -> KeptPlaces {
    host.policies.all[policy_index.0].policy.kept_places()
}
