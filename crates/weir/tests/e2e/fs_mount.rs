//! `mount -t weir`, lines of fstab, and mounts by users other than root, with the real mount(8) and
//! `fusermount3`.

use crate::fs::{Region, can_mount};
use crate::harness::installed;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a script with weir as `mount.weir` in `/sbin`, in mounts of its own; `None` if this machine does not
/// allow that.
fn with_helper(region: &Region, script: &str) -> Option<Output> {
    let sbin = region.folder().join("sbin");
    fs::create_dir_all(&sbin).expect("a directory");
    let link = sbin.join("mount.weir");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &link).expect("a link");
    let run = |script: &str| {
        let before = format!("mount -t overlay overlay -o lowerdir={}:/usr/sbin /usr/sbin\n", sbin.display());
        region.run_script(&(before + script))
    };
    if !can_mount() || !run("true").status.success() {
        eprintln!("left out: mounts of its own need root and overlayfs");
        return None;
    }
    Some(run(script))
}

#[track_caller]
fn succeeds(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
}

#[test]
fn mount_finds_the_helper() {
    let region = Region::new("32MiB");
    let script = "
        mount -t weir region files -o sync_interval=100ms,omega=4096
        $WEIR fs status files --json | grep -q '\"omega\": 4096'
        grep -q ' files\\| .*/files ' /proc/self/mountinfo
        echo text > files/file
        $WEIR fs status files --json | grep -q '\"read_only\": false'
        $WEIR fs unmount files
        mount -t weir -r region files
        grep -q text files/file
        ! touch files/new 2>/dev/null
        umount files
        until $WEIR fs check region >/dev/null 2>&1; do sleep 0.1; done
        code=0; mount -t weir region files -o nonsense 2>said || code=$?
        test $code -eq 1
        grep -q 'unknown option \"nonsense\"' said
        code=0; mount -t weir nowhere files 2>said || code=$?
        test $code -eq 1
        grep -q 'there is no region' said";
    let Some(output) = with_helper(&region, script) else { return };
    succeeds(&output);
    region.check();
}

#[test]
fn tiers_can_be_left_out_by_an_option() {
    let region = Region::with("32MiB", &["ssd", "hdd"], &["--flash", "ssd", "--disk", "hdd"]);
    let script = "
        mount -t weir region files
        echo text > files/file
        umount files
        until $WEIR fs check region >/dev/null 2>&1; do sleep 0.1; done
        mv ssd away
        code=0; mount -t weir region files 2>said || code=$?
        test $code -eq 32
        grep -q 'the directory is not there' said
        mount -t weir region files -o without=$PWD/ssd
        grep -q text files/file
        ! touch files/new 2>/dev/null
        umount files
        code=0; mount -t weir region files -o without= 2>said || code=$?
        test $code -eq 1
        mv away ssd
        until $WEIR fs check region >/dev/null 2>&1; do sleep 0.1; done";
    let Some(output) = with_helper(&region, script) else { return };
    succeeds(&output);
    region.check();
}

#[test]
fn lines_of_fstab_are_mounted() {
    let region = Region::new("32MiB");
    let folder = region.folder().canonicalize().expect("the folder");
    let at = |name: &str| folder.join(name).display().to_string();
    let line = format!(
        "{} {} weir nofail,noauto,x-systemd.requires-mounts-for=/srv,trusted 0 0\n",
        at("region"),
        at("files")
    );
    fs::write(folder.join("fstab"), line).expect("a file");
    let script = "
        mount -T fstab \"$PWD/files\"
        echo text > files/file
        # A second time, as mount -a does it, changes nothing.
        sed s/noauto,// fstab > all
        mount -a -T all
        test $(grep -c \"weir:$PWD/region \" /proc/self/mountinfo) -eq 1
        mknod files/null c 1 3
        echo gone > files/null
        umount files
        until $WEIR fs check region >/dev/null 2>&1; do sleep 0.1; done";
    let Some(output) = with_helper(&region, script) else { return };
    succeeds(&output);
    region.check();
}

/// Returns the unit of the guide's page.
fn unit_of_the_guide() -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/file-system.md");
    let guide = fs::read_to_string(guide).expect("the page");
    let (_, rest) = guide.split_once("```ini\n# /etc/systemd/system/srv-files.mount\n").expect("the unit");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_unit_of_the_guide_is_one_for_systemd() {
    let unit = unit_of_the_guide();
    for line in ["What=/srv/region", "Where=/srv/files", "Type=weir"] {
        assert!(unit.lines().any(|found| found == line), "{line} in\n{unit}");
    }
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        eprintln!("left out: systemd-analyze is missing");
        return;
    };
    succeeds(&version);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("srv-files.mount");
    fs::write(&path, unit).expect("a file");
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("srv-files.mount"), "{said}");
}

const NOBODY: &str = "65534";

