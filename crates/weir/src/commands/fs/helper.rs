//! `mount.weir`: what mount(8) starts for `mount -t weir REGION DIRECTORY -o OPTIONS`, and so for lines of
//! /etc/fstab and mount units of systemd. It is weir itself under another name.

use super::failures::mount_of;
use super::mount::{MountArgs, Passthrough, serve_in_background};
use crate::args::{duration, omega};
use crate::failure::Failure;
use crate::output;
use clap::ValueEnum as _;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weir_model::{ErrorKind, Nanos};

/// Name under which weir is the helper.
const NAME: &str = "mount.weir";
/// Exit codes of mount(8): the command line is wrong.
const USAGE: u8 = 1;
/// The mount failed.
const FAILED: u8 = 32;

/// Options that others act on: mount(8), systemd and the kernel's defaults.
const IGNORED: [&str; 22] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "async",
    "exec",
    "nosuid",
    "nodev",
    "relatime",
    "norelatime",
    "silent",
    "loud",
    "atime",
    "diratime",
    "nomand",
];

/// Returns whether the program was started as the helper.
pub fn is_helper(program: Option<&OsString>) -> bool {
    program.and_then(|path| Path::new(path).file_name()).is_some_and(|name| name == NAME)
}

/// Mounts what mount(8) asks for; returns its exit code.
pub fn run(arguments: impl Iterator<Item = OsString>) -> u8 {
    let done =
        parse(arguments).and_then(|request| if request.is_fake { Ok(()) } else { mount(&request.args) });
    let Err(failure) = done else { return crate::exit::SUCCESS };
    output::print_stderr(&failure.to_string());
    if failure.kind == ErrorKind::Usage { USAGE } else { FAILED }
}

fn mount(args: &MountArgs) -> Result<(), Failure> {
    // `mount -a` asks for what is mounted already, as the table of mounts has another source for it.
    if let Some(mount) = mount_of(&args.region)
        && args.directory.canonicalize().is_ok_and(|directory| directory == mount.directory)
    {
        return Ok(());
    }
    serve_in_background(args).map(|_| ())
}

/// What mount(8) asks for.
#[derive(Debug)]
struct Request {
    args: MountArgs,
    /// Nothing is to be mounted (`mount -f`).
    is_fake: bool,
}

fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Request, Failure> {
    let mut paths = Vec::new();
    let mut options = Vec::new();
    let (mut is_fake, mut is_sloppy, mut is_read_only) = (false, false, false);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("-o") => options.extend(arguments.next()),
            Some("-t" | "-N") => drop(arguments.next()),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => {
                is_fake |= flags.contains('f');
                is_sloppy |= flags.contains('s');
                is_read_only |= flags.contains('r');
                if let Some(other) = flags[1..].chars().find(|flag| !"fsnvrw".contains(*flag)) {
                    return Err(usage(&format!("unknown flag -{other}")));
                }
            }
            _ => paths.push(PathBuf::from(argument)),
        }
    }
    let [region, directory] =
        <[_; 2]>::try_from(paths).map_err(|_| usage("one region and one directory are needed"))?;
    let mut args = MountArgs::new(region, directory);
    args.read_only = is_read_only;
    for option in options.iter().flat_map(|list| list.to_str().unwrap_or("?").split(',')) {
        apply(&mut args, option, is_sloppy)?;
    }
    Ok(Request { args, is_fake })
}

fn apply(args: &mut MountArgs, option: &str, is_sloppy: bool) -> Result<(), Failure> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    match name {
        "ro" => args.read_only = true,
        "rw" => args.read_only = false,
        "trusted" => args.trusted = true,
        "allow_other" => args.allow_other = true,
        "sync_interval" => args.sync_interval = interval(value)?,
        "without" if value.is_empty() => return Err(usage("option without needs the directory of a tier")),
        "without" => args.without.push(PathBuf::from(value)),
        "passthrough" => args.passthrough = passthrough(value)?,
        "omega" => args.omega = weight(value)?,
        "suid" | "dev" => {
            return Err(Failure::usage(
                format!("option {name}: device files and set-user-id bits count together"),
                "pass trusted to honour both, or neither",
            ));
        }
        "" | "comment" | "uhelper" => {}
        name if IGNORED.contains(&name) || name.starts_with("x-") || name.starts_with("X-") => {}
        _ if is_sloppy => {}
        _ => return Err(usage(&format!("unknown option {option:?}"))),
    }
    Ok(())
}

fn interval(value: &str) -> Result<Nanos, Failure> {
    duration(value).map_err(|error| {
        Failure::usage(format!("option sync_interval={value}: {error}"), "write a time: 1s, 500ms")
    })
}

fn passthrough(value: &str) -> Result<Passthrough, Failure> {
    Passthrough::from_str(value, false).map_err(|_| {
        Failure::usage(
            format!("option passthrough={value}: unknown"),
            "write passthrough=auto or passthrough=off",
        )
    })
}

fn weight(value: &str) -> Result<f64, Failure> {
    omega(value).map_err(|help| Failure::usage(format!("option omega={value}: not a weight"), help))
}

fn usage(message: &str) -> Failure {
    Failure::usage(
        format!("mount.weir: {message}"),
        "mount -t weir REGION DIRECTORY -o \
         ro,trusted,allow_other,sync_interval=TIME,without=DIR,passthrough=auto,omega=N, each option if \
         needed",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::eviction::OMEGA;

    fn parsed(line: &str) -> Result<Request, Failure> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn lines_of_mount_are_understood() {
        let request =
            parsed("/srv/region /mnt -n -o rw,nofail,x-systemd.automount,ro,sync_interval=5s").expect("it");
        assert_eq!(
            (request.args.region.as_path(), request.args.directory.as_path()),
            ("/srv/region".as_ref(), "/mnt".as_ref())
        );
        assert!(
            request.args.read_only && !request.args.trusted && !request.args.allow_other && !request.is_fake
        );
        assert_eq!(request.args.sync_interval, Nanos(5_000_000_000));
        let request = parsed("-sfv -t weir r d -o trusted,allow_other,unknown,passthrough=off").expect("it");
        assert_eq!((request.args.passthrough, request.args.omega), (Passthrough::Off, OMEGA));
        assert!(request.is_fake && request.args.trusted && request.args.allow_other);
        assert_eq!(request.args.sync_interval, Nanos(1_000_000_000), "as of weir fs mount");
        let request = parsed("r d -o without=/mnt/ssd,without=/mnt/hdd,omega=4096").expect("it");
        assert_eq!(request.args.omega, 4096.0);
        assert_eq!(request.args.without, [Path::new("/mnt/ssd"), Path::new("/mnt/hdd")]);
        assert!(request.args.is_read_only());
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (line, part) in [
            ("r", "one region and one directory"),
            ("r d more", "one region and one directory"),
            ("r d -o noatime", "unknown option \"noatime\""),
            ("r d -o rw,suid", "trusted"),
            ("r d -o sync_interval=x", "sync_interval=x"),
            ("r d -o without=", "without needs the directory"),
            ("r d -o passthrough=on", "passthrough=on"),
            ("r d -o omega=-1", "omega=-1"),
            ("r d -x", "unknown flag -x"),
        ] {
            let failure = parsed(line).expect_err("a refusal");
            assert!(failure.to_string().contains(part), "{line}: {failure}");
            assert_eq!(failure.kind, ErrorKind::Usage);
        }
    }

    #[test]
    fn the_name_decides() {
        assert!(is_helper(Some(&"/sbin/mount.weir".into())));
        assert!(!is_helper(Some(&"/usr/bin/weir".into())) && !is_helper(None));
    }
}
