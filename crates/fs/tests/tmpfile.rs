//! `O_TMPFILE` on a mounted file system: files without a name, which get one or vanish. Without root,
//! `/dev/fuse` and Linux 6.1 these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::{Mount, errno, serve_in_process};
use rustix::fs::{AtFlags, CWD, XattrFlags};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_fs::check::check_with_containers;
use weir_fs::layout::quota::Owner;
use weir_fs::namespace::FileSystem;
use weir_fs::nvm::Mapped;
use weir_fs::report::{LimitChange, NewLimit};

const USER: u32 = 1000;

/// Opens a file without a name in a directory, to read and write it.
fn unnamed_with(directory: &Path, flags: i32, mode: u32) -> io::Result<File> {
    let flags = libc::O_TMPFILE | flags;
    OpenOptions::new().read(true).write(true).mode(mode).custom_flags(flags).open(directory)
}

fn unnamed(directory: &Path) -> File {
    unnamed_with(directory, 0, 0o666).expect("space")
}

/// Returns a new mount; `None`, with the reason printed, if this machine cannot do what is tested.
fn mount(new: impl FnOnce() -> Option<Mount>) -> Option<Mount> {
    let mount = new()?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a kernel");
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map_while(|it| it.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 1) {
        println!("not tested: Linux {} has no O_TMPFILE in FUSE, 6.1 has", release.trim());
        return None;
    }
    Some(mount)
}

/// Gives an open file a name by its descriptor in /proc.
fn link(file: &File, name: &Path) -> i32 {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let linked = rustix::fs::linkat(CWD, path, CWD, name, AtFlags::SYMLINK_FOLLOW);
    linked.err().map_or(0, rustix::io::Errno::raw_os_error)
}

/// Tries something until it is so: the kernel tells a moment after the last close that it forgot a file.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let was_so = (0..500).any(|_| {
        let is_so = is_so();
        std::thread::sleep(Duration::from_millis(if is_so { 0 } else { 10 }));
        is_so
    });
    assert!(was_so, "{what}");
}

/// Runs something as another user, in a thread of its own.
fn as_user<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[]).expect("root may");
            set_thread_res_gid(gid, gid, gid).expect("root may");
            set_thread_res_uid(uid, uid, uid).expect("root may");
            run()
        });
        thread.join().expect("it does not panic")
    })
}

/// Returns a directory of the mount with these permissions, to which other users have access.
fn directory(mount: &Mount, name: &str, mode: u32) -> PathBuf {
    for path in [mount.directory.path(), &mount.path("")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let path = mount.path(name);
    fs::create_dir(&path).expect("space");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
    path
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 11) as u8 | 1).collect()
}

/// open(2): the file has no name until linkat(), by either form, gives it one; then it is like any other.
#[test]
fn a_file_without_a_name_gets_one() {
    let Some(mut mount) = mount(|| Mount::new(64 << 20)) else { return };
    let root = mount.path("");
    let before = fs::metadata(&root).expect("it");
    let file = unnamed(&root);
    assert_eq!(file.metadata().expect("it").nlink(), 0, "by the reply, before anything is written");
    file.write_all_at(&bytes(3_000_000), 0).expect("space");
    let metadata = file.metadata().expect("it");
    assert_eq!((metadata.nlink(), metadata.len()), (0, 3_000_000));
    let after = fs::metadata(&root).expect("it");
    assert_eq!((after.mtime_nsec(), after.ctime_nsec()), (before.mtime_nsec(), before.ctime_nsec()));
    assert_eq!(fs::read_dir(&root).expect("it").count(), 0);
    assert_eq!(link(&file, &mount.path("name")), 0);
    assert_eq!(link(&file, &mount.path("name")), libc::EEXIST);
    rustix::fs::linkat(&file, "", CWD, mount.path("second"), AtFlags::EMPTY_PATH).expect("root may");
    assert_eq!(file.metadata().expect("it").nlink(), 2);
    assert_eq!(fs::metadata(mount.path("name")).expect("it").ino(), metadata.ino());
    file.write_all_at(b"more", 3_000_000).expect("space");
    fs::write(mount.path("sibling"), b"").expect("space");
    let mode = |name: &str| fs::metadata(mount.path(name)).expect("it").mode();
    assert_eq!(mode("name"), mode("sibling"), "the umask counts");
    drop(file);
    mount.remount();
    let expected = [&bytes(3_000_000)[..], b"more"].concat();
    assert!(fs::read(mount.path("name")).expect("it") == expected);
    assert_eq!(fs::metadata(mount.path("second")).expect("it").nlink(), 2);
}

