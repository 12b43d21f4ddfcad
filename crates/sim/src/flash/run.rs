//! Runs a flash simulation.

use super::device::{AnyLog, NandFlash};
use super::lifetime::Endurance;
use super::outcome::{Arrangement, FlashOutcome, FlashWindow, PageCounts, SpareSpace};
use super::pages::PackedData;
use super::{Nand, steady};
use crate::{Arrival, Load, SimError};
use timed::{Timed, TimedRun};
use weir_flash::analytic::Class;
use weir_flash::{
    CopyTo, Counters, DenseMap, Log, LogConfig, Simulated, Stream, Thresholds, Wear, WearLevelling, analytic,
    precondition,
};
use weir_model::{Bytes, Nanos, Op, Rng, Seed};
use weir_policy::reclaim::ReclaimPolicy;
use weir_timing::ssd::FlashLog as _;
use weir_timing::{Ssd, WriteCache};

mod timed;

/// Which pages share append points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Separation {
    /// All: one append point.
    #[default]
    None,
    /// Pages that cleaning copies have an append point of their own.
    Copies,
    /// Pages copied once, twice, and more often have append points of their own, four in all.
    Generations,
}

impl Separation {
    /// All, by the names that commands use.
    pub const ALL: [(&'static str, Self); 3] =
        [("none", Self::None), ("copies", Self::Copies), ("generations", Self::Generations)];

    fn append_points(self) -> (u8, CopyTo) {
        match self {
            Self::None => (1, CopyTo::Same),
            Self::Copies => (2, CopyTo::Last),
            Self::Generations => (4, CopyTo::Next),
        }
    }
}

/// How the device is filled before the load begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precondition {
    /// Every page is written once, in the order of addresses.
    #[default]
    Fill,
    /// Segments get as many valid pages as in the steady state of uniform random writes: of greedy cleaning,
    /// or of oldest first with the policies `oldest` and `second-chance`.
    Formula,
    /// The device is empty.
    Empty,
}

impl Precondition {
    /// All, by the names that commands use.
    pub const ALL: [(&'static str, Self); 3] =
        [("fill", Self::Fill), ("formula", Self::Formula), ("empty", Self::Empty)];
}

/// When requests are made in the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashMode {
    /// At the load's own times.
    Open,
    /// By this many clients, each after the reply to its last request.
    Closed(usize),
}

/// Parameters of a flash simulation.
#[derive(Clone, Copy, Debug)]
pub struct FlashPlan {
    /// The device.
    pub nand: Nand,
    /// What the user can write; `None` for the size of the load's data.
    pub capacity: Option<Bytes>,
    /// Selects victims.
    pub policy: &'static ReclaimPolicy,
    /// Which pages share append points.
    pub separation: Separation,
    /// When cleaning starts and ends.
    pub thresholds: Thresholds,
    /// How wear is levelled.
    pub wear: WearLevelling,
    /// How the device is filled.
    pub precondition: Precondition,
    /// Most overwrites of the capacity in the warm-up, which ends when amplification is steady.
    pub warm_up_max: f64,
    /// Overwrites of the capacity in the measurement.
    pub measured: f64,
    /// When requests are made in the measurement.
    pub mode: FlashMode,
    /// Erases until a cell wears out.
    pub rated_cycles: u32,
    /// Bytes that the user writes per day; `None` for those of an open loop with times.
    pub bytes_per_day: Option<f64>,
    /// Random seed, of the policy and of preconditioning by formula.
    pub seed: Seed,
}

/// Windows per overwrite of the capacity.
const WINDOWS_PER_OVERWRITE: f64 = 4.0;
/// Bars of the histograms.
const BARS: usize = 10;
/// Requests without a write after which a load counts as one without writes.
const READS_MAX: u64 = 10_000_000;

/// Simulates a device under a load.
///
/// # Errors
/// Fails if the device is impossible or too small for the load, if the load writes nothing, or if cleaning is
/// stuck.
pub fn simulate(load: &mut dyn Load, plan: &FlashPlan) -> Result<FlashOutcome, SimError> {
    let mut run = Run::new(load, plan)?;
    run.precondition()?;
    let steady = run.warm_up(load)?;
    let warm = run.written();
    let timed = run.measure(load)?;
    Ok(run.outcome(steady, warm, &timed))
}

struct Run<'p> {
    plan: &'p FlashPlan,
    data: PackedData,
    capacity: Bytes,
    pages: u32,
    config: LogConfig,
    ssd: Ssd<NandFlash>,
    /// Counters when the load began, and when the last window did.
    start: Counters,
    window_start: Counters,
    /// Time of the load's last arrival, and requests since it last wrote.
    now: Nanos,
    without_write: u64,
    windows: Vec<FlashWindow>,
    /// Amplification of the windows in which a segment was erased: before, there is space left to write.
    cleaned: Vec<f64>,
}

impl<'p> Run<'p> {
    fn new(load: &dyn Load, plan: &'p FlashPlan) -> Result<Self, SimError> {
        let data = PackedData::new(load);
        let page = plan.nand.page.0.max(1);
        let capacity = plan.capacity.unwrap_or(data.size());
        if data.size() > capacity {
            return Err(SimError::DeviceTooSmall { data: data.size(), capacity });
        }
        let pages = capacity.0 / page;
        let pages = u32::try_from(pages).ok().filter(|pages| *pages > 0);
        let pages = pages.ok_or(SimError::DevicePages { capacity, page: plan.nand.page })?;
        let (points, copies) = plan.separation.append_points();
        let config =
            plan.nand.log(pages)?.with_append_points(points, copies).with_thresholds(plan.thresholds);
        let config = LogConfig { wear: plan.wear, ..config };
        let log: AnyLog =
            Log::new(config, DenseMap::new(pages), |size| (plan.policy.create)(size, plan.seed))?;
        let ssd =
            Ssd::with_log(&plan.nand.timing(capacity), WriteCache::Protected, Some(NandFlash::new(log)));
        Ok(Self {
            plan,
            data,
            capacity,
            pages,
            config,
            ssd,
            start: Counters::default(),
            window_start: Counters::default(),
            now: Nanos(0),
            without_write: 0,
            windows: Vec::new(),
            cleaned: Vec::new(),
        })
    }

