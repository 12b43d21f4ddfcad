//! What must be durable before the kernel gets an answer.

use super::*;
use crate::nvm::Simulated;
use crate::testing::{evicted_file, file, file_system};
use crate::tiers::{Class, Container, Containers as _, SimulatedContainers};

/// Returns a handler with a file in a container.
fn handler() -> (Handler<Simulated>, SimulatedContainers, Ino, Container) {
    let (mut fs, containers) = file_system(&[Class::Disk]);
    let (ino, container) = evicted_file(&mut fs, "file");
    let place = Place { region: "region".into(), directory: "mount".into() };
    let (sender, _) = std::sync::mpsc::channel();
    let shared = Shared::new(fs);
    let handler = Handler::new(shared, Arc::default(), place, Opens::new(true, false), TellEnd(sender));
    (handler, containers, ino, container)
}

#[test]
fn the_flag_is_durable_before_the_kernel_writes() {
    let (handler, _, ino, _) = handler();
    handler.shared.read().set_passthrough(ino, true);
    handler.prepare_passthrough(ino, true).expect("usable");
    let fs = handler.shared.read();
    assert!(fs.is_ready_for_passthrough(ino, true).expect("usable"), "nothing of it waits for a commit");
}

#[test]
fn a_sync_of_a_file_covers_what_the_kernel_wrote() {
    let (handler, containers, ino, container) = handler();
    handler.shared.read().set_passthrough(ino, true);
    handler.prepare_passthrough(ino, true).expect("usable");
    handler.sync_file(ino).expect("no failure");
    containers.write(container, 0, b"new").expect("behind the server's back");
    containers.fail_syncs();
    assert!(matches!(handler.sync_file(ino), Err(Error::Container(_))));
}

#[test]
fn bytes_that_a_container_lacks_do_not_read_as_zeros() {
    let (handler, containers, ino, container) = handler();
    let read = |offset, len| handler.read(ino, offset, len, |bytes| bytes.map(<[u8]>::len));
    assert_eq!(read(4000, 9000).expect("it is whole"), 5000);
    containers.set_len(container, 4096).expect("behind the server's back");
    assert_eq!(read(0, 4096).expect("these are there"), 4096);
    assert!(matches!(read(4000, 9000), Err(Error::Container(_))));
}

/// Changes wait until bytes in the region are answered, and for no container's disk.
#[test]
fn reads_of_containers_hold_up_no_changes() {
    let (handler, _, in_container, _) = handler();
    let in_region = file(&mut handler.shared.write(), "other", 9000);
    for (ino, expected) in [(in_container, true), (in_region, false)] {
        let may_change = handler.read(ino, 0, 9000, |bytes| {
            assert_eq!(bytes.expect("it can be read").len(), 9000);
            handler.shared.0.try_write().is_ok()
        });
        assert_eq!(may_change, expected, "{ino:?}");
    }
}

/// Attributes other than capabilities are no reason to hold up others.
#[test]
fn only_privileges_are_looked_after_before_a_write() {
    let (handler, _, ino, _) = handler();
    let set = |name: &[u8]| {
        handler
            .shared
            .write()
            .set_attribute(ino, name, b"value", SetAttribute::Always, now())
            .expect("space");
    };
    let has =
        |also_permissions| has_privileges(&handler.shared.read(), ino, also_permissions).expect("it exists");
    set(b"user.name");
    assert!(!has(true));
    let change = Change { permissions: Some(0o4755), ..Change::default() };
    handler.shared.write().set_attributes(ino, &change, now()).expect("space");
    assert!(has(true) && !has(false));
    set(CAPABILITY);
    assert!(has(false));
}
