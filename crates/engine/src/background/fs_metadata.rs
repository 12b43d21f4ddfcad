//! What is a file system's metadata, found out for policies that want to know it where clients do not say.
//!
//! When such a policy gets a volume, and some time after the volume's first block was written, its superblock
//! is read, and if that says something new, the group descriptors ([`weir_policy::ext`]): a block at a time,
//! one after the other, in a scratch block. What is found is a hint, nothing depends on it: what cannot be
//! read, or changes meanwhile, is looked at when the superblock is written next.

use crate::Engine;
use crate::background::Background;
use crate::core::Core;
use crate::flight::{NewIo, Purpose};
use crate::lookup::{self, Source};
use crate::policy::Host;
use crate::read::route;
use crate::task::Task;
use std::collections::BTreeMap;
use weir_model::{
    BLOCK, BlockRange, Buffer, Bytes, ExtentKey, Hint, IoError, IoKind, Memory, Nanos, VolumeId, VolumeOffset,
};
use weir_policy::ext::{Layout, Ranges};

/// How long after a superblock was written it is looked at: by then who makes a file system has finished.
const AFTER: Nanos = Nanos::secs(5);

/// What was found of a volume.
#[derive(Debug)]
struct Known {
    layout: Layout,
    metadata: Ranges,
}

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

/// When to look at a volume.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Nanos,
    /// Its superblock was written again meanwhile: to be looked at once more afterwards.
    again: bool,
}

impl Due {
    const fn at(at: Nanos) -> Self {
        Self { at, again: false }
    }
}

/// What was found, and what is to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Inference {
    known: BTreeMap<VolumeId, Known>,
    due: BTreeMap<VolumeId, Due>,
    survey: Option<Survey>,
}

impl Inference {
    /// How much of the volume is metadata; `None` if that is not known.
    pub(crate) fn found(&self, volume: VolumeId) -> Option<Bytes> {
        self.known.get(&volume).map(|known| known.metadata.bytes())
    }

    /// The volume is gone.
    pub(crate) fn forget(&mut self, volume: VolumeId) {
        self.known.remove(&volume);
        self.due.remove(&volume);
    }
}

impl Task for Inference {
    /// When to look at a volume.
    fn due(engine: &Engine) -> Option<Nanos> {
        let Inference { survey, due, .. } = &engine.background.inference;
        if survey.is_some() { None } else { due.values().map(|due| due.at).min() }
    }

    /// Begins to look at a volume that is due.
    fn run<M: Memory>(engine: &mut Engine, _: &mut M) {
        if <Self as Task>::due(engine).is_none_or(|due| due > engine.core.now) {
            return;
        }
        let mut all = engine.background.inference.due.iter().map(|(volume, due)| (*volume, *due));
        let Some((volume, due)) = all.find(|(_, due)| due.at <= engine.core.now) else { return };
        if engine.core.map.volume(volume).is_none() || !engine.host.policies.watches(volume).metadata {
            return engine.background.inference.forget(volume);
        }
        let buffer = engine.space.scratch.blocks(1).and_then(|[buffer, _]| buffer);
        // Without a scratch block there will be one: requests have them.
        match (buffer, due.again) {
            (Some(_), false) => drop(engine.background.inference.due.remove(&volume)),
            _ => drop(engine.background.inference.due.insert(volume, Due::at(engine.core.now + AFTER))),
        }
        let Some(buffer) = buffer else { return };
        let (layout, metadata, at) = (None, Ranges::default(), Bytes(0));
        engine.background.inference.survey = Some(Survey { volume, layout, metadata, at, buffer });
        engine.survey_on();
    }
}

impl Background {
    /// What the blocks are, if the client does not say.
    #[inline]
    pub(crate) fn hint(&self, core: &Core, said: Hint, key: ExtentKey, range: BlockRange) -> Hint {
        if said != Hint::None || self.inference.known.is_empty() {
            return said;
        }
        let first = key.index.0 * u64::from(core.map.extent().blocks()) + u64::from(range.first);
        let known = self.inference.known.get(&key.volume);
        match known.is_some_and(|known| known.metadata.contain(first, range.count.into())) {
            true => Hint::Metadata,
            false => said,
        }
    }
}

