//! Stacked logs against a stack that keeps lists and looks at every page.

use super::*;
use crate::Replay;
use crate::testing::record;
use std::collections::{BTreeMap, VecDeque};
use weir_model::Op;
use weir_policy::reclaim::{LogSize, Reclaim, Segment};
use weir_trace::{Format, Record, Tally, Trace};

/// What a log commands the layer below.
#[derive(Clone, Copy, Debug)]
enum Command {
    Write(u64),
    Trim(u64),
}

/// A log as simple as possible: greedy or any other policy, one append point, no metadata of its own.
struct NaiveLog {
    policy: Box<dyn Reclaim + Send>,
    pages: usize,
    reserve: usize,
    trims: bool,
    /// The addresses that each segment's pages were programmed with.
    segments: Vec<Vec<u64>>,
    /// Segment and page of each address.
    map: BTreeMap<u64, (usize, usize)>,
    free: VecDeque<usize>,
    open: Option<usize>,
    now: u64,
    copied: u64,
    erases: u64,
}

impl NaiveLog {
    fn new(plan: &LayerPlan, segments: usize) -> Self {
        let pages = (plan.segment.0 / PAGE.0) as usize;
        let size = LogSize { segments: segments as u32, pages: pages as u32 };
        Self {
            policy: (plan.policy.create)(size, Seed(1)),
            pages,
            reserve: (segments as f64 * plan.reserve).ceil() as usize,
            trims: plan.trim,
            segments: vec![Vec::new(); segments],
            map: BTreeMap::new(),
            free: (0..segments).collect(),
            open: None,
            now: 0,
            copied: 0,
            erases: 0,
        }
    }

    fn valid(&self, segment: usize) -> u32 {
        self.map.values().filter(|(of, _)| *of == segment).count() as u32
    }

    fn is_closed(&self, segment: usize) -> bool {
        self.segments[segment].len() == self.pages
    }

    fn forget(&mut self, address: u64) {
        if let Some((segment, _)) = self.map.remove(&address)
            && self.is_closed(segment)
            && self.open != Some(segment)
        {
            let valid = self.valid(segment);
            self.policy.invalidated(Segment(segment as u32), valid, self.now);
        }
    }

    fn program(&mut self, address: u64, commands: &mut Vec<Command>) {
        let segment = match self.open {
            Some(segment) => segment,
            None => self.free.pop_front().expect("a free segment"),
        };
        self.open = Some(segment);
        let page = self.segments[segment].len();
        commands.push(Command::Write((segment * self.pages + page) as u64));
        self.segments[segment].push(address);
        self.forget(address);
        self.map.insert(address, (segment, page));
        self.now += 1;
        if self.is_closed(segment) {
            self.open = None;
            let valid = self.valid(segment);
            self.policy.closed(Segment(segment as u32), valid, self.now);
        }
    }

    fn clean(&mut self, commands: &mut Vec<Command>) {
        let victim = self.policy.victim(self.now).expect("a victim");
        let segment = victim.0 as usize;
        self.policy.removed(victim, self.valid(segment));
        for (page, address) in std::mem::take(&mut self.segments[segment]).into_iter().enumerate() {
            if self.map.get(&address) == Some(&(segment, page)) {
                self.program(address, commands);
                self.copied += 1;
            }
        }
        self.erases += 1;
        if self.trims {
            let start = segment * self.pages;
            commands.extend((start..start + self.pages).map(|page| Command::Trim(page as u64)));
        }
        self.free.push_back(segment);
    }

    fn take(&mut self, command: Command) -> Vec<Command> {
        let mut commands = Vec::new();
        match command {
            Command::Trim(address) => self.forget(address),
            Command::Write(address) => {
                while self.open.is_none() && self.free.len() <= self.reserve {
                    self.clean(&mut commands);
                    // Until the threshold is met again.
                    while self.free.len() < self.reserve {
                        self.clean(&mut commands);
                    }
                }
                self.program(address, &mut commands);
            }
        }
        commands
    }
}

/// A layer: the end of each log's addresses, where its addresses below begin, and the log.
struct NaiveLayer(Vec<(u64, u64, NaiveLog)>);

impl NaiveLayer {
    fn take(&mut self, command: Command) -> Vec<Command> {
        let (Command::Write(address) | Command::Trim(address)) = command;
        let at = self.0.iter().position(|(end, ..)| address < *end).expect("a log");
        let first = if at == 0 { 0 } else { self.0[at - 1].0 };
        let (_, base, log) = &mut self.0[at];
        let moved = |command, by: i64| match command {
            Command::Write(address) => Command::Write(address.wrapping_add_signed(by)),
            Command::Trim(address) => Command::Trim(address.wrapping_add_signed(by)),
        };
        let commands = log.take(moved(command, -(first as i64)));
        commands.into_iter().map(|command| moved(command, *base as i64)).collect()
    }
}

