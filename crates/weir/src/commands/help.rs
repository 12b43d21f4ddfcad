//! `weir help` prints the help of each command, and of topics that several commands share.

use super::trace::{formats_text, named_loads_text};
use crate::failure::Failure;
use crate::output::{self, Table, Width};
use crate::pool_file::POLICY_DEFAULT;
use clap::{Args, Command};
use std::io::Write as _;

/// `weir help ...`
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// Command, such as `pool create`, or topic [default: list both]
    #[arg(value_name = "COMMAND|TOPIC")]
    pub words: Vec<String>,
}

/// A help topic that belongs to no single command.
#[derive(Clone, Copy, Debug)]
pub struct Topic {
    /// Name of the topic: the word after `weir help`.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    /// Returns the whole text for a terminal of this width.
    pub text: fn(Width) -> String,
}

/// All topics, sorted by name.
pub const TOPICS: [Topic; 3] = [
    Topic { name: "loads", about: "The words of a synthetic load", text: loads },
    Topic { name: "policies", about: "The placement policies", text: policies },
    Topic { name: "traces", about: "The formats of traces", text: traces },
];

/// Maximum width of help, in columns, as in `man`.
pub const WIDTH: usize = 80;

/// Returns the end of `weir --help`.
pub fn overview() -> String {
    let topics = TOPICS.iter().map(|topic| format!("  {:<9} {}\n", topic.name, topic.about));
    format!(
        "Topics (weir help TOPIC):\n{}\nExamples:\n  weir demo\n  weir pool create pool.toml\n  \
         weir volume create disk --size 100GiB\n  weir serve",
        topics.collect::<String>()
    )
}

/// Returns whether there is a topic of this name.
pub fn is_topic(word: &str) -> bool {
    topic(word).is_some()
}

fn topic(word: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == word)
}

/// Prints the help of the command or topic that these words name, or of `weir` itself without words.
///
/// # Errors
/// Fails if the words name neither a command nor a topic.
pub fn run(words: &[String], mut weir: Command) -> Result<(), Failure> {
    if let [word] = words
        && let Some(topic) = topic(word)
    {
        let width = Width::of_stdout().at_most(WIDTH);
        output::print_text(&width.fold(&(topic.text)(width)));
        return Ok(());
    }
    weir.build();
    let command = find(&mut weir, words)?;
    output::record_result(command.print_long_help().and_then(|()| std::io::stdout().flush()));
    Ok(())
}

/// Returns the command that these words name.
fn find<'a>(weir: &'a mut Command, words: &[String]) -> Result<&'a mut Command, Failure> {
    let mut command = weir;
    for (at, word) in words.iter().enumerate() {
        if command.find_subcommand(word).is_none() {
            return Err(unknown(command, word, at == 0));
        }
        command = command.find_subcommand_mut(word).expect("it was found just now");
    }
    Ok(command)
}

/// Returns the failure for a word that is not a command and, as the first word, not a topic either.
fn unknown(command: &Command, word: &str, may_be_topic: bool) -> Failure {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let topics = TOPICS.iter().map(|topic| topic.name).filter(|_| may_be_topic);
    let names: Vec<_> = commands.map(Command::get_name).chain(topics).collect();
    let path = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let what = if may_be_topic { "command or topic" } else { "command" };
    let help = match (names.as_slice(), nearest(word, &names)) {
        ([], _) => format!("{path} has no commands of its own: {path} --help"),
        (_, Some(name)) => format!("the nearest is {name}"),
        (names, None) => format!("there are {}", names.join(", ")),
    };
    Failure::usage(format!("{path} has no {what} {word:?}"), help)
}

/// Returns the most similar name, or `None` if no name is similar.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let likeness = |name: &str| strsim::jaro_winkler(word, name);
    let nearest = names.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (word.len() <= 64 && likeness(nearest) > 0.75).then_some(nearest)
}

