//! Tests of the log.

mod amplification;
mod naive;
mod wear;

use crate::*;
use weir_model::Seed;
use weir_policy::reclaim::{self, Greedy, Reclaim, Segment};

/// Returns the settings of a small log.
fn small() -> LogConfig {
    LogConfig::for_device(100, 0.2, 8, Metadata::default()).expect("valid settings")
}

fn greedy(config: LogConfig, addresses: u32) -> Log<DenseMap, Greedy> {
    Log::new(config, DenseMap::new(addresses), Greedy::new).expect("valid settings")
}

#[test]
fn conventions_of_a_device() {
    let config = small();
    // 100 / 0.8 / 8 = 15.6 segments in use, two kept free, one open.
    assert_eq!((config.segments, config.in_use(), config.limit), (19, 16, Some(100)));
    assert!((config.spare(100) - (1.0 - 100.0 / 128.0)).abs() < 1e-12);
    let more = config.with_append_points(3, CopyTo::Last).with_thresholds(Thresholds { start: 5, stop: 9 });
    assert_eq!((more.segments, more.in_use()), (24, 16));
    let summarized = LogConfig::for_device(100, 0.2, 8, Metadata { summary: 3, journal_every: 0 });
    assert_eq!(summarized.map(|config| config.in_use()), Ok(25));
}

#[test]
fn invalid_settings_are_refused() {
    let refused = |config: LogConfig| Log::new(config, DenseMap::new(100), Greedy::new).map(drop);
    let pages = LogConfig { pages: 1, ..small() };
    assert_eq!(refused(pages), Err(ConfigError::Pages { pages: 1, summary: 0 }));
    let points = LogConfig { append_points: 0, ..small() };
    assert_eq!(refused(points), Err(ConfigError::AppendPoints(0)));
    let thresholds = LogConfig { thresholds: Thresholds { start: 3, stop: 2 }, ..small() };
    assert_eq!(refused(thresholds), Err(ConfigError::Thresholds { start: 3, stop: 2 }));
    let full = LogConfig { limit: Some(128), ..small() };
    assert!(matches!(refused(full), Err(ConfigError::NoSpare { limit: 128, .. })));
    let large = LogConfig { segments: 1 << 25, pages: 1 << 10, ..small() };
    assert!(matches!(refused(large), Err(ConfigError::TooLarge { .. })));
    assert_eq!(LogConfig::for_device(100, 1.0, 8, Metadata::default()), Err(ConfigError::Spare));
}

#[test]
fn wrong_writes_are_refused() {
    let mut log = greedy(LogConfig { limit: Some(3), ..small() }, 100);
    let mut write = |address, stream| log.write(address, Stream(stream), &mut Simulated);
    assert_eq!(write(100, 0), Err(LogError::Address { address: 100, addresses: 100 }));
    assert_eq!(write(0, 1), Err(LogError::Stream { stream: Stream(1), points: 1 }));
    for address in 0..3 {
        assert_eq!(write(address, 0), Ok(()));
    }
    assert_eq!(write(3, 0), Err(LogError::Full { limit: 3 }));
    assert_eq!(write(2, 0), Ok(()), "it is there already");
    let full = log.write_all(&[1, 0, 4, 2], Stream(0), &mut Simulated);
    assert_eq!((full, log.counters().user), (Err(LogError::Full { limit: 3 }), 6));
    assert!(log.trim(0) && !log.trim(0) && !log.exists(0));
    assert_eq!(log.write(3, Stream(0), &mut Simulated), Ok(()));
    assert_eq!((log.valid(), log.counters().user, log.counters().trimmed), (3, 7, 1));
}

/// Every page of every segment stays valid: no policy can make room, and the write says so.
#[test]
fn a_collector_without_spare_space_is_stuck() {
    for policy in reclaim::ALL {
        let config = LogConfig { limit: None, ..small() };
        let create = |size| (policy.create)(size, Seed(1));
        let mut log = Log::new(config, DenseMap::new(200), create).expect("valid settings");
        let failed = (0..200).find_map(|address| log.write(address, Stream(0), &mut Simulated).err());
        let Some(LogError::Stuck { valid, pages, reserve: 2, .. }) = failed else {
            panic!("{}: {failed:?}", policy.name)
        };
        assert!((128..=136).contains(&valid) && pages == 152, "{}: {failed:?}", policy.name);
    }
}

