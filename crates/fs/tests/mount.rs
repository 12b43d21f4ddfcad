//! Real programs on a mounted file system. Without root and `/dev/fuse` these tests say so and do nothing.

#[path = "support/mounted.rs"]
mod mounted;

use mounted::{Mount, errno, serve_in_process};
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
