//! Judges errors: a failing device may cause errors only for requests that it affects.
//!
//! The world knows which devices have failed a command since they were last repaired. Every error must name
//! one of them, and a reason that holds for the requested blocks: a failed read needs a block that no other
//! device has, or whose last change need not be durable; a failed flush needs a change that it should have
//! made durable.

use super::{Driver, Failure, Health, InFlightRequest, RequestSpec};
use smallvec::SmallVec;
use weir_engine::SpaceKind;
use weir_map::{ExtentState, Map};
use weir_model::{BLOCK, DeviceSet, ExtentKey, ExtentSize, Op, RequestError, VolumeId, VolumeOffset};

/// For each block that holds data: the devices that have it.
pub(crate) type Holders = SmallVec<[DeviceSet; 1]>;

/// Reports whether two requests access blocks of a common extent.
fn share_extent(a: &RequestSpec, b: &RequestSpec, extent: u64) -> bool {
    let extents = |ask: &RequestSpec| (ask.offset.0 / extent, (ask.offset.0 + ask.len.0).div_ceil(extent));
    let ((a_first, a_end), (b_first, b_end)) = (extents(a), extents(b));
    a.volume == b.volume && a_first < b_end && b_first < a_end
}

/// Returns the devices that hold each block of a range of a volume, according to the map.
pub(crate) fn holders(map: &Map, extent: ExtentSize, volume: VolumeId, ask: &RequestSpec) -> Holders {
    let blocks = ask.offset.0 / BLOCK..(ask.offset.0 + ask.len.0).div_ceil(BLOCK);
    let holders = blocks.map(|block| {
        let at = VolumeOffset(block * BLOCK);
        let index = extent.index(at);
        let block = ((at.0 - extent.start(index).0) / BLOCK) as u16;
        let mut devices = DeviceSet::default();
        match map.find(ExtentKey { volume, index }) {
            ExtentState::Empty => {}
            ExtentState::Direct(whole) => devices.insert(whole.device),
            ExtentState::Record(record) => {
                let holding = record.places.iter().filter(|place| place.valid.contains(block));
                holding.for_each(|place| devices.insert(place.at.id().device));
            }
        }
        devices
    });
    holders.filter(|devices| !devices.is_empty()).collect()
}

/// Reports whether each block is on at least one device that does not fail.
pub(crate) fn all_available(holders: &Holders, failing: DeviceSet) -> bool {
    holders.iter().all(|devices| devices.iter().any(|device| !failing.contains(device)))
}

impl Driver {
    /// Returns the holders of the blocks of a read, while devices fail and no change of them is in flight.
    pub(super) fn holders(&self, ask: &RequestSpec) -> Option<Holders> {
        if self.health == Health::Healthy || ask.op != Op::Read || self.is_changing(ask) {
            return None;
        }
        Some(holders(self.engine.map(), self.setup.extent, self.volumes[ask.volume].id, ask))
    }

    /// Forgets the holders of reads that a change overlaps: the locations of their blocks are unknown
    /// meanwhile.
    pub(super) fn forget_holders(&mut self, change: &RequestSpec) {
        let extent = self.setup.extent.bytes().0;
        if change.op.changes() {
            let read =
                self.in_flight.values_mut().filter(|request| share_extent(&request.ask, change, extent));
            read.for_each(|request| request.holders = None);
        }
    }

    fn is_changing(&self, read: &RequestSpec) -> bool {
        let extent = self.setup.extent.bytes().0;
        let mut changes = self.in_flight.values().map(|request| &request.ask).filter(|ask| ask.op.changes());
        changes.any(|change| share_extent(read, change, extent))
    }

    /// Checks that a request was allowed to fail.
    pub(super) fn check_failure(
        &mut self,
        request: &InFlightRequest,
        error: RequestError,
    ) -> Result<(), Failure> {
        let InFlightRequest { ask, ticket, .. } = *request;
        if self.must_succeed(request, error) || !self.is_failure_allowed(request, error) {
            return Err(Failure::Refused { ask, error });
        }
        match ask.op {
            Op::Read => self.oracle.read_failed(ticket),
            Op::Flush => self.oracle.flush_failed(ticket),
            _ => self.oracle.change_failed(ticket),
        }
        let no_space = error == RequestError::NoSpace;
        self.statistics.no_space += u64::from(no_space);
        self.statistics.errors += u64::from(!no_space);
        let is_right = if no_space { self.check_no_space(request) } else { Ok(()) };
        self.register_request_end(request, false);
        is_right
    }

    fn is_failure_allowed(&self, request: &InFlightRequest, error: RequestError) -> bool {
        let ask = &request.ask;
        let changes = ask.op.changes();
        match error {
            RequestError::NoSpace => changes,
            RequestError::NoVolume => self.is_being_removed(ask.volume, request.ticket).is_some(),
            RequestError::ReadOnly => ask.op != Op::Read && self.all_members_fail(),
            RequestError::FlushFailed(device) => {
                let is_damaged = self.truncated.iter().any(|(truncated, _)| *truncated == device);
                self.failing.contains(device)
                    && (changes || is_damaged || self.oracle.may_report_loss(ask.volume))
            }
            RequestError::InDoubt { device } => {
                self.failing.contains(device) && self.oracle.may_be_in_doubt(request.place(), request.ticket)
            }
            RequestError::Io { device, .. } => {
                self.failing.contains(device) && (changes || !self.is_on_healthy_devices(request))
            }
            _ => false,
        }
    }

    /// Reports whether each block of the read was, and still is, on a healthy device.
    fn is_on_healthy_devices(&self, request: &InFlightRequest) -> bool {
        let all = |holders: Option<&Holders>| holders.is_some_and(|h| all_available(h, self.failing));
        request.ask.op == Op::Read
            && all(request.holders.as_ref())
            && all(self.holders(&request.ask).as_ref())
    }

    fn all_members_fail(&self) -> bool {
        self.members().all(|member| self.failing.contains(member))
    }

    /// Checks that there really is no space.
    fn check_no_space(&self, request: &InFlightRequest) -> Result<(), Failure> {
        // It no longer waits for space.
        if self.is_being_removed(request.ask.volume, request.ticket).is_some() {
            return Ok(());
        }
        self.check_guarantee(request)?;
        let (needed, room) = (self.extents_needed(request.ticket), self.data_extents);
        // Second locations use space that is not needed.
        let own = self.setup.volumes.iter().filter_map(|volume| volume.policy);
        let mut policies = own.chain([self.setup.policy.as_str()]).map(weir_policy::placement::find_policy);
        let thrifty = !self.has_moved && policies.all(|policy| policy.is_some_and(|policy| !policy.moves));
        let of_data = self.engine.space_status().full == Some(SpaceKind::Data);
        if of_data && thrifty && needed < room && self.health == Health::Healthy {
            return Err(Failure::SpaceLeft { ask: request.ask, needed, room });
        }
        Ok(())
    }
}
