//! The log against one that looks at every page.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A log as simple as possible, with the same rules.
struct Naive {
    config: LogConfig,
    policy: Box<dyn Reclaim + Send>,
    /// Contents of each segment's pages for data, and whether it is closed.
    segments: Vec<(Vec<Option<u64>>, bool)>,
    map: BTreeMap<u64, Place>,
    free: Vec<Segment>,
    /// The open segment of each append point.
    open: Vec<Option<Segment>>,
    streams: Vec<u8>,
    unjournaled: u32,
    now: u64,
    counters: Counters,
}

impl Naive {
    fn new(config: LogConfig, policy: Box<dyn Reclaim + Send>) -> Self {
        Self {
            config,
            policy,
            segments: vec![(Vec::new(), false); config.segments as usize],
            map: BTreeMap::new(),
            free: (0..config.segments).map(Segment).collect(),
            open: vec![None; config.append_points.into()],
            streams: vec![0; config.segments as usize],
            unjournaled: 0,
            now: 0,
            counters: Counters::default(),
        }
    }

    fn valid(&self, segment: Segment) -> u32 {
        self.map.values().filter(|place| place.segment == segment).count() as u32
    }

    fn take_free(&mut self, point: usize) {
        let segment = self.free.remove(0);
        self.open[point] = Some(segment);
        self.streams[segment.0 as usize] = point as u8;
    }

    fn forget(&mut self, address: u64) {
        if let Some(place) = self.map.remove(&address)
            && self.segments[place.segment.0 as usize].1
        {
            self.policy.invalidated(place.segment, self.valid(place.segment), self.now);
        }
    }

    fn program(&mut self, point: usize, address: u64) {
        let segment = self.open[point].expect("open");
        let pages = self.config.data_pages() as usize;
        let contents = &mut self.segments[segment.0 as usize].0;
        let place = Place { segment, page: contents.len() as u32 };
        contents.push(Some(address));
        self.forget(address);
        self.map.insert(address, place);
        self.now += 1;
        if self.config.metadata.journal_every > 0 {
            self.unjournaled += 1;
            let contents = &mut self.segments[segment.0 as usize].0;
            if self.unjournaled >= self.config.metadata.journal_every && contents.len() < pages {
                self.unjournaled -= self.config.metadata.journal_every;
                contents.push(None);
                self.counters.metadata += 1;
                self.now += 1;
            }
        }
        if self.segments[segment.0 as usize].0.len() == pages {
            self.counters.metadata += u64::from(self.config.metadata.summary);
            self.now += u64::from(self.config.metadata.summary);
            self.segments[segment.0 as usize].1 = true;
            self.open[point] = None;
            self.policy.closed(segment, self.valid(segment), self.now);
        }
    }

    fn clean(&mut self) {
        let victim = self.policy.victim(self.now).expect("a candidate");
        self.policy.removed(victim, self.valid(victim));
        let last = self.config.append_points - 1;
        let from = self.streams[victim.0 as usize];
        let point = usize::from(match self.config.copies {
            CopyTo::Same => from,
            CopyTo::Last => last,
            CopyTo::Next => last.min(from + 1),
        });
        let (contents, closed) = std::mem::take(&mut self.segments[victim.0 as usize]);
        assert!(closed);
        for (page, address) in (0..).zip(contents) {
            let Some(address) = address else { continue };
            if self.map.get(&address) == Some(&Place { segment: victim, page }) {
                if self.open[point].is_none() {
                    self.take_free(point);
                }
                self.program(point, address);
                self.counters.copied += 1;
            }
        }
        self.counters.erases += 1;
        self.free.push(victim);
    }

    fn write(&mut self, address: u64, point: usize) {
        let Thresholds { start, stop } = self.config.thresholds;
        let mut cleaning = false;
        while cleaning || self.open[point].is_none() {
            if !cleaning && self.free.len() as u32 > start {
                self.take_free(point);
            } else {
                self.clean();
                cleaning = (self.free.len() as u32) < stop;
            }
        }
        self.program(point, address);
        self.counters.user += 1;
    }

