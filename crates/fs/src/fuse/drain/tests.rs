//! Tiers that are emptied while programs use them.

use super::*;
use crate::check::check_with_containers;
use crate::nvm::Simulated;
use crate::testing::{Fs, NOW, contents, evicted_file, file, file_system, open};
use crate::tiers::{Class, Containers as _, SimulatedContainers};
use std::sync::mpsc::{Sender, channel};

const FIRST: TierNumber = TierNumber(0);
const SECOND: TierNumber = TierNumber(1);

/// Returns a worker of a file system, and what stops it.
fn worker(fs: Fs) -> (Worker<Simulated>, Sender<()>) {
    let (stop, stopped) = channel();
    (Worker { shared: Shared::new(fs), stopped }, stop)
}

/// Returns a file system with a tier of flash, and files in it.
fn with_files(count: usize) -> (Fs, SimulatedContainers, Vec<(Ino, Container)>) {
    let (mut fs, containers) = file_system(&[Class::Flash]);
    let files = (0..count).map(|number| evicted_file(&mut fs, &format!("file-{number}"))).collect();
    (fs, containers, files)
}

fn add_second(fs: &mut Fs) {
    assert_eq!(fs.add_tier(Class::Disk, "/second".into(), [8; 16]).expect("a new tier"), SECOND);
}

fn verify(fs: &Fs, ino: Ino) {
    let mut found = vec![0; 9000];
    assert_eq!(fs.read(ino, 0, &mut found).expect("it can be read"), 9000);
    assert!(found == contents(ino, 9000));
}

