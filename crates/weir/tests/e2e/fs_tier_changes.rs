//! Tiers that are added, moved and removed, a damaged tier table, and processes that are killed meanwhile.

use crate::fs::{Region, can_mount, signal};
use crate::fs_tiers::{Small, bytes, form, tier_files};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const CORRUPT: i32 = 4;
const ENVIRONMENT: i32 = 5;
/// Exit codes of `weir fs check`.
const CHECK_REPAIRED: i32 = 1;
const CHECK_DAMAGED: i32 = 4;
const CHECK_USAGE: i32 = 16;
const MIB: usize = 1 << 20;
/// Where the tier table is.
const TABLE_AT: u64 = 12_288;

/// Writes files `file-0`, `file-1` ... of this size, and makes them durable.
pub(crate) fn write_files(region: &Region, count: u64, len: usize) {
    for number in 0..count {
        let path = region.path(&format!("file-{number}"));
        fs::write(&path, bytes(number, len)).expect("space");
        fs::File::open(path).and_then(|file| file.sync_all()).expect("durable");
    }
}

#[track_caller]
pub(crate) fn verify_files(region: &Region, count: u64, len: usize) {
    for number in 0..count {
        let found = fs::read(region.path(&format!("file-{number}"))).expect("the file");
        assert!(found == bytes(number, len), "file-{number} has what was written");
    }
}

/// Returns the directories of the tiers, and which of them are leaving.
pub(crate) fn tiers(region: &Region) -> Vec<(String, bool)> {
    let status = region.json(&["fs", "status", "region"]);
    let tier = |tier: &serde_json::Value| {
        let path = Path::new(tier["path"].as_str().expect("a path"));
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, tier["leaving"].as_bool().expect("a truth value"))
    };
    status["tiers"].as_array().expect("tiers").iter().map(tier).collect()
}

fn two_tiers() -> Region {
    Region::with("32MiB", &["ssd", "hdd"], &["--flash", "ssd", "--disk", "hdd"])
}

#[test]
fn tiers_are_added_and_removed() {
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["ssd", "hdd"], &[]);
    region.json(&["fs", "add-tier", "region", "--disk", "hdd"]);
    region.mount();
    write_files(&region, 12, 5 * MIB);
    assert!(tier_files(&region, "files") >= 6, "most files are in containers");
    region.unmount();
    region.refused(
        &["fs", "add-tier", "region", "--disk", "hdd"],
        REFUSED,
        &["is tier 0 of this file system"],
    );
    assert!(region.weir(&["fs", "add-tier", "region", "--flash", "ssd"]).contains("ssd"));
    assert_eq!(tiers(&region), [("hdd".to_owned(), false), ("ssd".to_owned(), false)]);
    let status = region.json(&["fs", "remove-tier", "region", "hdd"]);
    assert_eq!(status["tiers"].as_array().map(Vec::len), Some(1), "{status}");
    let left = fs::read_dir(region.folder().join("hdd")).expect("a directory").count();
    assert_eq!(left, 0, "nothing is left of the tier");
    region.check();
    region.mount();
    verify_files(&region, 12, 5 * MIB);
    region.unmount();
    region.refused(&["fs", "remove-tier", "region", "hdd"], USAGE, &["no tier at hdd", "ssd"]);
    // Its directory can be that of another file system, and a tier of this one again.
    region.json(&["fs", "add-tier", "region", "--disk", "hdd"]);
    region.mount();
    verify_files(&region, 12, 5 * MIB);
    region.unmount();
}

#[test]
fn what_an_interrupted_command_leaves_in_a_directory_is_taken_away_by_another() {
    let region = Region::with("32MiB", &["hdd"], &["--disk", "hdd"]);
    let marker = region.folder().join("hdd/weir.tier");
    let text = fs::read(&marker).expect("a marker");
    region.json(&["fs", "remove-tier", "region", "hdd"]);
    assert!(!marker.exists());
    // As after a crash between the last commit and the removal of the marker.
    let leave = || {
        for part in 0..256 {
            fs::create_dir_all(region.folder().join(format!("hdd/containers/{part:02x}")))
                .expect("a directory");
        }
        fs::write(&marker, &text).expect("a marker");
    };
    leave();
    region.json(&["fs", "remove-tier", "region", "hdd"]);
    assert!(!marker.exists());
    leave();
    region.json(&["fs", "add-tier", "region", "--flash", "hdd"]);
    assert!(marker.exists() && fs::read(&marker).expect("a marker") != text);
    assert_eq!(tiers(&region).len(), 1);
    region.check();
}

