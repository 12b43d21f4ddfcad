//! Each figure of the engine is in the field that is named for it: every value here is another one.

use crate::status::fragmentation::FragmentationPart;
use crate::status::parts::{CachePart, LoadPart, MigrationEstimate, MigrationPart};
use serde::Serialize;
use serde_json::{Value, json};
use weir_engine::{CacheStatus, Load, MoverStatus, MovesStatus, Spread};
use weir_model::{Bytes, Nanos};
use weir_policy::harm::Estimate;

fn document(part: impl Serialize) -> Value {
    serde_json::to_value(part).expect("a document")
}

#[test]
fn estimates_of_migration_are_not_exchanged() {
    let last = Some(Estimate { commands: 4, cost: Nanos(40), counterfactual_cost: Nanos(20) });
    let moves =
        MovesStatus { stopped: Some(Nanos(7)), stops: 3, last_window: last, total: Estimate::default() };
    let expected = json!({
        "stopped_ns": 7, "stops": 3, "commands": 4, "mean_ns": 10, "counterfactual_mean_ns": 5
    });
    assert_eq!(document(MigrationEstimate::from(moves)), expected);
}

#[test]
fn counts_of_the_mover_the_cache_and_fragmentation_are_not_exchanged() {
    let mover = MoverStatus { in_flight: 1, copied: 2, dropped: 3, skipped: 4, piggybacked: 5 };
    let expected = json!({
        "in_flight": 1, "copied_bytes": 2 * 4096, "dropped_bytes": 3 * 4096, "overwritten_bytes": 4 * 4096,
        "piggybacked_bytes": 5 * 4096
    });
    assert_eq!(document(MigrationPart::from(mover)), expected);
    let cache = CacheStatus { size: Bytes(1), memory_used: Bytes(2), hits: 3, misses: 4 };
    let expected = json!({ "size_bytes": 1, "used_bytes": 2, "hits": 3, "misses": 4 });
    assert_eq!(document(CachePart::from(cache)), expected);
    let spread = Spread { fragmented: 1, extra: Bytes(2), extra_limit: Some(Bytes(3)), redirects: 4 };
    let expected =
        json!({ "fragmented_extents": 1, "extra_bytes": 2, "extra_limit_bytes": 3, "redirects": 4 });
    assert_eq!(document(FragmentationPart::from(spread)), expected);
}

#[test]
fn loads_of_devices_are_not_exchanged() {
    let load = Load { reads: 1.0, writes: 2.0, read_bytes: 3.0, written_bytes: 4.0, busy: 0.5, depth: 6.0 };
    let expected = json!({
        "reads_per_second": 1.0, "writes_per_second": 2.0, "read_bytes_per_second": 3.0,
        "written_bytes_per_second": 4.0, "busy_share": 0.5, "queue_depth": 6.0
    });
    assert_eq!(document(LoadPart::from(load)), expected);
}
