//! Draws requests at random.

use super::{StepGenerator, between, weighted};
use crate::Rng;
use crate::driver::RequestSpec;
use weir_model::{Bytes, Op, SECTOR, VolumeOffset};

/// A number of sixteenths of an extent, and a number of sectors.
type Span = (u64, u64);

impl StepGenerator<'_> {
    pub(super) fn draw_request(&self, rng: &mut Rng) -> RequestSpec {
        let often = if self.kind.crowded { 10 } else { 1 };
        let volume = rng.below(self.volumes) as usize;
        let rarely = rng.chance(0.1);
        let far = if self.kind.many_extents { 200 } else { 0 };
        let (op, (at, len), fua) =
            match weighted(rng, &[(80, 0), (2 * often, 1), (8, 2), (2 * often, 3), (5, 4), (far, 5)]) {
                5 => (data(rng), ((rng.below(16 * self.extents), 0), (0, 8)), rarely),
                0 => (data(rng), range(rng), rarely),
                1 => (data(rng), self.draw_whole_extents(rng), rarely),
                2 => (clear(rng), range(rng), rarely),
                // Whole extents are freed; at once, if the change has to be durable.
                3 if self.kind.many_extents => {
                    (clear(rng), ((0, 0), (16 * self.extents, 0)), rng.chance(0.5))
                }
                3 => (clear(rng), self.draw_whole_extents(rng), rng.chance(0.5)),
                _ => (Op::Flush, ((0, 0), (0, 0)), false),
            };
        let sized = |(sixteenths, sectors): Span| sixteenths * self.extent.bytes().0 / 16 + sectors * SECTOR;
        RequestSpec { volume, op, offset: VolumeOffset(sized(at)), len: Bytes(sized(len)), fua }
    }

    fn draw_whole_extents(&self, rng: &mut Rng) -> (Span, Span) {
        if self.kind.crowded {
            return ((0, 0), (16, 0));
        }
        if self.kind.many_extents {
            return ((16 * rng.below(self.extents), 0), (16 * between(rng, 1, 2), 0));
        }
        ((16 * rng.below(8), 0), (16 * between(rng, 1, 2), 0))
    }
}

fn data(rng: &mut Rng) -> Op {
    if rng.below(95) < 50 { Op::Write } else { Op::Read }
}

fn clear(rng: &mut Rng) -> Op {
    weighted(
        rng,
        &[(4, Op::Trim), (3, Op::WriteZeroes { no_hole: false }), (2, Op::WriteZeroes { no_hole: true })],
    )
}

/// Draws the range of a request: often in the same few blocks, or across an extent boundary; often in whole
/// blocks, but not always.
fn range(rng: &mut Rng) -> (Span, Span) {
    let at = match weighted(rng, &[(3, 0), (2, 1), (3, 2)]) {
        0 => (0, rng.below(64)),
        1 => (16 * rng.below(6) + 15, rng.below(48)),
        _ => (rng.below(8 * 16), rng.below(8)),
    };
    let len = match weighted(rng, &[(80, 0), (8, 1), (1, 2), (1, 3)]) {
        0 => (0, between(rng, 1, 12)),
        1 => (rng.below(4), between(rng, 1, 8)),
        2 => (rng.below(32), rng.below(9)),
        _ => (16, 0),
    };
    let odd = rng.chance(0.4);
    let round = |(sixteenths, sectors): Span| (sixteenths, if odd { sectors } else { sectors / 8 * 8 });
    let (at, len) = (round(at), round(len));
    (at, if len == (0, 0) { (0, 8) } else { len })
}
