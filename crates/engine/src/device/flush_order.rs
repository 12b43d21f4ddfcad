//! When a flush counts.
//!
//! Operating system and device tell of a lost write once: to the flush or durable write that finds out
//! first. Another flush under way at the same time, whoever asked for it, may succeed and mean nothing.
//! So one that ended well waits until every flush and durable write of its device begun before that has
//! ended too. If one of them fails, so has the flush.

use crate::Engine;
use weir_model::{DeviceId, Memory};

impl Engine {
    /// A flush or durable write of the device ended: the flushes that waited for it alone count.
    pub(crate) fn end_flushes<M: Memory>(&mut self, device: DeviceId, memory: &mut M) {
        while let Some(flush) = self.devices[device.index()].next_counting() {
            self.end_flight(&flush, Ok(()), memory);
        }
    }

    /// A flush or durable write of the device failed: the flushes that wait have failed with it.
    pub(crate) fn fail_flushes(&mut self, device: DeviceId) {
        let held: Vec<_> = self.devices[device.index()].take_held().collect();
        for flush in held {
            if let Some(piece) = flush.purpose.written() {
                // A durable write, of which the flush is the second step.
                self.note_unfinished(piece, device);
            }
            self.abandoned.refuse(flush);
        }
    }
}