#[test]
fn a_tier_whose_files_have_no_space_elsewhere_stays() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let _small = Small::new(folder.path());
    let path = folder.path().to_str().expect("a path");
    let region = Region::with("32MiB", &["hdd"], &["--disk", "hdd"]);
    region.mount();
    write_files(&region, 12, 5 * MIB);
    region.unmount();
    region.json(&["fs", "add-tier", "region", "--flash", path]);
    region.refused(&["fs", "remove-tier", "region", "hdd"], REFUSED, &["its files have", "weir fs add-tier"]);
    assert!(tiers(&region).iter().all(|(_, is_leaving)| !is_leaving), "nothing was changed");
    region.mount();
    for number in 2..12 {
        fs::remove_file(region.path(&format!("file-{number}"))).expect("removed");
    }
    // Together there is space enough, but neither has it alone.
    fs::write(region.path("file-2"), bytes(2, 9 * MIB)).expect("space");
    region.unmount();
    let arguments = ["fs", "remove-tier", "region", "hdd"];
    region.refused(&arguments, ENVIRONMENT, &["no space elsewhere for \"file-2\"", "repeat the command"]);
    assert_eq!(tiers(&region)[0], ("hdd".to_owned(), true));
    assert!(region.weir(&["fs", "status", "region"]).contains("LEAVING: "));
    region.mount();
    // Too large for the tier that is left, and small enough for the region.
    fs::write(region.path("more"), bytes(9, 7 * MIB)).expect("space");
    region.refused(&["fs", "evict", "files/more"], ENVIRONMENT, &["no tier has space"]);
    assert!(fs::read(region.path("file-2")).expect("the file") == bytes(2, 9 * MIB));
    region.unmount();
    // It is kept after all.
    region.json(&["fs", "add-tier", "region", "--disk", "hdd"]);
    assert_eq!(tiers(&region)[0], ("hdd".to_owned(), false));
    region.mount();
    verify_files(&region, 2, 5 * MIB);
    region.unmount();
}

#[test]
fn directories_of_tiers_are_found_at_other_paths() {
    if !can_mount() {
        return;
    }
    let region = two_tiers();
    region.mount();
    write_files(&region, 12, 5 * MIB);
    region.unmount();
    let folder = region.folder().to_owned();
    fs::rename(folder.join("hdd"), folder.join("away")).expect("moved");
    region.refused(&["fs", "mount", "region", "files"], REFUSED, &["is not there", "weir fs move-tier"]);
    region.json(&["fs", "move-tier", "region", "away"]);
    assert_eq!(tiers(&region)[1].0, "away");
    region.mount();
    verify_files(&region, 12, 5 * MIB);
    region.refused(&["fs", "move-tier", "region", "away"], REFUSED, &["is mounted at"]);
    region.unmount();
    // Two change places.
    fs::rename(folder.join("ssd"), folder.join("hdd")).expect("moved");
    fs::rename(folder.join("away"), folder.join("ssd")).expect("moved");
    region.json(&["fs", "move-tier", "region", "ssd", "hdd"]);
    assert_eq!(tiers(&region).iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["hdd", "ssd"]);
    region.mount();
    verify_files(&region, 12, 5 * MIB);
    region.unmount();
    let copied = Command::new("cp").args(["-a", "hdd", "copy"]).current_dir(&folder).status();
    assert!(copied.expect("cp starts").success());
    region.refused(
        &["fs", "move-tier", "region", "copy"],
        REFUSED,
        &["both say that they are tier 0", "copy"],
    );
    region.refused(&["fs", "move-tier", "region", "files"], USAGE, &["not the directory of a tier"]);
    region.refused(&["fs", "move-tier", "region", "nowhere"], USAGE, &["there is no directory nowhere"]);
    region.weir(&["fs", "create", "other", "--size", "16MiB"]);
    region.refused(&["fs", "move-tier", "other", "hdd"], REFUSED, &["is none of the tiers of region"]);
    region.refused(&["fs", "add-tier", "other", "--disk", "hdd"], REFUSED, &["of another file system"]);
}