fn run(layers: &mut [NaiveLayer], command: Command) {
    if let Some((layer, below)) = layers.split_first_mut() {
        layer.take(command).into_iter().for_each(|command| run(below, command));
    }
}

fn naive(plan: &StackPlan, data: u64, found: &StackOutcome) -> Vec<NaiveLayer> {
    let (mut layers, mut addresses) = (Vec::new(), data);
    for (layer, figures) in plan.layers.iter().zip(&found.layers) {
        let total: f64 = layer.shares.iter().sum();
        let (mut sum, mut base, mut logs) = (0.0, 0, Vec::new());
        for (share, log) in layer.shares.iter().zip(&figures.logs) {
            sum += share;
            let segments = log.segments as usize;
            let pages = layer.segment.0 / PAGE.0 * segments as u64;
            let end = (addresses as f64 * sum / total).round() as u64;
            logs.push((end, base, NaiveLog::new(layer, segments)));
            base += pages;
        }
        layers.push(NaiveLayer(logs));
        addresses = base;
    }
    layers
}

/// Compares the logs with those of the twin.
fn compare(layers: &[NaiveLayer], found: &StackOutcome) -> Result<(), TestCaseError> {
    for (layer, figures) in layers.iter().zip(&found.layers) {
        for ((_, _, log), figures) in layer.0.iter().zip(&figures.logs) {
            prop_assert_eq!((log.copied, log.erases), (figures.copied_pages, figures.erases));
            let in_use = (figures.segments - figures.reserve_segments - 1) as usize * log.pages;
            let utilisation = log.map.len() as f64 / in_use as f64;
            prop_assert!((utilisation - figures.utilisation).abs() < 1e-12);
        }
    }
    Ok(())
}

/// Writes and TRIMs of any sectors of 1 MiB, after a write of all of it.
fn requests() -> impl Strategy<Value = Vec<Record>> {
    let record = |op, sector: u64, sectors: u64| record(op, sector * 512, sectors * 512);
    let op = prop_oneof![3 => Just(Op::Write), 1 => Just(Op::Trim)];
    let one = (op, 0_u64..2048, 1_u64..100);
    let one = one.prop_map(move |(op, sector, sectors)| record(op, sector, sectors.min(2048 - sector)));
    prop::collection::vec(one, 1..300).prop_map(move |mut requests| {
        requests.insert(0, record(Op::Write, 0, 2048));
        requests.push(record(Op::Write, 3, 1));
        requests
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn stacked_logs_equal_their_naive_twin(plan in plans()) {
        let mut plan = StackPlan { defragger: None, ..plan };
        plan.layers.iter_mut().for_each(|layer| layer.metadata = LogMetadata::default());
        let text = "hotcold reads=0% over=1MiB";
        let Ok(found) = simulate(&mut *words(text), &plan) else {
            return Err(TestCaseError::reject("a log without space"));
        };
        let mut layers = naive(&plan, 256, &found);
        let (mut load, mut now) = (words(text), Nanos(0));
        for _ in 0..found.user_pages {
            let arrival = load.next_arrival(now);
            now = arrival.at;
            run(&mut layers, Command::Write(arrival.offset.0 / PAGE.0));
        }
        compare(&layers, &found)?;
    }

    /// A write takes every page that it touches, a TRIM only pages that it covers, in the first layer alone.
    #[test]
    fn requests_of_any_sectors_equal_the_naive_twin(plan in plans(), requests in requests()) {
        let mut plan = StackPlan { defragger: None, ..plan };
        plan.layers.iter_mut().for_each(|layer| layer.metadata = LogMetadata::default());
        let mut commands = Vec::new();
        for Record { op, offset, len, .. } in &requests {
            let (start, end) = (offset.0, offset.0 + len.0);
            match op {
                Op::Write => commands.extend((start / PAGE.0..end.div_ceil(PAGE.0)).map(Command::Write)),
                _ => commands.extend((start.div_ceil(PAGE.0)..end / PAGE.0).map(Command::Trim)),
            }
        }
        let written = commands.iter().filter(|command| matches!(command, Command::Write(_))).count();
        // Half a page less: the trace is not repeated.
        plan.repetition.measured = (written as f64 - 0.5) / 256.0;
        let format = Format::named("mqsim").expect("a format");
        let (name, disks) = ("t".to_owned(), vec!["0".to_owned()]);
        let trace = Trace { name, format, records: requests, disks, tally: Tally::default() };
        let Ok(found) = simulate(&mut Replay::new(trace, 1.0), &plan) else {
            return Err(TestCaseError::reject("a log without space"));
        };
        prop_assert_eq!(found.user_pages, written as u64);
        let mut layers = naive(&plan, 256, &found);
        commands.into_iter().for_each(|command| run(&mut layers, command));
        compare(&layers, &found)?;
    }
}
