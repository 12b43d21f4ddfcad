//! `weir advise` recommends devices to buy for the load in a trace, and says why.

mod args;
pub(super) mod device_list;
mod pool_text;
mod report;

pub use args::AdviseArgs;

use super::show;
use crate::args::{Common, FlashOptions};
use crate::failure::Failure;
use crate::files::{self, OutputKind};
use crate::parallel::{self, Stop};
use crate::{output, picture, progress, traces};
use device_list::{BUILT_IN_LIST, DeviceList};
pub(crate) use report::AdviceDocument;
use report::{Advice, EngineRun, Row};
use std::convert::Infallible;
use std::path::Path;
use weir_model::{ErrorKind, Nanos, Seed};
use weir_sim::advise::{
    AdviseError, Cents, Demand, DeviceSet, Forecast, Limits, MeasuredPart, RequiredCapacity, RunSettings,
    Search, SetFigures, Simulated, Years, finalists, frontier, scale_to_rate, sets, split_in_halves,
    with_second,
};
use weir_trace::Trace;

/// Prints the advice for a trace, or the list that comes with weir.
///
/// # Errors
/// Fails if the trace, the list or the limits are invalid, if no set of devices meets the limits, or if a
/// file cannot be written.
pub(crate) fn run(args: &AdviseArgs, common: &Common) -> Result<(), Failure> {
    match &args.trace {
        Some(trace) => {
            let advice = advise(trace, args)?;
            show(common, &advice.document(), |width| advice.human(width));
        }
        None => output::print_text(BUILT_IN_LIST),
    }
    Ok(())
}

/// Finds the devices to buy for a trace.
///
/// # Errors
/// Fails if the trace, the list or the limits are invalid, if no set of devices meets the limits, or if a
/// file cannot be written.
fn advise(trace_path: &Path, args: &AdviseArgs) -> Result<Advice, Failure> {
    let mut written = args.write_pool.iter().chain(&args.plot);
    written.try_for_each(|path| traces::refuse_input_as_output(trace_path, path))?;
    args.write_pool.iter().try_for_each(|path| refuse_overwrite(path, args.force))?;
    args.plot.iter().try_for_each(|path| files::refuse_foreign_content(path, OutputKind::Picture))?;
    let list = device_list::read(args.devices.as_deref())?;
    let (trace, notes) = read_trace(trace_path, args)?;
    // The time after the last request is estimated from the gaps before it, in each half if it is split.
    let least = if args.held_out { 4 } else { 2 };
    if trace.records.len() < least {
        let message = format!("{} has too few requests: {}", trace_path.display(), trace.records.len());
        return Err(Failure::usage(message, format!("take a longer trace: it takes {least} at least")));
    }
    let two = if args.held_out { split_in_halves(&trace) } else { None };
    let (known, tried) = two.unwrap_or_else(|| (trace.clone(), trace));
    let cannot = |error: AdviseError| match error {
        AdviseError::Trace(_) | AdviseError::NoRequests => {
            Failure::from_message(ErrorKind::Usage, &format!("{}: {error}", trace_path.display()))
        }
        _ => Failure::from_message(ErrorKind::Usage, &error.to_string()),
    };
    let demand = Demand::new(&known, MeasuredPart::of(&known, args.requests)).map_err(cannot)?;
    let wanted = required_capacity(&demand, args)?;
    let search = Search::new(&demand, &list.offers, wanted);
    let mut sets = sets(&list.offers, &wanted).map_err(cannot)?;
    let mut forecasts = forecast(&search, &sets);
    let judged = |forecasts: &[Forecast]| -> Vec<_> { forecasts.iter().map(|each| each.figures).collect() };
    let limits = limits(args);
    let wider = with_second(&list.offers, &wanted, &sets, &judged(&forecasts), &limits).map_err(cannot)?;
    forecasts.extend(forecast(&search, &wider));
    sets.extend(wider);
    let judged = judged(&forecasts);
    // If no set is predicted to keep up, the simulation decides.
    let able: Vec<_> = (0..sets.len()).filter(|index| forecasts[*index].keeps_up()).collect();
    let able = if able.is_empty() { (0..sets.len()).collect() } else { able };
    let of_able: Vec<_> = able.iter().map(|index| judged[*index]).collect();
    let sets_able: Vec<_> = able.iter().map(|index| sets[*index]).collect();
    let finalists = finalists(&sets_able, &of_able, &limits);
    let mut finalists: Vec<_> = finalists.into_iter().map(|index| able[index]).collect();
    let mut rows: Vec<_> =
        sets.into_iter().zip(forecasts).map(|(set, forecast)| Row::new(set, forecast)).collect();
    let (seed, rating) = (Seed(args.seed), args.flash.rating());
    let runs = RunSettings { policy: &args.policy, requests: args.requests, seed, rating };
    for (index, simulated) in finalists.iter().zip(simulate(&search, &rows, &finalists, &tried, &runs)?) {
        rows[*index].run = Some(EngineRun::new(simulated));
    }
    let able: Vec<_> = (0..rows.len()).filter(|index| rows[*index].cannot_keep_up().is_none()).collect();
    let predicted: Vec<_> = able.iter().map(|index| rows[*index].forecast.figures).collect();
    frontier(&predicted).into_iter().for_each(|index| rows[able[index]].is_on_frontier = true);
    // Sets that cannot keep up come last, whatever their price.
    finalists.sort_by_key(|index| rows[*index].cannot_keep_up().is_some());
    let pick = pick(&rows, &finalists, &limits, &list)?;
    // The prediction may have missed that the pick is better than another set; the simulation showed it.
    rows[pick].is_on_frontier = true;
    let write_budget =
        args.flash.write_budget.map(|budget| (budget, search.budget_cost(&rows[pick].set, budget)));
    let advice = Advice {
        trace: trace_path.display().to_string(),
        notes,
        policy: args.policy.clone(),
        seed: args.seed,
        is_held_out: args.held_out,
        requests: known.records.len(),
        footprint: demand.footprint(),
        required: wanted,
        rule: limits.rule(),
        limits,
        list,
        rows,
        finalists,
        pick,
        cell: cell_name(&args.flash),
        write_budget,
        pool_file: args.write_pool.clone(),
    };
    write_files(trace_path, args, &advice)?;
    Ok(advice)
}

