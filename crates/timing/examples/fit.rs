//! Fits a disk's model to the first half of service times measured on the real drive and reports how well it
//! predicts the second half: `cargo run --release -p weir-timing --example fit -- [TRACE]...`
//!
//! Without arguments it uses all traces in the folder `WEIR_TRACES`, or `../shared/traces/device`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program"
)]

use std::path::{Path, PathBuf};
use weir_model::Nanos;
use weir_timing::drives::drive;
use weir_timing::fit::{Accuracy, compare, fit, predict, select_times};

#[path = "../tests/traces/mod.rs"]
mod traces;

fn main() -> Result<(), String> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths = traces::TRACES.iter().map(|(file, ..)| traces::folder().join(file)).collect();
    }
    println!("| drive | half | | n | mean, ms | model | distance | p99, ms | model | rank | error |");
    println!("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    paths.iter().try_for_each(|path| report(path))
}

fn report(path: &Path) -> Result<(), String> {
    let known = traces::TRACES.iter().find(|(file, ..)| path.ends_with(file));
    let &(_, name, gap) =
        known.ok_or_else(|| format!("{}: not a trace of a drive known here", path.display()))?;
    let samples = traces::load(path, gap)?;
    let drive = drive(name).ok_or_else(|| format!("no drive {name}"))?;
    let Some(params) = weir_timing::drives::disk(name) else { return Err(format!("{name} is no disk")) };
    let half = samples.len() / 2;
    let fitted = fit(params, drive.cache, &samples[..half]);
    let predicted = predict(&fitted, drive.cache, &samples);
    for (which, range) in [("first", 0..half), ("second", half..samples.len())] {
        let times: Vec<Nanos> = samples[range.clone()].iter().map(|s| s.service_time).collect();
        for reads in [true, false] {
            let real = select_times(&samples[range.clone()], &times, reads);
            let model = select_times(&samples[range.clone()], &predicted[range.clone()], reads);
            row(name, which, reads, &compare(&real, &model));
        }
    }
    let o = fitted.overheads;
    println!(
        "{name}: turn {}, overheads {} {} {} {}, settle {}, switch {}, link {} B/s, seeks {} to {}",
        fitted.turn,
        o.read_hit,
        o.read_miss,
        o.write,
        o.write_on,
        fitted.write_settle,
        fitted.switch,
        fitted.link_rate.0,
        fitted.seek.first().map_or(Nanos(0), |s| s.1),
        fitted.seek.last().map_or(Nanos(0), |s| s.1),
    );
    Ok(())
}

fn row(name: &str, which: &str, reads: bool, a: &Accuracy) {
    let ms = |time: Nanos| time.0 as f64 / 1e6;
    println!(
        "| {name} | {which} | {} | {} | {:.3} | {:.3} | {:.1} % | {:.2} | {:.2} | {:.3} | {:.1} % |",
        if reads { "reads" } else { "writes" },
        a.count,
        ms(a.mean),
        ms(a.predicted_mean),
        a.distance * 100.0,
        ms(a.p99),
        ms(a.predicted_p99),
        a.rank,
        a.error * 100.0,
    );
}