/// Patterns of a part of a load, with their descriptions.
const PATTERNS: [[&str; 2]; 6] = [
    ["zipf", "few blocks often, the others rarely, by Zipf's law"],
    ["hotcold", "a hot share of the blocks gets most requests"],
    ["uniform", "every block equally often"],
    ["scan", "one block after the other"],
    ["sweep", "uniform reads, and writes in ascending order with gaps, as a cache writes back"],
    ["postmark", "small files are read, appended to, created and removed"],
];

/// Keys of a part of a load, with their meanings and defaults.
const KEYS: [[&str; 3]; 18] = [
    ["theta=", "exponent of zipf, 0.1 to 5", "1.1"],
    ["hot=", "choice of the frequent blocks: a number, or first for the first blocks", "0"],
    ["part=", "hot share of the blocks of hotcold", "20%"],
    ["hits=", "share of the requests that go to hot blocks of hotcold", "80%"],
    ["run=", "consecutive requests in one direction, or several with weights: 1:12,2:1", "1"],
    ["streams=", "scans at the same time", "1"],
    ["pieces=", "length that a scan reads at once; pieces come in random order", "the whole"],
    ["gap=", "longest gap between two writes of sweep", "64KiB"],
    ["reads=", "share of reads", "100%"],
    ["size=", "size of requests, or sizes with weights: 4KiB:3,64KiB:1", "4KiB; scan: 256KiB"],
    ["writes=", "size of writes, where it differs", "as size="],
    ["written=", "share of the data, from its start, that is written", "100%"],
    ["over=", "amount of data", "1GiB, or as before"],
    ["at=", "start of the data on its disk", "0"],
    ["rate=", "requests a second, with exponential gaps", "1000"],
    ["for=", "duration of the part", "600s"],
    ["think=", "pause of a client after each answer, with --closed", "none"],
    ["files=", "files of postmark; also size=A-B, appends=, makes=, memory=, sync", "20000"],
];

fn loads(width: Width) -> String {
    let patterns = Table::new(["PATTERN", "REQUESTS"], PATTERNS.map(|row| row.map(str::to_owned)));
    let keys = Table::new(["KEY", "MEANING", "DEFAULT"], KEYS.map(|row| row.map(str::to_owned)));
    format!(
        "The words of a synthetic load, for weir sim place, weir sim flash, weir sim logs and weir trace \
         generate.\n\n\
         A load has one part or several. A part is a pattern, then keys with values. Parts joined by / follow \
         one another, in a circle; parts joined by & run at the same time on one disk; parts joined by | \
         run at the same time, each on its own disk.\n\n\
         \x20 weir sim place \"zipf theta=1.1 reads=70% over=1GiB rate=500 / scan for=60s\"\n\
         \x20 weir trace generate \"hotcold over=4GiB & scan rate=50\" --out load.weirtrace\n\n\
         {}\n{}\nWhole loads with names:\n\n{}",
        patterns.prose("REQUESTS").text(width),
        keys.prose("MEANING").text(width),
        named_loads_text(width)
    )
}

fn policies(width: Width) -> String {
    let known = weir_policy::placement::ALL.iter();
    let rows = known.map(|known| [known.name.to_owned(), known.about.to_owned()]);
    let table = Table::new(["NAME", "WHAT IT DOES"], rows).prose("WHAT IT DOES");
    format!(
        "The placement policies: where data goes, and where it moves.\n\n{}\n\
         The default is {POLICY_DEFAULT}. The pool file sets the policy of the pool (policy = \"NAME\" under \
         [pool]), of a volume ([volume.VOLUME]) and its keys ([policy.NAME]). These change it until the server \
         ends; data that is placed stays until the new policy moves it:\n\n\
         \x20 weir pool set --policy NAME\n  weir volume set VOLUME --policy NAME\n\n\
         This compares policies on a load, in virtual time:\n\n\
         \x20 weir sim place day.weirtrace --policy adaptive,hystor\n",
        table.text(width)
    )
}