/// linkat(): O_EXCL says never; a file whose last name was removed does not get another one.
#[test]
fn some_files_stay_without_a_name() {
    let Some(mut mount) = mount(|| Mount::new(64 << 20)) else { return };
    let root = mount.path("");
    let exclusive = unnamed_with(&root, libc::O_EXCL, 0o600).expect("space");
    assert_eq!(link(&exclusive, &mount.path("name")), libc::ENOENT);
    let file = unnamed(&root);
    assert_eq!(link(&file, &mount.path("name")), 0);
    fs::remove_file(mount.path("name")).expect("it");
    assert_eq!(file.metadata().expect("it").nlink(), 0);
    assert_eq!(link(&file, &mount.path("name")), libc::ENOENT);
    fs::write(mount.path("file"), b"x").expect("space");
    let open = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    assert_eq!(errno(open(&root, libc::O_TMPFILE)), libc::EINVAL, "it could not be written");
    assert_eq!(errno(unnamed_with(&mount.path("file"), 0, 0o600)), libc::ENOTDIR);
    assert_eq!(errno(unnamed_with(&mount.path("none"), 0, 0o600)), libc::ENOENT);
    drop((exclusive, file));
    mount.remount();
    assert_eq!(fs::read_dir(mount.path("")).expect("it").count(), 1);
}

/// statvfs(): the space returns after the last close, and after the death of the server by the next mount.
#[test]
fn space_returns() {
    let Some(mut mount) = mount(|| Mount::new(64 << 20)) else { return };
    let free = |mount: &Mount| {
        let statistics = rustix::fs::statvfs(mount.path("")).expect("it");
        (statistics.f_bfree, statistics.f_ffree)
    };
    let before = free(&mount);
    for _ in 0..3 {
        let file = unnamed(&mount.path(""));
        file.write_all_at(&bytes(8 << 20), 0).expect("space");
        assert!(free(&mount).0 + (8 << 20) / 4096 <= before.0);
        drop(file);
        eventually("the space is there again", || free(&mount) == before);
    }
    let mut server = serve_in_process(&mut mount);
    let file = unnamed(&mount.path(""));
    file.write_all_at(&bytes(8 << 20), 0).expect("space");
    file.sync_all().expect("no failure");
    let named = unnamed(&mount.path(""));
    named.write_all_at(&bytes(100_000), 0).expect("space");
    assert_eq!(link(&named, &mount.path("named")), 0);
    named.sync_all().expect("no failure");
    server.kill().and_then(|()| server.wait()).expect("it ends");
    drop((file, named));
    rustix::mount::unmount(mount.path(""), rustix::mount::UnmountFlags::DETACH).expect("a mount");
    {
        let memory = Mapped::open(&mount.directory.path().join("region"), false).expect("the region");
        let fs = FileSystem::open_read_only_with(memory, mounted::containers).expect("the file system");
        let report = check_with_containers(&fs);
        assert!(report.is_clean() && (report.orphans, report.files) == (1, 1), "{report:#?}");
    }
    mount.start();
    assert!(fs::read(mount.path("named")).expect("it") == bytes(100_000));
    fs::remove_file(mount.path("named")).expect("it");
    eventually("the space is there again", || free(&mount) == before);
}