#[test]
fn a_damaged_tier_table_is_written_again_from_the_markers() {
    if !can_mount() {
        return;
    }
    let region = two_tiers();
    region.mount();
    write_files(&region, 12, 5 * MIB);
    fs::write(region.path("last"), bytes(77, 4096)).expect("space");
    region.unmount();
    let arguments = ["fs", "check", "region", "--repair", "--tier", "ssd", "--tier", "hdd"];
    region.refused(&arguments, CHECK_USAGE, &["is not damaged", "weir fs move-tier"]);
    // The log has the last group of changes; it must not have the table.
    region.mount();
    fs::remove_file(region.path("last")).expect("removed");
    region.unmount();
    let file = fs::File::options().write(true).open(region.folder().join("region")).expect("the region");
    file.write_all_at(&[0x55; 8], TABLE_AT + 16).expect("written");
    drop(file);
    let way_out = ["the tier table cannot be read", "--repair --tier DIR"];
    region.refused(&["fs", "mount", "region", "files"], CORRUPT, &way_out);
    region.refused(&["fs", "status", "region"], CORRUPT, &way_out);
    let found = region.refused_output(&["fs", "check", "region"], CHECK_DAMAGED);
    assert!(way_out.iter().all(|part| found.contains(part)), "{found}");
    region.weir(&["fs", "mount", "region", "files", "--read-only"]);
    let is_readable = |number: &u64| fs::read(region.path(&format!("file-{number}"))).is_ok();
    let readable = (0..12).filter(is_readable).count();
    assert!((1..12).contains(&readable), "those in the region, and no others: {readable}");
    region.json(&["fs", "unmount", "files"]);
    let named = ["fs", "check", "region", "--repair", "--tier", "hdd"];
    region.refused(&named, CHECK_DAMAGED, &["files are in tier 0", "--tier DIR"]);
    let without_repair = region.refused_output(&["fs", "check", "region", "--tier", "hdd"], CHECK_USAGE);
    assert!(without_repair.is_empty(), "the option needs --repair: {without_repair}");
    // As if one had been leaving.
    fs::write(region.folder().join("hdd/weir.leaving"), "").expect("a note");
    let repaired = region.refused_output(&arguments, CHECK_REPAIRED);
    assert!(repaired.contains("the tier table: written again"), "{repaired}");
    region.check();
    assert_eq!(tiers(&region), [("ssd".to_owned(), false), ("hdd".to_owned(), true)]);
    region.json(&["fs", "add-tier", "region", "--disk", "hdd"]);
    assert!(!region.folder().join("hdd/weir.leaving").exists());
    region.mount();
    verify_files(&region, 12, 5 * MIB);
    write_files(&region, 16, 5 * MIB);
    verify_files(&region, 16, 5 * MIB);
    region.unmount();
}

#[test]
fn a_mount_that_is_killed_while_files_move_loses_none() {
    const FILES: u64 = 10;
    if !can_mount() {
        return;
    }
    let region = two_tiers();
    let mut server = region.serve();
    write_files(&region, FILES, 3 * MIB);
    for round in 0..6 {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for part in 0..2 {
                let (region, is_over) = (&region, &is_over);
                scope.spawn(move || {
                    for step in 0.. {
                        let (number, name) = ((step * 7 + part * 3) % FILES, ["weir.evict", "weir.promote"]);
                        let path = region.path(&format!("file-{number}"));
                        // Until the mount is dead.
                        let moved = rustix::fs::setxattr(
                            path,
                            name[step as usize % 2],
                            b"",
                            rustix::fs::XattrFlags::empty(),
                        );
                        if is_over.load(Ordering::Relaxed) {
                            return moved;
                        }
                    }
                    Ok(())
                });
            }
            // The region fills, so that the mount evicts by itself, too.
            for number in 0..4 {
                let _ = fs::write(region.path(&format!("more-{number}")), bytes(number, 6 * MIB));
            }
            std::thread::sleep(Duration::from_millis(60 + 35 * round));
            signal(&server, "KILL");
            is_over.store(true, Ordering::Relaxed);
        });
        server.wait().expect("it ends");
        region.weir(&["fs", "unmount", "files"]);
        region.check();
        server = region.serve();
        verify_files(&region, FILES, 3 * MIB);
    }
    signal(&server, "TERM");
    server.wait().expect("it ends");
    region.check();
}

