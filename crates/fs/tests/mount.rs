//! Real programs on a mounted file system. Without root and `/dev/fuse` these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::{Mount, errno, serve_in_process};
use rustix::fs::{Gid, Uid, XattrFlags};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file")
}

#[test]
fn names_links_and_removal() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let path = |name: &str| mount.path(name);
    fs::create_dir(path("d")).expect("a directory");
    fs::write(path("d/a"), b"one").expect("a file");
    fs::hard_link(path("d/a"), path("b")).expect("a link");
    std::os::unix::fs::symlink("d/a", path("s")).expect("a symbolic link");
    assert_eq!(fs::metadata(path("b")).expect("it").nlink(), 2);
    assert_eq!(fs::read(path("s")).expect("through the link"), b"one");
    assert_eq!(errno(fs::remove_dir(path("d"))), libc::ENOTEMPTY);
    assert_eq!(errno(fs::create_dir(path("d"))), libc::EEXIST);
    assert_eq!(errno(fs::rename(path("d"), path("d/e"))), libc::EINVAL);
    let long = "n".repeat(255);
    fs::write(path(&long), b"").expect("a name of 255 bytes");
    assert_eq!(errno(fs::write(path(&"n".repeat(256)), b"")), libc::ENAMETOOLONG);
    // A file without a name lives as long as it is open.
    let mut open = file(&path("open"));
    open.write_all(b"still here").expect("space");
    fs::rename(path("b"), path("open")).expect("it replaces the open file");
    fs::remove_file(path("d/a")).expect("it");
    let mut text = String::new();
    open.seek(SeekFrom::Start(0)).expect("a file");
    open.read_to_string(&mut text).expect("a file");
    assert_eq!((text.as_str(), open.metadata().expect("it").nlink()), ("still here", 0));
    drop(open);
    fs::remove_dir(path("d")).expect("it is empty");
    mount.remount();
    let mut names: Vec<_> = fs::read_dir(mount.path("")).expect("the root").flatten().collect();
    names.sort_by_key(fs::DirEntry::file_name);
    assert_eq!(names.iter().map(fs::DirEntry::file_name).collect::<Vec<_>>(), [&long[..], "open", "s"]);
    assert_eq!(fs::read(mount.path("open")).expect("it"), b"one");
}

#[test]
fn contents_holes_and_times() {
    let Some(mut mount) = Mount::new(128 << 20) else { return };
    let sparse = file(&mount.path("sparse"));
    sparse.write_all_at(b"far", 5 << 30).expect("space for one chunk");
    assert!(sparse.metadata().expect("it").blocks() * 512 < 8 << 20);
    let seek = |offset, whence| {
        rustix::fs::seek(&sparse, whence_at(whence, offset)).map_err(|error| error.raw_os_error())
    };
    assert_eq!(seek(0, libc::SEEK_DATA), Ok(5 << 30));
    assert_eq!(seek(0, libc::SEEK_HOLE), Ok(0));
    assert_eq!(seek(5 << 30, libc::SEEK_HOLE), Ok((5 << 30) + 3));
    assert_eq!(seek((5 << 30) + 3, libc::SEEK_DATA), Err(libc::ENXIO));
    assert_eq!(seek((5 << 30) + 3, libc::SEEK_HOLE), Err(libc::ENXIO), "the file ends there");
    sparse.set_len(7).expect("a file");
    sparse.set_len(5 << 30).expect("a file");
    let mut zeros = [1; 100];
    sparse.read_exact_at(&mut zeros, (5 << 30) - 100).expect("a file");
    assert_eq!(zeros, [0; 100]);
    let before_1970 = std::time::UNIX_EPOCH - Duration::from_nanos(1_234_567_891);
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(mount.path("sparse"));
    sparse.set_modified(before_1970).expect("a file");
    assert!(direct.is_ok(), "{direct:?}");
    drop((sparse, direct));
    mount.remount();
    let metadata = fs::metadata(mount.path("sparse")).expect("it");
    assert_eq!(metadata.modified().expect("a time"), before_1970);
    assert_eq!(metadata.len(), 5 << 30);
}