/// Directories decide who may create such files and what they inherit, as for files with a name.
#[test]
fn directories_decide() {
    let Some(mut mount) = mount(|| Mount::new(64 << 20)) else { return };
    let closed = directory(&mount, "closed", 0o755);
    assert_eq!(errno(as_user(|| unnamed_with(&closed, 0, 0o600))), libc::EACCES);
    let (sticky, setgid) = (directory(&mount, "sticky", 0o1777), directory(&mount, "setgid", 0o2777));
    chown(&setgid, None, Some(50)).expect("root may");
    let listed = directory(&mount, "listed", 0o777);
    // rwx for the owner and a user, and r-x for the group; the mask is rw-, and others have nothing.
    let entry =
        |tag: u8, permissions: u8, id: u32| [&[tag, 0, permissions, 0][..], &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries =
        [entry(1, 7, none), entry(2, 7, 5), entry(4, 5, none), entry(0x10, 6, none), entry(0x20, 0, none)];
    let list = [&[2, 0, 0, 0][..], &entries.concat()].concat();
    rustix::fs::setxattr(&listed, "system.posix_acl_default", &list, XattrFlags::empty()).expect("root may");
    for directory in [&sticky, &setgid, &listed] {
        for mode in [0o666, 0o4770, 0o2755, 0o600] {
            let (file, sibling) = as_user(|| {
                let file = unnamed_with(directory, 0, mode).expect("everybody may");
                assert_eq!(link(&file, &directory.join("name")), 0);
                let path = directory.join("sibling");
                let options = OpenOptions::new().write(true).create_new(true).mode(mode).clone();
                (file, options.open(path).expect("everybody may"))
            });
            let seen = |file: &File| {
                let it = file.metadata().expect("it");
                let mut list = vec![0; 100];
                let len = rustix::fs::fgetxattr(file, "system.posix_acl_access", &mut list[..]);
                list.truncate(len.unwrap_or(0));
                (it.mode(), it.uid(), it.gid(), it.nlink(), list)
            };
            assert_eq!(seen(&file), seen(&sibling), "{directory:?}, {mode:o}");
            as_user(|| {
                fs::remove_file(directory.join("name")).expect("its owner may");
                fs::remove_file(directory.join("sibling")).expect("its owner may");
            });
        }
    }
    let file = as_user(|| unnamed_with(&setgid, 0, 0o600).expect("everybody may"));
    assert_eq!((file.metadata().expect("it").uid(), file.metadata().expect("it").gid()), (USER, 50));
    drop(file);
    mount.remount();
}

/// Such a file and its bytes count for its owner's limits, until it is freed.
#[test]
fn limits_hold() {
    let Some(mut mount) = mount(|| Mount::new(64 << 20)) else { return };
    let all = directory(&mount, "all", 0o777);
    let (owner, bytes) = (Owner::User(USER), NewLimit::Set(1_000_000));
    let (name, value) = LimitChange { owner, bytes, files: NewLimit::Set(2) }.attribute();
    rustix::fs::setxattr(mount.path(""), name, &value, XattrFlags::empty()).expect("root may");
    let open = || as_user(|| unnamed_with(&all, 0, 0o600));
    eventually("limits are enforced", || [open(), open(), open()].map(errno) == [0, 0, libc::EDQUOT]);
    let mut file = None;
    eventually("the files before are freed", || {
        file = open().ok();
        file.is_some()
    });
    let file = file.expect("it is open");
    let write = |len: u64| errno(as_user(|| file.write_all_at(&[1; 100], len - 100)));
    assert_eq!((write(1_000_000), write(1_000_001)), (0, libc::EDQUOT));
    assert_eq!(link(&file, &all.join("name")), 0);
    assert_eq!(write(1_000_001), libc::EDQUOT, "the name changes nothing");
    fs::remove_file(all.join("name")).expect("it");
    drop(file);
    eventually("all is given back", || {
        let files = [open(), open(), open()];
        let full = files[0].as_ref().is_ok_and(|file| file.write_all_at(&[1; 100], 999_900).is_ok());
        full && files.map(errno) == [0, 0, libc::EDQUOT]
    });
    mount.remount();
}

/// It moves to a tier and back, and is linked and freed there, with passthrough and without.
#[test]
fn files_in_tiers_behave_the_same() {
    for new in [Mount::with_tiers, Mount::without_passthrough] {
        let Some(mut mount) = mount(|| new(64 << 20)) else { return };
        let command = |file: &File, name: &str| {
            rustix::fs::fsetxattr(file, name, b"", XattrFlags::empty()).expect("it moves");
        };
        let (named, freed) = (unnamed(&mount.path("")), unnamed(&mount.path("")));
        for file in [&named, &freed] {
            file.write_all_at(&bytes(3_000_000), 0).expect("space");
            command(file, "weir.evict");
        }
        assert_eq!(mount.containers(), 2);
        assert_eq!(link(&named, &mount.path("name")), 0);
        for file in [&named, &freed] {
            let mut found = vec![0; 3_000_000];
            file.read_exact_at(&mut found, 0).expect("it");
            assert!(found == bytes(3_000_000));
            file.write_all_at(b"changed", 1000).expect("space");
        }
        command(&freed, "weir.promote");
        command(&freed, "weir.evict");
        drop((named, freed));
        mount.remount();
        assert_eq!(mount.containers(), 1);
        let mut expected = bytes(3_000_000);
        expected[1000..1007].copy_from_slice(b"changed");
        assert!(fs::read(mount.path("name")).expect("it") == expected);
    }
}

/// Mappings, attributes and allocations of a file without a name, by a program that was not written for this.
#[test]
fn programs_use_it() {
    let Some(mut mount) = mount(|| Mount::new(64 << 20)) else { return };
    let script = "
        python3 - <<'END'
import mmap, os, tempfile
with tempfile.TemporaryFile(dir='.') as file:
    assert os.fstat(file.fileno()).st_nlink == 0 and os.listdir('.') == []
    file.write(b'x' * 100000)
fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640)
os.posix_fallocate(fd, 0, 5000000)
os.setxattr(fd, 'user.a', b'1')
with mmap.mmap(fd, 5000000) as mapping:
    mapping[4000000:4000004] = b'here'
    mapping.flush()
    os.link(f'{fd}', 'name', src_dir_fd=os.open('/proc/self/fd', os.O_RDONLY))
    mapping[4000004:4000009] = b'there'
os.rename('name', 'other')
os.ftruncate(fd, 4500000)
os.close(fd)
END";
    if mount.script(&["python3"], script) {
        mount.remount();
        let found = fs::read(mount.path("other")).expect("it");
        assert!(found.len() == 4_500_000 && found[4_000_000..4_000_009] == *b"herethere");
        let mut value = [0; 4];
        let len = rustix::fs::getxattr(mount.path("other"), "user.a", &mut value[..]).expect("it");
        assert_eq!(value[..len], *b"1");
    }
}

/// The server of [`serve_in_process`].
#[test]
fn serve_until_killed() {
    mounted::serve_if_asked();
}