/// Waits until the worker notes what keeps files in the first tier.
fn wait_for_blocked(shared: &Shared<Simulated>) -> Blocked {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(blocked) = shared.read().blocked(FIRST) {
            return blocked;
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_tier_is_emptied_and_removed() {
    let (mut fs, containers, files) = with_files(5);
    add_second(&mut fs);
    // It lives as long as it is referred to.
    fs.refer(files[4].0);
    fs.unlink(Ino::ROOT, b"file-4", NOW).expect("a file");
    // Its container stays until the tier is removed.
    let other = file(&mut fs, "other", 9000);
    let begun = fs.begin_eviction(other, FIRST).expect("the tier takes it");
    containers.create(begun.container).expect("the tier takes it");
    fs.set_leaving(FIRST, true).expect("it exists");
    assert_eq!(containers.list(FIRST).expect("no failure").len(), 6);
    let (worker, _stop) = worker(fs);
    assert!(worker.drain(FIRST).is_ok());
    let mut fs = worker.shared.write();
    assert!(fs.tiers()[0].is_removed() && containers.list(FIRST).expect("no failure").is_empty());
    for (ino, _) in &files {
        verify(&fs, *ino);
        let form = fs.inode(*ino).expect("it exists").form;
        assert!(matches!(form, Form::Container(Container { tier: SECOND, .. })), "{form:?}");
        assert_eq!(fs.header(*ino).expect("it exists").ino, ino.0);
    }
    fs.sync().expect("no failure");
    fs.forget(files[4].0, 1).expect("no failure");
    assert!(check_with_containers(&fs).is_clean());
}

/// The new container is durable before the commit after which the file has it, although a commit during the
/// copy has synced what was there by then.
#[test]
fn moved_files_survive_a_power_loss() {
    let (mut fs, containers, files) = with_files(3);
    add_second(&mut fs);
    let (worker, _stop) = worker(fs);
    for (ino, _) in &files {
        let begun = worker.shared.write().begin_relocation(*ino, SECOND).expect("the tier takes it");
        create(&worker.shared, &begun).expect("the tier takes it");
        worker.shared.sync().expect("no failure");
        let copied = worker.copy(&begun);
        assert!(finish(&worker.shared, &begun, copied).is_ok());
    }
    worker.shared.sync().expect("no failure");
    let memory = worker.shared.read().store().memory().after_power_loss(|_| 0);
    let fs = open(memory, &containers.after_power_loss(&mut |_| 0));
    for (ino, _) in &files {
        let form = fs.inode(*ino).expect("it exists").form;
        assert!(matches!(form, Form::Container(Container { tier: SECOND, .. })), "{form:?}");
        verify(&fs, *ino);
    }
    assert!(check_with_containers(&fs).is_clean());
}

#[test]
fn the_region_takes_what_no_tier_can() {
    let (mut fs, _, files) = with_files(3);
    fs.set_leaving(FIRST, true).expect("it exists");
    let (worker, _stop) = worker(fs);
    assert!(worker.drain(FIRST).is_ok());
    let fs = worker.shared.read();
    assert!(fs.tiers()[0].is_removed());
    for (ino, _) in &files {
        verify(&fs, *ino);
        assert!(matches!(fs.inode(*ino).expect("it exists").form, Form::Run { .. }));
    }
}

#[test]
fn the_last_user_of_a_container_is_waited_for() {
    let (mut fs, containers, files) = with_files(3);
    let (ino, container) = files[1];
    fs.set_passthrough(ino, true);
    fs.set_leaving(FIRST, true).expect("it exists");
    assert_eq!(fs.passthrough_container(files[0].0).expect("a file"), None, "no further one is accessed so");
    let (worker, stop) = worker(fs);
    let shared = worker.shared.clone();
    std::thread::scope(|scope| {
        // Ends the worker if an assertion fails.
        let _stop = stop;
        let drained = scope.spawn(move || worker.drain(FIRST).is_ok());
        let blocked = wait_for_blocked(&shared);
        assert_eq!(blocked, Blocked { reason: BlockReason::InUse, files: 1, ino });
        // It is closed, but mapped.
        containers.set_used(container, true);
        shared.read().set_passthrough(ino, false);
        std::thread::sleep(RETRY_PERIOD * 2);
        assert!(!drained.is_finished() && shared.read().is_leaving(FIRST));
        assert_eq!(shared.read().files_in_tier(FIRST), [ino], "others have moved");
        containers.set_used(container, false);
        assert!(drained.join().expect("no panic"));
        let fs = shared.read();
        assert!(fs.tiers()[0].is_removed() && fs.blocked(FIRST).is_none());
        files.iter().for_each(|(ino, _)| verify(&fs, *ino));
    });
}

#[test]
fn a_tier_that_is_kept_keeps_what_has_not_moved() {
    let (mut fs, containers, files) = with_files(2);
    containers.set_used(files[0].1, true);
    fs.set_passthrough(files[0].0, true);
    fs.set_leaving(FIRST, true).expect("it exists");
    let (worker, stop) = worker(fs);
    let shared = worker.shared.clone();
    std::thread::scope(|scope| {
        // Ends the worker if an assertion fails.
        let _stop = stop;
        let drained = scope.spawn(move || worker.drain(FIRST).is_ok());
        wait_for_blocked(&shared);
        shared.write().set_leaving(FIRST, false).expect("it exists");
        assert!(!drained.join().expect("no panic"));
        let fs = shared.read();
        assert!(!fs.tiers()[0].is_removed() && fs.blocked(FIRST).is_none());
        files.iter().for_each(|(ino, _)| verify(&fs, *ino));
    });
}

#[test]
fn a_mount_that_ends_leaves_the_rest_to_the_next_one() {
    let (mut fs, containers, files) = with_files(2);
    fs.set_leaving(FIRST, true).expect("it exists");
    let (first, stop) = worker(fs);
    drop(stop);
    assert!(matches!(first.drain(FIRST), Err(Interruption::Over)));
    let Ok(lock) = std::sync::Arc::try_unwrap(first.shared.0) else { panic!("nobody else has it") };
    let fs = lock.into_inner().expect("no operation panicked");
    let (second, _stop) = worker(open(fs.into_memory(), &containers));
    assert!(second.drain(FIRST).is_ok());
    let fs = second.shared.read();
    assert!(fs.tiers()[0].is_removed());
    files.iter().for_each(|(ino, _)| verify(&fs, *ino));
}

#[test]
fn what_keeps_files_is_told_with_the_worst_first() {
    let (mut fs, containers, files) = with_files(4);
    fs.set_leaving(FIRST, true).expect("it exists");
    fs.set_passthrough(files[0].0, true);
    let (worker, _stop) = worker(fs);
    let all = || files.iter().map(|(ino, _)| *ino).collect();
    let pass = || {
        let left = worker.pass(FIRST, all()).expect("no failure");
        (worker.shared.read().blocked(FIRST), left)
    };
    assert_eq!(worker.pass(FIRST, vec![files[0].0]).expect("no failure"), [files[0].0]);
    containers.remove(files[1].1).expect("it is there");
    let (blocked, left) = pass();
    assert_eq!(blocked, Some(Blocked { reason: BlockReason::Unreadable, files: 1, ino: files[1].0 }));
    assert_eq!(left, [files[0].0, files[1].0]);
    // What is removed meanwhile keeps nothing.
    worker.shared.write().unlink(Ino::ROOT, b"file-1", NOW).expect("a file");
    assert_eq!(pass().0, Some(Blocked { reason: BlockReason::InUse, files: 1, ino: files[0].0 }));
    worker.shared.read().set_passthrough(files[0].0, false);
    assert_eq!(pass(), (None, Vec::new()));
}

#[test]
fn files_without_space_elsewhere_stay() {
    let (mut fs, containers) = file_system(&[Class::Flash]);
    // Larger than the share that one file may have of the region.
    let large = file(&mut fs, "large", 700_000);
    add_second(&mut fs);
    containers.limit(SECOND, 100_000);
    fs.set_leaving(FIRST, true).expect("it exists");
    let (worker, _stop) = worker(fs);
    assert_eq!(worker.pass(FIRST, vec![large]).expect("no failure"), [large]);
    let blocked = worker.shared.read().blocked(FIRST);
    assert_eq!(blocked, Some(Blocked { reason: BlockReason::NoSpace, files: 1, ino: large }));
    assert!(containers.list(SECOND).expect("no failure").is_empty(), "nothing is left of the attempts");
    containers.limit(SECOND, 1_000_000);
    assert!(worker.drain(FIRST).is_ok());
    assert!(check_with_containers(&worker.shared.read()).is_clean());
}

#[test]
fn a_change_during_the_copy_is_not_lost() {
    let (mut fs, containers, files) = with_files(1);
    add_second(&mut fs);
    fs.set_leaving(FIRST, true).expect("it exists");
    let (ino, from) = files[0];
    let (worker, _stop) = worker(fs);
    let eviction = worker.shared.write().begin_relocation(ino, SECOND).expect("space");
    create(&worker.shared, &eviction).expect("the tier takes it");
    worker.copy(&eviction).expect("no failure");
    worker.shared.write().write(ino, 100, b"new", NOW).expect("space");
    assert!(matches!(finish(&worker.shared, &eviction, Ok(())), Err(Error::Changing)));
    assert_eq!(worker.shared.read().inode(ino).expect("a file").form, Form::Container(from));
    assert!(containers.list(SECOND).expect("no failure").is_empty());
    // The kernel opens it meanwhile.
    let eviction = worker.shared.write().begin_relocation(ino, SECOND).expect("space");
    create(&worker.shared, &eviction).expect("the tier takes it");
    worker.copy(&eviction).expect("no failure");
    worker.shared.read().set_passthrough(ino, true);
    assert!(matches!(finish(&worker.shared, &eviction, Ok(())), Err(Error::InUse)));
    worker.shared.read().set_passthrough(ino, false);
    assert!(worker.drain(FIRST).is_ok());
    let mut found = [0; 3];
    worker.shared.read().read(ino, 100, &mut found).expect("it can be read");
    assert_eq!(&found, b"new");
}

#[test]
fn an_eviction_in_progress_does_not_outlive_the_removal() {
    let (mut fs, containers, _) = with_files(0);
    let ino = file(&mut fs, "file", 9000);
    let eviction = fs.begin_eviction(ino, FIRST).expect("the tier takes it");
    containers.create(eviction.container).expect("the tier takes it");
    fs.set_leaving(FIRST, true).expect("it exists");
    let (worker, _stop) = worker(fs);
    assert!(worker.drain(FIRST).is_ok());
    let mut fs = worker.shared.write();
    // Another tier has the number by now.
    assert_eq!(fs.add_tier(Class::Disk, "/second".into(), [8; 16]).expect("a new tier"), FIRST);
    assert!(matches!(fs.finish_eviction(&eviction), Err(Error::Changing)));
    verify(&fs, ino);
    assert!(containers.list(FIRST).expect("no failure").is_empty());
}

/// What it lacks would read as zeros elsewhere.
#[test]
fn a_file_whose_container_lacks_bytes_stays() {
    let (mut fs, containers, files) = with_files(1);
    let [(ino, container)] = files[..] else { panic!("one file") };
    add_second(&mut fs);
    fs.set_leaving(FIRST, true).expect("it exists");
    let (worker, _stop) = worker(fs);
    for len in [8999, 0] {
        containers.set_len(container, len).expect("behind the server's back");
        assert!(matches!(worker.move_out(ino, FIRST), Err(Error::Container(_))), "{len} bytes");
    }
}