/// Runs weir as a user without privileges, who owns the region and `files`.
fn as_nobody(region: &Region, script: &str) -> Option<Output> {
    let has_helper = Command::new("fusermount3").arg("--version").output().is_ok();
    if !can_mount() || !has_helper {
        eprintln!("left out: fusermount3 is missing");
        return None;
    }
    let folder = region.folder();
    let mut own = Command::new("chown");
    succeeds(&own.args(["-R", NOBODY]).arg(folder).output().expect("chown starts"));
    // The program must be where this user can start it.
    let weir = folder.join("weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &weir).expect("a copy");
    // The device is for all users, as udev makes it; in a container it may be root's alone.
    let device = "mknod device c 10 229; chmod 666 device; mount --bind device /dev/fuse\n";
    let user = format!("exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sh -euc \"$0\"");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-euc", &format!("{device}{user}"), script])
        .current_dir(folder)
        .env("WEIR", folder.canonicalize().expect("the folder").join("weir"))
        .output()
        .expect("unshare starts");
    Some(output)
}

#[test]
fn users_without_privileges_mount_at_their_directories() {
    let region = Region::new("32MiB");
    let script = "
        # The root directory belongs to the user who creates the file system.
        $WEIR fs create region --size 32MiB --force
        $WEIR fs mount region files
        echo text > files/file
        grep -q text files/file
        $WEIR fs status files | grep -q 'mounted at'
        $WEIR fs unmount files
        $WEIR fs check region";
    let Some(output) = as_nobody(&region, script) else { return };
    succeeds(&output);
}

#[test]
fn users_without_privileges_learn_why_they_cannot_mount() {
    let region = Region::new("32MiB");
    let script = "
        fails() { code=0; \"$@\" 2>said || code=$?; test $code -eq 5 || { cat said; exit 9; }; }
        fails env PATH=/nowhere $WEIR fs mount region files
        grep -q 'fusermount3 is not installed' said
        grep -q 'Debian package fuse3' said
        if ! grep -qx user_allow_other /etc/fuse.conf; then
            fails $WEIR fs mount region files --allow-other
            grep -q 'line user_allow_other' said
        fi
        mkdir locked; chmod 555 locked
        fails $WEIR fs mount region locked
        grep -q 'this user may not mount there' said
        code=0; $WEIR fs mount region files --trusted 2>said || code=$?
        test $code -eq 2
        $WEIR fs check region";
    let Some(output) = as_nobody(&region, script) else { return };
    succeeds(&output);
}

/// A disk that loses sectors below the region does to a read what the truncation does here.
#[test]
fn a_read_of_what_the_region_has_lost_fails_alone() {
    if !can_mount() {
        return;
    }
    let region = Region::mounted("64MiB");
    let bytes: Vec<u8> = (0..40 << 20).map(|at: u32| (at >> 12) as u8 | 1).collect();
    fs::write(region.path("file"), &bytes).expect("space");
    region.unmount();
    region.mount();
    let whole = File::options().write(true).open(region.folder().join("region")).expect("the region");
    whole.set_len(32 << 20).expect("truncated");
    let file = File::open(region.path("file")).expect("its name is there");
    let mut part = vec![0; 1 << 20];
    let error = file.read_exact_at(&mut part, 39 << 20).expect_err("the end of the file is lost");
    assert_eq!(error.raw_os_error(), Some(5), "{error}");
    file.read_exact_at(&mut part, 1 << 20).expect("this is there");
    assert_eq!(part, bytes[1 << 20..2 << 20]);
    whole.set_len(64 << 20).expect("what was lost is zeros now");
    drop(file);
    region.unmount();
}

/// The region is on a loop device whose file has no space for what is written.
#[test]
fn unmount_says_what_did_not_become_durable() {
    if !can_mount() || !installed(&["mkfs.ext4", "losetup"]) {
        return;
    }
    let region = Region::new("16MiB");
    let script = "
        mkdir full device
        mount -t tmpfs -o size=24M none full
        truncate -s 200M full/image
        mkfs.ext4 -q -O ^metadata_csum,^resize_inode -E lazy_itable_init=1,nodiscard full/image
        mount -o loop,noinit_itable full/image device || { echo 'no loop devices' >&2; exit 77; }
        \"$WEIR\" fs create device/region --size 128MiB >/dev/null
        \"$WEIR\" fs mount device/region files --sync-interval 1h >/dev/null
        head -c 40M /dev/urandom >files/file
        code=0
        \"$WEIR\" fs unmount files || code=$?
        umount device full
        exit $code";
    let Some((code, said)) = region.script(script) else { return };
    assert_eq!(code, Some(5), "{said}");
    for part in
        ["cannot make the last changes of", "is unmounted; the next mount finds what was durable before"]
    {
        assert!(said.contains(part), "{part:?} should be in:\n{said}");
    }
}

#[test]
fn unmount_says_that_the_region_has_been_removed() {
    if !can_mount() {
        return;
    }
    let region = Region::mounted("16MiB");
    fs::remove_file(region.folder().join("region")).expect("it exists");
    let said = region.weir(&["fs", "unmount", "files"]);
    assert!(said.contains("there is no file at its path any more"), "{said}");
}
