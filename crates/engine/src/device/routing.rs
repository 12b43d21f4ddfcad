//! When a device answered a read last, by size: a figure that nobody renews grows old
//! (`policy/route.rs`).

use weir_model::{Bytes, Nanos};
use weir_policy::placement::SizeClass;

/// How long a figure is not old.
const FRESH: Nanos = Nanos::secs(1);

/// When a device answered a read last, by size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routing([Option<Nanos>; SizeClass::COUNT]);

impl Routing {
    /// A read was answered.
    #[inline]
    pub(crate) fn answered(&mut self, size: SizeClass, now: Nanos) {
        self.0[size.index()] = Some(now);
    }

    /// Whether it has answered no read of this length for [`FRESH`].
    pub(crate) fn is_old(&self, len: Bytes, now: Nanos) -> bool {
        let answered = self.0[SizeClass::of(len).index()];
        answered.is_none_or(|at| now.since(at) >= FRESH)
    }
}
