//! Probes: a few reads of each device when the pool starts, so that policies know from the first allocation
//! which device is fast. Speed is measured, never assumed.

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::core::Core;
use crate::flight::{Flight, NewIo, Purpose};
use crate::space::Space;
use weir_map::Whole;
use weir_model::{Buffer, DeviceExtent, DeviceId, IoError, IoKind, Nanos};

/// The number of reads per device, one after the other, spread over it.
const PROBES_PER_DEVICE: u32 = 8;

/// The probes in progress.
#[derive(Debug, Default)]
pub(crate) struct IdleProbes {
    devices_left: usize,
    /// The response times of each device.
    responses: Vec<Vec<Nanos>>,
}

/// The task has no steps of its own: it begins with the engine, and continues as its commands end.
impl BackgroundTask for IdleProbes {}

impl IdleProbes {
    pub(crate) fn start(&mut self, core: &mut Core, space: &mut Space) {
        *self = Self { devices_left: core.devices.len(), responses: vec![Vec::new(); core.devices.len()] };
        for i in 0..core.devices.len() {
            let device = DeviceId(i as u8);
            match space.scratch.take_blocks(1) {
                Some([Some(buffer), _]) => probe(core, device, buffer, 0),
                // With more devices than scratch blocks, the rest count as slow until they are used.
                _ => self.devices_left -= 1,
            }
        }
        space.awaits_probes = self.devices_left > 0;
    }
}

/// Returns the extents to probe of a device with this many: spread over it, and not in ascending order.
pub fn probe_extents(extents: u32) -> impl Iterator<Item = DeviceExtent> {
    // 0, 3/8, 6/8, 1/8, ...
    let part = move |number| {
        u64::from(extents) * u64::from(number * 3 % PROBES_PER_DEVICE) / u64::from(PROBES_PER_DEVICE)
    };
    (0..PROBES_PER_DEVICE).map(move |number| DeviceExtent(part(number) as u32))
}

fn probe(core: &mut Core, device: DeviceId, buffer: Buffer, number: u32) {
    let Some(extent) = probe_extents(core.map.space(device).extents()).nth(number as usize) else { return };
    let at = core.map.address(Whole { device, extent }, 0);
    core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Probe(number));
}

impl IdleProbes {
    pub(crate) fn probe_ended(
        &mut self,
        data: &mut DataPath,
        number: u32,
        flight: &Flight,
        result: Result<(), IoError>,
    ) {
        let i = flight.device.index();
        self.responses[i].push(data.base.core.now.since(flight.started));
        if result.is_ok() && number + 1 < PROBES_PER_DEVICE {
            return probe(&mut data.base.core, flight.device, flight.buffer, number + 1);
        }
        // The median is used because the first read may have waited for writes of the pool's opening.
        let answers = &mut self.responses[i];
        answers.sort_unstable();
        let median = answers[answers.len() / 2];
        let quartiles = [answers[answers.len() / 4], answers[answers.len() * 3 / 4]];
        data.base.core.devices[i].idle.response = Some(if result.is_ok() { median } else { Nanos::MAX });
        data.base.core.devices[i].idle.quartiles = result.is_ok().then_some(quartiles);
        data.base.core.views.device_changed();
        data.base.put_back_block(flight.buffer);
        self.devices_left -= 1;
        if self.devices_left == 0 {
            data.base.space.awaits_probes = false;
            data.base.space.retry_waiting_space(&mut data.base.requests);
        }
    }
}
