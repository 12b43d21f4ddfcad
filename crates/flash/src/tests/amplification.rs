//! Write amplification against the closed forms.

use super::*;
use crate::analytic::{self, Class};
use weir_model::Rng;
use weir_policy::reclaim::{LogSize, Oldest};

/// Closed segments in the short tests.
const SEGMENTS: u32 = 16_384;

/// Writes drawn from two classes of pages; with one class, uniformly.
struct Writes {
    random: Rng,
    pages: u64,
    /// Number of hot pages, which come first, and their share of the writes.
    hot: (u64, f64),
}

impl Writes {
    fn new(pages: u32, class: Class) -> Self {
        let hot = ((f64::from(pages) * class.pages) as u64, class.writes);
        Self { random: Rng::new(Seed(20)), pages: pages.into(), hot }
    }

    fn draw(&mut self) -> u64 {
        let (hot, share) = self.hot;
        if self.random.chance(share) {
            self.random.below(hot)
        } else {
            hot + self.random.below(self.pages - hot)
        }
    }
}

const UNIFORM: Class = Class { writes: 1.0, pages: 1.0 };

/// Returns the write amplification of `measured` overwrites after `warm` ones.
fn measure<R: Reclaim>(log: &mut Log<DenseMap, R>, writes: &mut Writes, warm: f64, measured: f64) -> f64 {
    let mut run = |overwrites: f64| {
        let before = *log.counters();
        for _ in 0..(writes.pages as f64 * overwrites) as u64 {
            log.write(writes.draw(), Stream(0), &mut Simulated).expect("there is spare space");
        }
        log.counters().since(&before).amplification().unwrap_or_default()
    };
    run(warm);
    run(measured)
}

fn user_pages(segments: u32, pages: u32, spare: f64) -> u32 {
    (f64::from(segments) * f64::from(pages) * (1.0 - spare)) as u32
}

/// Returns a log of so many segments in use, and the number of user pages.
fn device<R: Reclaim>(
    (segments, pages, spare): (u32, u32, f64),
    policy: impl FnOnce(LogSize) -> R,
) -> (Log<DenseMap, R>, u32) {
    let user = user_pages(segments, pages, spare);
    let config = LogConfig::for_device(user, spare, pages, Metadata::default()).expect("valid settings");
    assert_eq!(config.in_use(), segments);
    (Log::new(config, DenseMap::new(user), policy).expect("valid settings"), user)
}

fn assert_within(found: f64, exact: f64, tolerance: f64, what: &str) {
    assert!((found / exact - 1.0).abs() < tolerance, "{what}: {found:.4} for {exact:.4}");
}

const SPARES: [f64; 4] = [0.07, 0.125, 0.20, 0.28];

/// Shares of the writes to shares of the pages.
const MIXES: [(f64, f64); 4] = [(1.0, 1.0), (0.8, 0.2), (0.9, 0.1), (0.95, 0.05)];

fn classes((writes, pages): (f64, f64)) -> Vec<Class> {
    let cold = Class { writes: 1.0 - writes, pages: 1.0 - pages };
    [Class { writes, pages }, cold].into_iter().filter(|class| class.pages > 0.0).collect()
}

#[test]
fn greedy_matches_the_mean_field() {
    for (pages, spare) in [64, 128, 256].into_iter().flat_map(|pages| SPARES.map(|spare| (pages, spare))) {
        let (mut log, user) = device((SEGMENTS, pages, spare), Greedy::new);
        precondition::greedy(&mut log, &mut Rng::new(Seed(9))).expect("the log is empty");
        let found = measure(&mut log, &mut Writes::new(user, UNIFORM), 0.5, 0.5);
        let exact = analytic::greedy(spare, pages).amplification;
        assert_within(found, exact, 0.003, &format!("{pages} pages, {spare} spare"));
    }
}

#[test]
fn oldest_first_matches_the_closed_form() {
    for (mix, spare) in MIXES.into_iter().flat_map(|mix| SPARES.map(|spare| (mix, spare))) {
        let (mut log, user) = device((SEGMENTS, 64, spare), Oldest::new);
        let classes = classes(mix);
        precondition::oldest(&mut log, &classes, &mut Rng::new(Seed(9))).expect("the log is empty");
        let found = measure(&mut log, &mut Writes::new(user, classes[0]), 0.5, 1.0);
        let exact = analytic::oldest_mixed(spare, &classes);
        let tolerance = if classes.len() == 1 { 0.003 } else { 0.005 };
        assert_within(found, exact, tolerance, &format!("{mix:?}, {spare} spare"));
    }
}

