//! Tests of experiments on small pools.

mod adaptive;
mod bursts;
mod endurance;
mod filling;
mod harmful_policies;
mod hosts;
mod identical_devices;

use crate::load::ClientAction;
use crate::{
    Arrival, Client, DeviceSize, DeviceSpec, Load as _, Mode, Outcome, Plan, PoolSpec, Replay, SimError,
    Synthetic, place,
};
use weir_engine::{MOVER_SHARE, Percent};
use weir_model::{Bytes, ExtentSize, Nanos, Op, SECTOR, Seed, VolumeOffset};
use weir_policy::harm::MoveControl;
use weir_policy::placement::by_name;
use weir_trace::{Reader, Trace};

fn pool(fast: f64, slow: f64) -> PoolSpec {
    let device = |name: &str, model: &str, share| DeviceSpec {
        name: name.into(),
        model: model.into(),
        size: DeviceSize::Share(share),
        metadata: None,
        noise: None,
    };
    let devices = vec![device("fast", "ssd-nvme", fast), device("slow", "hdd-7200", slow)];
    PoolSpec {
        extent: ExtentSize::DEFAULT,
        devices,
        mover_share: MOVER_SHARE,
        extent_cache: Bytes(0),
        moves: MoveControl::default(),
    }
}

fn synthetic(words: &str) -> Synthetic {
    parse(words).expect("a load")
}

fn parse(words: &str) -> Result<Synthetic, SimError> {
    let size = |text: &str| match text.strip_suffix("KiB") {
        Some(kib) => kib.parse().map(Bytes::kib).map_err(|_| "a size".to_owned()),
        None => text.strip_suffix("MiB").and_then(|m| m.parse().ok()).map(Bytes::mib).ok_or("a size".into()),
    };
    let time = |text: &str| {
        let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
        seconds.map(Nanos::secs).ok_or("a time".into())
    };
    Synthetic::parse(words, 7, size, time)
}

fn plan(mode: Mode, seconds: u64) -> Plan {
    Plan { mode, duration: Nanos::secs(seconds), requests: 100_000, warm_up: None, windows: 6, seed: Seed(7) }
}

fn run(pool: &PoolSpec, policy: &str, words: &str, plan: &Plan) -> Result<Outcome, SimError> {
    place(pool, by_name(policy).expect("a policy"), &mut synthetic(words), plan)
}

fn closed(depth: usize) -> Mode {
    Mode::Closed(vec![(Nanos(0), depth)])
}

#[test]
fn experiments_are_deterministic() {
    let words = "zipf theta=1.1 reads=70% size=4KiB:3,64KiB:1 over=64MiB rate=500 / scan over=64MiB rate=50";
    let outcome = || run(&pool(0.2, 1.1), "stripe", words, &plan(Mode::Open, 20)).expect("an outcome");
    let (one, other) = (outcome(), outcome());
    assert_eq!(one.digest, other.digest);
    assert_eq!(one.all, other.all);
    assert_eq!(one.windows, other.windows);
    assert!(one.requests > 5_000, "{}", one.requests);
    assert_eq!(one.requests, one.all.count);
    assert_eq!(one.all.count, one.reads.count + one.writes.count);
    assert_eq!((one.unanswered, one.windows.len()), (0, 6));
}

/// The fill before the load writes to the devices, so reads of an open loop have the devices' response times.
#[test]
fn reads_use_the_allocated_device() {
    let words = "uniform over=64MiB rate=20";
    let all_fast = run(&pool(1.2, 0.1), "hierarchy", words, &plan(Mode::Open, 60)).expect("an outcome");
    assert!(all_fast.reads.p99 < Nanos::millis(1), "{:?}", all_fast.reads);
    assert!(all_fast.devices[0].share > 0.99 && all_fast.devices[0].load < 0.01, "{:?}", all_fast.devices);
    let half = run(&pool(0.5, 1.0), "hierarchy", words, &plan(Mode::Open, 60)).expect("an outcome");
    let [fast, slow] = &half.devices[..] else { panic!("two devices") };
    assert!((0.35..0.65).contains(&slow.share), "{slow:?}");
    assert!(slow.reads.mean > Nanos::millis(4) && fast.reads.mean < Nanos::millis(1), "{slow:?} {fast:?}");
    assert!(fast.used > fast.room - Bytes::mib(1), "{fast:?}");
    let mean = half.reads.mean.0 as f64;
    let weighted = slow.share * slow.reads.mean.0 as f64 + fast.share * fast.reads.mean.0 as f64;
    assert!((mean / weighted - 1.0).abs() < 0.05, "{mean} for {weighted}");
}

