//! `weir fs quota` shows what users and groups have and may have, and sets their limits.

use super::failures::{content_failure, dead_mount, is_dead, not_administrator, open_failure};
use super::mounted_tiers::{find, read_only};
use super::status::ask;
use super::tier_changes;
use crate::args::size;
use crate::failure::Failure;
use crate::output::{Width, table};
use clap::{ArgGroup, Args, ValueEnum};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use weir_fs::error::Error;
use weir_fs::layout::quota::{LIMITS_MAX, Owner};
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::{LimitChange, NewLimit, Quota, QuotaOwner, QuotaPage};
use weir_model::{BLOCK, Bytes, ErrorKind};

const EXAMPLES: &str = "Examples:
  weir fs quota files
  weir fs quota files set --user alice --size 10GiB --files 100000
  weir fs quota files set --group staff --size none";

/// What `weir fs quota` does beside showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QuotaAction {
    /// Set limits
    Set,
}

/// `weir fs quota`
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("owner").requires("action")))]
#[command(group(ArgGroup::new("limits").multiple(true).requires("action")))]
pub struct QuotaArgs {
    /// Directory that the file system is mounted at, or its region
    pub path: PathBuf,
    /// Set limits of the user or group
    #[arg(value_enum, requires = "owner", requires = "limits")]
    pub action: Option<QuotaAction>,
    /// Set the limits of this user, by name or number
    #[arg(long, value_name = "USER", group = "owner")]
    pub user: Option<String>,
    /// Set the limits of this group, by name or number
    #[arg(long, value_name = "GROUP", group = "owner")]
    pub group: Option<String>,
    /// Let its files have at most SIZE bytes in all: 10GiB; none: as many as there is space for
    #[arg(long, value_name = "SIZE", value_parser = size_limit, group = "limits")]
    pub size: Option<NewLimit>,
    /// Let it have at most N files; none: as many as there is space for
    #[arg(long, value_name = "N", value_parser = files_limit, group = "limits")]
    pub files: Option<NewLimit>,
}

fn size_limit(text: &str) -> Result<NewLimit, String> {
    if text == "none" {
        return Ok(NewLimit::Remove);
    }
    let limit = size(text).map(|Bytes(bytes)| NewLimit::Set(bytes));
    limit.map_err(|why| format!("{why}; the least is {}, and --size none removes the limit", Bytes(BLOCK)))
}

fn files_limit(text: &str) -> Result<NewLimit, String> {
    match text {
        "none" => Ok(NewLimit::Remove),
        text => match text.parse() {
            Ok(u64::MAX) => Err(format!("a limit is less than {}; --files none removes the limit", u64::MAX)),
            Ok(files) => Ok(NewLimit::Set(files)),
            Err(_) => Err("write a number, or none".to_owned()),
        },
    }
}

/// Sets limits, if that is asked for, and returns what users and groups have then.
///
/// # Errors
/// Fails if there is no such file system, user or group, or if the limits cannot be set.
pub(super) fn run(args: &QuotaArgs) -> Result<Quota, Failure> {
    let change = match args.action {
        None => None,
        Some(QuotaAction::Set) => Some(LimitChange {
            owner: owner(args)?,
            bytes: args.size.unwrap_or(NewLimit::Keep),
            files: args.files.unwrap_or(NewLimit::Keep),
        }),
    };
    let mut quota = match find(&args.path)? {
        Some(mount) => {
            change.map_or(Ok(()), |change| send(&mount, change))?;
            of_mount(&mount)?
        }
        None => {
            change.map_or(Ok(()), |change| apply(&args.path, change))?;
            of_region(&args.path)?
        }
    };
    for owner in &mut quota.owners {
        owner.name = name(owner);
    }
    Ok(quota)
}