#[test]
fn a_removal_that_is_killed_goes_on_where_it_was() {
    const FILES: u64 = 16;
    if !can_mount() {
        return;
    }
    let region = Region::with("32MiB", &["hdd", "ssd"], &["--disk", "hdd"]);
    region.mount();
    write_files(&region, FILES, 9 * MIB);
    region.unmount();
    region.json(&["fs", "add-tier", "region", "--flash", "ssd"]);
    let (mut killed, mut was_leaving) = (0, false);
    // Each attempt has half as long again as the one before.
    let mut patience = Duration::from_millis(10);
    for round in 0..40 {
        let mut removal = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(region.folder())
            .args(["fs", "remove-tier", "region", "hdd"])
            .stdout(Stdio::null())
            .spawn()
            .expect("weir starts");
        std::thread::sleep(patience);
        patience = patience * 3 / 2;
        if let Some(status) = removal.try_wait().expect("a process") {
            // The one before may have been killed when all was done.
            let has_tier = tiers(&region).iter().any(|(name, _)| name == "hdd");
            assert!(status.success() || !has_tier);
            break;
        }
        signal(&removal, "KILL");
        removal.wait().expect("it ends");
        killed += 1;
        region.check();
        was_leaving |= tiers(&region).iter().any(|(_, is_leaving)| *is_leaving);
        if round % 4 == 0 {
            // A server that may change it would go on with the removal.
            region.weir(&["fs", "mount", "region", "files", "--read-only"]);
            verify_files(&region, FILES, 9 * MIB);
            region.unmount();
        }
    }
    assert!(killed > 0 && was_leaving, "{killed} times killed");
    assert_eq!(tiers(&region), [("ssd".to_owned(), false)]);
    assert!(!region.folder().join("hdd/weir.tier").exists());
    region.mount();
    verify_files(&region, FILES, 9 * MIB);
    assert_eq!(form(&region, "file-0"), "container");
    region.unmount();
}

#[test]
fn a_lost_tier_is_removed_and_its_files_stay_without_data() {
    const FILES: u64 = 12;
    if !can_mount() {
        return;
    }
    let region = two_tiers();
    region.mount();
    write_files(&region, FILES, 5 * MIB);
    for path in ["files", "region"] {
        let arguments = ["fs", "remove-tier", path, "hdd", "--lost"];
        region.refused(&arguments, REFUSED, &["--lost: the file system is mounted at", "weir fs unmount"]);
    }
    region.unmount();
    let arguments = ["fs", "remove-tier", "region", "hdd", "--lost"];
    region.refused(&arguments, REFUSED, &["tier 1", "is there"]);
    fs::rename(region.folder().join("hdd"), region.folder().join("away")).expect("moved");
    let before = fs::read(region.folder().join("region")).expect("the region");
    region.refused(&arguments, REFUSED, &["has the data of", "\"file-", "--accept-loss"]);
    assert!(fs::read(region.folder().join("region")).expect("the region") == before, "nothing was changed");
    region.refused(&["fs", "remove-tier", "region", "nowhere", "--lost"], USAGE, &["no tier at nowhere"]);
    let status = region.json(&["fs", "remove-tier", "region", "hdd", "--lost", "--accept-loss"]);
    let lost = status["lost_files"].as_u64().expect("a number");
    assert!((1..FILES).contains(&lost), "{status}");
    assert_eq!(status["tiers"].as_array().map(Vec::len), Some(1), "{status}");
    region.check();
    region.mount();
    assert!(region.weir(&["fs", "status", "files"]).contains(&format!("LOST: the data of {lost} files")));
    let mut found = 0;
    for number in 0..FILES {
        let (name, content) = (format!("file-{number}"), bytes(number, 5 * MIB));
        let path = region.path(&name);
        assert_eq!(path.metadata().expect("it is there").len(), 5 * MIB as u64);
        match fs::read(&path) {
            Ok(read) => assert!(read == content),
            Err(error) => {
                assert_eq!((error.raw_os_error(), form(&region, &name)), (Some(5), "lost".to_owned()));
                found += 1;
                // As from a backup.
                fs::write(&path, content).expect("space");
            }
        }
    }
    assert_eq!(found, lost);
    verify_files(&region, FILES, 5 * MIB);
    region.unmount();
    assert_eq!(region.json(&["fs", "status", "region"])["lost_files"], 0);
    // What turns up again can be rescued.
    region.weir(&["fs", "rescue", "away", "--to", "restored"]);
    let restored = fs::read_dir(region.folder().join("restored")).expect("a directory").count();
    assert_eq!(restored as u64, lost);
}