/// In a closed loop, throughput times response time is the queue depth (Little's law).
#[test]
fn closed_loops_keep_their_depth() {
    for depth in [1, 8] {
        let words = "uniform reads=50% over=64MiB";
        let outcome = run(&pool(0.5, 1.0), "stripe", words, &plan(closed(depth), 30)).expect("an outcome");
        let under_way = outcome.rate * outcome.all.mean.as_secs_f64();
        assert!((under_way / depth as f64 - 1.0).abs() < 0.05, "{under_way} for {depth}");
    }
}

#[test]
fn closed_loop_depth_follows_the_plan() {
    let plan = plan(Mode::Closed(vec![(Nanos(0), 1), (Nanos::secs(15), 8)]), 30);
    let outcome = run(&pool(0.1, 1.1), "sequential", "uniform over=64MiB", &plan).expect("an outcome");
    let rates: Vec<_> = outcome.windows.iter().map(|window| window.rate).collect();
    assert!(rates[4] > 1.3 * rates[1], "{rates:?}");
}

#[test]
fn a_pool_that_cannot_keep_up_says_so() {
    let outcome = run(&pool(0.1, 1.1), "sequential", "uniform over=64MiB rate=2000", &plan(Mode::Open, 20))
        .expect("one");
    assert!(outcome.unanswered > 1_000, "{}", outcome.unanswered);
    assert!(outcome.devices.iter().any(|device| device.load > 0.99), "{:?}", outcome.devices);
}

#[test]
fn impossible_experiments_are_rejected_with_advice() {
    let refused = |pool: &PoolSpec| {
        run(pool, "stripe", "uniform over=64MiB", &plan(Mode::Open, 1)).unwrap_err().to_string()
    };
    assert!(refused(&pool(0.3, 0.3)).starts_with("64 MiB of data do not fit into"));
    let mut unknown = pool(1.0, 1.0);
    unknown.devices[0].model = "abacus".into();
    assert!(refused(&unknown).contains("no model of \"abacus\"; there are atlas-10k,"));
}

