//! The flag of files that the kernel accesses without the server, and moves of such files.

use super::*;
use crate::testing::{Fs, evicted_file, file_system};
use crate::tiers::{Class, Containers as _};

#[test]
fn the_flag_of_passthrough_ends_by_a_commit_that_syncs_the_container() {
    let (mut fs, containers) = file_system(&[Class::Flash, Class::Disk]);
    let (ino, container) = evicted_file(&mut fs, "file");
    fs.prepare_passthrough(ino, true).expect("usable");
    fs.sync().expect("no failure");
    containers.write(container, 0, b"new").expect("behind the server's back");
    fs.end_passthrough(ino).expect("nobody has it open");
    assert!(!fs.inode(ino).expect("it exists").is_passthrough);
    containers.fail_syncs();
    assert!(matches!(fs.sync(), Err(Error::Container(_))), "the kernel's writes may not be durable");
}

#[test]
fn a_file_stays_in_its_container_while_the_kernel_accesses_it() {
    let (mut fs, containers) = file_system(&[Class::Flash, Class::Disk]);
    let (ino, container) = evicted_file(&mut fs, "file");
    fs.set_passthrough(ino, true);
    let stays = |fs: &mut Fs| {
        matches!(fs.promote(ino), Err(Error::InUse)) && matches!(fs.move_out(ino), Err(Error::InUse))
    };
    assert!(stays(&mut fs), "open");
    fs.set_passthrough(ino, false);
    containers.set_used(container, true);
    assert!(stays(&mut fs), "mapped");
    containers.set_used(container, false);
    fs.move_out(ino).expect("the other tier");
    fs.promote(ino).expect("space");
}
