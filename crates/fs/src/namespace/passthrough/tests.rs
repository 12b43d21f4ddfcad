//! The flag of files that the kernel accesses without the server, and moves of such files.

use super::*;
use crate::namespace::{Change, SetAttribute};
use crate::testing::{Fs, NOW, evicted_file, file_system};
use crate::tiers::{Class, Containers as _};

#[test]
fn the_flag_of_passthrough_ends_by_a_commit_that_syncs_the_container() {
    let (mut fs, containers) = file_system(&[Class::Flash, Class::Disk]);
    let (ino, container) = evicted_file(&mut fs, "file");
    fs.prepare_passthrough(ino, true).expect("usable");
    fs.sync().expect("no failure");
    // A rescue must not cut off what the kernel adds.
    let header_size = || containers.header(container).expect("it exists").expect("it was evicted").size;
    assert_eq!(header_size(), None);
    containers.write(container, 0, b"new").expect("behind the server's back");
    fs.end_passthrough(ino).expect("nobody has it open");
    assert_eq!(fs.header(ino).expect("it exists").size, Some(9000));
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

/// A second opening comes while the first one waits for the commit.
#[test]
fn a_flagged_file_is_ready_only_after_a_commit() {
    let (mut fs, _) = file_system(&[Class::Flash]);
    let (ino, _) = evicted_file(&mut fs, "file");
    fs.prepare_passthrough(ino, true).expect("usable");
    assert!(!fs.is_ready_for_passthrough(ino, true).expect("usable"), "the flag may be lost");
    fs.sync().expect("no failure");
    assert!(fs.is_ready_for_passthrough(ino, true).expect("usable"));
}

/// The server has to see the write that ends privileges.
#[test]
fn programs_with_privileges_are_written_by_the_server() {
    let (mut fs, _) = file_system(&[Class::Flash]);
    let (ino, container) = evicted_file(&mut fs, "file");
    assert_eq!(fs.passthrough_container(ino).expect("a file"), Some(container));
    let set = |fs: &mut Fs, name: &[u8]| fs.set_attribute(ino, name, b"x", SetAttribute::Always, NOW);
    set(&mut fs, b"user.other").expect("space");
    assert_eq!(fs.passthrough_container(ino).expect("a file"), Some(container));
    set(&mut fs, b"security.capability").expect("space");
    assert_eq!(fs.passthrough_container(ino).expect("a file"), None);
    fs.remove_attribute(ino, b"security.capability", NOW).expect("it is there");
    let change = Change { permissions: Some(0o4755), ..Change::default() };
    fs.set_attributes(ino, &change, NOW).expect("a file");
    assert_eq!(fs.passthrough_container(ino).expect("a file"), None);
}
