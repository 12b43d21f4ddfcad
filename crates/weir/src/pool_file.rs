//! The pool file: a TOML file in which the user describes the devices of a pool.
//!
//! ```toml
//! [pool]
//! name = "home"
//! extent = "128KiB"        # optional
//! policy = "adaptive"      # optional
//! warn_at = ["80%", "95%"] # optional
//! when_full = "wait"       # optional
//! wait_at_most = "30s"     # optional
//! moves = "judged"         # optional
//! mover_share = "20%"      # optional
//! extent_cache = "256MiB"  # optional
//! poll = "auto"            # optional
//! cpu_latency = "auto"     # optional
//!
//! [serve]                  # optional
//! clients = 1024           # optional
//! clients_per_address = 256 # optional
//! handshake_timeout = "30s" # optional
//! control_timeout = "60s"  # optional
//!
//! [policy.asymmetry]       # optional: a policy's tuning, by its name
//! delta = 0.5
//!
//! [volume.mail]            # optional: a volume's own policy, by its name
//! policy = "hystor"
//!
//! [[device]]
//! name = "fast"
//! path = "/dev/disk/by-id/nvme-..."
//!
//! [[device]]
//! name = "slow"
//! path = "slow.img"        # relative to the pool file
//! size = "32GiB"           # a file that does not exist is created, sparse
//! pace = "hdd-7200"        # serve it with a modelled drive's timing
//! ```
//!
//! [`parse`] is pure: it takes text and returns a checked [`PoolFile`] or all its [`Mistakes`], and never
//! panics. A mistake gives its position, the key, the value and what is allowed.

mod limits;
mod policies;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use table::{Keys, MistakeLog, one_of};
use weir_device::{CpuLatency, Poll};
use weir_engine::{EXTRA_SPACE, MOVER_SHARE, Percent, QUIET_PERIOD, SpaceRules, WhenFull};
use weir_model::{BLOCK, Bytes, DeviceClass, ExtentSize, Nanos};
use weir_policy::harm::{MoveControl, Rules};
use weir_policy::placement::Settings;
use weir_serve::Limits;
pub use weir_sim::units::{duration, size};

/// Maximum number of devices of a pool.
pub const DEVICES_MAX: usize = 255;
/// Maximum length of the name of a pool, device or volume, in bytes.
pub const NAME_MAX: usize = 63;

/// A checked pool file.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFile {
    /// Name of the pool.
    pub name: String,
    /// Extent size; 128 KiB by default.
    pub extent: ExtentSize,
    /// Name of the placement policy, one of [`weir_policy::placement::ALL`].
    pub policy: &'static str,
    /// Policies of volumes that have their own, by volume name. The volumes need not exist.
    pub volumes: BTreeMap<String, &'static str>,
    /// Tuned settings by policy, whether the policy is in use or not.
    pub tuning: BTreeMap<&'static str, Settings>,
    /// How writes behave when space runs out, and when the pool warns of it.
    pub space: SpaceRules,
    /// Whether policies migrate data, and whether migration stops when it does harm.
    pub moves: MoveControl,
    /// Maximum share of each device's time that the mover may use while clients use the device.
    pub mover_share: Percent,
    /// Memory for the extent cache; none by default.
    pub extent_cache: Bytes,
    /// How long the server polls for events before it sleeps.
    pub poll: Poll,
    /// Whether the server keeps idle processors awake.
    pub cpu_latency: CpuLatency,
    /// Limits for clients.
    pub serve: Limits,
    /// Devices in the order of the file: at least one, with distinct names and paths.
    pub devices: Vec<DeviceEntry>,
}

/// One `[[device]]` of the pool file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEntry {
    /// Name of the device.
    pub name: String,
    /// Path as written, relative to the pool file.
    pub path: PathBuf,
    /// Size with which a missing file is created, and which an existing file must have; a multiple of 4 KiB.
    pub size: Option<Bytes>,
    /// Modelled drive to whose service times the device is paced, one of [`weir_timing::drives::all`].
    pub pace: Option<&'static str>,
    /// Device class, if the user gives it.
    pub class: Option<DeviceClass>,
    /// Whether the metadata of the pool may be on the device; `None` lets the pool choose.
    pub metadata: Option<bool>,
    /// Whether flushed data survives a power loss; `true` by default.
    pub durable: bool,
    /// Whether the device has a volatile write cache; `None` lets the operating system decide.
    pub volatile_cache: Option<bool>,
    /// Time in which the device must answer; otherwise it is lost.
    pub deadline: Option<Nanos>,
    /// Injected fault, for tests.
    pub fault: Option<Fault>,
}

