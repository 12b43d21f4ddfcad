//! The log of a modelled SSD's flash, for [`weir_timing`].

use weir_flash::{DenseMap, Log, LogConfig, Metadata, Simulated, Stream};
use weir_policy::reclaim::Greedy;
use weir_timing::ssd::{CollectionCost, FlashLog, FlashSize};

/// The most pages of a drive that are told apart: beyond, pages share entries of the map.
const PAGES_MAX: u32 = 1 << 30;

/// Over-provisioned shares beyond these are taken as these.
const SPARE: std::ops::RangeInclusive<f64> = 0.01..=0.9;

/// A log with greedy cleaning and one append point.
#[derive(Debug)]
struct DriveLog {
    log: Log<DenseMap, Greedy>,
    pages: u32,
}

/// Creates the log of an empty drive: greedy cleaning, two free blocks in reserve, one open.
pub fn flash_log(size: FlashSize) -> Box<dyn FlashLog> {
    let pages = u32::try_from(size.pages).unwrap_or(PAGES_MAX).clamp(1, PAGES_MAX);
    let spare = size.spare.clamp(*SPARE.start(), *SPARE.end());
    let create = |block| {
        let config = LogConfig::for_device(pages, spare, block, Metadata::default())?;
        Log::new(config, DenseMap::new(pages), Greedy::new)
    };
    // All sizes are within the limits now.
    let log = create(size.block.clamp(2, 1 << 20)).expect("a valid size");
    Box::new(DriveLog { log, pages })
}

impl FlashLog for DriveLog {
    /// # Panics
    /// Panics if cleaning is stuck, which the spare space of a drive excludes.
    fn write(&mut self, page: u64) -> CollectionCost {
        let before = *self.log.counters();
        let page = page % u64::from(self.pages);
        if let Err(error) = self.log.write(page, Stream(0), &mut Simulated) {
            panic!("the flash of a modelled drive: {error}");
        }
        let done = self.log.counters().since(&before);
        CollectionCost { copied: done.copied, metadata: done.metadata }
    }
}