#[test]
fn traces_are_repeated_stretched_and_rounded_to_sectors() {
    let text = "0.000 0 1000 24 1\n10.000 3 131000 4096 0\n20.000 0 262144 512 1\n";
    let format = weir_trace::format("ms-bytes");
    assert!(format.is_some());
    let trace =
        Trace::load(Reader::open("t", text.as_bytes(), format).expect("a trace"), true).expect("a trace");
    let mut replay = Replay::new(trace, 2.0);
    let spaces = replay.volumes(ExtentSize::DEFAULT);
    assert_eq!(spaces.iter().map(crate::VolumeData::count).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(spaces[0].size, Bytes::kib(384));
    assert_eq!(replay.duration(), Nanos(60_000_001));
    let arrivals: Vec<_> = (0..6).map(|_| replay.next_arrival(Nanos(0))).collect();
    let times: Vec<_> = arrivals.iter().map(|arrival| arrival.at.0).collect();
    assert_eq!(times, [0, 20_000_000, 40_000_000, 60_000_001, 80_000_001, 100_000_001]);
    let first = arrivals[0];
    assert_eq!((first.op, first.offset.0, first.len.0), (Op::Read, SECTOR, SECTOR));
    assert_eq!((arrivals[1].volume, arrivals[1].offset.0, arrivals[1].len.0), (1, 130_560, 4_608));
}

/// A load may touch a few extents of a very large disk; the map of a small pool must have room for them.
#[test]
fn sparse_data_is_laid_out() {
    let record = |i: u64| format!("{}.0 {} {} 4096 1\n", i * 5, i % 3, i * 97 * (64 << 20));
    let text: String = (0..2000).map(record).collect();
    let trace =
        Trace::load(Reader::open("t", text.as_bytes(), None).expect("a trace"), true).expect("a trace");
    let mut replay = Replay::new(trace, 1.0);
    let policy = by_name("stripe").expect("a policy");
    let outcome = place(&pool(0.2, 1.1), policy, &mut replay, &plan(Mode::Open, 10)).expect("an outcome");
    assert_eq!(outcome.unanswered, 0);
    assert!(outcome.reads.count > 1_000, "{:?}", outcome.reads);
}

#[test]
fn synthetic_loads_match_their_words() {
    let mut load =
        synthetic("zipf theta=1.2 reads=25% over=4MiB rate=1000 / scan streams=2 size=64KiB for=5s");
    assert_eq!(load.duration(), Nanos::secs(605));
    let (mut now, mut reads, mut hits) = (Nanos(0), 0, std::collections::BTreeMap::new());
    for _ in 0..20_000 {
        let arrival = load.next_arrival(now);
        now = arrival.at;
        reads += u32::from(arrival.op == Op::Read);
        *hits.entry(arrival.offset.0).or_insert(0) += 1;
        assert!(arrival.offset.0 + arrival.len.0 <= 4 << 20 && arrival.len == Bytes::kib(4));
    }
    assert!((4_600..5_400).contains(&reads), "{reads}");
    assert!((18..22).contains(&(now.0 / 1_000_000_000)), "{now}");
    // With an exponent of 1.2 and 1,024 blocks, the first block has a share of 0.230.
    let most = hits.values().max().copied().unwrap_or(0);
    assert!((4_300..5_100).contains(&most), "{most}");
    let scan: Vec<_> = (0..6).map(|_| load.next_arrival(Nanos::secs(601)).offset.0 >> 16).collect();
    assert_eq!(scan, [32, 0, 33, 1, 34, 2]);
    for bad in ["", "zipf size=5", "scan what=1", "zipf reads=101%", "uniform rate=0", "zipf theta=9"] {
        let parsed = Synthetic::parse(bad, 1, |_| Ok(Bytes(700)), |_| Ok(Nanos(1)));
        assert!(parsed.is_err(), "{bad}");
    }
    let parse = |words| Synthetic::parse(words, 1, |_| Ok(Bytes(700)), |_| Ok(Nanos(1)));
    let said = parse("zipf rate=1000/s").expect_err("s is no pattern").to_string();
    assert!(
        said.contains("a phase of a load begins with \"s\"") && said.contains("a slash begins"),
        "{said}"
    );
    let said = parse("s").expect_err("s is no pattern").to_string();
    assert!(!said.contains("a slash"), "{said}");
}

/// A scan in pieces reads each piece once a round, all of a piece at once, at even intervals, and in another
/// order in the next round.
#[test]
fn scan_in_pieces_reads_each_piece_once_per_round() {
    let mut load = synthetic("scan size=64KiB pieces=256KiB over=4224KiB rate=100");
    let mut now = Nanos(0);
    let mut round = || -> Vec<(u64, u64)> {
        // 16 pieces of four requests and one of two.
        let one = |_| {
            let arrival = load.next_arrival(now);
            now = arrival.at;
            (now.0 / 1_000_000, arrival.offset.0 >> 16)
        };
        (0..66).map(one).collect()
    };
    let rounds = [round(), round()];
    for round in &rounds {
        let mut places: Vec<_> = round.iter().map(|(_, place)| *place).collect();
        for pair in round.windows(2) {
            let together = pair[1].0 == pair[0].0;
            assert_eq!(together, pair[1].1 % 4 != 0, "{pair:?}: a piece comes together");
            assert!(together || pair[1].0 - pair[0].0 == 40, "{pair:?}");
            assert!(!together || pair[1].1 == pair[0].1 + 1, "{pair:?}");
        }
        places.sort_unstable();
        assert_eq!(places, (0..66).collect::<Vec<_>>());
    }
    let order = |round: &[(u64, u64)]| round.iter().map(|(_, place)| *place).collect::<Vec<_>>();
    assert_ne!(order(&rounds[0]), order(&rounds[1]));
    for bad in [
        "scan pieces=300KiB",
        "scan pieces=64KiB",
        "scan pieces=512KiB streams=2",
        "scan pieces=512KiB size=4KiB,8KiB",
        "scan size=4KiB pieces=4KiB over=8000MiB",
        "zipf pieces=4KiB",
    ] {
        assert!(parse(bad).is_err_and(|error| error.to_string().contains("pieces")), "{bad}");
    }
}

/// Runs have the lengths of their weights, and writes stay in the part of the data that is written.
#[test]
fn runs_of_several_lengths_and_writes_to_a_part_of_the_data() {
    let mut load = synthetic("uniform run=1:3,3:1 reads=50% written=25% over=1024MiB");
    let (mut runs, mut end, mut written) = (std::collections::BTreeMap::new(), None, 0);
    let mut length = 0;
    for _ in 0..60_000 {
        let Arrival { op, offset, len, .. } = load.next_arrival(Nanos(0));
        if end == Some((op, offset)) {
            length += 1;
        } else {
            *runs.entry(length).or_insert(0) += 1;
            length = 1;
        }
        end = Some((op, offset + len));
        if op == Op::Write {
            assert!(offset.0 + len.0 <= 256 << 20, "{offset}");
            written = written.max(offset.0);
        }
    }
    // Two random places of 65,536 rarely follow one another: 60,000 requests are 40,000 runs.
    assert!(written > 250 << 20, "{written}");
    assert!((29_000..31_000).contains(&runs[&1]) && (9_500..10_500).contains(&runs[&3]), "{runs:?}");
    assert!(runs.iter().all(|(length, count)| [0, 1, 3].contains(length) || *count < 20), "{runs:?}");
    for bad in ["uniform run=0:1", "uniform run=2:0", "uniform run=", "uniform written=0%", "scan written=5%"]
    {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_share_of_the_requests_goes_to_the_hot_blocks() {
    let mut load = synthetic("hotcold part=10% hits=90% hot=3 over=4MiB at=64KiB");
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..50_000 {
        let arrival = load.next_arrival(Nanos(0));
        assert!((64 << 10..(64 << 10) + (4 << 20)).contains(&arrival.offset.0));
        *counts.entry(arrival.offset.0).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    // 102 of 1,024 blocks are equally hot; the others are equally cold.
    let hot: i32 = counts[..102].iter().sum();
    assert!((44_700..45_300).contains(&hot), "{hot}");
    assert!(counts[0] < 560 && counts[101] > 350 && counts[102] < 20, "{:?}", &counts[..110]);
    assert_eq!(load.volumes(ExtentSize::DEFAULT)[0].size, Bytes::kib(4096 + 128));
}

/// Requests of concurrent loads on one volume are in time order, and each load's requests are the same as
/// when it runs alone.
#[test]
fn parts_of_a_load_share_the_volume() {
    let size = |text: &str| text.parse().map(Bytes::kib).map_err(|_| "a size".to_owned());
    let time = |text: &str| text.parse().map(Nanos::secs).map_err(|_| "a time".to_owned());
    let parse = |words: &str| crate::load::parse(words, 9, size, time).expect("a load");
    let mut both = parse("zipf over=1024 rate=300 & scan reads=0% over=2048 at=4096 size=64 rate=100");
    let spaces = both.volumes(ExtentSize::DEFAULT);
    assert_eq!((spaces.len(), spaces[0].size, spaces[0].count()), (1, Bytes::mib(6), 48));
    let mut alone = parse("zipf over=1024 rate=300");
    let (mut now, mut last, mut writes) = (Nanos(0), Nanos(0), 0);
    for _ in 0..2_000 {
        let arrival = both.next_arrival(now);
        assert!(arrival.at >= now && arrival.volume == 0);
        now = arrival.at;
        if arrival.op == Op::Read {
            let same = alone.next_arrival(last);
            assert_eq!(arrival, same);
            last = same.at;
        } else {
            assert_eq!(arrival.offset.0, (4 << 20) + ((writes % 32) << 16), "one after the other");
            writes += 1;
        }
    }
    assert!((400..600).contains(&writes), "{writes}");
}

#[test]
fn named_loads_can_be_parsed() {
    let size = |text: &str| crate::tests::unit(text).map(Bytes).ok_or("a size".to_owned());
    let time =
        |text: &str| text.trim_end_matches('s').parse().map(Nanos::secs).map_err(|_| "a time".to_owned());
    for kind in crate::load::NAMED_LOADS {
        assert!(crate::load::is_synthetic(kind.name));
        let mut load = crate::load::parse(kind.name, 1, size, time).expect(kind.name);
        assert!(load.next_arrival(Nanos(0)).len.0 > 0 && load.duration() > Nanos(0));
    }
}

/// Parses `4KiB` as bytes.
fn unit(text: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    let kib = text.strip_suffix("KiB").and_then(number).map(|n| n << 10);
    let mib = text.strip_suffix("MiB").and_then(number).map(|n| n << 20);
    kib.or(mib).or_else(|| Some(number(text.strip_suffix("GiB")?)? << 30))
}

#[test]
fn outcomes_can_be_plotted() {
    let outcome =
        run(&pool(0.5, 1.0), "stripe", "uniform over=16MiB", &plan(closed(2), 10)).expect("an outcome");
    let svg = crate::plot::svg("a picture", std::slice::from_ref(&outcome));
    assert!(
        svg.starts_with("<svg") && svg.contains("a picture") && svg.contains("requests answered a second")
    );
    assert!(svg.matches("<polyline").count() > 4 * 6, "{svg}");
}

/// Each of several processes has its own files, and none sends a request before it has its last reply and its
/// think time has passed.
#[test]
fn concurrent_loads_have_separate_files() {
    let kib = |text: &str| text.parse().map(Bytes::kib).map_err(|_| "a size".to_owned());
    let us = |text: &str| text.parse().map(Nanos::micros).map_err(|_| "a time".to_owned());
    let parse = |words: &str| crate::load::parse(words, 3, kib, us);
    let words = "uniform reads=100% over=1024 think=500 | uniform reads=0% run=4 over=2048";
    let mut load = parse(words).expect("a load");
    let sizes: Vec<_> = load.volumes(ExtentSize::DEFAULT).iter().map(|space| space.size).collect();
    assert_eq!(sizes, [Bytes::mib(1), Bytes::mib(2)]);
    let (mut end, mut follow) = (VolumeOffset(0), 0);
    for number in 0..100 {
        let now = Nanos::millis(number);
        let ask = |next| match next {
            ClientAction::Send(arrival) => arrival,
            ClientAction::Wait(at) => panic!("waits until {at}"),
        };
        let reads = ask(load.next_action(Client(0), now));
        assert_eq!((reads.volume, reads.op, reads.at), (0, Op::Read, now + Nanos::micros(500)));
        let writes = ask(load.next_action(Client(1), now));
        assert_eq!((writes.volume, writes.op, writes.at), (1, Op::Write, now));
        follow += u32::from(writes.offset == end);
        end = writes.offset + writes.len;
    }
    // Three of four, except for runs that are cut short by the end of the data.
    assert!((70..78).contains(&follow), "{follow}");
    assert!(matches!(
        load.next_action(Client(3), Nanos::secs(1)),
        ClientAction::Send(Arrival { volume: 1, .. })
    ));
    // As an open loop, the requests come in time order.
    let mut now = Nanos(0);
    for _ in 0..1000 {
        let arrival = load.next_arrival(now);
        assert!(arrival.at >= now);
        now = arrival.at;
    }
    for bad in ["uniform | ", "uniform think=x", "uniform run=0", "scan run=2", "postmark think="] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    // One client, which thinks most of the time.
    let mut load = parse("uniform over=4096 think=9000").expect("a load");
    let policy = by_name("sequential").expect("a policy");
    let outcome = place(&pool(1.1, 0.1), policy, &mut *load, &plan(closed(1), 30)).expect("an outcome");
    assert!((105.0..111.2).contains(&outcome.rate), "{}", outcome.rate);
    assert!(outcome.all.mean < Nanos::millis(1), "{:?}", outcome.all);
}

/// Migration gets its share of a device's time while clients keep the device busy, and no more.
#[test]
fn migration_is_bounded_by_the_mover_share() {
    let words = "zipf theta=0.9 over=64MiB rate=150";
    let moved = |share: u8| {
        let pool = PoolSpec { mover_share: Percent(share), ..pool(0.3, 1.2) };
        run(&pool, "hystor", words, &plan(Mode::Open, 60)).expect("an outcome")
    };
    let [little, much] = [1, 100].map(moved);
    assert!(little.moved.0 * 2 < much.moved.0, "{} and {}", little.moved, much.moved);
}