/// In a log of few segments the open one holds a part of the data. The forms for many segments are 61 to 66 %
/// too high with 16 segments and 7 % spare, 4 % with 256.
#[test]
fn few_segments_match_the_closed_forms_that_count_the_open_one() {
    let pages = 128;
    let greedy = |spare| analytic::greedy(spare, pages).amplification;
    for (segments, spare) in [16, 64, 256].into_iter().flat_map(|count| SPARES.map(|spare| (count, spare))) {
        let what = format!("{segments} segments, {spare} spare");
        let measured = f64::from(6400 / segments).max(30.0);
        let exact =
            |of: &dyn Fn(f64) -> f64, user: u32| analytic::with_open(user.into(), segments, pages, of);
        let (mut log, user) = device((segments, pages, spare), Oldest::new);
        fill(&mut log, user);
        let found = measure(&mut log, &mut Writes::new(user, UNIFORM), 10.0, measured);
        assert_within(found, exact(&analytic::oldest, user), 0.004, &format!("oldest, {what}"));
        let (mut log, user) = device((segments, pages, spare), Greedy::new);
        fill(&mut log, user);
        let found = measure(&mut log, &mut Writes::new(user, UNIFORM), 10.0, measured);
        assert_within(found, exact(&greedy, user), 0.01, &format!("greedy, {what}"));
    }
}

/// The suggested size of devices, filled by writing: 16,384 segments, 8 overwrites to warm up, 4 measured.
#[test]
#[ignore = "takes minutes: the same at full size and without the closed form as a start; run with --release"]
fn full_size_devices_filled_by_writing_match_the_closed_forms() {
    for (pages, spare) in [64, 128, 256].into_iter().flat_map(|pages| SPARES.map(|spare| (pages, spare))) {
        let (mut log, user) = device((16_384, pages, spare), Greedy::new);
        fill(&mut log, user);
        let found = measure(&mut log, &mut Writes::new(user, UNIFORM), 8.0, 4.0);
        let exact = analytic::greedy(spare, pages).amplification;
        assert_within(found, exact, 0.003, &format!("{pages} pages, {spare} spare"));
    }
    for (mix, spare) in MIXES.into_iter().flat_map(|mix| SPARES.map(|spare| (mix, spare))) {
        let (mut log, user) = device((16_384, 128, spare), Oldest::new);
        let classes = classes(mix);
        fill(&mut log, user);
        let found = measure(&mut log, &mut Writes::new(user, classes[0]), 8.0, 4.0);
        let exact = analytic::oldest_mixed(spare, &classes);
        let tolerance = if classes.len() == 1 { 0.003 } else { 0.005 };
        assert_within(found, exact, tolerance, &format!("{mix:?}, {spare} spare"));
    }
}

/// Writes every page once.
fn fill<R: Reclaim>(log: &mut Log<DenseMap, R>, user: u32) {
    for address in 0..user {
        log.write(address.into(), Stream(0), &mut Simulated).expect("there is spare space");
    }
}

/// Hot and cold data at append points of their own are cleaned at less cost than mixed.
#[test]
fn separation_lowers_the_amplification_of_hot_and_cold_data() {
    let amplification = |apart: bool, copies: CopyTo| {
        let user = user_pages(1024, 64, 0.2);
        let config = LogConfig::for_device(user, 0.2, 64, Metadata::default()).expect("valid settings");
        let config = if apart { config.with_append_points(2, copies) } else { config };
        let mut log = greedy(config, user);
        fill(&mut log, user);
        let mut writes = Writes::new(user, Class { writes: 0.9, pages: 0.1 });
        let hot = writes.hot.0;
        let mut run = |overwrites: u64| {
            let before = *log.counters();
            for _ in 0..overwrites * u64::from(user) {
                let address = writes.draw();
                let stream = Stream(u8::from(apart && copies == CopyTo::Same && address >= hot));
                log.write(address, stream, &mut Simulated).expect("there is spare space");
            }
            log.counters().since(&before).amplification().unwrap_or_default()
        };
        run(4);
        run(2)
    };
    let mixed = amplification(false, CopyTo::Same);
    let told = amplification(true, CopyTo::Same);
    let copied = amplification(true, CopyTo::Last);
    assert!(told < 0.85 * mixed, "{told} told apart, {mixed} mixed");
    assert!(copied < 0.9 * mixed, "{copied} with copies apart, {mixed} mixed");
}