/// Columns that `csv:` and `blanks:` formats may name.
const COLUMNS: [[&str; 2]; 8] = [
    ["time_s", "time of the request; also time_ms, time_us, time_ns, time_100ns"],
    ["response_s", "response time, or empty; also response_ms and so on"],
    ["op", "operation: r, read, w, write, t, trim, d, discard or unmap"],
    ["read write", "1 for a read, else 0; 1 for a write, else 0"],
    ["offset sector block", "start, in bytes, 512 bytes or 4 KiB; one is required"],
    ["size sectors blocks", "length, in the same units; 4 KiB if there is none"],
    ["disk", "name of the disk"],
    ["-", "column to ignore"],
];

fn traces(width: Width) -> String {
    let columns = Table::new(["COLUMN", "CONTENT"], COLUMNS.map(|row| row.map(str::to_owned)));
    format!(
        "The formats of traces.\n\n\
         weir detects the format of a trace; --format (weir trace convert: --from) overrides. Files may be packed \
         with gzip, zstd, xz or bzip2. Lines that begin with #, // or ; are comments. Lines that cannot be read \
         are left out and counted; --strict fails on them.\n\n{}\n\
         Other text: name the columns up to the last one needed, after csv: (parted by commas) or blanks: (parted \
         by white space):\n\n\
         \x20 weir trace convert log.csv - --from csv:time_us,disk,op,offset,size\n\n{}",
        formats_text(width),
        columns.prose("CONTENT").text(width)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;
    use weir_sim::load::parse;

    fn refusal(words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        let mut weir = Cli::command();
        weir.build();
        find(&mut weir, &words).map(|_| ()).expect_err("nothing of that name").to_string()
    }

    #[test]
    fn the_nearest_command_or_topic_is_suggested() {
        for (words, says) in [
            (&["laods"][..], "weir has no command or topic \"laods\"\n help: the nearest is loads"),
            (&["volme"], "the nearest is volume"),
            (&["pool", "chek"], "weir pool has no command \"chek\"\n help: the nearest is check"),
            (&["pool", "loads"], "there are create, status, set, check, replace, dump, restore"),
            (&["serve", "x"], "weir serve has no commands of its own"),
        ] {
            let said = refusal(words);
            assert!(said.contains(says), "{words:?}: {said}");
        }
    }

    #[test]
    fn topics_fit_the_terminal() {
        for topic in TOPICS {
            for columns in [60, WIDTH] {
                let width = Width::columns(columns);
                for line in width.fold(&(topic.text)(width)).lines() {
                    let is_command = line.starts_with("  weir ");
                    assert!(line.len() <= columns || is_command, "{} at {columns}: {line:?}", topic.name);
                }
            }
        }
    }

    #[test]
    fn every_pattern_and_key_is_known_to_loads() {
        let try_parse = |words: &str| {
            let parsed = parse(words, 1, crate::pool_file::size, crate::pool_file::duration);
            parsed.map(|_| ()).map_err(|error| format!("{words}: {error}"))
        };
        for [pattern, _] in PATTERNS {
            assert_eq!(try_parse(pattern), Ok(()));
        }
        for [key, _, default] in KEYS {
            let pattern = match key {
                "part=" | "hits=" => "hotcold",
                "streams=" | "pieces=" => "scan",
                "gap=" => "sweep",
                "files=" => "postmark",
                _ => "zipf",
            };
            let value = match default {
                "the whole" => "12MiB",
                "as size=" | "0" if key != "hot=" => "4KiB",
                "none" => "1ms",
                _ => default.split([';', ',']).next().unwrap_or_default(),
            };
            assert_eq!(try_parse(&format!("{pattern} {key}{value}")), Ok(()));
        }
    }

    #[test]
    fn every_column_is_known_to_formats() {
        for name in COLUMNS.iter().flat_map(|[names, _]| names.split(' ')) {
            let format = format!("csv:{name},offset");
            let parsed = weir_trace::Format::named(&format).map(|_| ()).map_err(|error| error.to_string());
            assert!(
                parsed.is_ok() || parsed.as_ref().is_err_and(|why| why.contains("two columns")),
                "{parsed:?}"
            );
        }
    }
}
