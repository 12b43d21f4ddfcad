//! How extents lie on the devices, as part of the status.

use serde::{Deserialize, Serialize};
use weir_engine::Spread;
use weir_model::Bytes;

/// Space taken beyond one place an extent, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadPart {
    /// Extents that are not in one whole place for each copy.
    pub extents_in_pieces: u64,
    /// Space taken beyond one place an extent, of `used_bytes`: blocks on other devices, and second places.
    pub extra_bytes: u64,
    /// What it may grow to; `null` if nothing but the policy bounds it.
    pub extra_most_bytes: Option<u64>,
    /// Parts of writes, since the server started, that went elsewhere than where their blocks were.
    pub redirects: u64,
}

impl From<Spread> for SpreadPart {
    fn from(spread: Spread) -> Self {
        Self {
            extents_in_pieces: spread.in_pieces,
            extra_bytes: spread.extra.get(),
            extra_most_bytes: spread.extra_most.map(Bytes::get),
            redirects: spread.redirects,
        }
    }
}

impl SpreadPart {
    /// For people, of a pool of which so much is taken.
    pub(super) fn human(&self, used_bytes: u64) -> String {
        let size = |bytes| Bytes(bytes).to_string();
        let most = self.extra_most_bytes.map_or(String::new(), |most| format!(" (at most {})", size(most)));
        format!(
            "data: {} in {}, {} beyond one place{most}; {} extents in pieces, {} writes redirected\n",
            size(used_bytes.saturating_sub(self.extra_bytes)),
            size(used_bytes),
            size(self.extra_bytes),
            self.extents_in_pieces,
            self.redirects
        )
    }
}
