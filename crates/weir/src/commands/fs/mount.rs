//! `weir fs mount` serves a file system at a directory, in the background or in this process.

use super::failures::{content_failure, dead_mount, is_dead, open_failure};
use super::region::durability;
use super::status::ask;
use super::{tiers, unprivileged};
use crate::args::{Common, duration, omega};
use crate::commands::show;
use crate::failure::{Failure, REPORT_DEFECT, REPORT_KERNEL};
use crate::output;
use clap::{Args, ValueEnum};
use rustix::process::{geteuid, setsid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_fs::fuse::{self, End, MountOptions, Stop, mounts};
use weir_fs::layout::superblock::Superblock;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::{STATUS, Status};
use weir_fs::tiers::Tier;
use weir_model::{ErrorKind, Nanos};
use weir_policy::eviction::OMEGA;

const DEVICE: &str = "/dev/fuse";

const NOTES: &str = "SIGTERM, SIGINT and SIGHUP to its server unmount it, even while programs use it;
everything written is durable then. A mount that root makes is for all users,
any other for its user alone, unless --allow-other is given.

Examples:
  weir fs mount region files
  weir fs mount region files --foreground
  weir fs mount region files --read-only";

/// When the kernel accesses files in tiers without the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Passthrough {
    /// Where the kernel and the server's privileges allow it
    Auto,
    /// Never
    #[default]
    Off,
}

impl Passthrough {
    /// Returns the name of the choice.
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

/// `weir fs mount ...`
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct MountArgs {
    /// Region of the file system
    pub region: PathBuf,
    /// Empty directory to mount it at
    pub directory: PathBuf,
    /// Serve in this process until the directory is unmounted, instead of in the background
    #[arg(long)]
    pub foreground: bool,
    /// Change nothing, and do not even finish what a crash left unfinished
    #[arg(long)]
    pub read_only: bool,
    /// Honour device files and set-user-id bits; only root may
    #[arg(long)]
    pub trusted: bool,
    /// Let all users use the mount, by the permissions of its files; root's mounts always do
    #[arg(long)]
    pub allow_other: bool,
    /// Make changes durable at least this often, without fsync
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub sync_interval: Nanos,
    /// Let the kernel read and write files in tiers without the server, where it can: it needs CAP_SYS_ADMIN
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub passthrough: Passthrough,
    /// Weigh accesses per byte by N beside recency when files leave the region (see weir sim fs --omega)
    #[arg(long, value_name = "N", value_parser = omega, default_value_t = OMEGA)]
    #[arg(allow_negative_numbers = true)]
    pub omega: f64,
    /// Leave out a tier whose directory is lost: its files cannot be read, and nothing is changed (implies
    /// --read-only)
    #[arg(long, value_name = "DIR")]
    pub without: Vec<PathBuf>,
    /// The process in the background: leave the terminal, and print nothing once it is mounted.
    #[arg(long, hide = true, requires = "foreground")]
    pub detached: bool,
}

impl MountArgs {
    /// Returns whether nothing is to be changed.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || !self.without.is_empty()
    }

    /// Returns a mount with the defaults of the command.
    pub(super) const fn new(region: PathBuf, directory: PathBuf) -> Self {
        Self {
            region,
            directory,
            foreground: false,
            read_only: false,
            trusted: false,
            allow_other: false,
            sync_interval: Nanos(1_000_000_000),
            passthrough: Passthrough::Off,
            omega: OMEGA,
            without: Vec::new(),
            detached: false,
        }
    }
}

/// The document of `weir fs mount`, printed once the file system is mounted.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir fs mount")]
pub struct MountDocument {
    /// Path of the region.
    region: String,
    /// The directory.
    directory: String,
    /// Process that serves it.
    pid: u32,
    /// Nothing can be changed.
    read_only: bool,
}

impl MountDocument {
    fn human(&self) -> String {
        let access = if self.read_only { ", read-only" } else { "" };
        let Self { region, directory, pid, .. } = self;
        format!("mounted {region} at {directory}{access}, served by process {pid}")
    }
}

/// Mounts the file system; with `--foreground`, serves it until it is unmounted.
///
/// # Errors
/// Fails if the region cannot be opened, or if it cannot be mounted at the directory.
pub(super) fn run(args: &MountArgs, common: &Common) -> Result<(), Failure> {
    if args.foreground {
        return serve(args, common);
    }
    let document = serve_in_background(args)?;
    show(common, &document, |_| document.human());
    Ok(())
}

