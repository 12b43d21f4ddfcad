//! Where a block is, since when and why, as a document: the answer at the control socket, and what is printed.

use serde::{Deserialize, Serialize};
use weir_engine::{Explained, ExplainedPlace};
use weir_model::{DeviceId, Nanos};

/// Where a block is, since when and why. Its fields are a promise, as those of the status are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The volume.
    pub volume: String,
    /// Where the block of 4 KiB begins in it.
    pub block_bytes: u64,
    /// Where its extent begins.
    pub extent_start_bytes: u64,
    /// The size of an extent.
    pub extent_bytes: u64,
    /// Which of the extent's blocks it is, from 0.
    pub block_of_extent: u16,
    /// The extent's places; none if the whole extent reads as zeros.
    pub places: Vec<PlacePart>,
    /// Its last write was lost with a failed flush: it reads as EIO until it is rewritten.
    pub in_doubt: bool,
    /// The policy that decides.
    pub policy: String,
    /// What the policy decides by, as it stands: names and values with their units, in an order for people. They
    /// may change from version to version.
    pub figures: Vec<(String, String)>,
    /// What would make the extent or the block move.
    pub moves_if: Vec<String>,
}

/// One of an extent's places.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacePart {
    /// The device.
    pub device: String,
    /// `whole`: an extent of the device for itself; `fine`: slots of one block each.
    pub kind: String,
    /// Where the block is on the device; `null` if this place does not hold it.
    pub address_bytes: Option<u64>,
    /// The extent's blocks it holds: first and last of each run.
    pub blocks: Vec<(u16, u16)>,
    /// How long the extent has had the place; `null` if that is not known any more.
    pub age_ns: Option<u64>,
}

impl Explanation {
    /// From what the engine says; `name` says what a device is called.
    pub fn new(volume: &str, told: Explained, name: impl Fn(DeviceId) -> String) -> Self {
        let place = |place: &ExplainedPlace| PlacePart {
            device: name(place.id.device),
            kind: if place.is_whole() { "whole" } else { "fine" }.to_owned(),
            address_bytes: place.at.map(|at| at.0),
            blocks: place.blocks.iter().map(|run| (run.first, run.end() - 1)).collect(),
            age_ns: place.age.map(Nanos::get),
        };
        Self {
            volume: volume.to_owned(),
            block_bytes: told.block.0,
            extent_start_bytes: told.extent.0,
            extent_bytes: told.extent_size.0,
            block_of_extent: told.number,
            places: told.places.iter().map(place).collect(),
            in_doubt: told.in_doubt,
            policy: told.policy.to_owned(),
            figures: told.reasons.figures.into_iter().map(|figure| (figure.name, figure.value)).collect(),
            moves_if: told.reasons.moves_if,
        }
    }
}
