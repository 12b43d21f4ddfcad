//! `weir explain` on a served and on an idle pool: where a block is, since when, and why.

use crate::harness::Pool;
use crate::nbd::Client;

#[test]
fn a_block_is_explained_while_the_pool_is_served_and_after() {
    let pool = Pool::small().create("disk", "1GiB");
    let file = pool.path("pool.toml");
    let text = std::fs::read_to_string(&file).expect("the pool file");
    std::fs::write(&file, text.replace("[pool]", "[pool]\npolicy = \"sequential\"")).expect("written");
    let server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    client.write((128 << 10) + 4096, &[7; 8192]).expect("it writes");
    client.flush().expect("durably");
    let told = pool.json(&["explain", "disk", "133KiB"]);
    let place = &told["places"][0];
    assert_eq!((&told["policy"], &told["volume"]), (&"sequential".into(), &"disk".into()), "{told}");
    assert_eq!(
        (told["block_offset_bytes"].as_u64(), told["block_index"].as_u64()),
        (Some(132 << 10), Some(1))
    );
    assert_eq!((&place["device"], &place["kind"]), (&"fast".into(), &"whole".into()), "{told}");
    assert_eq!(place["blocks"], serde_json::json!([[1, 2]]));
    assert!(place["age_ns"].as_u64().is_some() && place["device_offset_bytes"].as_u64().is_some(), "{told}");
    let text = pool.run(["explain", "disk", "133KiB"]);
    assert!(text.contains("free extents on slow") && text.contains("1-2"), "{text}");
    assert!(pool.run(["explain", "disk", "512MiB"]).contains("reads as zeros"));

    let said = pool.refused(&["explain", "dusk", "0"], 2);
    assert!(said.contains("dusk") && said.contains("weir volume list"), "{said}");
    let said = pool.refused(&["explain", "disk", "1GiB"], 2);
    assert!(said.contains("beyond the end of volume \"disk\"") && said.contains("1 GiB"), "{said}");
    pool.refused(&["explain", "disk", "4096"], 2);

    pool.run(["pool", "set", "--policy", "adaptive"]);
    client.read(0, 4096).expect("it reads");
    let told = pool.json(&["explain", "disk", "132KiB"]);
    assert_eq!(told["policy"], "adaptive", "{told}");
    assert!(told["figures"].as_array().is_some_and(|figures| figures.len() >= 3), "{told}");
    assert!(told["migrates_if"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{told}");
    server.stop("TERM");

    let idle = pool.json(&["explain", "disk", "133KiB"]);
    assert_eq!(
        (&idle["places"][0]["device_offset_bytes"], &idle["policy"]),
        (&place["device_offset_bytes"], &"sequential".into())
    );
    assert!(idle["places"][0]["age_ns"].is_null(), "{idle}");
    pool.refused(&["explain", "disk", "1GiB"], 2);
}