/// Starts a process that serves in the background, and waits until it has mounted the file system.
pub(super) fn serve_in_background(args: &MountArgs) -> Result<MountDocument, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::os("find", Path::new("weir"), &error))?;
    let mut server = Command::new(&program)
        .args(["fs", "mount", "--json", "--foreground", "--detached"])
        .args(args.read_only.then_some("--read-only"))
        .args(args.without.iter().flat_map(|path| ["--without".as_ref(), path.as_os_str()]))
        .args(args.trusted.then_some("--trusted"))
        .args(args.allow_other.then_some("--allow-other"))
        .args(["--passthrough", args.passthrough.name()])
        .args(["--omega", &args.omega.to_string()])
        .args(["--sync-interval", &format!("{}us", args.sync_interval.0 / 1000), "--"])
        .args([&args.region, &args.directory])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::os("start", &program, &error))?;
    // It closes both streams once the file system is mounted.
    let answer = server.stdout.take().map(io::read_to_string).transpose();
    let said = server.stderr.take().map(io::read_to_string).transpose();
    let failed = |error| Failure::os("read the answer of", &program, &error);
    let answer = answer.map_err(failed)?.unwrap_or_default();
    let said = said.map_err(failed)?.unwrap_or_default();
    if let Ok(document) = serde_json::from_str(&answer) {
        if !said.trim().is_empty() {
            output::print_stderr(said.trim());
        }
        return Ok(document);
    }
    Err(failure_of(&answer).unwrap_or_else(|| {
        let message = "the server ended before the file system was mounted";
        Failure::new(
            ErrorKind::Environment,
            message,
            if said.is_empty() { REPORT_DEFECT } else { said.trim() },
        )
    }))
}

/// Returns the failure whose document a process printed.
fn failure_of(answer: &str) -> Option<Failure> {
    let document: serde_json::Value = serde_json::from_str(answer).ok()?;
    let part = |name: &str| document["error"][name].as_str().map(str::to_owned);
    let kinds = [ErrorKind::Usage, ErrorKind::Refused, ErrorKind::Corrupt, ErrorKind::Environment];
    let failure = |kind| Some(Failure::new(kind, part("message")?, part("help")?));
    let class = part("class")?;
    kinds.into_iter().filter_map(failure).find(|failure| failure.class() == class)
}

/// Serves the file system until it is unmounted, or a signal stops it.
fn serve(args: &MountArgs, common: &Common) -> Result<(), Failure> {
    if args.trusted && !geteuid().is_root() {
        return Err(Failure::usage("--trusted is for root alone", "leave it out, or mount as root"));
    }
    let directory = empty_directory(&args.directory)?;
    if !geteuid().is_root() {
        unprivileged::check(&directory, args.allow_other)?;
    }
    File::options().read(true).write(true).open(DEVICE).map_err(|error| no_device(&error))?;
    let read_only = args.is_read_only();
    let memory = Mapped::open(&args.region, !read_only).map_err(|error| open_failure(&error))?;
    let region = args.region.canonicalize().map_err(|error| Failure::os("find", &args.region, &error))?;
    let durability = durability(&memory);
    let open = |superblock: &Superblock, found: &[Tier]| {
        tiers::open(superblock, found, !read_only, |tier| tiers::is_named(tier, &args.without))
    };
    let fs = match read_only {
        true => FileSystem::open_read_only_with(memory, open),
        false => FileSystem::open_with(memory, durability, open),
    };
    let fs = fs.map_err(|error| content_failure(&region, &error))?;
    if fs.has_damaged_tier_table() {
        output::print_stderr(
            "warning: the tier table is damaged, so that files in tiers cannot be read; see weir fs check",
        );
    }
    verify_left_out(&args.without, fs.tiers())?;
    let options = MountOptions {
        region: region.clone(),
        allow_other: geteuid().is_root() || args.allow_other,
        is_trusted: args.trusted,
        sync_interval: Duration::from_nanos(args.sync_interval.0),
        passthrough: args.passthrough == Passthrough::Auto,
        omega: args.omega,
    };
    let signals = catch_signals()?;
    abort_on_panic();
    if args.detached {
        // It fails only for a process that leads a session already.
        let _ = setsid();
    }
    let is_mounted = Cell::new(false);
    let end = fuse::serve(fs, &directory, &options, |stop| {
        is_mounted.set(true);
        stop_on_signal(signals, stop);
        let document = MountDocument {
            region: region.display().to_string(),
            directory: directory.display().to_string(),
            pid: std::process::id(),
            read_only,
        };
        show(common, &document, |_| document.human());
        if args.detached {
            leave_terminal();
        }
    });
    match end {
        Ok(End::Unmounted) => {}
        Ok(End::InUse) => output::print_stderr(&format!(
            "warning: {} was in use; everything written is durable; programs that go on using it get errors",
            directory.display()
        )),
        Err(error) if is_mounted.get() => {
            return Err(Failure::environment(
                format!("cannot make the last changes of {} durable: {error}", region.display()),
                "see the kernel's log (dmesg), then weir fs check",
            ));
        }
        Err(error) => return Err(mount_failure(&directory, &error)),
    }
    Ok(())
}

