//! Runs a simulation of stacked logs.

use super::defrag;
use super::layer::{self, Layer, StackedLog};
use super::outcome::{DefragFigures, LayerFigures, LogFigures, StackOutcome, StackWindow};
use super::plan::{DefragTime, StackPlan, StackPrecondition};
use crate::flash::{PackedData, WearFigures, steady};
use crate::{Arrival, Load, SimError};
use weir_flash::Counters;
use weir_model::{Bytes, Nanos, Op, Rng};

/// Windows per overwrite of the data.
const WINDOWS_PER_OVERWRITE: f64 = 4.0;
/// Mean number of erases of each layer's segments before TCWA can be steady: until most segments were cleaned
/// several times, cleaning meets segments without valid pages.
const ERASES_MIN: f64 = 3.0;
/// Random overwrites of the data that age the layers.
const AGE_OVERWRITES: u64 = 2;
/// Bars of the histograms.
const BARS: usize = 10;
/// Requests without a write after which a load counts as one without writes.
const READS_MAX: u64 = 10_000_000;

/// Returns the amount of a load's data, in whole extents of 64 KiB.
pub fn data_size(load: &dyn Load) -> Bytes {
    PackedData::new(load).size()
}

/// Simulates stacked logs under a load.
///
/// # Errors
/// Fails if a log is too small, if the load writes nothing, or if cleaning is stuck.
pub fn simulate(load: &mut dyn Load, plan: &StackPlan) -> Result<StackOutcome, SimError> {
    let mut run = Run::new(load, plan)?;
    run.precondition(load)?;
    run.play(load, plan.repetition.warm_up_max, false)?;
    let warm = run.overwrites();
    let before = run.state();
    run.play(load, warm + plan.repetition.measured, true)?;
    Ok(run.outcome(warm, &before))
}

/// What the layers have done until a point in time.
#[derive(Clone, Debug, Default)]
struct State {
    user: u64,
    received: Vec<u64>,
    counters: Vec<Vec<Counters>>,
    defragger: DefragFigures,
}

struct Run<'p> {
    plan: &'p StackPlan,
    data: PackedData,
    /// Pages of the data.
    pages: u64,
    layers: Vec<Layer>,
    /// Pages that the user wrote.
    user: u64,
    now: Nanos,
    without_write: u64,
    defragger: DefragFigures,
    /// Pages of the user at which the defragger runs next.
    defrag_at: u64,
    window_start: State,
    windows: Vec<StackWindow>,
    /// TCWA of the windows after every layer was cleaned [`ERASES_MIN`] times.
    cleaned: Vec<f64>,
}

impl<'p> Run<'p> {
    fn new(load: &dyn Load, plan: &'p StackPlan) -> Result<Self, SimError> {
        let data = PackedData::new(load);
        let pages = data.size().0.div_ceil(plan.page.0.max(1));
        if pages == 0 {
            return Err(SimError::DevicePages { capacity: data.size(), page: plan.page });
        }
        let layers = layer::stack(&plan.layers, plan.page, pages, plan.seed)?;
        let mut run = Self {
            plan,
            data,
            pages,
            layers,
            user: 0,
            now: Nanos(0),
            without_write: 0,
            defragger: DefragFigures::default(),
            defrag_at: u64::MAX,
            window_start: State::default(),
            windows: Vec::new(),
            cleaned: Vec::new(),
        };
        run.defrag_at = run.next_defrag();
        run.window_start = run.state();
        Ok(run)
    }

    /// Fills the layers as planned. The pages count as no user's.
    fn precondition(&mut self, load: &mut dyn Load) -> Result<(), SimError> {
        let random = match self.plan.precondition {
            StackPrecondition::Empty => return Ok(()),
            StackPrecondition::Requests(count) => return self.take_first(load, count),
            StackPrecondition::Fill => 0,
            StackPrecondition::Age => AGE_OVERWRITES * self.pages,
        };
        (0..self.pages).try_for_each(|page| layer::write(&mut self.layers, page))?;
        let mut draw = Rng::new(self.plan.seed);
        for _ in 0..random {
            layer::write(&mut self.layers, draw.below(self.pages))?;
        }
        self.window_start = self.state();
        Ok(())
    }

