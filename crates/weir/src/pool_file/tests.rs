use super::*;
use proptest::prelude::*;

const GOOD: &str = r#"
[pool]
name = "home"

[[device]]
name = "fast"
path = "/dev/nvme0n1"
metadata = true
durable = true
volatile_cache = false

[[device]]
name = "slow"
path = "slow.img"
size = "32GiB"
class = "hdd"
pace = "hdd-7200"
fault = "forget-unflushed"
"#;

fn mistake(text: &str) -> String {
    parse(text).expect_err("the file has a mistake").to_string()
}

#[track_caller]
fn check(from: &str, to: &str, says: &[&str]) {
    let text = GOOD.replacen(from, to, 1);
    assert_ne!(text, GOOD, "{from:?} is in the good file");
    let said = mistake(&text);
    for part in says {
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
    }
}

#[test]
fn a_good_file_is_read() {
    let pool = parse(GOOD).expect("the file is good");
    assert_eq!(pool.name, "home");
    assert_eq!(pool.extent, ExtentSize::DEFAULT);
    assert_eq!(pool.policy, "adaptive");
    let [fast, slow] = &pool.devices[..] else { panic!("two devices: {:?}", pool.devices) };
    assert_eq!((fast.metadata, fast.durable, fast.volatile_cache), (Some(true), true, Some(false)));
    assert_eq!((slow.size, slow.pace), (Some(Bytes::gib(32)), Some("hdd-7200")));
    assert_eq!((slow.class, slow.fault), (Some(DeviceClass::Hdd), Some(Fault::ForgetUnflushed)));
}

#[test]
fn mistakes_name_key_value_and_allowed_values() {
    check(
        "name = \"home\"",
        "nam = \"home\"",
        &["line 3, column 1", "[pool] has no key \"nam\"", "the nearest is name"],
    );
    check("name = \"home\"", "name = \"a/b\"", &["name is \"a/b\"", "A-Z a-z 0-9"]);
    check("name = \"home\"", "", &["[pool] has no name"]);
    check(
        "name = \"home\"",
        "name = \"home\"\nextent = \"96KiB\"",
        &["extent is \"96KiB\"", "64KiB to 4MiB"],
    );
    check("name = \"home\"", "name = \"home\"\nextent = \"1\"", &["extent is \"1\"", "64KiB to 4MiB"]);
    let cache = "name = \"home\"\nextent_cache = \"1\"";
    check("name = \"home\"", cache, &["extent_cache is \"1\"", "from 128 KiB (one extent)"]);
    check(
        "name = \"home\"",
        "name = \"home\"\nextent = 131072",
        &["extent is 131072, of type integer", "such as \"128KiB\" or \"1MiB\", in quotes"],
    );
    check(
        "name = \"home\"",
        "name = \"home\"\npolicy = \"strip\"",
        &["policy is \"strip\"", "the nearest is \"stripe\"", "\"hierarchy\""],
    );
    let pool = |line: &str| format!("name = \"home\"\n{line}");
    let name = "name = \"home\"";
    check(name, &pool("when_full = \"waits\""), &["when_full is \"waits\"", "the nearest is \"wait\""]);
    check(name, &pool("wait_at_most = \"5s\""), &["wait_at_most is given", "when_full = \"wait\""]);
    check(name, &pool("when_full = \"wait\"\nwait_at_most = \"5\""), &["line 5", "\"30s\""]);
    check(name, &pool("when_full = \"wait\"\nwait_at_most = \"2h\""), &["at most \"1h\""]);
    check(name, &pool("warn_at = \"80%\""), &["warn_at is \"80%\"", "list in brackets", "\"100%\""]);
    check(name, &pool("warn_at = [\"80\"]"), &["line 4, column 12", "has \"80\"", "\"1%\" to \"100%\""]);
    check(name, &pool("warn_at = [\"90%\", \"80%\"]"), &["ascending"]);
    check(name, &pool("warn_at = [80]"), &["of type integer"]);
    check("[pool]", "[pol]", &["has no key \"pol\"", "the nearest is pool"]);
    check("size = \"32GiB\"", "size = \"32\"", &["size is \"32\"", "4GiB"]);
    check("size = \"32GiB\"", "size = \"-1GiB\"", &["size is \"-1GiB\"", "4GiB"]);
    check("size = \"32GiB\"", "size = \"0GiB\"", &["size is \"0GiB\"", "above 0"]);
    check(
        "pace = \"hdd-7200\"",
        "pace = \"hdd-720\"",
        &["pace is \"hdd-720\"", "the nearest is \"hdd-7200\""],
    );
    check("class = \"hdd\"", "class = \"disk\"", &["class is \"disk\"", "\"nvm\""]);
    check("metadata = true", "metadata = \"true\"", &["metadata is \"true\"", "without quotes"]);
    check("durable = true", "durable = false", &["metadata is true and durable is false"]);
    check("name = \"slow\"", "name = \"fast\"", &["[[device]] number 2", "no other device"]);
    check("path = \"slow.img\"", "path = \"/dev/nvme0n1\"", &["no other device"]);
    check("path = \"slow.img\"", "", &["[[device]] number 2 has no path"]);
    check("[pool]", "[pool", &["not TOML"]);
}

