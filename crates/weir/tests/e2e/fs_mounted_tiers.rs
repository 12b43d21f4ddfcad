//! Tiers that are added to and removed from a mounted file system, and servers that are killed meanwhile.

use crate::fs::{Region, can_mount, signal};
use crate::fs_tier_changes::{tiers, verify_files, write_files};
use crate::fs_tiers::{Small, bytes, tier_files};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const ENVIRONMENT: i32 = 5;
const MIB: usize = 1 << 20;

/// Waits until the tiers are those with these names, none of them leaving.
#[track_caller]
fn wait_for_tiers(region: &Region, names: &[&str]) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let found = tiers(region);
        if found.iter().map(|(name, is_leaving)| (&**name, *is_leaving)).eq(names.iter().map(|n| (*n, false)))
        {
            return;
        }
        assert!(Instant::now() < until, "{found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn verify_empty(region: &Region, name: &str) {
    let left = fs::read_dir(region.folder().join(name)).expect("a directory").count();
    assert_eq!(left, 0, "nothing is left of the tier");
}

#[test]
fn tiers_are_added_and_removed_while_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["ssd", "hdd", "other"], &[]);
    region.mount();
    let status = region.json(&["fs", "add-tier", "files", "--disk", "hdd"]);
    assert_eq!(status["tiers"][0]["state"], "ready", "{status}");
    write_files(&region, 12, 5 * MIB);
    assert!(tier_files(&region, "files") >= 6, "most files are in containers");
    assert!(region.weir(&["fs", "add-tier", "region", "--flash", "ssd"]).contains("ssd"));
    verify_files(&region, 12, 5 * MIB);

    region.refused(
        &["fs", "add-tier", "files", "--disk", "hdd"],
        REFUSED,
        &["is tier 0 of this file system"],
    );
    region.refused(&["fs", "remove-tier", "files", "other"], USAGE, &["no tier at other", "ssd"]);
    fs::create_dir(region.path("inside")).expect("space");
    region.refused(&["fs", "add-tier", "files", "--disk", "files/inside"], USAGE, &["file system itself"]);
    fs::remove_dir(region.path("inside")).expect("it is empty");
    region.weir(&["fs", "create", "second", "--size", "16MiB", "--disk", "other"]);
    region.refused(&["fs", "add-tier", "files", "--disk", "other"], REFUSED, &["of another file system"]);

    let marker = fs::read(region.folder().join("hdd/weir.tier")).expect("a marker");
    let status = region.json(&["fs", "remove-tier", "files", "hdd"]);
    assert_eq!(status["tiers"].as_array().map(Vec::len), Some(1), "{status}");
    verify_empty(&region, "hdd");
    // As after a crash between the last commit and the removal of the marker.
    fs::write(region.folder().join("hdd/weir.tier"), marker).expect("a marker");
    region.json(&["fs", "remove-tier", "files", "hdd"]);
    verify_empty(&region, "hdd");
    verify_files(&region, 12, 5 * MIB);
    // The last one, too, as far as the region has space.
    let removed = (3..12).map(|number| region.path(&format!("file-{number}")));
    let open: Vec<_> = removed.clone().map(|path| File::open(path).expect("a file")).collect();
    removed.for_each(|path| fs::remove_file(path).expect("removed"));
    // They have their space until they are closed, which the command waits for, if it is soon.
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(open);
    });
    region.json(&["fs", "remove-tier", "region", "ssd"]);
    closing.join().expect("they are closed");
    verify_empty(&region, "ssd");
    verify_files(&region, 3, 5 * MIB);
    region.unmount();
    // What is added is still there after the mount.
    region.mount();
    region.json(&["fs", "add-tier", "files", "--flash", "hdd"]);
    write_files(&region, 12, 5 * MIB);
    region.unmount();
    assert_eq!(tiers(&region), [("hdd".to_owned(), false)]);
    region.weir(&["fs", "mount", "region", "files", "--read-only"]);
    region.refused(&["fs", "remove-tier", "files", "hdd"], REFUSED, &["mounted read-only"]);
    verify_files(&region, 12, 5 * MIB);
    region.unmount();
}

