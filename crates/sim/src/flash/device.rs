//! The simulated device: its log, as the model of an SSD uses it.

use weir_flash::{Counters, DenseMap, Log, LogError, Simulated, Stream};
use weir_policy::reclaim::Reclaim;
use weir_timing::ssd::{CollectionCost, FlashLog};

/// The log with any policy.
pub(super) type AnyLog = Log<DenseMap, Box<dyn Reclaim + Send>>;

/// The flash of a device. Once its log has failed, it does nothing more.
#[derive(Debug)]
pub(super) struct NandFlash {
    pub(super) log: AnyLog,
    /// Why the log failed.
    failed: Option<LogError>,
}

impl NandFlash {
    pub(super) const fn new(log: AnyLog) -> Self {
        Self { log, failed: None }
    }

    /// Fails if a write has failed.
    pub(super) fn check(&self) -> Result<(), LogError> {
        self.failed.map_or(Ok(()), Err)
    }

    pub(super) fn counters(&self) -> Counters {
        *self.log.counters()
    }
}

impl FlashLog for NandFlash {
    #[inline]
    fn write(&mut self, page: u64) -> CollectionCost {
        if self.failed.is_some() {
            return CollectionCost::default();
        }
        let Counters { copied, metadata, .. } = *self.log.counters();
        if let Err(error) = self.log.write(page, Stream(0), &mut Simulated) {
            self.failed = Some(error);
        }
        let now = self.log.counters();
        CollectionCost { copied: now.copied - copied, metadata: now.metadata - metadata }
    }
}