#[test]
fn mistakes_are_reported_in_file_order() {
    let text = r#"
[pool]
nam = "home"
extent = "96KiB"
when_full = "waits"
wait_at_most = "5s"
warn_at = ["80", "90%", "x"]

[policy.wardrob]

[policy.hystor]
period = 5

[[device]]
name = "a b"
path = ""
size = "3"
pace = "drum"
metadata = "yes"

[[device]]
name = "slow"
path = "slow.img"
clas = "hdd"

[[device]]
name = "slow"
path = "slow.img"
"#;
    let said = mistake(text);
    let parts = [
        "line 3, column 1: [pool] has no key \"nam\"\n  the nearest is name",
        "line 4, column 10: [pool]: extent is \"96KiB\"",
        "line 5, column 13: [pool]: when_full is \"waits\"",
        "line 7, column 12: [pool]: warn_at has \"80\"",
        "line 7, column 25: [pool]: warn_at has \"x\"",
        "line 9, column 9: [policy] has no key \"wardrob\"",
        "line 12, column 10: [policy.hystor]: period is 5",
        "line 15, column 8: [[device]] number 1: name is \"a b\"",
        "line 16, column 8: [[device]] number 1: path is \"\"",
        "line 17, column 8: [[device]] number 1: size is \"3\"",
        "line 18, column 8: [[device]] number 1: pace is \"drum\"",
        "line 19, column 12: [[device]] number 1: metadata is \"yes\"",
        "line 24, column 1: [[device]] number 2 has no key \"clas\"",
        "line 27, column 8: [[device]] number 3: name is \"slow\"",
        "line 28, column 8: [[device]] number 3: path is \"slow.img\"",
    ];
    let places: Vec<_> = parts.iter().map(|part| said.find(part).ok_or(*part)).collect();
    assert!(places.iter().all(Result::is_ok) && places.is_sorted(), "{places:?} in\n{said}");
    // Consequences of a mistake are not reported: the absence of a misspelt key, or checks that depend on its
    // value.
    let found = parse(text).expect_err("mistakes").0;
    assert_eq!(found.len(), parts.len(), "{said}");
}

#[test]
fn a_misspelt_section_is_one_mistake() {
    let count = |from: &str, to: &str| parse(&GOOD.replace(from, to)).map_err(|mistakes| mistakes.0.len());
    assert_eq!((count("[pool]", "[pol]"), count("[[device]]", "[[devise]]")), (Err(1), Err(1)));
    assert_eq!(parse("device = []\n").map_err(|mistakes| mistakes.0.len()), Err(2), "no pool, no devices");
}

#[test]
fn all_toml_errors_are_reported() {
    let said = mistake("[pool\nname = \"x\"\n\n[[device]]\nname = home\n");
    assert!(said.contains("line 1, ") && said.contains("line 5, "), "{said}");
}

#[test]
fn a_pool_needs_devices() {
    assert!(mistake("[pool]\nname = \"x\"").contains("[[device]]"));
    assert!(mistake("").contains("has no [pool] section"));
    assert!(mistake("pool = 3").contains("pool is 3, of type integer"));
    assert!(mistake("device = 3\n[pool]\nname = \"x\"").contains("one [[device]] section"));
}

#[test]
fn full_pool_behaviour_is_parsed() {
    let rules =
        |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.space);
    let (extra, quiet) = (Some(weir_engine::EXTRA_SPACE), Some(weir_engine::QUIET_PERIOD));
    assert_eq!(rules(""), Ok(SpaceRules { extra, quiet, ..SpaceRules::default() }));
    let given = rules("warn_at = [\"5%\", \"99 %\"]\nwhen_full = \"wait\"\nwait_at_most = \"5min\"\n");
    let when_full = WhenFull::Wait { timeout: Nanos::secs(300) };
    let warn_at = vec![Percent(5), Percent(99)];
    assert_eq!(given, Ok(SpaceRules { when_full, warn_at, extra, quiet }));
    let given = rules("warn_at = []\nwhen_full = \"wait\"\n");
    let when_full = WhenFull::Wait { timeout: WAIT_DEFAULT };
    assert_eq!(given, Ok(SpaceRules { when_full, warn_at: vec![], extra, quiet }));
}

