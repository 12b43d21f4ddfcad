//! Limits of users and groups in a mounted file system.

use crate::fs::{Region, can_mount, signal};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const DAMAGED: i32 = 4;
const NOBODY: u32 = 65534;
const OTHER: u32 = 65533;
const MIB: u64 = 1 << 20;

/// Returns what the mount or region says of a user or group.
fn owner(quota: &Value, kind: &str, id: u32) -> Value {
    let owners = quota["owners"].as_array().expect("owners");
    owners.iter().find(|owner| owner["kind"] == kind && owner["id"] == id).cloned().unwrap_or_default()
}

/// Waits until usage is counted and limits are enforced.
#[track_caller]
fn enforced(region: &Region) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let quota = region.json(&["fs", "quota", "files"]);
        if quota["state"] == "enforced" {
            return quota;
        }
        assert_eq!(quota["state"], "counting", "{quota}");
        assert!(Instant::now() < until, "{quota}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns a mount that other users may use; prints a note and returns `None` if nothing can be mounted.
fn mounted_for_others() -> Option<Region> {
    let region = can_mount().then(|| Region::mounted("32MiB"))?;
    open_to_others(&region);
    Some(region)
}

/// Lets other users use the mount.
fn open_to_others(region: &Region) {
    fs::set_permissions(region.folder(), fs::Permissions::from_mode(0o755)).expect("the folder");
    fs::set_permissions(region.path(""), fs::Permissions::from_mode(0o777)).expect("the root");
}

/// Runs a shell command in the mount, as a user.
fn shell(region: &Region, user: u32, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(region.path("")).env("LC_ALL", "C");
    command.uid(user).gid(user).output().expect("sh starts")
}

#[track_caller]
fn exceeds(region: &Region, user: u32, script: &str) {
    let output = shell(region, user, script);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("Disk quota exceeded"), "{script}: {output:?}");
}

#[track_caller]
fn succeeds(region: &Region, user: u32, script: &str) {
    let output = shell(region, user, script);
    assert!(output.status.success(), "{script}: {output:?}");
}

fn size(path: &Path) -> u64 {
    path.metadata().expect("it exists").len()
}

#[test]
fn users_have_no_more_than_their_limits() {
    let Some(region) = mounted_for_others() else { return };
    // Usage from before the limit is counted, too.
    succeeds(&region, NOBODY, "dd if=/dev/zero of=first bs=1M count=2");
    let set = ["fs", "quota", "files", "set", "--user", "65534", "--size", "4MiB", "--files", "3"];
    let quota = region.json(&set);
    assert_eq!(owner(&quota, "user", NOBODY)["limit_bytes"], 4 * MIB, "{quota}");
    let counted = owner(&enforced(&region), "user", NOBODY);
    assert_eq!((&counted["used_bytes"], &counted["used_files"]), (&(2 * MIB).into(), &1.into()));

    exceeds(&region, NOBODY, "dd if=/dev/zero of=second bs=64k count=40");
    assert_eq!(size(&region.path("second")), 2 * MIB, "it has all that the limit allows");
    exceeds(&region, NOBODY, "echo more | cat >> second");
    exceeds(&region, NOBODY, "truncate -s 3M first");
    exceeds(&region, NOBODY, "fallocate -l 3M first");
    succeeds(&region, NOBODY, "ln first link; mv link name; rm name");
    succeeds(&region, NOBODY, "mkdir third");
    exceeds(&region, NOBODY, "mkdir fourth");
    exceeds(&region, NOBODY, "ln -s first fourth");
    assert!(region.weir(&["fs", "quota", "files"]).contains("at its limit"));
    assert!(region.weir(&["fs", "status", "files"]).contains("limits of 1 user or group, enforced; 1 "));

    // Others have no limit; root has none in any case.
    succeeds(&region, OTHER, "dd if=/dev/zero of=other bs=1M count=5");
    let root = File::options().append(true).open(region.path("first")).expect("root may write it");
    root.set_len(3 * MIB).expect("root has no limit");
    drop(root);
    chown(region.path("other"), Some(NOBODY), None).expect("root may give a file away");
    let used = owner(&enforced(&region), "user", NOBODY);
    assert_eq!((&used["used_bytes"], &used["used_files"]), (&(10 * MIB).into(), &4.into()));

    // A file that is open counts until it is closed.
    let open = File::open(region.path("other")).expect("it exists");
    succeeds(&region, NOBODY, "rm other");
    assert_eq!(owner(&enforced(&region), "user", NOBODY)["used_bytes"], 10 * MIB);
    drop(open);
    succeeds(&region, NOBODY, "rm first");
    let until = Instant::now() + Duration::from_secs(10);
    while owner(&enforced(&region), "user", NOBODY)["used_bytes"] != 2 * MIB {
        assert!(Instant::now() < until, "the kernel forgets the file");
    }
    succeeds(&region, NOBODY, "dd if=/dev/zero of=more bs=1M count=2");
    exceeds(&region, NOBODY, "dd if=/dev/zero of=more bs=1M count=1 seek=2");
    region.json(&["fs", "quota", "files", "set", "--user", "65534", "--size", "none", "--files", "none"]);
    assert_eq!(region.json(&["fs", "quota", "files"])["state"], "off");
    succeeds(&region, NOBODY, "dd if=/dev/zero of=more bs=1M count=1 seek=2");
    region.unmount();
}