/// Writes the plot and the pool file that the arguments ask for.
fn write_files(trace_path: &Path, args: &AdviseArgs, advice: &Advice) -> Result<(), Failure> {
    if let Some(path) = &args.plot {
        let name = trace_path.file_name().unwrap_or(trace_path.as_os_str()).display();
        picture::write(path, &advice.picture().svg(&format!("{name}: what to buy")))?;
    }
    if let Some(path) = &args.write_pool {
        refuse_overwrite(path, args.force)?;
        std::fs::write(path, advice.pool_text()).map_err(|error| Failure::os("write", path, &error))?;
    }
    Ok(())
}

/// Returns how reports name the cells of the flash.
fn cell_name(flash: &FlashOptions) -> String {
    match flash.cycles {
        Some(cycles) => format!("cells of {cycles} erases"),
        None => format!("{} cells", flash.cell().to_uppercase()),
    }
}

/// Refuses to overwrite an existing file without `force`, and anything that is not a regular file.
fn refuse_overwrite(path: &Path, force: bool) -> Result<(), Failure> {
    files::refuse_kernel_folder(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => Err(Failure::refused(
            format!("{} is not a regular file", path.display()),
            "name another one for the pool file",
        )),
        Ok(_) if !force => Err(Failure::refused(
            format!("{} already exists", path.display()),
            "name another file, or write over it with --force",
        )),
        _ => Ok(()),
    }
}

/// Reads the trace with times, truncated to `--requests`, and returns notes on what was changed or left out.
fn read_trace(path: &Path, args: &AdviseArgs) -> Result<(Trace, Vec<String>), Failure> {
    let reader =
        traces::open(path, args.trace_options.format.as_ref(), "name a file, or - for standard input")?;
    let mut trace = progress::during("reading the trace", || Trace::load(reader, args.trace_options.strict))
        .map_err(|error| traces::trace_failure(&error))?;
    let mut notes = trace.tally.notes(trace.records.len());
    let all = trace.records.len();
    let most = usize::try_from(args.requests).unwrap_or(usize::MAX);
    if all > most {
        trace.records.truncate(most);
        notes.push(format!("only the first {most} of {all} requests count; --requests says how many"));
    }
    match args.rate {
        Some(rate) => {
            refuse_long_duration(&trace, rate)?;
            scale_to_rate(&mut trace, rate, Seed(args.seed));
        }
        None if !trace.format.timed || trace.duration() == Nanos(0) => {
            let help = "say how many requests come in a second: --rate 500";
            return Err(Failure::usage(format!("{} has no times", path.display()), help));
        }
        None => {}
    }
    Ok((trace, notes))
}

