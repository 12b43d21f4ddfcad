//! Read routing: a read goes to the place expected to answer soonest, unless the volume's policy wants slots
//! read first ([`ReadFrom`]).
//!
//! The expected response time of a device is its mean response to reads of that size, scaled by load: the
//! commands in flight plus one, divided by the mean queue depth when such reads began. Neither the device's
//! class nor its position in the pool matters. Places that are valid for the whole read come first: a read of
//! two commands waits for the slower one, and uses both devices' time.
//!
//! A measurement without new samples becomes stale. So one in [`PROBE_ONE_IN`] of the reads that have an
//! alternative goes to a device that has answered no read of that size for a second: at most one such read
//! per device, size and second, however many reads there are. Where slots are read first, nothing is probed.

use crate::core::Core;
use crate::lookup::{self, Route, Source};
use crate::policy::Host;
use weir_map::{PLACES_MAX, Place, Record};
use weir_model::{BLOCK, BlockRange, Bytes, DeviceId, Nanos, PlaceKind, VolumeId};
use weir_policy::placement::ReadFrom;

/// One in this many of the reads with an alternative place may go to a device with a stale measurement.
const PROBE_ONE_IN: u64 = 64;
/// Returns the order in which a record's places are read for these blocks of a volume. The record must be of
/// this engine's pool.
pub(crate) fn route(core: &Core, host: &Host, volume: VolumeId, record: &Record, range: BlockRange) -> Route {
    let places = record.places.len().min(PLACES_MAX);
    let mut order = std::array::from_fn(|at| at as u8);
    let holding = record.places.iter().filter(|p| p.valid.contains_any(range)).take(2).count();
    if holding > 1 {
        let len = Bytes(u64::from(range.count) * BLOCK);
        let slots_first = host.policies.read_from(volume) == ReadFrom::Slots;
        let key = |at: &u8| {
            let place = &record.places[usize::from(*at)];
            let id = place.at.id();
            let lost = core.devices[id.device.index()].is_lost();
            let comes_later = slots_first && id.kind != PlaceKind::Fine;
            (lost, comes_later, !place.valid.contains_all(range), expected_read(core, id.device, len), id)
        };
        order[..places].sort_unstable_by_key(key);
    }
    Route::new(order, places)
}

/// Returns the source of a single block of a volume.
pub(crate) fn source_of(
    core: &Core,
    host: &Host,
    volume: VolumeId,
    record: &Record,
    block: u16,
) -> Option<Source> {
    let route = route(core, host, volume, record, BlockRange { first: block, count: 1 });
    lookup::source(&core.map, record, &route, block)
}

/// Whether another place may occasionally be read first, to keep its device's measurements current.
pub(crate) fn can_probe(
    core: &Core,
    host: &Host,
    volume: VolumeId,
    record: &Record,
    route: &Route,
    range: BlockRange,
) -> bool {
    let complete = |p: &&Place| is_complete(core, p, range);
    host.policies.read_from(volume) == ReadFrom::Soonest
        && route.ordered_places(record).filter(complete).nth(1).is_some()
}

/// Draws whether this read is a probe.
pub(crate) fn draw_probe(host: &mut Host) -> bool {
    host.random.below(PROBE_ONE_IN) == 0
}

/// Returns the route with a place first whose device has a stale measurement, if such a place is valid for
/// the whole read.
pub(crate) fn probe_first(core: &Core, record: &Record, mut route: Route, range: BlockRange) -> Route {
    let len = Bytes(u64::from(range.count) * BLOCK);
    let old = |p: &Place| core.devices[p.device().index()].routing.is_stale(len, core.now);
    let is_old = |(_, p): &(usize, &Place)| is_complete(core, p, range) && old(p);
    let other = route.ordered_places(record).enumerate().skip(1).find(is_old).map(|(at, _)| at);
    if let Some(at) = other {
        route.prefer(at);
    }
    route
}

/// Whether a place on a device that is not lost is valid for the whole range.
fn is_complete(core: &Core, place: &Place, range: BlockRange) -> bool {
    !core.devices[place.device().index()].is_lost() && place.valid.contains_all(range)
}

/// Returns the expected response time of a read of this length on a device now.
pub(crate) fn expected_read(core: &Core, device: DeviceId, len: Bytes) -> Nanos {
    let of = &core.devices[device.index()];
    let reads = &core.views.device(device).reads;
    let mean = reads.response_to(len).or(reads.response.get()).or(of.idle.response).unwrap_or(Nanos::MAX);
    let scale = (f64::from(of.in_flight()) + 1.0) / reads.depth_of(len).max(1.0);
    Nanos((mean.0 as f64 * scale) as u64)
}
