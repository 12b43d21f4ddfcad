//! The drives behind the named models: every value with its source.
//!
//! Marks: **m** measured on the drive by a published tool, **p** published by the maker or a
//! reviewer, **r** recalled from a datasheet or a paper and not re-read, **d** derived from the
//! others as said there, **f** fitted so that the model gives a published figure.

use crate::disk::DiskParams;
use crate::memory::MemoryParams;
use crate::ssd::SsdParams;
use weir_model::{Bytes, Nanos};

const fn us(us: u64) -> Nanos {
    Nanos::micros(us)
}

const fn mb(mb: u64) -> Bytes {
    Bytes(mb * 1_000_000)
}

/// Seagate Cheetah 15K.5, 146 GB (ST3146855FC): geometry and seek curve as extracted from the
/// drive with DIXtrac, published with DiskSim 4.0 (`valid/Seagate-Cheetah15k5.*`).
pub const HDD_15K: DiskParams = DiskParams {
    turn: Nanos(3_994_674), // m: 15,020 turns a minute
    surfaces: 4,            // m
    cylinders: 72_170,      // m
    zones: &[
        // m
        (0, 1200),
        (7_801, 1160),
        (14_201, 1120),
        (20_201, 1104),
        (25_901, 1080),
        (31_301, 1020),
        (36_401, 994),
        (41_301, 960),
        (46_001, 920),
        (50_501, 880),
        (54_901, 840),
        (59_101, 816),
        (63_201, 780),
        (67_201, 720),
    ],
    seek: &[
        // m; mean over random cylinder pairs 3.79 ms
        (1, us(553)),
        (4, us(755)),
        (32, us(822)),
        (64, us(1_130)),
        (100, us(1_140)),
        (1_000, us(1_636)),
        (5_000, us(2_332)),
        (10_000, us(2_986)),
        (20_000, us(3_666)),
        (30_000, us(4_314)),
        (40_000, us(4_843)),
        (50_000, us(5_552)),
        (60_000, us(6_121)),
        (72_000, us(6_914)),
    ],
    write_settle: us(200),      // d: to the datasheet's mean write seek of 4.0 ms (r)
    skew: Nanos(566_045),       // m: 0.1417 turn
    switch: us(553),            // m: the seek over one cylinder
    leg: 65,                    // m: tracks of a serpentine's leg
    command: us(160),           // m: overhead of a read hit
    link_rate: mb(400),         // p: Fibre Channel, 4 Gbit/s
    queue: 64,                  // r: tagged commands; the published file says 8
    segment: Bytes(1200 * 512), // m
    segments: 32,               // m
    write_cache: Bytes(11 * 1200 * 512), // m: 11 segments may hold writes
    write_runs: 11,             // m
    write_window: 8,            // m: depth of the drive's scheduler
};

/// A large nearline disk after the Seagate Exos X18, 18 TB.
pub const HDD_7200: DiskParams = DiskParams {
    turn: Nanos(8_333_333), // p: 7,200 turns a minute
    surfaces: 18,           // r
    cylinders: 544_000,     // d: to 18 TB with the zones below
    // d: sixteen equal zones between 270 MB/s outside (p: computerbase.de, Nov 2022) and 125 MB/s
    // inside (r), turn and skew counted in.
    zones: &[
        (0, 4920),
        (34_000, 4744),
        (68_000, 4568),
        (102_000, 4392),
        (136_000, 4216),
        (170_000, 4040),
        (204_000, 3864),
        (238_000, 3688),
        (272_000, 3512),
        (306_000, 3328),
        (340_000, 3152),
        (374_000, 2976),
        (408_000, 2800),
        (442_000, 2624),
        (476_000, 2448),
        (510_000, 2272),
    ],
    // d: shaped like the Cheetah's, with a mean of 8 ms (r) over random cylinder pairs.
    seek: &[
        (1, us(700)),
        (10, us(750)),
        (100, us(850)),
        (1_000, us(1_150)),
        (10_000, us(2_300)),
        (50_000, us(4_500)),
        (100_000, us(6_200)),
        (200_000, us(8_900)),
        (300_000, us(11_100)),
        (400_000, us(13_200)),
        (544_000, us(16_000)),
    ],
    write_settle: us(500),       // r: mean write seek half a millisecond above read's
    skew: us(1_000),             // d: as a share of a turn like the Cheetah's
    switch: us(700),             // d: the seek over one cylinder
    leg: 65,                     // d: as the Cheetah
    command: us(100),            // r
    link_rate: mb(550),          // p: SATA, 6 Gbit/s
    queue: 32,                   // p: NCQ
    segment: Bytes::mib(2),      // r
    segments: 32,                // r
    write_cache: Bytes::mib(64), // r: a part of 256 MiB
    write_runs: 4096,            // r: written out within ten seconds
    write_window: 24,            // f: 440 to 550 random writes a second with the cache (r)
};

/// Samsung 870 EVO, 1 TB. Figures: kitguru.net's review of it.
pub const SSD_SATA: SsdParams = SsdParams {
    dies: 32,                   // r: 8 channels of 4
    page: Bytes::kib(16),       // r
    read: Nanos(66_800),        // d: 13,000 reads a second at depth 1 (p), less controller and link
    suspend: us(30),            // r
    command: Nanos(2_890),      // d: 98,000 reads a second at depth 32 (p), less the link
    read_rate: mb(560),         // p
    write_rate: mb(530),        // p
    duplex: false,              // p: SATA
    acknowledge: Nanos(17_200), // d: 36,000 writes a second at depth 1 (p), less controller and link
    buffer: Bytes::mib(32),     // r
    drain_rate: mb(530),        // p: sequential writes, in the pseudo-SLC region
    random_percent: 147,        // d: 88,000 random writes a second at depth 32 (p)
    program: us(500),           // r
    flush: us(1_000),           // r
};

/// Samsung PM9A3, U.2, with power-loss protection. Figures: heise.de, computerbase.de (May 2020).
pub const SSD_NVME: SsdParams = SsdParams {
    dies: 128,              // r
    page: Bytes::kib(16),   // r
    read: us(79),           // d: 80 us at depth 1 (r), less controller and link
    suspend: us(30),        // r
    command: Nanos(480),    // d: 900,000 reads a second (p), less the link
    read_rate: mb(6_500),   // p
    write_rate: mb(3_500),  // p
    duplex: true,           // p: PCIe
    acknowledge: us(15),    // d: 17 us at depth 1 (r), less controller and link
    buffer: Bytes::mib(32), // r
    drain_rate: mb(3_500),  // p
    random_percent: 427,    // d: 200,000 random writes a second (p)
    program: us(500),       // r
    flush: us(5),           // r
};

/// Intel Optane DC persistent memory, one module. Figures: Izraelevitz et al. 2019, Yang et al.
/// (FAST 2020), by way of grayxu.cn/wiki/PM.
pub const NVM: MemoryParams = MemoryParams {
    read_latency: Nanos(305), // m: random
    write_latency: Nanos(95), // r: to the memory controller, where it is durable
    read_rate: mb(6_600),     // m
    write_rate: mb(2_300),    // m
    flush: Nanos(100),        // r: a fence
};