/// Faults that a layer over a device injects, for crash tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// All writes that were not flushed when the server dies are lost.
    ForgetUnflushed,
    /// Of the writes that were not flushed when the server dies, some sectors reach the device; the rest is
    /// lost.
    ForgetSome,
    /// The device fails as a file beside it says.
    OnDemand,
}

/// Default policy of a pool file.
pub const POLICY_DEFAULT: &str = "adaptive";

/// Default time for which writes wait for space, in a pool file that lets them wait.
pub const WAIT_DEFAULT: Nanos = Nanos::secs(30);
/// Maximum time for which writes may wait for space.
const WAIT_MAX: Nanos = Nanos::secs(3600);

/// Maximum memory of the extent cache.
const CACHE_MAX: Bytes = Bytes(1 << 40);

/// Maximum time for which the server may poll for events before it sleeps.
const POLL_MAX: Nanos = Nanos::millis(10);

/// Minimum of the time in which a device must answer; [`DEADLINE_MAX`] is its maximum.
const DEADLINE_MIN: Nanos = Nanos::millis(100);
const DEADLINE_MAX: Nanos = Nanos::secs(3600);

const POOL_KEYS: &[&str] = &[
    "name",
    "extent",
    "policy",
    "warn_at",
    "when_full",
    "wait_at_most",
    "moves",
    "mover_share",
    "extra_space",
    "extent_cache",
    "poll",
    "cpu_latency",
];
const DEVICE_KEYS: &[&str] =
    &["name", "path", "size", "pace", "class", "metadata", "durable", "volatile_cache", "deadline", "fault"];
const CLASSES: &[DeviceClass] = &[DeviceClass::Nvm, DeviceClass::Ssd, DeviceClass::Hdd, DeviceClass::Remote];

/// A mistake in a pool file: its position, what is wrong, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line number from 1; 0 if the mistake concerns the whole file.
    pub line: usize,
    /// Character number within the line from 1; 0 if the mistake concerns the whole file.
    pub column: usize,
    /// What is wrong, with the key and the value.
    pub message: String,
    /// What is allowed.
    pub help: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