#[test]
fn groups_have_limits_and_files_change_hands_within_them() {
    let Some(region) = mounted_for_others() else { return };
    region.json(&["fs", "quota", "files", "set", "--group", "65533", "--size", "1MiB"]);
    enforced(&region);
    succeeds(&region, OTHER, "dd if=/dev/zero of=file bs=1M count=1");
    exceeds(&region, OTHER, "dd if=/dev/zero of=file bs=1M count=1 seek=1");
    // A member of both groups.
    let change = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--groups", "65533,65534"]);
        command.args(arguments).current_dir(region.path("")).env("LC_ALL", "C").output().expect("it starts")
    };
    assert!(change(&["sh", "-c", "echo mine > mine"]).status.success());
    let refused = change(&["chgrp", "65533", "mine"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Disk quota exceeded"), "{refused:?}");
    assert_eq!(region.path("mine").metadata().expect("it exists").gid(), NOBODY);
    succeeds(&region, OTHER, "truncate -s 1000 file");
    assert!(change(&["chgrp", "65533", "mine"]).status.success());
    let used = owner(&enforced(&region), "group", OTHER);
    assert_eq!((&used["used_bytes"], &used["used_files"]), (&1005.into(), &2.into()));
    region.unmount();
}

#[test]
fn limits_outlast_mounts_and_killed_servers() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd"], &["--disk", "hdd"]);
    let set = ["fs", "quota", "region", "set", "--user", "65534", "--size", "3MiB"];
    let quota = region.json(&set);
    assert_eq!((&quota["state"], &quota["directory"]), (&"not_mounted".into(), &Value::Null));
    for _ in 0..2 {
        let mut server = region.serve();
        open_to_others(&region);
        enforced(&region);
        succeeds(&region, NOBODY, "dd if=/dev/zero of=file bs=1M count=3 conv=fsync");
        exceeds(&region, NOBODY, "echo more | cat >> file");
        // A file has its size in a tier, too.
        region.weir(&["fs", "evict", "files/file"]);
        exceeds(&region, NOBODY, "echo more | cat >> file");
        region.json(&["fs", "quota", "files", "set", "--group", "7", "--files", "9"]);
        signal(&server, "KILL");
        server.wait().expect("it ends");
        region.weir(&["fs", "unmount", "files"]);
        let found = region.json(&["fs", "quota", "region"]);
        assert_eq!(owner(&found, "group", 7)["limit_files"], 9, "{found}");
        assert_eq!(owner(&found, "user", NOBODY)["used_bytes"], 3 * MIB, "{found}");
    }
    region.mount();
    enforced(&region);
    exceeds(&region, NOBODY, "echo more | cat >> file");
    let attributes = rustix::fs::getxattr(region.path(""), "weir.limits", &mut [0_u8; 64][..]);
    assert_eq!(attributes, Err(rustix::io::Errno::NODATA), "the limits are hidden");
    region.unmount();
}

#[test]
fn only_administrators_set_limits_and_mistakes_are_named() {
    let Some(region) = mounted_for_others() else { return };
    region.json(&["fs", "quota", "files", "set", "--user", "65533", "--size", "1MiB"]);
    enforced(&region);
    // A copy that others can run.
    fs::copy(env!("CARGO_BIN_EXE_weir"), region.folder().join("weir")).expect("a copy");
    succeeds(&region, NOBODY, "echo mine > mine");
    let refused = shell(&region, NOBODY, "../weir fs quota . set --user 65534 --size none");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(REFUSED) && said.contains("only root and the user"), "{said}");
    let shown = shell(&region, NOBODY, "../weir fs quota . --json");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("a document");
    assert_eq!(owner(&shown, "user", NOBODY)["used_files"], 1, "{shown}");
    assert_eq!(owner(&shown, "user", OTHER), Value::Null, "{shown}");
    let nobody = ["fs", "quota", "files", "set", "--user", "no-such-user", "--size", "1MiB"];
    region.refused(&nobody, USAGE, &["there is no user \"no-such-user\"", "getent passwd"]);
    region.unmount();
    region.weir(&["fs", "mount", "region", "files", "--read-only"]);
    let set = ["fs", "quota", "files", "set", "--user", "65534", "--size", "1MiB"];
    region.refused(&set, REFUSED, &["mounted read-only"]);
    region.unmount();
}

#[test]
fn damaged_limits_are_reported_with_a_way_out() {
    let region = Region::new("32MiB");
    region.json(&["fs", "quota", "region", "set", "--user", "65534", "--size", "1MiB"]);
    let path = region.folder().join("region");
    let mut bytes = fs::read(&path).expect("the region");
    let name = b"weir.limits";
    let found: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
    for at in found {
        bytes[at + name.len() + 17] ^= 1;
    }
    fs::write(&path, bytes).expect("written");
    let way_out = ["limits of users and groups are damaged", "weir fs check", "--repair"];
    region.refused(&["fs", "quota", "region"], DAMAGED, &way_out);
    if !can_mount() {
        return;
    }
    region.weir(&["fs", "mount", "region", "files", "--read-only"]);
    region.refused(&["fs", "quota", "files"], DAMAGED, &way_out);
    region.weir(&["fs", "unmount", "files"]);
}