/// Returns whose limits are to be set.
fn owner(args: &QuotaArgs) -> Result<Owner, Failure> {
    let (kind, name) = match (&args.user, &args.group) {
        (Some(name), _) => ("user", name),
        (None, name) => ("group", name.as_ref().expect("clap demands one of them")),
    };
    let id = match kind {
        "user" => uzers::get_user_by_name(name).map(|user| user.uid()),
        _ => uzers::get_group_by_name(name).map(|group| group.gid()),
    };
    let id = id.or_else(|| name.parse().ok()).ok_or_else(|| {
        let database = if kind == "user" { "passwd" } else { kind };
        Failure::usage(
            format!("--{kind}: there is no {kind} {name:?} on this machine"),
            format!("name one that getent {database} lists, or its number"),
        )
    })?;
    Ok(if kind == "user" { Owner::User(id) } else { Owner::Group(id) })
}

/// Returns the name of a user or group on this machine.
fn name(owner: &QuotaOwner) -> Option<String> {
    let name = match owner.kind.as_str() {
        "user" => uzers::get_user_by_uid(owner.id)?.name().to_owned(),
        _ => uzers::get_group_by_gid(owner.id)?.name().to_owned(),
    };
    Some(name.to_string_lossy().into_owned())
}

/// Asks the server to change limits.
fn send(mount: &Path, change: LimitChange) -> Result<(), Failure> {
    let (attribute, value) = change.attribute();
    let sent = rustix::fs::setxattr(mount, attribute, &value, XattrFlags::empty());
    sent.map_err(|errno| match errno {
        Errno::PERM | Errno::ACCESS => not_administrator(mount, "limits"),
        Errno::ROFS => read_only(mount),
        Errno::INVAL => not_stored(mount, &Error::Invalid),
        Errno::NOSPC => not_stored(mount, &Error::NoSpace),
        errno => match io::Error::from(errno) {
            error if is_dead(&error) => dead_mount(mount),
            error => Failure::os("set limits of", mount, &error),
        },
    })
}

/// Changes limits in a region that is not mounted.
fn apply(region: &Path, change: LimitChange) -> Result<(), Failure> {
    let mut fs = tier_changes::open(region, true)?;
    change.apply(&mut fs).map_err(|error| not_stored(region, &error))
}

fn not_stored(path: &Path, error: &Error) -> Failure {
    match error {
        Error::Invalid => Failure::refused(
            format!("cannot set limits of {}: {LIMITS_MAX} users and groups have limits", path.display()),
            "remove limits of others: --size none --files none",
        ),
        Error::NoSpace | Error::AttributesTooLarge => Failure::environment(
            format!("cannot set limits of {}: there is no space for them in the region", path.display()),
            "remove files, or extended attributes of the root directory",
        ),
        error => content_failure(path, error),
    }
}

fn of_mount(mount: &Path) -> Result<Quota, Failure> {
    let unmounted = || {
        Failure::environment(
            format!("the file system was unmounted from {}", mount.display()),
            "repeat the command with its region",
        )
    };
    let page = |first| {
        ask::<QuotaPage>(mount, &QuotaPage::attribute(first)).and_then(|page| page.ok_or_else(unmounted))
    };
    let QuotaPage { mut quota, mut next, is_damaged } = page(0)?;
    if is_damaged {
        return Err(damaged(Path::new(&quota.region)));
    }
    while let Some(first) = next {
        let more = page(first)?;
        quota.owners.extend(more.quota.owners);
        next = more.next;
    }
    Ok(quota)
}

fn of_region(region: &Path) -> Result<Quota, Failure> {
    let memory = Mapped::open(region, false).map_err(|error| open_failure(&error))?;
    let fs = FileSystem::open_read_only(memory).map_err(|error| content_failure(region, &error))?;
    fs.verify_limits().map_err(|error| match error {
        Error::Damaged(_) => damaged(region),
        error => content_failure(region, &error),
    })?;
    let region = region.canonicalize().map_err(|error| Failure::os("find", region, &error))?;
    Ok(Quota::of(&fs, &region, None, |_| true))
}

fn damaged(region: &Path) -> Failure {
    let region = region.display();
    Failure::new(
        ErrorKind::Corrupt,
        format!("region {region}: the limits of users and groups are damaged and cannot be read"),
        format!("unmount it if it is mounted; weir fs check {region} --repair removes them: set them again"),
    )
}