fn whence_at(whence: i32, offset: u64) -> rustix::fs::SeekFrom {
    if whence == libc::SEEK_DATA {
        rustix::fs::SeekFrom::Data(offset)
    } else {
        rustix::fs::SeekFrom::Hole(offset)
    }
}

#[test]
fn a_full_region_reports_it_and_recovers() {
    let Some(mut mount) = Mount::new(32 << 20) else { return };
    let mut file = file(&mount.path("large"));
    let error = (0..100).find_map(|_| file.write_all(&[7; 1 << 20]).err());
    assert_eq!(error.and_then(|error| error.raw_os_error()), Some(libc::ENOSPC));
    drop(file);
    fs::remove_file(mount.path("large")).expect("removal needs no space");
    // The kernel tells a moment after the removal that it has forgotten the file.
    let is_written = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        fs::write(mount.path("small"), vec![1; 5 << 20]).is_ok()
    });
    assert!(is_written, "the space is there again");
    mount.remount();
    assert_eq!(fs::read(mount.path("small")).expect("it"), vec![1; 5 << 20]);
}

#[test]
fn permissions_are_checked_and_privileges_end() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let script = "
        chmod 755 .
        echo secret > f; chmod 600 f
        if setpriv --reuid 1 --regid 1 --clear-groups cat f 2>/dev/null; then exit 2; fi
        cp /bin/true t; chmod 6777 t
        setpriv --reuid 1 --regid 1 --clear-groups sh -c 'echo x >> t'
        test \"$(stat -c %a t)\" = 777
        mkdir sticky; chmod 1777 sticky; echo > sticky/f
        if setpriv --reuid 1 --regid 1 --clear-groups rm -f sticky/f 2>/dev/null; then exit 3; fi
        mkdir g; chgrp 5 g; chmod 2755 g; mkdir g/h; test \"$(stat -c '%g %a' g/h)\" = '5 2755'
        umask 027; echo > masked; test \"$(stat -c %a masked)\" = 640
    ";
    mount.script(&["setpriv", "stat"], script);
    let script = "
        echo > f; chmod 640 f; setfacl -m u:1:rw f; test \"$(stat -c %a f)\" = 660
        setpriv --reuid 1 --regid 1 --clear-groups sh -c 'echo x >> f'
        chmod 600 f; getfacl f | grep -q mask::---
        if setpriv --reuid 1 --regid 1 --clear-groups sh -c 'echo x >> f' 2>/dev/null; then exit 4; fi
        setfacl -b f; test \"$(stat -c %a f)\" = 600
        mkdir d; setfacl -d -m u:1:rwx d; mkdir d/e; echo > d/e/f; getfacl d/e/f | grep -q user:1:rwx ||
            getfacl -n d/e/f | grep -q user:1:rwx
        echo > x; setfattr -n user.a -v b x; test \"$(getfattr --only-values -n user.a x)\" = b
    ";
    mount.script(&["setfacl", "setpriv", "setfattr"], script);
    fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o644)).expect("a file");
}

#[test]
fn reads_update_times() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    let path = mount.path("file");
    fs::write(&path, b"text").expect("space");
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
    file(&path).set_times(times).expect("a file");
    // The kernel has no pages of it then.
    mount.remount();
    let accessed = || fs::metadata(&path).expect("it").accessed().expect("a time");
    assert_eq!(accessed(), long_ago);
    assert_eq!(fs::read(&path).expect("it"), b"text");
    let read = accessed();
    assert!(read > long_ago);
    mount.remount();
    assert_eq!(accessed(), read);
}

