//! A layer of logs: takes pages from above, and writes those that it programs to the layer below.

use super::plan::LayerPlan;
use crate::SimError;
use weir_flash::{Content, DenseMap, Erase, Log, LogConfig, LogError, Place, Port, SegmentState, Stream};
use weir_model::{Bytes, Seed};
use weir_policy::reclaim::{Reclaim, Segment};

/// Why stacked logs do not take a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackError {
    /// The layer, from 0.
    pub layer: u8,
    /// The log in it, from 0.
    pub log: u32,
    /// What failed.
    pub error: LogError,
}

impl From<StackError> for SimError {
    fn from(StackError { layer, log, error }: StackError) -> Self {
        Self::StackedLog { layer: usize::from(layer) + 1, log: log as usize + 1, error }
    }
}

/// What is known of a segment of a log, for the defragger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SegmentHistory {
    /// The log's clock when it was last written.
    pub(super) written: u64,
    /// The log's clock when it was last defragmented.
    pub(super) defragmented: u64,
}

/// A log of a layer.
#[derive(Debug)]
pub(super) struct StackedLog {
    pub(super) log: Log<DenseMap, Box<dyn Reclaim + Send>>,
    /// Where its range begins in the addresses from above, and in those below.
    first: u64,
    base: u64,
    /// Number of addresses from above; its own follow: the checkpoint, and what shifts the rest.
    addresses: u64,
    /// Pages programmed.
    clock: u64,
    pub(super) history: Vec<SegmentHistory>,
}

/// A layer of logs.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) logs: Vec<StackedLog>,
    nth: u8,
    trim: bool,
    /// Pages that the layer has taken from above.
    pub(super) received: u64,
    checkpoint_every: u64,
    /// Number of addresses for the layer below.
    pub(super) addresses: u64,
}

/// Carries out what a log commands, in the layers below.
struct Below<'l> {
    layers: &'l mut [Layer],
    history: &'l mut [SegmentHistory],
    clock: &'l mut u64,
    base: u64,
    pages: u64,
    trim: bool,
    failed: Option<StackError>,
}

impl Port for Below<'_> {
    #[inline]
    fn program(&mut self, place: Place, _: Content) {
        *self.clock += 1;
        self.history[place.segment.0 as usize].written = *self.clock;
        if !self.layers.is_empty() && self.failed.is_none() {
            let address = self.base + u64::from(place.segment.0) * self.pages + u64::from(place.page);
            self.failed = write(self.layers, address).err();
        }
    }

    fn erase(&mut self, segment: Segment) -> Erase {
        if self.trim && !self.layers.is_empty() {
            let start = self.base + u64::from(segment.0) * self.pages;
            (start..start + self.pages).for_each(|address| trim(self.layers, address));
        }
        Erase::Done
    }
}

/// Writes a page to the first of these layers, and what follows from it to the others.
pub(super) fn write(layers: &mut [Layer], address: u64) -> Result<(), StackError> {
    let Some((layer, below)) = layers.split_first_mut() else { return Ok(()) };
    layer.received += 1;
    layer.write(address, below)?;
    if layer.checkpoint_every > 0 && layer.received.is_multiple_of(layer.checkpoint_every) {
        layer.checkpoint(below)?;
    }
    Ok(())
}

/// Trims a page of the first of these layers. The layers below learn of it when its segment is erased.
pub(super) fn trim(layers: &mut [Layer], address: u64) {
    let Some(layer) = layers.first_mut() else { return };
    let nth = layer.find(address);
    let one = &mut layer.logs[nth];
    one.log.trim(address - one.first);
}

/// Creates the layers of a plan for so many pages of the load, and writes what shifts the others.
pub(super) fn stack(
    plans: &[LayerPlan],
    page: Bytes,
    pages: u64,
    seed: Seed,
) -> Result<Vec<Layer>, SimError> {
    let (mut layers, mut addresses) = (Vec::new(), pages);
    for (nth, plan) in plans.iter().enumerate() {
        let layer = Layer::new(plan, nth, page, addresses, seed)?;
        addresses = layer.addresses;
        layers.push(layer);
    }
    for (nth, plan) in plans.iter().enumerate() {
        layers[nth..].split_first_mut().map_or(Ok(()), |(layer, below)| layer.shift(plan, below))?;
    }
    Ok(layers)
}