    /// Carries out so many requests of the load.
    fn take_first(&mut self, load: &mut dyn Load, count: u64) -> Result<(), SimError> {
        for _ in 0..count {
            let arrival = load.next_arrival(self.now);
            self.now = arrival.at;
            self.take(&arrival)?;
        }
        self.window_start = self.state();
        Ok(())
    }

    fn overwrites(&self) -> f64 {
        self.user as f64 / self.pages as f64
    }

    fn state(&self) -> State {
        let counters = |layer: &Layer| layer.logs.iter().map(|one| *one.log.counters()).collect();
        State {
            user: self.user,
            received: self.layers.iter().map(|layer| layer.received).collect(),
            counters: self.layers.iter().map(counters).collect(),
            defragger: self.defragger,
        }
    }

    /// Plays the load until so many overwrites of its data; unless `measured`, not beyond the steady state.
    fn play(&mut self, load: &mut dyn Load, overwrites: f64, measured: bool) -> Result<(), SimError> {
        while self.overwrites() < overwrites {
            let arrival = load.next_arrival(self.now);
            self.defragment_if_idle(arrival.at)?;
            self.now = arrival.at;
            self.take(&arrival)?;
            if self.user >= self.defrag_at {
                self.defragment()?;
                self.defrag_at = self.next_defrag();
            }
            if self.end_window(measured) && !measured && steady::is_steady(&self.cleaned) {
                break;
            }
        }
        Ok(())
    }

    /// Writes the pages that a write touches, or trims those that a TRIM covers.
    fn take(&mut self, arrival: &Arrival) -> Result<(), SimError> {
        if !matches!(arrival.op, Op::Write | Op::Trim) {
            self.without_write += 1;
            let failed = self.without_write > READS_MAX;
            return if failed { Err(SimError::NoWrites(READS_MAX)) } else { Ok(()) };
        }
        let page = self.plan.page.0;
        let offset = self.data.offset(arrival).ok_or(SimError::OutsideData { at: arrival.at })?.0;
        let end = offset + arrival.len.0;
        if arrival.op == Op::Trim {
            (offset.div_ceil(page)..end / page).for_each(|page| layer::trim(&mut self.layers, page));
            return Ok(());
        }
        self.without_write = 0;
        for page in offset / page..end.div_ceil(page).min(self.pages) {
            layer::write(&mut self.layers, page)?;
            self.user += 1;
        }
        Ok(())
    }

    fn next_defrag(&self) -> u64 {
        match self.plan.defragger.map(|defragger| defragger.time) {
            Some(DefragTime::Every(overwrites)) => {
                self.user + ((overwrites * self.pages as f64) as u64).max(1)
            }
            _ => u64::MAX,
        }
    }

    fn defragment_if_idle(&mut self, until: Nanos) -> Result<(), SimError> {
        match self.plan.defragger.map(|defragger| defragger.time) {
            Some(DefragTime::Idle(idle)) if until.since(self.now) >= idle => self.defragment(),
            _ => Ok(()),
        }
    }

    fn defragment(&mut self) -> Result<(), SimError> {
        if let Some(defragger) = self.plan.defragger.filter(|_| self.layers.len() > 1) {
            self.defragger.pages += defrag::run(&mut self.layers, &defragger)?;
            self.defragger.runs += 1;
        }
        Ok(())
    }

