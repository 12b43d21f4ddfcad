//! Replays the journal: the frames behind a root's position.

use super::contents::Contents;
use super::fields::{Fields, crc, u32_at, u64_at};
use super::layout::{JOURNAL_AT, Root, Superblock};
use super::{Defect, DeviceReader, PAGE};

const MAGIC: &[u8] = b"wJF1";
const HEADER: usize = 64;
const FRAME_MAX: usize = 256 << 10;

/// Expected position of the next frame.
struct Position {
    offset: u64,
    sequence: u64,
    chain: u32,
}

/// Applies the frames since the root; returns the sequence that the next frame would have.
pub(super) fn replay(
    raw: &mut dyn DeviceReader,
    superblock: &Superblock,
    root: &Root,
    contents: &mut Contents,
) -> Result<u64, Defect> {
    let mut ring = vec![0; (superblock.journal_pages * PAGE) as usize];
    raw.read(superblock.device, JOURNAL_AT, &mut ring);
    let mut position = Position { offset: root.offset, sequence: root.frame, chain: root.chain };
    loop {
        // A frame that does not fit before the ring's end is at its start.
        let places = [position.offset % ring.len() as u64, 0];
        let follows = |at: &u64| {
            verified_frame(&ring[*at as usize..]).filter(|f| is_next(f, superblock, root, &position))
        };
        let Some((at, frame)) = places.into_iter().find_map(|at| Some((at, follows(&at)?))) else {
            break;
        };
        let deltas = Fields::new(&frame[HEADER..], superblock.device, "journal frame", JOURNAL_AT + at);
        apply(deltas, u32_at(frame, 60), position.sequence, contents)?;
        let stored = (frame.len() as u64).next_multiple_of(PAGE);
        let (offset, chain) = ((at + stored) % ring.len() as u64, u32_at(frame, 4));
        position = Position { offset, sequence: position.sequence + 1, chain };
    }
    check_no_gap(&ring, superblock, root, position.sequence)?;
    Ok(position.sequence)
}

/// Returns the frame at the start of the bytes, if it verifies.
fn verified_frame(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.len() < HEADER || !bytes.starts_with(MAGIC) {
        return None;
    }
    let length = u32_at(bytes, 48) as usize;
    let frame = bytes.get(..length).filter(|_| (HEADER..=FRAME_MAX).contains(&length))?;
    (u32_at(frame, 4) == crc(frame, 4)).then_some(frame)
}

fn is_of(frame: &[u8], superblock: &Superblock, root: &Root) -> bool {
    let journal = (u64_at(frame, 24), u32_at(frame, 56));
    frame[8..24] == superblock.pool && journal == (root.journal, root.incarnation)
}

fn is_next(frame: &[u8], superblock: &Superblock, root: &Root, position: &Position) -> bool {
    is_of(frame, superblock, root)
        && (u64_at(frame, 32), u32_at(frame, 52)) == (position.sequence, position.chain)
}

/// Checks that no later frame of this journal refers to a missing one as durable, and that no frame is of a
/// later journal.
fn check_no_gap(ring: &[u8], superblock: &Superblock, root: &Root, next: u64) -> Result<(), Defect> {
    for at in (0..ring.len()).step_by(PAGE as usize) {
        let Some(frame) = verified_frame(&ring[at..]).filter(|frame| frame[8..24] == superblock.pool) else {
            continue;
        };
        let (journal, durable, incarnation) = (u64_at(frame, 24), u64_at(frame, 40), u32_at(frame, 56));
        let later = journal > root.journal && incarnation >= root.incarnation;
        if later || (is_of(frame, superblock, root) && durable >= next) {
            return Err(Defect {
                device: superblock.device,
                what: "journal",
                at: JOURNAL_AT + at as u64,
                why: format!(
                    "a frame of journal {journal} calls {durable} durable; frame {next} is not there"
                ),
            });
        }
    }
    Ok(())
}

fn apply(mut deltas: Fields<'_>, count: u32, sequence: u64, contents: &mut Contents) -> Result<(), Defect> {
    for _ in 0..count {
        match deltas.u8()? {
            1 => {
                let (volume, extent, word) = (deltas.u32()?, deltas.u64()?, deltas.u64()?);
                contents.set_word(volume, extent, word, sequence);
            }
            2 => {
                let (id, len) = (deltas.u32()?, deltas.u16()?);
                contents.set_record(id, deltas.take(len.into())?, sequence);
            }
            3 => contents.drop_record(deltas.u32()?),
            4 => {
                let (id, size) = (deltas.u32()?, deltas.u64()?);
                let (hardening, copies) = (deltas.u8()?, deltas.u8()?);
                contents.set_volume(id, size, hardening, copies, deltas.name()?);
            }
            5 => contents.drop_volume(deltas.u32()?),
            6 => {
                let (id, _kind, volume, _progress) =
                    (deltas.u32()?, deltas.u8()?, deltas.u32()?, deltas.u64()?);
                contents.set_intent(id, volume);
            }
            7 => contents.end_intent(deltas.u32()?),
            8 => {
                let (_record, owners) = (deltas.u32()?, deltas.u32()?);
                if owners != 1 {
                    return Err(deltas.defect(format!("a record has {owners} owners")));
                }
            }
            kind => return Err(deltas.defect(format!("delta of type {kind}"))),
        }
    }
    if deltas.is_empty() { Ok(()) } else { Err(deltas.defect("there is more than its deltas")) }
}
