//! Survey of file systems: finds the blocks of metadata, for policies that use them when clients give no
//! hint.
//!
//! When such a policy gets a volume, and some time after the volume's first block was written, the task reads
//! the volume's superblock and, if that has changed, the group descriptors ([`weir_policy::ext`]): one block
//! at a time, in a scratch block. The result is a hint on which nothing depends: if a block cannot be read or
//! changes in the meantime, the survey is repeated when the superblock is next written.

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::flight::{NewIo, Purpose};
use crate::lookup::{self, Source};
use crate::policy::fs_metadata::{SURVEY_DELAY, ScheduledSurvey, SurveyResult};
use crate::policy::route;
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, ExtentKey, IoError, IoKind, Memory, Nanos, VolumeId, VolumeOffset,
};
use weir_policy::ext::{Layout, Ranges};

/// The survey of a volume.
#[derive(Debug)]
struct Survey {
    volume: VolumeId,
    /// The layout, once the superblock has been read.
    layout: Option<Layout>,
    metadata: Ranges,
    /// The offset of the block being read.
    at: Bytes,
    buffer: Buffer,
}

/// The survey in progress.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Option<Survey>);

impl BackgroundTask for Surveys {
    /// Returns when the next survey is due.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        match self.0 {
            Some(_) => None,
            None => data.base.host.inference.scheduled.values().map(|due| due.at).min(),
        }
    }

    /// Begins a survey that is due.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        if self.due(data).is_none_or(|due| due > data.base.core.now) {
            return;
        }
        let mut all = data.base.host.inference.scheduled.iter().map(|(volume, due)| (*volume, *due));
        let Some((volume, due)) = all.find(|(_, due)| due.at <= data.base.core.now) else { return };
        if data.base.core.map.volume(volume).is_none() || !data.base.host.policies.watches(volume).metadata {
            return data.base.host.inference.remove_volume(volume);
        }
        let buffer = data.base.space.scratch.take_blocks(1).and_then(|[buffer, _]| buffer);
        // If no scratch block is available now, requests will return some.
        match (buffer, due.repeat) {
            (Some(_), false) => drop(data.base.host.inference.scheduled.remove(&volume)),
            _ => drop(
                data.base
                    .host
                    .inference
                    .scheduled
                    .insert(volume, ScheduledSurvey::at(data.base.core.now + SURVEY_DELAY)),
            ),
        }
        let Some(buffer) = buffer else { return };
        let (layout, metadata, at) = (None, Ranges::default(), Bytes(0));
        self.0 = Some(Survey { volume, layout, metadata, at, buffer });
        self.read_next(data);
    }
}

impl Surveys {
    /// Reads the next block that has data. An unmapped block reads as zeros, and says nothing.
    fn read_next(&mut self, data: &mut DataPath) {
        while let Some(Survey { volume, layout, at, buffer, .. }) = &self.0 {
            let (extent, buffer) = (data.base.core.map.extent(), *buffer);
            if layout.is_some_and(|layout| at.0 >= layout.descriptors().1.0) {
                return self.end(data, true);
            }
            let key = ExtentKey { volume: *volume, index: extent.index(VolumeOffset(at.0)) };
            let block = (u64::from(extent.within(VolumeOffset(at.0))) / BLOCK) as u16;
            let in_doubt = data
                .base
                .durability
                .doubt
                .losing_device(key, BlockRange { first: block, count: 1 })
                .is_some();
            let source = lookup::record(&data.base.core.map, key).filter(|_| !in_doubt).and_then(|record| {
                route::source_of(&data.base.core, &data.base.host, *volume, &record, block)
            });
            if let Some(Source { device, at }) = source {
                return data
                    .base
                    .core
                    .launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Survey);
            }
            if layout.is_none() {
                return self.end(data, false);
            }
            let next = if lookup::record(&data.base.core.map, key).is_none() {
                extent.start(key.index).0 + extent.bytes().0
            } else {
                at.0 + BLOCK
            };
            if let Some(survey) = &mut self.0 {
                survey.at = Bytes(next);
            }
        }
    }

    /// Handles the end of a block's read.
    pub(crate) fn read_ended<M: Memory>(
        &mut self,
        data: &mut DataPath,
        result: Result<(), IoError>,
        memory: &mut M,
    ) {
        let Some(survey) = &mut self.0 else { return };
        let Some(size) = data.base.core.map.volume(survey.volume).map(|v| v.size).filter(|_| result.is_ok())
        else {
            return self.end(data, false);
        };
        let bytes = memory.bytes(survey.buffer);
        if let Some(layout) = &survey.layout {
            layout.add_group_ranges(survey.at, bytes, &mut survey.metadata);
            survey.at.0 += BLOCK;
        } else {
            let Some(layout) = Layout::read(bytes, size) else { return self.end(data, false) };
            if data
                .base
                .host
                .inference
                .results
                .get(&survey.volume)
                .is_some_and(|known| known.layout == layout)
            {
                return self.stop(data);
            }
            layout.add_superblock_ranges(&mut survey.metadata);
            layout.add_group_ranges(Bytes(0), bytes, &mut survey.metadata);
            survey.at = Bytes((layout.descriptors().0.0 / BLOCK * BLOCK).max(BLOCK));
            survey.layout = Some(layout);
        }
        self.read_next(data);
    }

    /// Ends the survey: its result replaces the previous one.
    fn end(&mut self, data: &mut DataPath, found: bool) {
        let Some(Survey { volume, layout, metadata, .. }) = &mut self.0 else {
            return;
        };
        match layout.filter(|_| found) {
            Some(layout) => {
                let known = SurveyResult { layout, metadata: std::mem::take(metadata) };
                data.base.host.inference.results.insert(*volume, known);
            }
            None => drop(data.base.host.inference.results.remove(volume)),
        }
        self.stop(data);
    }

    fn stop(&mut self, data: &mut DataPath) {
        if let Some(survey) = self.0.take() {
            data.base.put_back_block(survey.buffer);
        }
    }
}