/// Rejects a directory to leave out that is none of the tiers.
fn verify_left_out(without: &[PathBuf], found: &[Tier]) -> Result<(), Failure> {
    let is_known =
        |path: &&PathBuf| found.iter().any(|tier| tiers::is_named(tier, std::slice::from_ref(path)));
    let Some(unknown) = without.iter().find(|path| !is_known(path)) else { return Ok(()) };
    let message = format!("--without: the file system has no tier at {}", unknown.display());
    Err(Failure::usage(message, tiers::choice(&tiers::paths(found))))
}

/// Returns the path of a directory that is there to be mounted at.
fn empty_directory(directory: &Path) -> Result<PathBuf, Failure> {
    let found = directory.metadata().and_then(|_| directory.canonicalize());
    let path = found.map_err(|error| match error.kind() {
        _ if is_dead(&error) => dead_mount(directory),
        io::ErrorKind::NotFound => Failure::usage(
            format!("there is no directory {}", directory.display()),
            format!("create it: mkdir {}", directory.display()),
        ),
        _ => Failure::os("mount at", directory, &error),
    })?;
    if let Some(mount) = mounts().unwrap_or_default().into_iter().rfind(|mount| mount.directory == path) {
        // The kernel may still have what it asked the server while that was there.
        ask::<Status>(&mount.directory, STATUS)?;
        let region = mount.region.display();
        let message = format!("region {region} is mounted at {} already", path.display());
        return Err(Failure::refused(message, "unmount it first, or choose another directory"));
    }
    if !path.is_dir() {
        return Err(Failure::usage(
            format!("{} is not a directory", path.display()),
            "name an empty directory",
        ));
    }
    let mut entries = std::fs::read_dir(&path).map_err(|error| Failure::os("read", &path, &error))?;
    if entries.next().is_some() {
        let message = format!("directory {} is not empty", path.display());
        return Err(Failure::refused(message, "choose an empty directory: a mount hides what is in it"));
    }
    Ok(path)
}

fn no_device(error: &io::Error) -> Failure {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied => "give this user access to it, or mount as root",
        _ => {
            "load the kernel's module (modprobe fuse); a container needs the device (--device /dev/fuse) and \
             CAP_SYS_ADMIN"
        }
    };
    Failure::environment(format!("cannot open {DEVICE}: {error}"), help)
}

fn mount_failure(directory: &Path, error: &io::Error) -> Failure {
    let help = match geteuid().is_root() {
        true => "see the kernel's log (dmesg); in a container, mounting needs CAP_SYS_ADMIN",
        false => {
            "users other than root need fusermount3 (Debian package fuse3), and a directory of their own"
        }
    };
    Failure::environment(format!("cannot mount at {}: {error}", directory.display()), help)
}

/// Makes a panic end the process: a file system in an unknown state must change nothing more. The next mount
/// finds the state after the last commit.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// Returns a stream that has a byte for each signal that ends the mount.
fn catch_signals() -> Result<UnixStream, Failure> {
    let failure =
        |error: io::Error| Failure::environment(format!("cannot wait for signals: {error}"), REPORT_KERNEL);
    let (receiver, sender) = UnixStream::pair().map_err(failure)?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let sender = sender.try_clone().map_err(failure)?;
        signal_hook::low_level::pipe::register(signal, sender).map_err(failure)?;
    }
    Ok(receiver)
}

/// Stops the mount at the first signal, and ends the process at the second.
fn stop_on_signal(mut signals: UnixStream, stop: Stop) {
    std::thread::spawn(move || {
        let mut byte = [0];
        if signals.read_exact(&mut byte).is_ok() {
            stop.stop();
        }
        if signals.read_exact(&mut byte).is_ok() {
            std::process::exit(ErrorKind::Environment.exit_code().into());
        }
    });
}

/// Closes the streams of the process that waits for the mount, and leaves its directory.
fn leave_terminal() {
    // Whatever of this fails only keeps something open.
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let _ = std::env::set_current_dir("/");
}
