//! The time of a device's last answered read, by size: without new reads a measured response time becomes
//! stale (`policy/route.rs`).

use weir_model::{Bytes, Nanos};
use weir_policy::placement::SizeClass;

/// The age at which a measurement is stale.
const STALE_AFTER: Nanos = Nanos::secs(1);

/// The times of a device's last answered reads, by size class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routing([Option<Nanos>; SizeClass::COUNT]);

impl Routing {
    /// Notes that a read was answered.
    #[inline]
    pub(crate) fn note_read(&mut self, size: SizeClass, now: Nanos) {
        self.0[size.index()] = Some(now);
    }

    /// Whether the device has answered no read of this length for [`STALE_AFTER`].
    pub(crate) fn is_stale(&self, len: Bytes, now: Nanos) -> bool {
        let answered = self.0[SizeClass::of(len).index()];
        answered.is_none_or(|at| now.since(at) >= STALE_AFTER)
    }
}
