//! Files without a name (`O_TMPFILE`) when the server is killed.

use crate::fs::{Region, can_mount};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

fn linked(file: &File, name: &Path) -> rustix::io::Result<()> {
    linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, name, AtFlags::SYMLINK_FOLLOW)
}

/// The check counts what the killed server left, and the next mount frees it; what had got a name stays.
#[test]
fn a_killed_server_leaves_only_files_with_names() {
    if !can_mount() {
        return;
    }
    let region = Region::new("32MiB");
    let mut server = region.serve();
    let unnamed = |contents: &[u8]| -> rustix::io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(region.path(""), flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(contents).and_then(|()| file.sync_all()).expect("space");
        Ok(file)
    };
    let file = match unnamed(b"kept") {
        Err(Errno::OPNOTSUPP) => {
            eprintln!("left out: FUSE has O_TMPFILE since Linux 6.1");
            server.kill().and_then(|()| server.wait()).expect("it ends");
            return;
        }
        file => file.expect("space"),
    };
    linked(&file, &region.path("name")).expect("its first name");
    file.sync_all().expect("it is durable");
    let lost = [unnamed(&[1; 100_000]), unnamed(b"lost")].map(|file| file.expect("space"));
    server.kill().and_then(|()| server.wait()).expect("it ends");
    drop((file, lost));
    let report = region.json(&["fs", "check", "region"]);
    assert_eq!((&report["clean"], &report["orphans"]), (&true.into(), &2.into()), "{report}");
    let said = region.weir(&["fs", "check", "region"]);
    assert!(said.contains("2 files without a name have space that the next mount frees"), "{said}");
    region.json(&["fs", "unmount", "files"]);
    region.mount();
    assert_eq!(fs::read(region.path("name")).expect("it"), b"kept");
    assert_eq!(fs::read_dir(region.path("")).expect("the root").count(), 1);
    region.unmount();
}