#[test]
fn other_users_do_not_change_the_tiers() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd"], &[]);
    region.mount();
    fs::set_permissions(region.path(""), fs::Permissions::from_mode(0o777)).expect("the root");
    fs::set_permissions(region.folder(), fs::Permissions::from_mode(0o755)).expect("the folder");
    // A copy that others can run.
    fs::copy(env!("CARGO_BIN_EXE_weir"), region.folder().join("weir")).expect("a copy");
    let attempt = |user: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.current_dir(region.folder()).args(["--reuid", user, "--clear-groups", "./weir", "fs"]);
        command.args(arguments).output().expect("setpriv starts")
    };
    let add = ["add-tier", "files", "--disk", "hdd"];
    let remove = ["remove-tier", "files", "hdd"];
    for (arguments, count) in [(&add[..], 0), (&remove[..], 1)] {
        let output = attempt("65534", arguments);
        assert_eq!(output.status.code(), Some(REFUSED), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("only root and the user who mounted"), "{said}");
        assert_eq!(tiers(&region).len(), count);
        assert!(attempt("0", arguments).status.success());
        assert_eq!(tiers(&region).len(), 1 - count);
    }
    region.unmount();
}

/// A server is killed while a tier leaves, sooner or later, and programs change its files: the next one goes
/// on with the removal.
#[test]
fn a_removal_goes_on_after_its_server_is_killed() {
    const FILES: u64 = 8;
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd", "ssd"], &["--disk", "hdd"]);
    let mut server = region.serve();
    write_files(&region, FILES, 9 * MIB);
    let mut interrupted = 0;
    for step in 0..6 {
        let (leaving, staying) = if step % 2 == 0 { ("hdd", "ssd") } else { ("ssd", "hdd") };
        region.json(&["fs", "add-tier", "files", "--flash", staying]);
        region.json(&["fs", "remove-tier", "files", leaving, "--no-wait"]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Files change while they move; the last change is durable.
                for number in (0..FILES).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let file = File::options().write(true).open(region.path(&format!("file-{number}")));
                    let Ok(file) = file else { return };
                    let _ = file.write_all_at(&bytes(number, 9 * MIB), 0).and_then(|()| file.sync_all());
                }
            });
            // The server looks for tiers that are leaving twice a second.
            std::thread::sleep(step * Duration::from_millis(150));
            signal(&server, "KILL");
            is_over.store(true, Ordering::Relaxed);
        });
        server.wait().expect("it ends");
        region.weir(&["fs", "unmount", "files"]);
        region.check();
        interrupted += usize::from(tiers(&region).iter().any(|(_, is_leaving)| *is_leaving));
        server = region.serve();
        wait_for_tiers(&region, &[staying]);
        verify_files(&region, FILES, 9 * MIB);
        if region.folder().join(leaving).join("weir.tier").exists() {
            // The kill was between the end of the table's entry and that of the marker.
            region.json(&["fs", "remove-tier", "files", leaving]);
        }
        verify_empty(&region, leaving);
    }
    assert!(interrupted > 0, "the first server is killed at once");
    signal(&server, "TERM");
    server.wait().expect("it ends");
    region.check();
}

/// Starts a removal and returns it with what it says on standard error.
fn removal(region: &Region, directory: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut removal = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(region.folder())
        .args(["fs", "remove-tier", "files", directory])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    let said = BufReader::new(removal.stderr.take().expect("its messages"));
    (removal, said)
}

