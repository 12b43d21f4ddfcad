//! The layout of extents on the devices, as part of the status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_engine::Spread;
use weir_model::Bytes;

/// How extents are laid out on the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Fragmentation")]
pub struct FragmentationPart {
    /// Extents that are not in one whole place for each copy.
    pub fragmented_extents: u64,
    /// Space beyond one place an extent, of the pool's `used_bytes`: blocks on other devices, and second
    /// places.
    pub extra_bytes: u64,
    /// Limit of `extra_bytes`; `null` if only the policy, or nothing, bounds it.
    pub extra_limit_bytes: Option<u64>,
    /// Parts of writes, by extent, that were redirected to another place than their blocks had, since the
    /// server started.
    pub redirects: u64,
}

impl From<Spread> for FragmentationPart {
    fn from(spread: Spread) -> Self {
        Self {
            fragmented_extents: spread.fragmented,
            extra_bytes: spread.extra.get(),
            extra_limit_bytes: spread.extra_limit.map(Bytes::get),
            redirects: spread.redirects,
        }
    }
}

impl FragmentationPart {
    /// Formats the layout for people; `used_bytes` is the capacity in use of the pool.
    pub(super) fn human(&self, used_bytes: u64) -> String {
        let size = |bytes| Bytes(bytes).to_string();
        let most = self.extra_limit_bytes.map_or(String::new(), |most| format!(" (at most {})", size(most)));
        format!(
            "data: {} in {}, {} beyond one place{most}; {} fragmented extents, {} writes redirected\n",
            size(used_bytes.saturating_sub(self.extra_bytes)),
            size(used_bytes),
            size(self.extra_bytes),
            self.fragmented_extents,
            self.redirects
        )
    }
}
