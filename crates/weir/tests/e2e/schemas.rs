//! Every document that a test receives from `weir --json` matches the schema of its command.

use crate::fs::can_mount;
use crate::harness::Pool;
use crate::nbd::Client;
use clap::CommandFactory as _;
use jsonschema::Validator;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::sync::LazyLock;
use weir::commands::schemas::{DOCUMENTS, ERROR, for_command};

static VALIDATORS: LazyLock<BTreeMap<&str, Validator>> = LazyLock::new(|| {
    let validator = |schema| jsonschema::draft202012::new(&schema).expect("a schema");
    DOCUMENTS.iter().map(|document| (document.name, validator(document.schema()))).collect()
});

/// Validates the output of `weir` for these arguments if it is a document. Returns the command, or `error` if
/// the command failed.
#[track_caller]
pub(crate) fn validate<S: AsRef<OsStr>>(arguments: &[S], stdout: &[u8]) -> Option<String> {
    let is_json = arguments.iter().any(|argument| argument.as_ref() == "--json");
    if !is_json || stdout.is_empty() {
        return None;
    }
    let all = arguments.iter().map(|argument| argument.as_ref().to_owned());
    let matches = weir::cli::Cli::command()
        .try_get_matches_from([OsStr::new("weir").to_owned()].into_iter().chain(all));
    let (mut words, mut matches) = (Vec::new(), matches.ok());
    while let Some((name, inner)) = matches.as_ref().and_then(clap::ArgMatches::subcommand) {
        words.push(name.to_owned());
        matches = Some(inner.clone());
    }
    Some(validate_as(&words.join(" "), stdout))
}

/// Validates a document of a command. Returns the command, or `error` if the document is that of a failure.
#[track_caller]
pub(crate) fn validate_as(command: &str, document: &[u8]) -> String {
    let text = String::from_utf8_lossy(document);
    let document: serde_json::Value = serde_json::from_slice(document)
        .unwrap_or_else(|error| panic!("weir {command}: one JSON document, but {error}:\n{text}"));
    let is_error = document.get("error").is_some();
    let schema = if is_error { &ERROR } else { for_command(command).expect("a command with a document") };
    let errors = VALIDATORS[schema.name].iter_errors(&document);
    let errors: Vec<_> = errors.map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "weir {command} is not as {}.json says: {errors:#?}\n{text}", schema.name);
    if is_error { ERROR.name.to_owned() } else { command.to_owned() }
}

const DEVICES: &str = "[pool]\nname = \"test\"\n\
    [[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"256MiB\"\npace = \"ssd-sata\"\n\
    [[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"1GiB\"\npace = \"hdd-7200\"\n";

/// A command that fails.
const NO_VOLUME: &str = "volume remove dusk";
/// Commands for an idle pool. The lists below are for a served pool, for the pool once the server has
/// stopped, and for no pool.
const IDLE: &[&str] = &[
    "pool create",
    "volume create disk --size 64MiB",
    "volume create other --size 1GiB",
    "volume set disk --hardening write",
    "volume list",
    "explain disk 0",
    "pool status",
    NO_VOLUME,
];
const SERVED: &[&str] = &[
    "pool set --policy adaptive",
    "pool set --policy hystor",
    "volume set disk --policy stripe",
    "pool status",
    "explain disk 4KiB",
    "trace record disk --out recorded --duration 100ms",
    "volume remove other",
];
const STOPPED: &[&str] =
    &["pool dump saved", "pool check", "pool check --repair", "pool restore saved --accept-rollback"];