impl Layer {
    fn new(plan: &LayerPlan, nth: usize, page: Bytes, addresses: u64, seed: Seed) -> Result<Self, SimError> {
        let capacity = Bytes(addresses * page.0);
        let (mut logs, mut first, mut base) = (Vec::new(), 0, 0);
        for (config, end) in plan.configs(page, nth)?.into_iter().zip(plan.divide(addresses)) {
            let own = end - first;
            let of_map = own + 1 + u64::from(plan.metadata.shift);
            let of_map = u32::try_from(of_map).map_err(|_| SimError::DevicePages { capacity, page })?;
            let LogConfig { segments, pages, .. } = config;
            let create = |size| (plan.policy.create)(size, seed);
            logs.push(StackedLog {
                log: Log::new(config, DenseMap::new(of_map), create)?,
                first,
                base,
                addresses: own,
                clock: 0,
                history: vec![SegmentHistory::default(); segments as usize],
            });
            first = end;
            base += u64::from(segments) * u64::from(pages);
        }
        Ok(Self {
            logs,
            nth: u8::try_from(nth).unwrap_or(u8::MAX),
            trim: plan.trim,
            received: 0,
            checkpoint_every: plan.metadata.checkpoint_every,
            addresses: base,
        })
    }

    fn find(&self, address: u64) -> usize {
        if self.logs.len() == 1 {
            return 0;
        }
        self.logs.partition_point(|one| one.first + one.addresses <= address).min(self.logs.len() - 1)
    }

    fn write(&mut self, address: u64, below: &mut [Self]) -> Result<(), StackError> {
        let nth = self.find(address);
        let own = address - self.logs[nth].first;
        self.write_to(nth, own, below)
    }

    fn write_to(&mut self, nth: usize, address: u64, below: &mut [Self]) -> Result<(), StackError> {
        let one = &mut self.logs[nth];
        let mut port = Below {
            layers: below,
            history: &mut one.history,
            clock: &mut one.clock,
            base: one.base,
            pages: one.log.config().pages.into(),
            trim: self.trim,
            failed: None,
        };
        let written = one.log.write(address, Stream(0), &mut port);
        // A layer below is the cause if both fail.
        port.failed.map_or(Ok(()), Err)?;
        written.map_err(|error| StackError { layer: self.nth, log: nth as u32, error })
    }

    fn checkpoint(&mut self, below: &mut [Self]) -> Result<(), StackError> {
        (0..self.logs.len()).try_for_each(|nth| self.write_to(nth, self.logs[nth].addresses, below))
    }

    fn shift(&mut self, plan: &LayerPlan, below: &mut [Self]) -> Result<(), StackError> {
        for nth in 0..self.logs.len() {
            for page in 0..u64::from(plan.metadata.shift) {
                self.write_to(nth, self.logs[nth].addresses + 1 + page, below)?;
            }
        }
        Ok(())
    }
}

impl StackedLog {
    /// Returns the addresses below of a segment's pages.
    pub(super) fn below(&self, segment: u32) -> std::ops::Range<u64> {
        let pages = u64::from(self.log.config().pages);
        let start = self.base + u64::from(segment) * pages;
        start..start + pages
    }

    /// Returns the closed segments that were written since they were last defragmented, with the number of
    /// their erases.
    pub(super) fn fragmented(&self) -> impl Iterator<Item = (u32, SegmentHistory, u32)> + '_ {
        let segments = (0..).zip(self.log.segments()).zip(&self.history);
        segments
            .filter(|((_, info), history)| {
                info.state == SegmentState::Closed && history.written > history.defragmented
            })
            .map(|((segment, info), history)| (segment, *history, info.erases))
    }

    /// Notes that a segment is contiguous below.
    pub(super) fn mark_defragmented(&mut self, segment: u32) {
        self.history[segment as usize].defragmented = self.clock;
    }

    /// Returns the log's clock less the time when a segment was last written.
    pub(super) fn age(&self, history: SegmentHistory) -> u64 {
        self.clock - history.written
    }
}