/// Runs a part of a test with the rights of another user.
fn as_user<T: Send>(number: u32, run: impl FnOnce() -> T + Send) -> T {
    let (user, group) = (Uid::from_raw(number), Gid::from_raw(number));
    let run = move || {
        set_thread_groups(&[]).expect("root may");
        set_thread_res_gid(group, group, group).expect("root may");
        set_thread_res_uid(user, user, user).expect("root may");
        run()
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

const ACCESS: &str = "system.posix_acl_access";

/// Returns a list in the kernel's form: permissions of owner, user 2, group, mask and others.
fn list([owner, user, group, mask, others]: [u8; 5]) -> Vec<u8> {
    let entry =
        |tag: u8, permissions: u8, id: u32| [&[tag, 0, permissions, 0][..], &id.to_le_bytes()].concat();
    let (none, user_2) = (u32::MAX, entry(2, user, 2));
    let (owner, group) = (entry(1, owner, none), entry(4, group, none));
    [vec![2, 0, 0, 0], owner, user_2, group, entry(0x10, mask, none), entry(0x20, others, none)].concat()
}

fn attribute(file: &File, name: &str) -> Result<Vec<u8>, i32> {
    let mut value = vec![0; 4096];
    let len = rustix::fs::fgetxattr(file, name, &mut value[..]).map_err(|error| error.raw_os_error())?;
    value.truncate(len);
    Ok(value)
}

#[test]
fn access_lists_and_permissions_agree() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let set = |file: &File, name: &str, list: &[u8]| {
        rustix::fs::fsetxattr(file, name, list, XattrFlags::empty()).expect("a list");
    };
    let mode = |file: &File| file.metadata().expect("it").mode() & 0o7777;
    let shared = file(&mount.path("shared"));
    shared.set_permissions(fs::Permissions::from_mode(0o640)).expect("a file");
    set(&shared, ACCESS, &list([6, 6, 4, 6, 0]));
    assert_eq!(mode(&shared), 0o660, "the group's permissions are the mask");
    shared.set_permissions(fs::Permissions::from_mode(0o600)).expect("a file");
    assert_eq!(attribute(&shared, ACCESS), Ok(list([6, 6, 4, 0, 0])), "nobody else may read it");
    // An owner outside of the group loses the set-group-id bit; root does not.
    for (user, expected) in [(0, 0o2755), (1, 0o755)] {
        let program = file(&mount.path("program"));
        std::os::unix::fs::fchown(&program, Some(1), Some(5)).expect("root may");
        program.set_permissions(fs::Permissions::from_mode(0o2700)).expect("a file");
        as_user(user, || set(&program, ACCESS, &list([7, 5, 5, 5, 5])));
        assert_eq!(mode(&program), expected, "user {user}");
    }
    fs::create_dir(mount.path("d")).expect("a directory");
    let directory = File::open(mount.path("d")).expect("it");
    set(&directory, "system.posix_acl_default", &list([7, 7, 5, 7, 0]));
    let inherits = file(&mount.path("d/file"));
    assert_eq!(attribute(&inherits, ACCESS), Ok(list([6, 7, 5, 6, 0])));
    fs::create_dir(mount.path("d/e")).expect("a directory");
    let below = File::open(mount.path("d/e")).expect("it");
    assert_eq!(attribute(&below, "system.posix_acl_default"), Ok(list([7, 7, 5, 7, 0])));
}

#[test]
fn other_users_see_no_trusted_attributes() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let file = file(&mount.path("file"));
    for name in ["trusted.a", "user.b"] {
        rustix::fs::fsetxattr(&file, name, b"value", XattrFlags::empty()).expect("space");
    }
    let names = || {
        let mut names = vec![0; 4096];
        let len = rustix::fs::flistxattr(&file, &mut names[..]).expect("a file");
        String::from_utf8_lossy(&names[..len]).into_owned()
    };
    assert_eq!((names(), as_user(1, names)), ("trusted.a\0user.b\0".to_owned(), "user.b\0".to_owned()));
}

/// A change of a file.
type AnyChange<'a> = dyn Fn(&File) + Sync + 'a;