    /// Ends the window if enough was written; returns whether it did.
    fn end_window(&mut self, measured: bool) -> bool {
        let written = self.user - self.window_start.user;
        if (written as f64) * WINDOWS_PER_OVERWRITE < self.pages as f64 {
            return false;
        }
        let figures = self.layers_since(&self.window_start);
        let programmed = figures.last().map_or(0, |layer| layer.programmed_pages);
        let total_amplification = programmed as f64 / written as f64;
        let erases = |layer: &LayerFigures| {
            let of = |log: &LogFigures| log.wear.mean * f64::from(log.segments);
            let segments: u32 = layer.logs.iter().map(|log| log.segments).sum();
            layer.logs.iter().map(of).sum::<f64>() / f64::from(segments)
        };
        if figures.iter().all(|layer| erases(layer) >= ERASES_MIN) {
            self.cleaned.push(total_amplification);
        }
        let histogram = |layer: &LayerFigures| {
            let sum = |bar: usize| layer.logs.iter().map(|log| log.valid_histogram[bar]).sum();
            (0..BARS).map(sum).collect()
        };
        self.windows.push(StackWindow {
            overwrites: self.overwrites(),
            measured,
            total_amplification,
            amplifications: figures
                .iter()
                .map(|layer| (layer.received_pages > 0).then_some(layer.amplification))
                .collect(),
            valid_histograms: figures.iter().map(histogram).collect(),
        });
        self.window_start = self.state();
        true
    }

    fn layers_since(&self, before: &State) -> Vec<LayerFigures> {
        let of_layer = |(nth, layer): (usize, &Layer)| {
            let received = layer.received - before.received[nth];
            let logs = layer.logs.iter().zip(&before.counters[nth]);
            let programmed: u64 = logs.clone().map(|(one, before)| programmed(one, before)).sum();
            LayerFigures {
                received_pages: received,
                programmed_pages: programmed,
                amplification: programmed as f64 / received.max(1) as f64,
                logs: logs.map(|(one, before)| self.log_figures(one, before)).collect(),
            }
        };
        self.layers.iter().enumerate().map(of_layer).collect()
    }

    fn log_figures(&self, one: &StackedLog, before: &Counters) -> LogFigures {
        let (config, done, wear) = (one.log.config(), one.log.counters().since(before), one.log.wear());
        LogFigures {
            segment_bytes: u64::from(config.pages) * self.plan.page.0,
            segments: config.segments,
            reserve_segments: config.thresholds.start,
            utilisation: 1.0 - config.spare(one.log.valid()),
            written_pages: done.user,
            copied_pages: done.copied,
            metadata_pages: done.metadata,
            trimmed_pages: done.trimmed,
            erases: done.erases,
            amplification: done.amplification(),
            wear: WearFigures {
                mean: wear.mean,
                deviation: wear.deviation,
                least: wear.least,
                most: wear.most,
            },
            valid_histogram: one.log.valid_histogram(BARS),
        }
    }

    fn outcome(self, warm: f64, before: &State) -> StackOutcome {
        let layers = self.layers_since(before);
        let user = self.user - before.user;
        let defragger = DefragFigures {
            runs: self.defragger.runs - before.defragger.runs,
            pages: self.defragger.pages - before.defragger.pages,
        };
        let per_user = |pages: u64| pages as f64 / user.max(1) as f64;
        let first = layers.first().map_or(0, |layer| layer.programmed_pages) + defragger.pages;
        StackOutcome {
            page_bytes: self.plan.page.0,
            data_bytes: self.data.size().0,
            steady: steady::is_steady(&self.cleaned),
            warm_up_overwrites: warm,
            measured_overwrites: self.overwrites() - warm,
            user_pages: user,
            first_amplification: per_user(first),
            last_amplification: layers.last().map_or(1.0, |layer| layer.amplification),
            total_amplification: per_user(layers.last().map_or(0, |layer| layer.programmed_pages)),
            defragger: self.plan.defragger.map(|_| defragger),
            layers,
            windows: self.windows,
        }
    }
}

fn programmed(one: &StackedLog, before: &Counters) -> u64 {
    one.log.counters().since(before).programmed()
}

impl StackOutcome {
    /// Returns the size of the layer's logs and of their reserves, in bytes.
    pub fn sizes(&self, layer: usize) -> (Bytes, Bytes) {
        let of = |count: fn(&LogFigures) -> u32| {
            let logs = self.layers.get(layer).into_iter().flat_map(|layer| &layer.logs);
            Bytes(logs.map(|log| log.segment_bytes * u64::from(count(log))).sum())
        };
        (of(|log| log.segments), of(|log| log.reserve_segments))
    }
}