/// Longest duration to which a trace may be scaled. A simulation takes some seconds for each day.
const DURATION_MAX: Nanos = Nanos::secs(30 * 86_400);

/// Refuses a rate so low that simulations would take minutes, unless the trace itself lasts as long.
fn refuse_long_duration(trace: &Trace, rate: f64) -> Result<(), Failure> {
    let gaps = trace.records.len().saturating_sub(1) as f64;
    let most = DURATION_MAX.max(trace.duration()).as_secs_f64();
    if gaps / rate <= most {
        return Ok(());
    }
    let days = |seconds: f64| seconds / 86_400.0;
    // The rate is rounded up, so that the user can pass the figure in the message.
    let least = (gaps / most * 1e6).ceil() / 1e6;
    Err(Failure::usage(
        format!(
            "at {rate} requests a second, {} requests take {:.0} days, \
             more than the {:.0} days that can be run",
            trace.records.len(),
            days(gaps / rate),
            days(most)
        ),
        format!("say at least --rate {least}, or take fewer requests: --requests"),
    ))
}

fn required_capacity(demand: &Demand, args: &AdviseArgs) -> Result<RequiredCapacity, Failure> {
    let active = args.active.unwrap_or(demand.footprint());
    let capacity = args.capacity.unwrap_or(active);
    if capacity < active {
        let message = format!("--capacity {capacity} is less than the {active} that are in use");
        return Err(Failure::usage(message, "ask for more, or say with --active what is in use"));
    }
    Ok(RequiredCapacity { capacity, active })
}

fn limits(args: &AdviseArgs) -> Limits {
    let budget = args.budget.map(Cents::of);
    Limits { budget, mean: args.max_mean, p99: args.max_p99, life: Years(args.min_life) }
}

/// Predicts the result of each set.
fn forecast(search: &Search<'_>, sets: &[DeviceSet]) -> Vec<Forecast> {
    let jobs = search.jobs(sets);
    let bar = progress::bar(jobs.len(), "sizes of fast devices");
    let Ok(found) = parallel::map(&jobs, parallel::cores(), &Stop::default(), |job| {
        let found = search.play(job);
        bar.inc(1);
        Ok::<_, Infallible>(found)
    });
    bar.finish_and_clear();
    search.forecasts(sets, &jobs, &found)
}

/// Simulates the finalists with the engine.
fn simulate(
    search: &Search<'_>,
    rows: &[Row],
    finalists: &[usize],
    trace: &Trace,
    runs: &RunSettings<'_>,
) -> Result<Vec<Simulated>, Failure> {
    let bar = progress::bar(finalists.len(), "finalists run by the engine");
    let simulated = parallel::map(finalists, parallel::cores(), &Stop::default(), |index| {
        let simulated = search.simulate(&rows[*index].set, trace, runs);
        bar.inc(1);
        simulated
    });
    bar.finish_and_clear();
    simulated.map_err(|error| Failure::from_message(ErrorKind::Usage, &error.to_string()))
}

/// Returns the best finalist by the engine's results.
fn pick(rows: &[Row], finalists: &[usize], limits: &Limits, list: &DeviceList) -> Result<usize, Failure> {
    let ran = |index: &usize| rows[*index].run.as_ref().map(|run| (*index, run));
    let able: Vec<(usize, SetFigures)> = finalists
        .iter()
        .filter_map(ran)
        .filter(|(index, _)| rows[*index].cannot_keep_up().is_none())
        .map(|(index, run)| (index, run.figures))
        .collect();
    let ranked = limits.rank(&able);
    let Some(best) = ranked.first().copied() else {
        return Err(Failure::refused(
            "no set on the list can keep up with this trace",
            "put faster devices on the list, or say how many requests come in a second: --rate",
        ));
    };
    let judged = rows[best].figures();
    if !limits.is_satisfied_by(&judged) {
        let message = format!(
            "nothing on the list keeps to the limits; the nearest is {} for {} {}: mean {}, p99 {}, flash life {}",
            rows[best].set.name(&list.offers),
            judged.price,
            list.currency,
            judged.mean,
            judged.p99,
            judged.life
        );
        return Err(Failure::refused(
            message,
            "ease --budget, --max-mean, --max-p99 or --min-life, or put other devices on the list",
        ));
    }
    Ok(best)
}
