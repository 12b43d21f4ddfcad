//! What is a file system's metadata, found out for policies that want to know it where clients do not say.
//!
//! When such a policy gets a volume, and some time after the volume's first block was written, its superblock
//! is read, and if that says something new, the group descriptors ([`weir_policy::ext`]): a block at a time,
//! one after the other, in a scratch block. What is found is a hint, nothing depends on it: what cannot be
//! read, or changes meanwhile, is looked at when the superblock is written next.

use crate::DataPath;
use crate::background::BackgroundTask;
use crate::flight::{NewIo, Purpose};
use crate::lookup::{self, Source};
use crate::policy::fs_metadata::{AFTER, Due, Known};
use crate::policy::route;
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, ExtentKey, IoError, IoKind, Memory, Nanos, VolumeId, VolumeOffset,
};
use weir_policy::ext::{Layout, Ranges};

/// A volume being looked at.
#[derive(Debug)]
struct Survey {
    volume: VolumeId,
    /// What its superblock says, once that has been read.
    layout: Option<Layout>,
    metadata: Ranges,
    /// The block being read.
    at: Bytes,
    buffer: Buffer,
}

/// The volume being looked at.
#[derive(Debug, Default)]
pub(crate) struct Surveys(Option<Survey>);

impl BackgroundTask for Surveys {
    /// When to look at a volume.
    fn due(&self, data: &DataPath) -> Option<Nanos> {
        match self.0 {
            Some(_) => None,
            None => data.base.host.inference.due.values().map(|due| due.at).min(),
        }
    }

    /// Begins to look at a volume that is due.
    fn run<M: Memory>(&mut self, data: &mut DataPath, _: &mut M) {
        if self.due(data).is_none_or(|due| due > data.base.core.now) {
            return;
        }
        let mut all = data.base.host.inference.due.iter().map(|(volume, due)| (*volume, *due));
        let Some((volume, due)) = all.find(|(_, due)| due.at <= data.base.core.now) else { return };
        if data.base.core.map.volume(volume).is_none() || !data.base.host.policies.watches(volume).metadata {
            return data.base.host.inference.forget(volume);
        }
        let buffer = data.base.space.scratch.blocks(1).and_then(|[buffer, _]| buffer);
        // Without a scratch block there will be one: requests have them.
        match (buffer, due.again) {
            (Some(_), false) => drop(data.base.host.inference.due.remove(&volume)),
            _ => drop(data.base.host.inference.due.insert(volume, Due::at(data.base.core.now + AFTER))),
        }
        let Some(buffer) = buffer else { return };
        let (layout, metadata, at) = (None, Ranges::default(), Bytes(0));
        self.0 = Some(Survey { volume, layout, metadata, at, buffer });
        self.go_on(data);
    }
}

impl Surveys {
    /// Reads the next block that is anywhere. What is not reads as zeros, and says nothing.
    fn go_on(&mut self, data: &mut DataPath) {
        while let Some(Survey { volume, layout, at, buffer, .. }) = &self.0 {
            let (extent, buffer) = (data.base.core.map.extent(), *buffer);
            if layout.is_some_and(|layout| at.0 >= layout.descriptors().1.0) {
                return self.end(data, true);
            }
            let key = ExtentKey { volume: *volume, index: extent.index(VolumeOffset(at.0)) };
            let block = (u64::from(extent.within(VolumeOffset(at.0))) / BLOCK) as u16;
            let in_doubt =
                data.base.durability.doubt.about(key, BlockRange { first: block, count: 1 }).is_some();
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

    /// A block has been read, or could not be.
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
            layout.note_groups(survey.at, bytes, &mut survey.metadata);
            survey.at.0 += BLOCK;
        } else {
            let Some(layout) = Layout::read(bytes, size) else { return self.end(data, false) };
            if data.base.host.inference.known.get(&survey.volume).is_some_and(|known| known.layout == layout)
            {
                return self.stop(data);
            }
            layout.note_head(&mut survey.metadata);
            layout.note_groups(Bytes(0), bytes, &mut survey.metadata);
            survey.at = Bytes((layout.descriptors().0.0 / BLOCK * BLOCK).max(BLOCK));
            survey.layout = Some(layout);
        }
        self.go_on(data);
    }

    /// What was found replaces what was known, or there is nothing to know.
    fn end(&mut self, data: &mut DataPath, found: bool) {
        let Some(Survey { volume, layout, metadata, .. }) = &mut self.0 else {
            return;
        };
        match layout.filter(|_| found) {
            Some(layout) => {
                let known = Known { layout, metadata: std::mem::take(metadata) };
                data.base.host.inference.known.insert(*volume, known);
            }
            None => drop(data.base.host.inference.known.remove(volume)),
        }
        self.stop(data);
    }

    fn stop(&mut self, data: &mut DataPath) {
        if let Some(survey) = self.0.take() {
            data.base.put_back_block(survey.buffer);
        }
    }
}