const FILE_SYSTEM: &[&str] = &[
    "fs create region --size 16MiB --flash ssd --disk hdd",
    "fs status region",
    "fs check region",
    "fs add-tier region --disk more",
    "fs move-tier region more",
    "fs remove-tier region more",
    "fs quota region",
    "fs mount region files",
];
const MOUNTED: &[&str] = &[
    "fs status files",
    "fs explain files",
    "fs quota files set --user 7 --files 9",
    "fs evict files/file",
    "fs explain files/file",
    "fs promote files/file",
    "fs pin files/file",
    "fs unpin files/file",
    "fs evict files/file",
    "fs unmount files",
    "fs rescue ssd hdd --to restored",
];
const OTHER_COMMANDS: &[&str] = &[
    "trace formats",
    "trace generate uniform+reads=70%+over=4MiB+rate=100+for=10s --out t.weirtrace",
    "trace convert t.weirtrace t.csv --to msr",
    "trace generate uniform+over=16MiB+rate=1000+for=5s --out large.weirtrace",
    "trace analyze large.weirtrace --policy lru,sieve --blocks 1024",
    "trace plot t.weirtrace --what heat --out heat.svg",
    "sim cache t.weirtrace --policy lru,arc --write-mode back --size 10%",
    "sim cache t.weirtrace --flash --evict cache,gc --size 50% --container 1MiB:40% --write-budget 1GiB",
    "sim flash t.weirtrace --policy greedy,cost-benefit --block 16 --closed 4 --separate generations",
    "sim logs t.weirtrace --upper-segment 64KiB --lower-segment 128KiB,4MiB --defrag-every 1 --overwrites 1",
    "sim logs t.weirtrace --upper-segment 64KiB --lower-segment 128KiB --overwrites 1 --precondition age",
    "sim place t.weirtrace --policy stripe --policy adaptive",
    "sim place zipf+over=4MiB --closed 4 --duration 1s",
    "sim place zipf+over=4MiB --closed 4 --duration 1s --policy adaptive --endurance --write-budget 1GiB",
    "sim fs postmark+scale=1/50 --nvm none,1MiB --memory 16MiB",
    "advise t.weirtrace --requests 200",
    "advise t.weirtrace --requests 200 --write-budget 1GiB --cell qlc",
    "repro",
    "repro hec --only hm_0 --duration 20s",
    "repro wardrop --only netapp+2,+ssd, --duration 200ms",
    "repro log-on-log --causes --only 4+MB,+FLWA",
];

/// Runs commands (`+` stands for a space within a word), validates their documents and records which were
/// used.
#[track_caller]
fn run(pool: &Pool, commands: &[&str], used: &mut BTreeSet<String>) {
    for command in commands {
        let words = command.split(' ').map(|word| word.replace('+', " "));
        let arguments: Vec<_> = words.chain(["--json".to_owned()]).collect();
        let output = pool.weir(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let document = validate(&arguments, &output.stdout);
        let document = document.unwrap_or_else(|| panic!("weir {command} prints no document:\n{said}"));
        assert_eq!(document == ERROR.name, *command == NO_VOLUME, "weir {command}:\n{said}");
        used.insert(document);
    }
}

/// `demo` needs fio and a minute; a unit test validates its document.
#[test]
fn documents_of_all_commands_match_their_schemas() {
    let pool = Pool::from_text(DEVICES);
    let mut used = BTreeSet::from(["demo".to_owned()]);
    run(&pool, IDLE, &mut used);
    std::fs::remove_file(pool.path("slow.img")).expect("a device");
    run(&pool, &["pool replace slow"], &mut used);
    let server = pool.serve();
    used.insert("serve".to_owned());
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    client.write(0, &[7; 65536]).expect("it writes");
    client.flush().expect("durably");
    client.read(0, 65536).expect("it reads");
    run(&pool, SERVED, &mut used);
    client.disconnect();
    server.stop("TERM");
    run(&pool, STOPPED, &mut used);
    run(&pool, OTHER_COMMANDS, &mut used);
    for directory in ["ssd", "hdd", "more", "files"] {
        std::fs::create_dir(pool.path(directory)).expect("a directory");
    }
    if can_mount() {
        run(&pool, FILE_SYSTEM, &mut used);
        std::fs::write(pool.path("files").join("file"), "text").expect("a file");
        run(&pool, MOUNTED, &mut used);
    } else {
        run(&pool, &FILE_SYSTEM[..7], &mut used);
        let mounted = ["mount", "explain", "evict", "promote", "pin", "unpin", "unmount", "rescue"];
        used.extend(mounted.map(|name| format!("fs {name}")));
    }
    let all = DOCUMENTS.iter().flat_map(|document| {
        document.commands.iter().chain((document.name == ERROR.name).then_some(&ERROR.name))
    });
    assert_eq!(used, all.map(|command| (*command).to_owned()).collect());
}

#[test]
fn schema_violations_are_detected() {
    let validator = &VALIDATORS[ERROR.name];
    let good = serde_json::json!({ "error": { "class": "usage", "message": "no", "help": "" } });
    assert!(validator.is_valid(&good));
    for (pointer, value) in [("/error/class", "odd".into()), ("/error/message", 1.into())] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).expect("a field") = value;
        assert!(!validator.is_valid(&bad), "{bad}");
    }
    let mut bad = good.clone();
    bad["error"]["more"] = 1.into();
    assert!(!validator.is_valid(&bad), "an unknown field");
    bad["error"].as_object_mut().expect("fields").retain(|name, _| name == "class");
    assert!(!validator.is_valid(&bad), "a missing field");
}