#[test]
fn moves_are_judged_unless_the_file_says_otherwise() {
    let moves =
        |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.moves);
    assert_eq!(moves(""), Ok(MoveControl::Judged(Rules::default())));
    assert_eq!(moves("moves = \"free\"\n"), Ok(MoveControl::NeverPaused(Rules::default())));
    assert_eq!(moves("moves = \"never\"\n"), Ok(MoveControl::Disabled));
    assert!(mistake(&GOOD.replacen("name", "moves = \"off\"\nname", 1)).contains("judged"));
}

#[test]
fn moves_have_a_share_of_devices_time() {
    let share =
        |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.mover_share);
    assert_eq!(share(""), Ok(weir_engine::MOVER_SHARE));
    assert_eq!(share("mover_share = \"5%\"\n"), Ok(Percent(5)));
    assert_eq!(share("mover_share = \"0%\"\n"), Ok(Percent(0)));
    assert!(mistake(&GOOD.replacen("name", "mover_share = \"101%\"\nname", 1)).contains("\"0%\" to"));
}

#[test]
fn extra_space_limit_is_parsed() {
    let extra =
        |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.space.extra);
    assert_eq!(extra(""), Ok(Some(weir_engine::EXTRA_SPACE)));
    assert_eq!(extra("extra_space = \"10%\"\n"), Ok(Some(Percent(10))));
    assert!(
        mistake(&GOOD.replacen("name", "extra_space = \"lots\"\nname", 1)).contains("\"1%\" to \"100%\"")
    );
}

#[test]
fn poll_time_is_parsed() {
    let poll = |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.poll);
    assert_eq!(poll(""), Ok(Poll::Auto));
    assert_eq!(poll("poll = \"auto\"\n"), Ok(Poll::Auto));
    assert_eq!(poll("poll = \"off\"\n"), Ok(Poll::Off));
    assert_eq!(poll("poll = \"50us\"\n"), Ok(Poll::For(Nanos::micros(50))));
    for wrong in ["on", "0us", "11ms", "1s", "50", ""] {
        let text = GOOD.replacen("name", &format!("poll = \"{wrong}\"\nname"), 1);
        assert!(mistake(&text).contains("such as \"50us\""), "{}", mistake(&text));
    }
}

#[test]
fn cpu_latency_is_parsed() {
    let latency =
        |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.cpu_latency);
    assert_eq!(latency(""), Ok(CpuLatency::Auto));
    for (word, mode) in [("auto", CpuLatency::Auto), ("low", CpuLatency::Low), ("off", CpuLatency::Off)] {
        assert_eq!(latency(&format!("cpu_latency = \"{word}\"\n")), Ok(mode));
    }
    let wrong = mistake(&GOOD.replacen("name", "cpu_latency = \"on\"\nname", 1));
    assert!(wrong.contains("one of \"auto\", \"low\", \"off\""), "{wrong}");
}

#[test]
fn extent_cache_holds_at_least_one_extent() {
    let cache =
        |lines: &str| parse(&GOOD.replacen("name", &format!("{lines}name"), 1)).map(|pool| pool.extent_cache);
    assert_eq!(cache(""), Ok(Bytes(0)));
    assert_eq!(cache("extent_cache = \"64MiB\"\n"), Ok(Bytes::mib(64)));
    for wrong in ["64KiB", "2TiB", "lots"] {
        let text = GOOD.replacen("name", &format!("extent_cache = \"{wrong}\"\nname"), 1);
        assert!(mistake(&text).contains("extent_cache"), "{}", mistake(&text));
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        let _ = parse(&text);
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic(at in 0..GOOD.len(), cut in 0usize..8, insert in "\\PC{0,6}") {
        let end = (at + cut).min(GOOD.len());
        let _ = parse(&format!("{}{insert}{}", &GOOD[..at], &GOOD[end..]));
    }
}

#[test]
fn metadata_is_declared_for_two_devices_at_most() {
    let device = |n: u8| format!("[[device]]\nname = \"d{n}\"\npath = \"d{n}.img\"\nmetadata = true\n");
    let pool = |count: u8| format!("[pool]\nname = \"home\"\n{}", (0..count).map(device).collect::<String>());
    assert_eq!(parse(&pool(2)).map(|file| file.devices.len()), Ok(2));
    let said = mistake(&pool(3));
    assert!(said.contains("so it is for devices d0 and d1") && said.contains("or for two"), "{said}");
}
