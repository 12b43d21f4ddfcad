//! Explanation of a block's location: the document that the control socket returns and `weir explain` prints.

use serde::{Deserialize, Serialize};
use weir_engine::{Explained, ExplainedPlace};
use weir_model::{DeviceId, Nanos};

/// Says where a block is stored, since when and why. The fields are a stable interface, as those of the
/// status are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Volume name.
    pub volume: String,
    /// Start of the 4 KiB block, in bytes from the start of the volume.
    pub block_bytes: u64,
    /// Start of the extent that contains the block, in bytes from the start of the volume.
    pub extent_start_bytes: u64,
    /// Extent size in bytes.
    pub extent_bytes: u64,
    /// Index of the block within its extent, from 0.
    pub block_of_extent: u16,
    /// Locations of the extent; empty if the whole extent reads as zeros.
    pub places: Vec<PlacePart>,
    /// True if a failed FLUSH lost the last write to the block: the block reads as EIO until it is rewritten.
    pub in_doubt: bool,
    /// Name of the placement policy that decides for this block.
    pub policy: String,
    /// The policy's current inputs to its decision: names and values with units, ordered for reading. They
    /// may change between versions.
    pub figures: Vec<(String, String)>,
    /// Conditions under which the policy would move the extent or the block.
    pub moves_if: Vec<String>,
}

/// One location of an extent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacePart {
    /// Device name.
    pub device: String,
    /// `whole`: the location occupies an extent of the device; `fine`: it occupies slots of one block each.
    pub kind: String,
    /// Byte address of the block on the device; `null` if this location does not contain the block.
    pub address_bytes: Option<u64>,
    /// Blocks of the extent stored here: first and last block of each run.
    pub blocks: Vec<(u16, u16)>,
    /// Age of the location; `null` if it is no longer known.
    pub age_ns: Option<u64>,
}

impl Explanation {
    /// Builds the document from the engine's answer; `name` maps a device to its name.
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