    fn trim(&mut self, address: u64) {
        self.counters.trimmed += u64::from(self.map.contains_key(&address));
        self.forget(address);
    }
}

/// Compares everything that both know.
fn assert_alike<M: AddressMap, R: Reclaim>(
    log: &Log<M, R>,
    naive: &Naive,
    addresses: u64,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(log.counters(), &naive.counters);
    prop_assert_eq!(log.valid(), naive.map.len() as u64);
    prop_assert_eq!(log.free_segments() as usize, naive.free.len());
    for address in 0..addresses {
        prop_assert_eq!(log.find(address), naive.map.get(&address).copied(), "{}", address);
    }
    for (number, info) in (0..).zip(log.segments()) {
        prop_assert_eq!(info.valid, naive.valid(Segment(number)));
        let state = match &naive.segments[number as usize] {
            (_, true) => SegmentState::Closed,
            _ if naive.free.contains(&Segment(number)) => SegmentState::Free,
            _ => SegmentState::Open,
        };
        prop_assert_eq!(info.state, state);
    }
    Ok(())
}

fn settings() -> impl Strategy<Value = LogConfig> {
    let metadata = (0_u32..3, prop_oneof![Just(0_u32), 3_u32..20]);
    let copies = prop_oneof![Just(CopyTo::Same), Just(CopyTo::Last), Just(CopyTo::Next)];
    // 70 pages are more than a word of bits.
    let pages = prop_oneof![4_u32..12, 60_u32..70];
    (pages, 5_u32..200, 0.3_f64..0.6, metadata, 1_u8..4, copies, 2_u32..4, 0_u32..3).prop_map(
        |(pages, user, spare, (summary, journal_every), points, copies, start, more)| {
            let metadata = Metadata { summary, journal_every };
            LogConfig::for_device(user, spare, pages + summary, metadata)
                .map(|config| config.with_append_points(points, copies))
                .map(|config| config.with_thresholds(Thresholds { start, stop: start + more }))
                // Open segments and the journal take space from the spare space of so small a log.
                .map(|config| LogConfig { segments: config.segments + 4 + user / pages / 2, ..config })
                .expect("valid settings")
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn log_equals_its_naive_twin(
        config in settings(),
        policy in 0..reclaim::ALL.len(),
        calls in prop::collection::vec((0_u8..20, any::<u64>(), any::<u8>()), 0..1500),
    ) {
        let create = |size| (reclaim::ALL[policy].create)(size, Seed(7));
        let addresses = config.limit.expect("a device has a limit");
        let size = reclaim::LogSize { segments: config.segments, pages: config.data_pages() };
        let mut naive = Naive::new(config, create(size));
        let mut dense = Log::new(config, DenseMap::new(addresses as u32), create).expect("valid settings");
        let mut sparse = Log::new(config, SparseMap::default(), create).expect("valid settings");
        for (at, &(kind, draw, point)) in calls.iter().enumerate() {
            // A quarter of the addresses gets most of the writes.
            let address = draw % if draw >> 60 < 10 { addresses.div_ceil(4) } else { addresses };
            if kind == 0 {
                naive.trim(address);
                prop_assert_eq!(dense.trim(address), sparse.trim(address));
            } else {
                let point = point % config.append_points;
                naive.write(address, point.into());
                prop_assert_eq!(dense.write(address, Stream(point), &mut Simulated), Ok(()));
                prop_assert_eq!(sparse.write_all(&[address], Stream(point), &mut Simulated), Ok(()));
            }
            if at % 50 == 0 {
                assert_alike(&dense, &naive, addresses)?;
            }
        }
        assert_alike(&dense, &naive, addresses)?;
        assert_alike(&sparse, &naive, addresses)?;
    }
}
