//! Explanation of a block's location: the document that the control socket returns and `weir explain` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_engine::{BlockExplanation, ExplainedPlace};
use weir_model::{DeviceId, Nanos};

/// Where a block of a volume is, since when and why: the document of `weir explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir explain")]
pub struct Explanation {
    /// Name of the volume.
    pub volume: String,
    /// Offset of the block of 4 KiB in the volume.
    pub block_offset_bytes: u64,
    /// Offset of its extent in the volume.
    pub extent_offset_bytes: u64,
    /// Size of an extent.
    pub extent_bytes: u64,
    /// Number of the block in the extent, from 0.
    pub block_index: u16,
    /// Places of the extent; empty if nothing was written to it, so that it reads as zeros.
    pub places: Vec<PlacePart>,
    /// A failed flush lost the last write of the block, which reads as EIO until it is rewritten.
    pub in_doubt: bool,
    /// The placement policy that decides.
    pub policy: String,
    /// The state that the policy decides by: pairs of a name and a value with its unit, for people. They may
    /// change with any version.
    pub figures: Vec<(String, String)>,
    /// Conditions under which the extent or the block migrates, a sentence each.
    pub migrates_if: Vec<String>,
}

/// A place of an extent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Place")]
pub struct PlacePart {
    /// Name of the device.
    pub device: String,
    /// `whole`: an extent of the device for itself; `fine`: slots of one block each.
    #[schemars(extend("enum" = ["whole", "fine"]))]
    pub kind: String,
    /// Offset of the block on the device; `null` if this place does not hold the block.
    pub device_offset_bytes: Option<u64>,
    /// Runs of blocks that the place holds: the first and the last block of each, counted within the extent.
    pub blocks: Vec<(u16, u16)>,
    /// Its device is lost or absent: what no other place holds cannot be read until the device is back.
    #[serde(default)]
    pub device_lost: bool,
    /// Age of the place; `null` if it is not known. The ages of the latest 16384 places are kept in memory.
    pub age_ns: Option<u64>,
}

impl Explanation {
    /// Builds the document from the engine's answer; `name` maps a device to its name.
    pub fn new(volume: &str, explained: BlockExplanation, name: impl Fn(DeviceId) -> String) -> Self {
        let place = |place: &ExplainedPlace| PlacePart {
            device: name(place.id.device),
            kind: if place.is_whole() { "whole" } else { "fine" }.to_owned(),
            device_offset_bytes: place.at.map(|at| at.0),
            blocks: place.blocks.iter().map(|run| (run.first, run.end() - 1)).collect(),
            device_lost: place.is_lost,
            age_ns: place.age.map(Nanos::get),
        };
        Self {
            volume: volume.to_owned(),
            block_offset_bytes: explained.block.0,
            extent_offset_bytes: explained.extent.0,
            extent_bytes: explained.extent_size.0,
            block_index: explained.number,
            places: explained.places.iter().map(place).collect(),
            in_doubt: explained.in_doubt,
            policy: explained.policy.to_owned(),
            figures: explained
                .reasons
                .figures
                .into_iter()
                .map(|figure| (figure.name, figure.value))
                .collect(),
            migrates_if: explained.reasons.moves_if,
        }
    }
}