/// All mistakes of a file, in the order of the file; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    /// Writes each mistake and, indented below it, what is allowed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let help = mistake.help.replace('\n', "\n  ");
            write!(f, "{}{mistake}\n  {help}", if index > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl Mistakes {
    /// Returns the failure of a command that reads the file `name`.
    pub fn of_file(&self, name: &str) -> Failure {
        match &self.0[..] {
            [mistake] => Failure::usage(format!("{name}, {mistake}"), mistake.help.clone()),
            all => {
                Failure::usage(format!("{name} has {} mistakes\n{self}", all.len()), "correct all of them")
            }
        }
    }
}

/// Checks the text of a pool file.
///
/// # Errors
/// Returns all mistakes, in the order of the file. If the text is not TOML, only syntax errors are returned.
pub fn parse(text: &str) -> Result<PoolFile, Mistakes> {
    let document = table::document(text)?;
    let found = MistakeLog::default();
    let sections = &["pool", "serve", "policy", "volume", "device"];
    let root = Keys::new(text, "the pool file", document.get_ref(), document.span(), sections, &found);
    let devices = devices(&root, &found);
    let serve = limits::limits(&root);
    let (tuning, volumes) = (policies::tuning(&root), policies::of_volumes(&root));
    let read = root.table("pool", POOL_KEYS).and_then(|pool| {
        let name = pool.required("name", name);
        let extent = pool.optional("extent", extent).unwrap_or(ExtentSize::DEFAULT);
        let policy = pool.optional("policy", policies::name).unwrap_or(POLICY_DEFAULT);
        let space = space_rules(&pool);
        let moves = pool.optional("moves", moves).unwrap_or_default();
        let mover_share = pool.optional("mover_share", percent_or_none).unwrap_or(MOVER_SHARE);
        let extent_cache = pool.optional("extent_cache", |text| cache_size(text, extent)).unwrap_or_default();
        let poll = pool.optional("poll", poll).unwrap_or_default();
        let cpu_latency = pool.optional("cpu_latency", cpu_latency).unwrap_or_default();
        let name = name?;
        Some(PoolFile {
            name,
            extent,
            policy,
            volumes,
            tuning,
            space,
            moves,
            mover_share,
            extent_cache,
            poll,
            cpu_latency,
            serve,
            devices,
        })
    });
    found.into_result(read)
}

/// Reads the `[[device]]` sections.
fn devices(root: &Keys<'_, '_>, found: &MistakeLog) -> Vec<DeviceEntry> {
    let Some(sections) = root.tables("device", DEVICE_KEYS) else { return Vec::new() };
    if !(1..=DEVICES_MAX).contains(&sections.len()) {
        found.record(Mistake {
            line: 0,
            column: 0,
            message: format!("the pool has {} devices", sections.len()),
            help: format!(
                "give it 1 to {DEVICES_MAX} [[device]] sections, each with a name and a path:\n\n  \
                 [[device]]\n  name = \"slow\"\n  path = \"slow.img\"\n  size = \"32GiB\""
            ),
        });
    }
    let mut before = PrecedingDevices::default();
    sections.iter().filter_map(|keys| device(keys, &mut before)).collect()
}

/// Reads `moves`: whether policies migrate data.
fn moves(text: &str) -> Result<MoveControl, String> {
    one_of(text, &["judged", "free", "never"]).map(|word| match word {
        "free" => MoveControl::NeverPaused(Rules::default()),
        "never" => MoveControl::Disabled,
        _ => MoveControl::default(),
    })
}

/// Reads the size of the extent cache: from one extent to [`CACHE_MAX`], which exceeds the memory of any
/// machine.
fn cache_size(text: &str, extent: ExtentSize) -> Result<Bytes, String> {
    let fits = |size: &Bytes| (extent.bytes()..=CACHE_MAX).contains(size);
    size(text).ok().filter(fits).ok_or_else(|| {
        format!("a size from {} (one extent) to {CACHE_MAX}; without it there is no cache", extent.bytes())
    })
}

/// Reads `poll`: whether and how long the server polls for events before it sleeps.
fn poll(text: &str) -> Result<Poll, String> {
    match text {
        "auto" => Ok(Poll::Auto),
        "off" => Ok(Poll::Off),
        time => match duration(time) {
            Ok(time) if time <= POLL_MAX => Ok(Poll::For(time)),
            _ => Err("\"auto\", \"off\", or a time up to \"10ms\", such as \"50us\"".into()),
        },
    }
}

/// Reads `cpu_latency`: whether the server keeps idle processors awake.
fn cpu_latency(text: &str) -> Result<CpuLatency, String> {
    one_of(text, &["auto", "low", "off"]).map(|word| match word {
        "low" => CpuLatency::Low,
        "off" => CpuLatency::Off,
        _ => CpuLatency::Auto,
    })
}

/// Reads how the pool behaves when space runs out.
fn space_rules(pool: &Keys<'_, '_>) -> SpaceRules {
    let when_full = pool.optional("when_full", |text| one_of(text, &["error", "wait"]));
    // By a misspelt value the user may have meant `wait`.
    let waits = when_full == Some("wait") || when_full.is_none() && pool.has("when_full");
    let at_most = pool.optional("wait_at_most", |text| match duration(text) {
        Ok(at_most) if at_most <= WAIT_MAX => Ok(at_most),
        Ok(_) => Err("at most \"1h\"".into()),
        Err(allowed) => Err(allowed),
    });
    if at_most.is_some() && !waits {
        let help = "add a line: when_full = \"wait\"";
        pool.refuse("wait_at_most", "wait_at_most is given, and when_full is \"error\"", help);
    }
    let warn_at = pool.list("warn_at", |text, before: &[Percent]| match percent(text) {
        Ok(at) if before.last().is_some_and(|last| *last >= at) => {
            Err("percentages in ascending order, such as [\"80%\", \"95%\"]".into())
        }
        other => other,
    });
    SpaceRules {
        when_full: if waits {
            WhenFull::Wait { timeout: at_most.unwrap_or(WAIT_DEFAULT) }
        } else {
            WhenFull::Error
        },
        warn_at: warn_at.unwrap_or_else(|| SpaceRules::default().warn_at),
        extra: Some(pool.optional("extra_space", percent).unwrap_or(EXTRA_SPACE)),
        quiet: Some(QUIET_PERIOD),
    }
}

/// Values of the devices before the current one, including those with mistakes.
#[derive(Debug, Default)]
struct PrecedingDevices {
    names: Vec<String>,
    paths: Vec<PathBuf>,
    /// Names of the devices that declare `metadata = true`.
    with_metadata: Vec<String>,
}

/// Reads one `[[device]]` and checks it against the devices before it.
fn device(keys: &Keys<'_, '_>, before: &mut PrecedingDevices) -> Option<DeviceEntry> {
    let name = keys.required("name", |text| {
        let name = name(text)?;
        match before.names.contains(&name) {
            true => Err("a name no other device of the pool has".into()),
            false => Ok(name),
        }
    });
    let path = keys.required("path", |text| match text {
        "" => Err("the path of a block device or a file".into()),
        _ if text.contains('\0') => Err("a path without zero bytes".into()),
        _ if before.paths.iter().any(|other| other.as_os_str() == text) => {
            Err("a path no other device of the pool has".into())
        }
        _ => Ok(PathBuf::from(text)),
    });
    let (metadata, durable) = (keys.flag("metadata"), keys.flag("durable").unwrap_or(true));
    if metadata == Some(true) && !durable {
        let help = "leave out metadata = true: what a power cut empties cannot hold the pool's metadata";
        keys.refuse("metadata", "metadata is true and durable is false", help);
    }
    if let (Some(true), [one, other, ..]) = (metadata, &before.with_metadata[..]) {
        let message = format!("metadata is true, and so it is for devices {one} and {other}");
        let help = "declare it for one device, or for two: the metadata then is on both";
        keys.refuse("metadata", &message, help);
    }
    before.names.extend(name.clone());
    before.paths.extend(path.clone());
    before.with_metadata.extend(name.clone().filter(|_| metadata == Some(true)));
    let size = keys.optional("size", size).map(|size| Bytes(size.0 / BLOCK * BLOCK));
    let (pace, class) = (keys.optional("pace", pace), keys.optional("class", class));
    let volatile_cache = keys.flag("volatile_cache");
    let deadline = keys.optional("deadline", |text| match duration(text) {
        Ok(deadline) if (DEADLINE_MIN..=DEADLINE_MAX).contains(&deadline) => Ok(deadline),
        Ok(_) => Err("a time from \"100ms\" to \"1h\"".into()),
        Err(allowed) => Err(allowed),
    });
    let fault = keys.optional("fault", |text| {
        one_of(text, &["forget-unflushed", "forget-some", "on-demand"]).map(|fault| match fault {
            "on-demand" => Fault::OnDemand,
            "forget-some" => Fault::ForgetSome,
            _ => Fault::ForgetUnflushed,
        })
    });
    let (name, path) = (name?, path?);
    Some(DeviceEntry { name, path, size, pace, class, metadata, durable, volatile_cache, deadline, fault })
}

/// Checks the name of a pool, device or volume.
///
/// # Errors
/// The error says what is allowed, as the end of a sentence that began with the value.
pub fn name(text: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > NAME_MAX || !text.chars().all(good) || text.starts_with(['-', '.']) {
        return Err(format!(
            "1 to {NAME_MAX} of the characters A-Z a-z 0-9 - _ . , beginning with a letter, digit or _"
        ));
    }
    Ok(text.to_owned())
}

fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
    match number {
        Some(percent @ 1..=100) => Ok(Percent(percent)),
        _ => Err("a percentage from \"1%\" to \"100%\"".into()),
    }
}

fn percent_or_none(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
    match number {
        Some(percent @ 0..=100) => Ok(Percent(percent)),
        _ => Err("a percentage from \"0%\" to \"100%\"".into()),
    }
}

fn extent(text: &str) -> Result<ExtentSize, String> {
    // The range of extent sizes is narrower than that of sizes, so this message replaces the one for sizes.
    let extent = size(text).ok().and_then(ExtentSize::new);
    extent.ok_or_else(|| "a power of two from 64KiB to 4MiB, such as \"128KiB\" or \"1MiB\"".into())
}

/// Parses the name of a modelled drive.
///
/// # Errors
/// The error says what is allowed, as the end of a sentence that began with the value.
pub fn pace(text: &str) -> Result<&'static str, String> {
    let names: Vec<_> = weir_timing::drives::all().map(|(name, _)| name).collect();
    one_of(text, &names)
}

fn class(text: &str) -> Result<DeviceClass, String> {
    let names: Vec<&'static str> = CLASSES.iter().map(|class| class.name()).collect();
    let name = one_of(text, &names)?;
    CLASSES.iter().find(|class| class.name() == name).copied().ok_or_else(|| "a class".into())
}
