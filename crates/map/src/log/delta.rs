//! Deltas: the changes of the map in a journal frame. See `docs/reference/format.md`.

use crate::format::codec::{Put, Reader};
use crate::format::value::{Record, RecordId, Word};
use crate::state::catalogue::{self, Hardening, Intent};
use std::sync::Arc;
use weir_model::{Bytes, ExtentIndex, ExtentKey, VolumeId};

/// One change, stated as the new value, so that replay is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// The extent's word changes.
    Entry {
        /// The extent.
        key: ExtentKey,
        /// Its new word; never a child.
        word: Word,
    },
    /// The record changes.
    Record {
        /// The record's id.
        id: RecordId,
        /// Its new content.
        record: Arc<Record>,
    },
    /// The record's id becomes free.
    DropRecord {
        /// The record's id.
        id: RecordId,
    },
    /// The volume is created or changed. An existing volume keeps its extents and its size, and takes the
    /// other values.
    Volume {
        /// Its id.
        id: VolumeId,
        /// Its name.
        name: String,
        /// Its size.
        size: Bytes,
        /// Its hardening.
        hardening: Hardening,
        /// Its copies.
        copies: u8,
    },
    /// The volume is deleted; its extents were freed before.
    DropVolume {
        /// The volume's id.
        id: VolumeId,
    },
    /// A multi-step operation begins or progresses.
    Intent {
        /// The id of the operation.
        id: u32,
        /// The operation and its progress.
        intent: Intent,
    },
    /// A multi-step operation ends.
    EndIntent {
        /// The id of the operation.
        id: u32,
    },
    /// The number of a record's owners changes.
    RecordCount {
        /// The record's id.
        id: RecordId,
        /// The number of owners.
        count: u32,
    },
}

impl Delta {
    /// Appends the encoded delta.
    pub fn encode(&self, blocks: u16, out: &mut Vec<u8>) {
        match self {
            Self::Entry { key, word } => {
                out.push(1);
                out.put_u32(key.volume.0);
                out.put_u64(key.index.0);
                out.put_u64(word.encode());
            }
            Self::Record { id, record } => {
                out.push(2);
                out.put_u32(id.0);
                let length_at = out.len();
                out.put_u16(0);
                record.encode(blocks, out);
                let len = (out.len() - length_at - 2) as u16;
                out[length_at..length_at + 2].copy_from_slice(&len.to_le_bytes());
            }
            Self::DropRecord { id } => {
                out.push(3);
                out.put_u32(id.0);
            }
            Self::Volume { id, name, size, hardening, copies } => {
                out.push(4);
                out.put_u32(id.0);
                out.put_u64(size.0);
                out.extend([*hardening as u8, *copies]);
                catalogue::put_name(name, out);
            }
            Self::DropVolume { id } => {
                out.push(5);
                out.put_u32(id.0);
            }
            Self::Intent { id, intent } => {
                out.push(6);
                catalogue::put_intent(*id, intent, out);
            }
            Self::EndIntent { id } => {
                out.push(7);
                out.put_u32(*id);
            }
            Self::RecordCount { id, count } => {
                out.push(8);
                out.put_u32(id.0);
                out.put_u32(*count);
            }
        }
    }

    /// Decodes the next delta; `None` if the bytes are none.
    pub(crate) fn decode(blocks: u16, r: &mut Reader<'_>) -> Option<Self> {
        Some(match r.u8()? {
            1 => {
                let key = ExtentKey { volume: VolumeId(r.u32()?), index: ExtentIndex(r.u64()?) };
                let word = Word::decode(r.u64()?).filter(|w| !matches!(w, Word::Child(_)))?;
                Self::Entry { key, word }
            }
            2 => {
                let id = RecordId(r.u32()?);
                let len = usize::from(r.u16()?);
                Self::Record { id, record: Arc::new(Record::decode(blocks, r.take(len)?)?) }
            }
            3 => Self::DropRecord { id: RecordId(r.u32()?) },
            4 => {
                let (id, size) = (VolumeId(r.u32()?), Bytes(r.u64()?));
                let hardening = catalogue::hardening(r.u8()?)?;
                let copies = r.u8()?;
                Self::Volume { id, name: catalogue::name(r)?, size, hardening, copies }
            }
            5 => Self::DropVolume { id: VolumeId(r.u32()?) },
            6 => {
                let (id, intent) = catalogue::intent(r)?;
                Self::Intent { id, intent }
            }
            7 => Self::EndIntent { id: r.u32()? },
            8 => Self::RecordCount { id: RecordId(r.u32()?), count: r.u32()? },
            _ => return None,
        })
    }
}
