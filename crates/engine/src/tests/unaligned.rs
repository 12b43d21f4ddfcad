//! Requests that begin or end within a sector, compared with a vector of bytes.

use super::harness::{Harness, Shape, VOLUME_SIZE};
use crate::{DeviceSettings, RunKind, STATUS_EXTENTS_MAX};
use proptest::prelude::*;
use weir_model::{Bytes, IoKind, Op, VolumeOffset};

/// The used part of the volume: three extents.
const USED: usize = 3 * (128 << 10);

#[derive(Clone, Copy, Debug)]
enum Step {
    Write { fua: bool },
    Zero { no_hole: bool },
    Trim,
    Read,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<bool>().prop_map(|fua| Step::Write { fua }),
        2 => any::<bool>().prop_map(|no_hole| Step::Zero { no_hole }),
        2 => Just(Step::Trim),
        4 => Just(Step::Read),
        1 => Just(Step::Reopen),
    ]
}

/// Generates spans of any bytes; many are short and near a boundary of sectors, blocks or extents.
fn span() -> impl Strategy<Value = (usize, usize)> {
    let near = (0..USED / 512, -5isize..5)
        .prop_map(|(sector, by)| (sector * 512).saturating_add_signed(by).min(USED - 1));
    let at = prop_oneof![3 => near, 1 => 0..USED];
    let len = prop_oneof![3 => 1usize..20, 2 => 500usize..5000, 1 => 1usize..150_000];
    (at, len).prop_map(|(at, len)| (at, len.min(USED - at)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn unaligned_requests_match_a_byte_vector(
        steps in prop::collection::vec((step(), span()), 1..60),
        sector in prop_oneof![Just(512u16), Just(4096)],
        copies in 1u8..3,
    ) {
        let settings = DeviceSettings { sector, ..DeviceSettings::default() };
        let shape = Shape { devices: 2, members: 2, settings, copies, ..Shape::default() };
        let mut h = Harness::of(shape, "stripe");
        let mut twin = vec![0; USED];
        for (n, (step, (at, len))) in (1u8..).zip(steps) {
            let there = &mut twin[at..at + len];
            match step {
                Step::Write { fua } => {
                    there.fill(n);
                    let result = h.request(Op::Write, at as u64, there, fua);
                    prop_assert!(result.is_ok(), "{:?}", result);
                }
                Step::Zero { no_hole } => {
                    there.fill(0);
                    let result = h.request(Op::WriteZeroes { no_hole }, at as u64, there, false);
                    prop_assert!(result.is_ok(), "{:?}", result);
                }
                Step::Trim => {
                    prop_assert!(h.request(Op::Trim, at as u64, there, false).is_ok());
                    let (from, to) = (at.next_multiple_of(4096), (at + len) / 4096 * 4096);
                    if from < to {
                        twin[from..to].fill(0);
                    }
                }
                Step::Read => {
                    let (_, found) = h.read(at as u64, len);
                    prop_assert!(found == twin[at..at + len], "{} bytes at {}", len, at);
                }
                Step::Reopen => {
                    prop_assert!(h.flush().is_ok());
                    h.reopen();
                }
            }
        }
        let (_, found) = h.read(0, USED);
        let differs = found.iter().zip(&twin).position(|(a, b)| a != b);
        prop_assert_eq!(differs, None);
    }
}

#[test]
fn concurrent_writes_to_one_sector_are_all_kept() {
    for (sector, written) in [(512, false), (512, true), (4096, false), (4096, true)] {
        let settings = DeviceSettings { sector, ..DeviceSettings::default() };
        let mut h = Harness::with_settings(1, "sequential", settings);
        if written {
            h.write(0, &[0xaa; 4096]);
        }
        for i in 0..64u64 {
            h.submit(i, Op::Write, i * 8, 8, i as u8 + 1);
        }
        h.run();
        for _ in 0..64 {
            h.answer().expect("a reply").1.expect("a write");
        }
        let expected: Vec<u8> = (0..512).map(|i| (i / 8) as u8 + 1).collect();
        assert_eq!(h.read(0, 512).1, expected, "sector {sector}, written {written}");
        let rest = if written { 0xaa } else { 0 };
        assert_eq!(h.read(512, 3584).1, [rest; 3584]);
    }
}

/// On a device with sectors of 512 bytes no command covers part of a sector.
#[test]
fn devices_see_whole_sectors_only() {
    for sector in [512u16, 4096] {
        let settings = DeviceSettings { sector, ..DeviceSettings::default() };
        let mut h = Harness::with_settings(1, "sequential", settings);
        h.write(0, &[1; 16384]);
        h.devices.log.clear();
        h.write(513, &[2; 5000]);
        h.request(Op::WriteZeroes { no_hole: false }, 9001, &[0; 3], true).expect("zeroes");
        h.read(4095, 2);
        let whole = |io: &weir_model::Io| {
            io.at.0.is_multiple_of(sector.into()) && io.buffer.len.is_multiple_of(sector.into())
        };
        assert!(h.devices.log.iter().filter(|io| io.kind != IoKind::Flush).all(whole), "{:?}", h.devices.log);
    }
}

#[test]
fn the_last_bytes_of_a_volume_that_ends_within_a_block() {
    let size = (1 << 20) + 512;
    let mut h = Harness::of(Shape { volume: size, ..Shape::default() }, "sequential");
    h.write(size - 3, &[7; 3]);
    assert_eq!(h.read(size - 512, 512).1[508..], [0, 7, 7, 7]);
    for (op, len) in [(Op::Write, 4), (Op::Read, 4), (Op::Trim, 4), (Op::WriteZeroes { no_hole: true }, 4)] {
        let refused = h.request(op, size - 3, &vec![0; len], false);
        assert!(matches!(refused, Err(weir_model::RequestError::OutOfRange { .. })), "{op:?}: {refused:?}");
    }
    h.request(Op::Trim, 0, &vec![0; size as usize], false).expect("a trim");
    assert_eq!(h.read(size - 3, 3).1, [7; 3], "part of a block is left alone");
    h.request(Op::WriteZeroes { no_hole: false }, size - 2, &[0; 2], false).expect("zeroes");
    assert_eq!(h.read(size - 3, 3).1, [7, 0, 0]);
    h.flush().expect("a flush");
    h.reopen();
    assert_eq!(h.read(size - 3, 3).1, [7, 0, 0]);
}

#[test]
fn reserved_space_reads_as_zeros_not_hole() {
    let mut h = Harness::new(1, "sequential");
    let runs = |h: &Harness, at, len| {
        let mut runs = Vec::new();
        h.engine.block_status(h.volume, VolumeOffset(at), Bytes(len), 16, &mut runs);
        runs.iter().map(|run| (run.len.0, run.kind)).collect::<Vec<_>>()
    };
    h.request(Op::WriteZeroes { no_hole: true }, 0, &[0; 128 << 10], false).expect("zeroes");
    h.write(8192, &[1; 4096]);
    for _ in 0..2 {
        let expected = [
            (8192, RunKind::Zeros),
            (4096, RunKind::Data),
            ((128 << 10) - 12288, RunKind::Zeros),
            (128 << 10, RunKind::Hole),
        ];
        assert_eq!(runs(&h, 0, 256 << 10), expected);
        assert_eq!(runs(&h, 8191, 2), [(1, RunKind::Zeros), (1, RunKind::Data)]);
        h.flush().expect("a flush");
        h.reopen();
    }
    h.request(Op::Trim, 0, &[0; 128 << 10], false).expect("a trim");
    assert_eq!(runs(&h, 0, 256 << 10), [(256 << 10, RunKind::Hole)], "all of it was given back");
}

#[test]
fn a_status_walks_a_bounded_number_of_extents() {
    let volume = (STATUS_EXTENTS_MAX as u64 + 100) * (128 << 10);
    assert!(volume > VOLUME_SIZE);
    let mut h = Harness::of(Shape { volume, ..Shape::default() }, "sequential");
    h.write(0, &[1; 4096]);
    let mut runs = Vec::new();
    h.engine.block_status(h.volume, VolumeOffset(0), Bytes(volume), 16, &mut runs);
    let told: u64 = runs.iter().map(|run| run.len.0).sum();
    assert_eq!(told, volume, "a hole is one step however long it is");
}
