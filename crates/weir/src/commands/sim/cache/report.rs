//! Formats the results of `weir sim cache` as text.

use super::Played;
use crate::output::{Spill, Table, Width};
use weir_model::Bytes;
use weir_sim::advise::Years;
use weir_sim::cache::{CacheFigures, Ratios};
use weir_sim::flash_cache::FlashFigures;

/// Returns the results of a trace: a table with a row for each cache.
pub(super) fn text(of_trace: &[Played], mode: &str, width: Width) -> String {
    let first = &of_trace[0];
    let counts = first.figures.all.counts;
    let mut text = format!(
        "{}: {} requests, {} accesses to {} blocks of {} ({}), {mode}\n\n",
        first.trace,
        counts.requests,
        counts.accesses,
        first.blocks,
        Bytes(first.block_bytes),
        Bytes(u64::from(first.blocks) * first.block_bytes),
    );
    match &first.flash {
        Some(flash) => text += &on_flash(of_trace, flash, width),
        None => text += &without_flash(of_trace, width),
    }
    for note in &first.notes {
        text += &format!("\nnote: {note}\n");
    }
    text
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

fn row(figures: &CacheFigures) -> [String; 14] {
    // A share of no accesses is undefined.
    let share = |ratios: &Ratios, share: f64| match ratios.counts.accesses {
        0 => "-".to_owned(),
        _ => percent(share),
    };
    let hits = |ratios: &Ratios| share(ratios, ratios.hit_ratio);
    [
        figures.policy.clone(),
        figures.admission.clone(),
        figures.size_blocks.to_string(),
        Bytes(figures.size_bytes).to_string(),
        figures.all.counts.misses.to_string(),
        hits(&figures.all),
        hits(&figures.reads),
        hits(&figures.writes),
        share(&figures.all, figures.all.request_hit_ratio),
        share(&figures.all, figures.all.byte_hit_ratio),
        figures.cache_writes.to_string(),
        figures.clwa.map_or("-".to_owned(), |clwa| format!("{clwa:.3}")),
        figures.back_end_reads.to_string(),
        figures.back_end_writes.to_string(),
    ]
}

fn without_flash(of_trace: &[Played], width: Width) -> String {
    let table = Table::new(
        [
            "POLICY",
            "ADMISSION",
            "BLOCKS",
            "SIZE",
            "MISSES",
            "HITS",
            "READ HITS",
            "WRITE HITS",
            "REQUEST HITS",
            "BYTE HITS",
            "CACHE WRITES",
            "CLWA",
            "DISK READS",
            "DISK WRITES",
        ],
        of_trace.iter().map(|played| row(&played.figures)),
    );
    // Rows are compared down the columns, so each row keeps to one line.
    let first_out = [
        "REQUEST HITS",
        "BYTE HITS",
        "DISK READS",
        "DISK WRITES",
        "CLWA",
        "MISSES",
        "CACHE WRITES",
        "BLOCKS",
        "WRITE HITS",
        "READ HITS",
        "ADMISSION",
    ];
    table.removed_first(&first_out).spill(Spill::LeftOut).text(width)
}

/// Returns a table of caches on flash, below what they have in common.
fn on_flash(of_trace: &[Played], first: &FlashFigures, width: Width) -> String {
    let FlashFigures { space, warm_up, seed, segment_pages, lifetime, .. } = first;
    let text = format!(
        "of the first cache: {} of flash for {}, (P - V) / V = {:.1} %\n\
         {} segments of {segment_pages} pages, {} kept free, {} open; spare factor of the rest {:.1} %\n\
         warm-up: {warm_up}; cells rated for {} erases; seed {seed}\n\n",
        Bytes(space.flash_bytes),
        Bytes(space.capacity_bytes),
        (space.flash_bytes as f64 / space.capacity_bytes.max(1) as f64 - 1.0) * 100.0,
        space.segments,
        space.reserve_segments,
        space.open_segments,
        space.spare_factor * 100.0,
        lifetime.rated_cycles,
    );
    let rows = of_trace.iter().filter_map(|played| Some(flash_row(&played.figures, played.flash.as_ref()?)));
    let headings = [
        "POLICY",
        "ADMISSION",
        "VICTIMS",
        "SIZE",
        "BUDGET/DAY",
        "REQUEST HITS",
        "BYTE HITS",
        "CLWA",
        "FLWA",
        "TCWA",
        "CACHE WRITES",
        "COPIED",
        "EVICTED",
        "ERASES",
        "WEAR",
        "WRITTEN/DAY",
        "LIFE",
    ];
    let first_out = [
        "WEAR",
        "COPIED",
        "EVICTED",
        "CACHE WRITES",
        "REQUEST HITS",
        "ERASES",
        "BUDGET/DAY",
        "ADMISSION",
        "WRITTEN/DAY",
        "VICTIMS",
        "LIFE",
        "CLWA",
        "FLWA",
    ];
    text + &Table::new(headings, rows).removed_first(&first_out).spill(Spill::LeftOut).text(width)
}

fn flash_row(figures: &CacheFigures, flash: &FlashFigures) -> [String; 17] {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    let per_day = |bytes: Option<f64>| bytes.map_or("-".to_owned(), |bytes| Bytes(bytes as u64).to_string());
    let wear = &flash.wear;
    [
        figures.policy.clone(),
        figures.admission.clone(),
        flash.victims.clone(),
        Bytes(figures.size_bytes).to_string(),
        flash.write_budget_bytes.map_or("-".to_owned(), |bytes| Bytes(bytes).to_string()),
        percent(figures.all.request_hit_ratio),
        percent(figures.all.byte_hit_ratio),
        ratio(figures.clwa),
        ratio(flash.flwa),
        ratio(flash.tcwa),
        figures.cache_writes.to_string(),
        flash.pages.copied.to_string(),
        figures.evictions.to_string(),
        flash.pages.erases.to_string(),
        format!("{:.1} +- {:.1}", wear.mean, wear.deviation),
        per_day(flash.lifetime.bytes_per_day),
        flash.lifetime.life_years.map_or("-".into(), |life| Years(life).to_string()),
    ]
}