#[test]
fn a_removal_waits_for_files_that_are_open_past_the_server() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd", "ssd"], &["--disk", "hdd"]);
    region.weir(&["fs", "mount", "region", "files", "--passthrough", "auto"]);
    write_files(&region, 3, 5 * MIB);
    for number in 0..3 {
        region.json(&["fs", "evict", &format!("files/file-{number}")]);
    }
    let status = region.json(&["fs", "status", "files"]);
    if status["mount"]["passthrough"] == false {
        eprintln!("left out: {}", status["mount"]["passthrough_problem"]);
        return;
    }
    region.json(&["fs", "add-tier", "files", "--flash", "ssd"]);
    let open = |name: &str| File::options().read(true).write(true).open(region.path(name)).expect("the file");
    let held = open("file-1");
    if region.json(&["fs", "status", "files"])["mount"]["passthrough_files"] == 0 {
        eprintln!("left out: the kernel refuses the container");
        return;
    }
    let (mut removed, mut said) = removal(&region, "hdd");
    let mut line = String::new();
    said.read_line(&mut line).expect("a message");
    assert!(line.contains("waiting for programs to close and unmap \"file-1\""), "{line}");
    let status = region.json(&["fs", "status", "files"]);
    let tier = &status["tiers"][0];
    assert_eq!((&tier["blocked"]["reason"], &tier["files"]), (&"in_use".into(), &1.into()), "{status}");
    assert!(region.weir(&["fs", "status", "files"]).contains("it waits for programs to close and unmap"));
    held.write_all_at(b"late", 4 * MIB as u64).expect("space");
    assert!(removed.try_wait().expect("a process").is_none());
    drop(held);
    assert!(removed.wait().expect("it ends").success());
    verify_empty(&region, "hdd");
    let mut expected = bytes(1, 5 * MIB);
    expected[4 * MIB..4 * MIB + 4].copy_from_slice(b"late");
    assert!(fs::read(region.path("file-1")).expect("the file") == expected);
    fs::write(region.path("file-1"), bytes(1, 5 * MIB)).expect("space");
    verify_files(&region, 3, 5 * MIB);
    region.unmount();
}

#[test]
fn a_file_that_the_server_has_open_moves_under_its_users() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd", "ssd"], &["--disk", "hdd"]);
    region.mount();
    write_files(&region, 12, 5 * MIB);
    let file = File::options().read(true).write(true).open(region.path("file-1")).expect("the file");
    let gone = File::open(region.path("file-2")).expect("the file");
    fs::remove_file(region.path("file-2")).expect("removed");
    region.json(&["fs", "add-tier", "files", "--flash", "ssd"]);
    region.json(&["fs", "remove-tier", "files", "hdd"]);
    file.write_all_at(b"late", 4 * MIB as u64).expect("space");
    let mut found = vec![0; 5 * MIB];
    gone.read_exact_at(&mut found, 0).expect("it has a reader");
    assert!(found == bytes(2, 5 * MIB));
    drop((file, gone));
    let mut expected = bytes(1, 5 * MIB);
    expected[4 * MIB..4 * MIB + 4].copy_from_slice(b"late");
    assert!(fs::read(region.path("file-1")).expect("the file") == expected);
    region.unmount();
}

#[test]
fn a_removal_without_space_elsewhere_says_so_and_goes_on_when_there_is() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let _small = Small::new(folder.path());
    let path = folder.path().to_str().expect("a path");
    let region = Region::with("32MiB", &["hdd", "more"], &["--disk", "hdd", "--flash", path]);
    region.mount();
    write_files(&region, 12, 5 * MIB);
    let arguments = ["fs", "remove-tier", "files", "hdd"];
    region.refused(&arguments, REFUSED, &["its files have", "weir fs add-tier"]);
    assert!(tiers(&region).iter().all(|(_, is_leaving)| !is_leaving), "nothing was changed");
    for number in 0..12 {
        fs::remove_file(region.path(&format!("file-{number}"))).expect("removed");
    }
    // Together there is space enough, but neither has it alone.
    fs::write(region.path("large"), bytes(2, 9 * MIB)).expect("space");
    File::open(region.path("large")).and_then(|file| file.sync_all()).expect("durable");
    region.refused(&arguments, ENVIRONMENT, &["no space elsewhere for \"large\"", "repeat the command"]);
    assert!(region.weir(&["fs", "status", "files"]).contains("it waits for space elsewhere for \"large\""));
    // It is kept, and then leaves after all.
    region.json(&["fs", "add-tier", "files", "--disk", "hdd"]);
    assert!(tiers(&region).iter().all(|(_, is_leaving)| !is_leaving));
    region.json(&["fs", "remove-tier", "files", "hdd", "--no-wait"]);
    region.json(&["fs", "add-tier", "files", "--disk", "more"]);
    let small = folder.path().file_name().expect("a name").to_string_lossy().into_owned();
    wait_for_tiers(&region, &[&small, "more"]);
    verify_empty(&region, "hdd");
    assert!(fs::read(region.path("large")).expect("the file") == bytes(2, 9 * MIB));
    assert!(!Path::new(&region.folder().join("hdd/weir.tier")).exists());
    region.json(&["fs", "remove-tier", "files", path]);
    region.unmount();
}