impl Background {
    /// Policies have changed: looks at the volumes whose policy wants to know, unless that has been done.
    pub(crate) fn look_for_metadata(&mut self, core: &Core, host: &Host) {
        for volume in core.map.catalogue().volumes.keys() {
            let wanted = host.policies.watches(*volume).metadata;
            if wanted && !self.inference.known.contains_key(volume) {
                self.inference.due.entry(*volume).or_insert(Due::at(core.now));
            }
        }
    }

    /// Blocks of an extent are to be changed: if the superblock may be among them, it is to be looked at.
    #[inline]
    pub(crate) fn note_superblock(&mut self, core: &Core, host: &Host, key: ExtentKey, range: BlockRange) {
        if key.index.0 == 0 && range.first == 0 && host.policies.watches(key.volume).metadata {
            let due = self.inference.due.entry(key.volume);
            due.and_modify(|due| due.again = true).or_insert(Due::at(core.now + AFTER));
        }
    }
}

impl Engine {
    /// Reads the next block that is anywhere. What is not reads as zeros, and says nothing.
    fn survey_on(&mut self) {
        while let Some(Survey { volume, layout, at, buffer, .. }) = &self.background.inference.survey {
            let (extent, buffer) = (self.core.map.extent(), *buffer);
            if layout.is_some_and(|layout| at.0 >= layout.descriptors().1.0) {
                return self.survey_ended(true);
            }
            let key = ExtentKey { volume: *volume, index: extent.index(VolumeOffset(at.0)) };
            let block = (u64::from(extent.within(VolumeOffset(at.0))) / BLOCK) as u16;
            let in_doubt = self.durability.doubt.about(key, BlockRange { first: block, count: 1 }).is_some();
            let source = lookup::record(&self.core.map, key)
                .filter(|_| !in_doubt)
                .and_then(|record| route::source_of(&self.core, &self.host, *volume, &record, block));
            if let Some(Source { device, at }) = source {
                return self.core.launch(NewIo { device, kind: IoKind::Read, at, buffer }, Purpose::Survey);
            }
            if layout.is_none() {
                return self.survey_ended(false);
            }
            let next = if lookup::record(&self.core.map, key).is_none() {
                extent.start(key.index).0 + extent.bytes().0
            } else {
                at.0 + BLOCK
            };
            if let Some(survey) = &mut self.background.inference.survey {
                survey.at = Bytes(next);
            }
        }
    }

    /// A block has been read, or could not be.
    pub(crate) fn survey_read<M: Memory>(&mut self, result: Result<(), IoError>, memory: &mut M) {
        let Some(survey) = &mut self.background.inference.survey else { return };
        let Some(size) = self.core.map.volume(survey.volume).map(|v| v.size).filter(|_| result.is_ok())
        else {
            return self.survey_ended(false);
        };
        let bytes = memory.bytes(survey.buffer);
        if let Some(layout) = &survey.layout {
            layout.note_groups(survey.at, bytes, &mut survey.metadata);
            survey.at.0 += BLOCK;
        } else {
            let Some(layout) = Layout::read(bytes, size) else { return self.survey_ended(false) };
            if self.background.inference.known.get(&survey.volume).is_some_and(|known| known.layout == layout)
            {
                return self.survey_stopped();
            }
            layout.note_head(&mut survey.metadata);
            layout.note_groups(Bytes(0), bytes, &mut survey.metadata);
            survey.at = Bytes((layout.descriptors().0.0 / BLOCK * BLOCK).max(BLOCK));
            survey.layout = Some(layout);
        }
        self.survey_on();
    }

    /// What was found replaces what was known, or there is nothing to know.
    fn survey_ended(&mut self, found: bool) {
        let Some(Survey { volume, layout, metadata, .. }) = &mut self.background.inference.survey else {
            return;
        };
        match layout.filter(|_| found) {
            Some(layout) => {
                let known = Known { layout, metadata: std::mem::take(metadata) };
                self.background.inference.known.insert(*volume, known);
            }
            None => drop(self.background.inference.known.remove(volume)),
        }
        self.survey_stopped();
    }

    fn survey_stopped(&mut self) {
        if let Some(survey) = self.background.inference.survey.take() {
            self.put_back_block(survey.buffer);
        }
    }
}