    fn flash(&mut self) -> &mut NandFlash {
        self.ssd.log_mut().unwrap_or_else(|| unreachable!("the device is created with a log"))
    }

    fn counters(&self) -> Counters {
        self.ssd.log().map(NandFlash::counters).unwrap_or_default()
    }

    /// Overwrites of the capacity since the load began.
    fn written(&self) -> f64 {
        self.counters().since(&self.start).user as f64 / f64::from(self.pages)
    }

    fn precondition(&mut self) -> Result<(), SimError> {
        let (plan, pages) = (self.plan, self.pages);
        let mut random = Rng::new(plan.seed);
        let log = &mut self.flash().log;
        match plan.precondition {
            Precondition::Empty => {}
            Precondition::Fill => {
                for page in 0..u64::from(pages) {
                    log.write(page, Stream(0), &mut Simulated)?;
                }
            }
            Precondition::Formula if ["oldest", "second-chance"].contains(&plan.policy.name) => {
                precondition::oldest(log, &[Class { writes: 1.0, pages: 1.0 }], &mut random)?;
            }
            Precondition::Formula => precondition::greedy(log, &mut random)?,
        }
        self.start = self.counters();
        self.window_start = self.start;
        Ok(())
    }

    /// Plays the load without time until amplification is steady; returns whether it became so.
    fn warm_up(&mut self, load: &mut dyn Load) -> Result<bool, SimError> {
        while self.written() < self.plan.warm_up_max {
            let arrival = load.next_arrival(self.now);
            self.now = arrival.at;
            if arrival.op == Op::Write {
                let offset = self.offset(&arrival)?;
                let page = self.plan.nand.page.0;
                let pages = offset / page..(offset + arrival.len.0).div_ceil(page);
                let flash = self.flash();
                for page in pages {
                    flash.write(page);
                }
                flash.check()?;
            }
            self.note_request(&arrival)?;
            if self.end_window(false) && steady::is_steady(&self.cleaned) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn offset(&self, arrival: &Arrival) -> Result<u64, SimError> {
        let offset = self.data.offset(arrival).filter(|offset| offset.0 + arrival.len.0 <= self.capacity.0);
        offset.map(|offset| offset.0).ok_or(SimError::OutsideData { at: arrival.at })
    }

    /// Trims the pages that a TRIM covers whole, and fails if the load does not write.
    fn note_request(&mut self, arrival: &Arrival) -> Result<(), SimError> {
        match arrival.op {
            Op::Write => self.without_write = 0,
            Op::Trim => {
                let (offset, page) = (self.offset(arrival)?, self.plan.nand.page.0);
                let log = &mut self.flash().log;
                for page in offset.div_ceil(page)..(offset + arrival.len.0) / page {
                    log.trim(page);
                }
                self.without_write += 1;
            }
            _ => self.without_write += 1,
        }
        if self.without_write > READS_MAX { Err(SimError::NoWrites(READS_MAX)) } else { Ok(()) }
    }

    /// Ends the window if enough was written; returns whether it did.
    #[inline]
    fn end_window(&mut self, measured: bool) -> bool {
        let counters = self.counters();
        let written = counters.user - self.window_start.user;
        if (written as f64) * WINDOWS_PER_OVERWRITE < f64::from(self.pages) {
            return false;
        }
        let done = counters.since(&self.window_start);
        let amplification = done.amplification().unwrap_or(1.0);
        if done.erases > 0 {
            self.cleaned.push(amplification);
        }
        let valid_histogram = self.flash().log.valid_histogram(BARS);
        let overwrites = self.written();
        self.windows.push(FlashWindow { overwrites, measured, amplification, valid_histogram });
        self.window_start = counters;
        true
    }

    fn measure(&mut self, load: &mut dyn Load) -> Result<Timed, SimError> {
        self.window_start = self.counters();
        TimedRun::new(self, load).run()
    }

    fn outcome(&mut self, steady: bool, warm: f64, timed: &Timed) -> FlashOutcome {
        let done = self.counters().since(&timed.before);
        let (nand, page) = (self.plan.nand, self.plan.nand.page.0);
        let wear = self.flash().log.wear();
        let amplification = done.amplification().unwrap_or(1.0);
        let byte_amplification = (done.programmed() * page) as f64 / timed.written.max(1) as f64;
        let space = self.space();
        let of_load = || {
            let seconds = timed.arrivals.as_secs_f64();
            let known = self.plan.mode == FlashMode::Open && seconds > 0.0;
            known.then(|| timed.written as f64 / seconds * SECONDS_PER_DAY)
        };
        let endurance = Endurance {
            cycles: self.plan.rated_cycles,
            flash: Bytes(space.flash_bytes),
            capacity: self.capacity,
            amplification: byte_amplification,
            bytes_per_day: self.plan.bytes_per_day.or_else(of_load),
            unevenness: unevenness(&wear),
        };
        FlashOutcome {
            policy: self.plan.policy.name.to_owned(),
            space,
            arrangement: Arrangement {
                page_bytes: page,
                block_pages: nand.block,
                segment_pages: self.config.pages,
                planes: nand.planes,
                dies: nand.dies,
                channels: nand.channels,
            },
            steady,
            warm_up_overwrites: warm,
            measured_overwrites: done.user as f64 / f64::from(self.pages),
            written_bytes: timed.written,
            pages: PageCounts {
                user: done.user,
                copied: done.copied,
                levelled: done.levelled,
                trimmed: done.trimmed,
                erases: done.erases,
            },
            amplification,
            byte_amplification,
            uniform_amplification: self.uniform_amplification(),
            wear: wear.into(),
            lifetime: endurance.lifetime(),
            measured_ns: timed.time.0,
            requests_per_second: timed.requests as f64 / timed.time.as_secs_f64().max(1e-9),
            late_requests: timed.late,
            reads: timed.reads.responses(),
            writes: timed.writes.responses(),
            windows: std::mem::take(&mut self.windows),
        }
    }

    fn uniform_amplification(&self) -> Option<f64> {
        let (segments, pages) = (self.config.in_use(), self.config.data_pages());
        let greedy = |spare| analytic::greedy(spare, pages).amplification;
        match self.plan.policy.name {
            "greedy" | "d-choices" => Some(analytic::with_open(self.pages.into(), segments, pages, greedy)),
            "oldest" => Some(analytic::with_open(self.pages.into(), segments, pages, analytic::oldest)),
            _ => None,
        }
    }

    fn space(&self) -> SpareSpace {
        let segment = u64::from(self.config.pages) * self.plan.nand.page.0;
        let spare = self.config.spare(self.pages.into());
        SpareSpace {
            capacity_bytes: self.capacity.0,
            in_use_bytes: u64::from(self.config.in_use()) * segment,
            flash_bytes: u64::from(self.config.segments) * segment,
            spare_factor: spare,
            over_provisioning: spare / (1.0 - spare),
            segments: self.config.segments,
            reserve_segments: self.config.thresholds.start,
            open_segments: self.config.append_points.into(),
        }
    }
}

const SECONDS_PER_DAY: f64 = 86_400.0;

/// Returns the erases of the most worn segment per mean erase.
fn unevenness(wear: &Wear) -> f64 {
    if wear.mean > 0.0 { (f64::from(wear.most) / wear.mean).max(1.0) } else { 1.0 }
}