/// Returns usage and limits for people.
pub(super) fn human(quota: &Quota, width: Width) -> String {
    let place = match &quota.directory {
        Some(directory) => format!("mounted at {directory}"),
        None => "not mounted".to_owned(),
    };
    let has_limits =
        quota.owners.iter().any(|owner| owner.limit_bytes.is_some() || owner.limit_files.is_some());
    let state = match quota.state.as_str() {
        "off" => "there are no limits, and usage is not counted".to_owned(),
        "counting" => format!(
            "counting usage, {} % done; limits are not enforced until that is complete",
            quota.counted_percent
        ),
        "not_mounted" if has_limits => {
            "limits are enforced once it is mounted and usage is counted".to_owned()
        }
        "not_mounted" => "there are no limits".to_owned(),
        _ => "limits are enforced, except for root".to_owned(),
    };
    let row = |owner: &QuotaOwner| {
        let QuotaOwner { kind, id, .. } = owner;
        let who = match &owner.name {
            Some(name) => format!("{kind} {name} ({id})"),
            None => format!("{kind} {id}"),
        };
        let limit = |limit: Option<String>| limit.unwrap_or_else(|| "-".to_owned());
        [
            who,
            Bytes(owner.used_bytes).to_string(),
            limit(owner.limit_bytes.map(|bytes| Bytes(bytes).to_string())),
            owner.used_files.to_string(),
            limit(owner.limit_files.map(|files| files.to_string())),
            if owner.is_at_limit() { "at its limit".to_owned() } else { String::new() },
        ]
    };
    let mut text = format!("quotas of the file system in {}\n{place}; {state}\n", quota.region);
    if !quota.owners.is_empty() {
        let heading = ["WHO", "USED", "LIMIT", "FILES", "FILE LIMIT", ""];
        text += &format!("\n{}", table(width, heading, quota.owners.iter().map(row)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::{LONG_NAME, assert_fits};

    fn sample(state: &str) -> Quota {
        let owner = |kind: &str, id, name: Option<&str>, limit_bytes| QuotaOwner {
            kind: kind.to_owned(),
            id,
            name: name.map(str::to_owned),
            used_bytes: 5 << 20,
            limit_bytes,
            used_files: 7,
            limit_files: None,
        };
        Quota {
            region: "/srv/region".to_owned(),
            directory: (state != "not_mounted").then(|| "/mnt".to_owned()),
            state: state.to_owned(),
            counted_percent: 40,
            owners: vec![
                owner("user", 1000, Some("alice"), Some(5 << 20)),
                owner("group", 4242, None, Some(6 << 20)),
            ],
        }
    }

    #[test]
    fn quotas_are_formatted() {
        for (state, part) in [
            ("off", "there are no limits, and usage is not counted"),
            ("counting", "40 % done; limits are not enforced"),
            ("enforced", "mounted at /mnt; limits are enforced, except for root"),
            ("not_mounted", "not mounted; limits are enforced once"),
        ] {
            let text = human(&sample(state), Width::UNLIMITED);
            assert!(text.contains(part), "{part:?} in\n{text}");
            assert!(text.contains("user alice (1000)") && text.contains("group 4242"), "{text}");
            assert_eq!(text.matches("at its limit").count(), 1, "{text}");
        }
    }

    #[test]
    fn quotas_fit_the_terminal() {
        let quota = Quota { region: LONG_NAME.to_owned(), ..sample("enforced") };
        assert_fits(|width| width.fold(&human(&quota, width)));
    }

    #[test]
    fn limits_are_parsed() {
        assert_eq!(size_limit("10GiB"), Ok(NewLimit::Set(10 << 30)));
        assert_eq!((size_limit("none"), files_limit("none")), (Ok(NewLimit::Remove), Ok(NewLimit::Remove)));
        assert_eq!(files_limit("100000"), Ok(NewLimit::Set(100_000)));
        assert!(files_limit("many").is_err() && files_limit("-1").is_err() && size_limit("big").is_err());
        let too_many = files_limit("18446744073709551615").expect_err("it cannot be stored");
        assert!(too_many.contains("less than 18446744073709551615"), "{too_many}");
        for small in ["0", "0B", "999B"] {
            let why = size_limit(small).expect_err("too small");
            assert!(why.contains("4 KiB") && why.contains("--size none"), "{small}: {why}");
        }
    }
}