/// Whoever changes a program takes away what it may do more than others.
#[test]
fn privileges_end_with_each_change_of_contents() {
    let Some(mount) = Mount::new(64 << 20) else { return };
    let source = file(&mount.path("source"));
    source.write_all_at(b"source", 0).expect("space");
    let copy = |program: &File| {
        assert_eq!(rustix::fs::copy_file_range(&source, Some(&mut 0), program, None, 6), Ok(6));
    };
    let allocate = |program: &File| {
        rustix::fs::fallocate(program, rustix::fs::FallocateFlags::empty(), 0, 9000).expect("space");
    };
    let write = |program: &File| program.write_all_at(b"x", 0).expect("space");
    let changes: [(&str, &AnyChange<'_>); 3] = [("copy", &copy), ("allocate", &allocate), ("write", &write)];
    for (name, change) in changes {
        let program = file(&mount.path(name));
        program.set_permissions(fs::Permissions::from_mode(0o6777)).expect("a file");
        as_user(1, || change(&program));
        assert_eq!(fs::metadata(mount.path(name)).expect("it").mode() & 0o7777, 0o777, "{name}");
    }
}

/// The capabilities of a program are not those of what is written in its place.
#[test]
fn capabilities_end_with_a_change() {
    const CAPABILITY: &str = "security.capability";
    let Some(mount) = Mount::new(64 << 20) else { return };
    let value = [&[0, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    let changes: [(&str, &AnyChange<'_>); 3] = [
        ("write", &|file| file.write_all_at(b"x", 0).expect("space")),
        ("truncate", &|file| file.set_len(1).expect("a file")),
        ("chown", &|file| std::os::unix::fs::fchown(file, Some(1), None).expect("root may")),
    ];
    for (name, change) in changes {
        let program = file(&mount.path(name));
        program.write_all_at(b"program", 0).expect("space");
        rustix::fs::fsetxattr(&program, CAPABILITY, &value, XattrFlags::empty()).expect("root may");
        assert_eq!(attribute(&program, CAPABILITY), Ok(value.clone()));
        change(&program);
        assert_eq!(attribute(&program, CAPABILITY), Err(libc::ENODATA), "{name}");
    }
}

/// A listing with attributes is a reference to each file, but none to the directory itself.
#[test]
fn listed_files_live_as_long_as_they_are_open() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    fs::create_dir(mount.path("d")).expect("a directory");
    fs::write(mount.path("d/file"), b"still here").expect("a file");
    // The kernel knows names by the listing alone.
    mount.remount();
    let inodes = || {
        let found = rustix::fs::statvfs(mount.path("")).expect("it");
        found.f_files - found.f_ffree
    };
    let list = |name: &str| {
        let entries = rustix::fs::Dir::read_from(File::open(mount.path(name)).expect("it")).expect("it");
        let entry = |entry: rustix::fs::DirEntry| {
            (entry.file_name().to_str().expect("UTF-8").to_owned(), entry.ino())
        };
        entries.map(|found| entry(found.expect("an entry"))).collect::<Vec<_>>()
    };
    let ino = |name: &str| fs::metadata(mount.path(name)).expect("it").ino();
    let before = inodes();
    let listed = list("d");
    let expected = [(".", ino("d")), ("..", ino("")), ("file", ino("d/file"))];
    assert_eq!(listed, expected.map(|(name, ino)| (name.to_owned(), ino)));
    let mut file = File::open(mount.path("d/file")).expect("it");
    fs::remove_file(mount.path("d/file")).expect("it");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("it is open");
    assert_eq!(text, "still here");
    drop(file);
    list("d");
    fs::remove_dir(mount.path("d")).expect("it is empty");
    // The kernel tells a moment later that it has forgotten both.
    let are_freed = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        inodes() == before - 2
    });
    assert!(are_freed, "{} inodes, {before} before", inodes());
}

#[test]
fn git_clones_and_checks_a_repository() {
    let Some(mut mount) = Mount::new(256 << 20) else { return };
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = format!(
        "git -c safe.directory='*' clone -q --no-hardlinks '{repository}' r
         cd r; git fsck --full --strict 2>&1 | tail -3; test -z \"$(git status --porcelain)\""
    );
    if mount.script(&["git"], &script) {
        mount.remount();
        mount.script(&["git"], "cd r; git fsck --full; test -z \"$(git status --porcelain)\"; rm -rf ../r");
    }
}

#[test]
fn copies_of_a_tree_are_the_same() {
    let Some(mut mount) = Mount::new(256 << 20) else { return };
    let tree = "/usr/share/perl";
    let script =
        format!("cp -a {tree} copy; diff -r --no-dereference {tree} copy; tar cf t.tar copy; tar df t.tar");
    if Path::new(tree).exists() && mount.script(&["tar", "diff"], &script) {
        mount.remount();
        mount.script(&["tar", "diff"], &format!("diff -r --no-dereference {tree} copy; tar df t.tar"));
        let script =
            format!("rsync -a {tree}/ r/; test -z \"$(rsync -a --checksum --itemize-changes {tree}/ r/)\"");
        mount.script(&["rsync"], &script);
    }
}

#[test]
fn file_stressors_verify() {
    let Some(mut mount) = Mount::new(256 << 20) else { return };
    let stress = "stress-ng --temp-path . --verify --timeout 3s --quiet --hdd 1 --hdd-bytes 16m --dentry 1 \
                  --dir 1 --rename 1 --link 1 --symlink 1 --fallocate 1 --fallocate-bytes 16m --seek 1 \
                  --seek-size 8m --xattr 1 --chmod 1 --utime 1 --flock 1 --locka 1 --mmap 1 --mmap-file \
                  --mmap-bytes 8m";
    mount.script(&["stress-ng"], stress);
    mount.script(&["dbench"], "dbench -t 4 -c /usr/share/dbench/client.txt 4");
    mount.script(
        &["fio"],
        "fio --name=v --size=16m --rw=randwrite --bs=7k --verify=crc32c --verify_fatal=1 --time_based=0",
    );
    mount.remount();
}

/// The server of [`serve_in_process`].
#[test]
fn serve_until_killed() {
    mounted::serve_if_asked();
}

#[test]
fn acknowledged_fsyncs_survive_a_killed_server() {
    let Some(mut mount) = Mount::new(64 << 20) else { return };
    for round in 0..5_u8 {
        let mut server = serve_in_process(&mut mount);
        // Names that are written, synced and then renamed until the server dies.
        let mut synced = 0_u32;
        let acknowledged = Arc::new(AtomicU32::new(0));
        let killer = {
            let (pid, acknowledged) = (rustix::process::Pid::from_child(&server), Arc::clone(&acknowledged));
            std::thread::spawn(move || {
                while acknowledged.load(Ordering::SeqCst) < 1 + 5 * u32::from(round) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(3 * u64::from(round)));
                rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            })
        };
        let step = |number: u32| -> std::io::Result<()> {
            let mut new = File::create(mount.path("new"))?;
            new.write_all(&number.to_le_bytes().repeat(2000))?;
            new.sync_all()?;
            fs::rename(mount.path("new"), mount.path("kept"))?;
            File::open(mount.path(""))?.sync_all()
        };
        while step(synced + 1).is_ok() {
            synced += 1;
            acknowledged.store(synced, Ordering::SeqCst);
        }
        // Had a step failed for another reason, the thread would wait for ever.
        acknowledged.store(u32::MAX, Ordering::SeqCst);
        killer.join().expect("the thread ends").expect("the server was there");
        server.wait().expect("the server ends");
        rustix::mount::unmount(mount.path(""), rustix::mount::UnmountFlags::DETACH).expect("a mount");
        mount.start();
        let bytes = fs::read(mount.path("kept")).unwrap_or_default();
        let found = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        assert!(found == synced || found == synced + 1, "round {round}: {synced} synced, {found} found");
        assert_eq!(bytes, found.to_le_bytes().repeat(if found == 0 { 0 } else { 2000 }));
        fs::remove_file(mount.path("kept")).expect("it");
    }
}