#[test]
fn sequential_overwrites_copy_nothing() {
    for policy in reclaim::ALL.iter().filter(|policy| policy.name != "d-choices") {
        let create = |size| (policy.create)(size, Seed(1));
        let mut log = Log::new(small(), DenseMap::new(100), create).expect("valid settings");
        for write in 0..10_000 {
            log.write(write % 100, Stream(0), &mut Simulated).expect("there is spare space");
        }
        assert_eq!(log.counters().copied, 0, "{}", policy.name);
        assert_eq!(log.counters().amplification(), Some(1.0), "{}", policy.name);
        assert!((1230..=1250).contains(&log.counters().erases), "{}: {:?}", policy.name, log.counters());
    }
}

/// A cache that keeps at most so many valid pages.
struct Dropping {
    guaranteed: u64,
    dropped: Vec<u64>,
}

impl Port for Dropping {
    fn program(&mut self, _: Place, _: Content) {}
    fn erase(&mut self, _: Segment) -> Erase {
        Erase::Done
    }
    fn keeps(&mut self, address: u64, valid: u64) -> bool {
        let keeps = valid <= self.guaranteed;
        if !keeps {
            self.dropped.push(address);
        }
        keeps
    }
}

#[test]
fn cleaning_drops_what_the_port_does_not_keep() {
    let config = LogConfig { limit: None, ..small() };
    let mut log = Log::new(config, SparseMap::default(), Greedy::new).expect("valid settings");
    let mut port = Dropping { guaranteed: 60, dropped: Vec::new() };
    for address in 0..5000 {
        log.write(address << 40, Stream(0), &mut port).expect("the port makes room");
        assert!(log.valid() <= 19 * 8);
    }
    assert_eq!(log.counters().dropped, port.dropped.len() as u64);
    assert_eq!(log.valid() + log.counters().dropped, 5000);
    assert!(log.counters().copied == 0 && log.valid() > 60);
    assert!(port.dropped.iter().all(|address| !log.exists(*address)));
    assert!(log.exists(4999 << 40));
}

/// A device that takes time to erase.
#[derive(Default)]
struct Slow {
    erasing: Vec<Segment>,
}

impl Port for Slow {
    fn program(&mut self, place: Place, _: Content) {
        assert!(!self.erasing.contains(&place.segment), "{place:?} is being erased");
    }
    fn erase(&mut self, segment: Segment) -> Erase {
        self.erasing.push(segment);
        Erase::InFlight
    }
}

#[test]
fn writes_wait_for_erases_in_flight() {
    let mut log = greedy(small(), 100);
    let (mut port, mut waits) = (Slow::default(), 0);
    for write in 0..5000_u64 {
        let address = write * write % 97;
        if let Err(error) = log.write(address, Stream(0), &mut port) {
            assert_eq!(error, LogError::Erasing { in_flight: port.erasing.len() as u32 });
            waits += 1;
            log.erased(port.erasing.remove(0));
            log.write(address, Stream(0), &mut port).expect("a segment was erased");
        }
        assert!(port.erasing.len() <= 2);
    }
    assert!(waits > 100, "{waits}");
    assert_eq!(log.counters().user, 5000);
}

#[test]
fn metadata_takes_pages_and_counts() {
    let metadata = Metadata { summary: 1, journal_every: 4 };
    let config = LogConfig::for_device(100, 0.3, 8, metadata).expect("valid settings");
    let mut log = greedy(config, 100);
    for write in 0..10_000_u64 {
        log.write(write % 100, Stream(0), &mut Simulated).expect("there is spare space");
    }
    let Counters { user, copied, metadata, erases, .. } = *log.counters();
    assert_eq!((user, copied), (10_000, 0));
    // A page of the journal for four of data; a summary for seven pages.
    assert!((2_499..=2_500 + 12_500 / 7).contains(&metadata), "{metadata}");
    let programmed = log.counters().programmed();
    assert!(
        programmed.div_ceil(8) - erases <= u64::from(config.segments),
        "{programmed} pages, {erases} erases"
    );
    assert!(
        (log.counters().amplification().expect("it was written") - 1.0 - metadata as f64 / 1e4).abs() < 1e-9
    );
}

#[test]
fn histogram_counts_closed_segments() {
    let mut log = greedy(small(), 100);
    log.preload(&[0, 1, 2, 3, 4, 5, 6, 7]).expect("there is room");
    log.preload(&[8, 9, 10, 11]).expect("there is room");
    log.preload(&[]).expect("there is room");
    assert_eq!(log.valid_histogram(4), [1, 0, 1, 1]);
    assert_eq!((log.valid(), log.counters().programmed(), log.wear()), (12, 0, Wear::default()));
    assert_eq!(log.preload(&[3]), Err(LogError::Address { address: 3, addresses: 100 }));
    assert_eq!(log.preload(&[20; 9]), Err(LogError::Full { limit: 100 }));
    assert!(log.find(9) == Some(Place { segment: Segment(1), page: 1 }) && log.find(12).is_none());
}
