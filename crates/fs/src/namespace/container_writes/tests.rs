//! Writes to containers beside everything else that changes them.

use super::*;
use crate::check::check_with_containers;
use crate::namespace::{Allocate, New};
use crate::testing::{Fs, NOW, contents, file_system, open};
use crate::tiers::{Class, SimulatedContainers, TierNumber};
use proptest::prelude::*;

/// Where the writes of two programs are: they do not overlap.
const PARTS: [u64; 2] = [0, 10_000];
const PART_BYTES: u64 = 10_000;

fn read(fs: &Fs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xee; fs.inode(ino).expect("it exists").size as usize];
    let read = fs.read(ino, 0, &mut bytes).expect("it can be read");
    assert_eq!(read, bytes.len());
    bytes
}

fn evicted(bytes: u64) -> (Fs, SimulatedContainers, Ino, Container) {
    let (mut fs, containers) = file_system(&[Class::Flash, Class::Disk]);
    let ino = crate::testing::file(&mut fs, "file", bytes);
    fs.evict_now(ino).expect("a tier takes it");
    fs.sync().expect("no failure");
    let Form::Container(container) = fs.inode(ino).expect("it exists").form else { panic!("it was evicted") };
    (fs, containers, ino, container)
}

fn begin(fs: &Fs, ino: Ino, offset: u64, len: u64) -> ContainerWrite {
    fs.begin_container_write(ino, offset, len).expect("no failure").expect("it is in a container")
}

#[test]
fn a_write_changes_size_and_times_once_it_is_finished() {
    let (mut fs, containers, ino, _) = evicted(5000);
    let later = Time { seconds: 7, nanos: 0 };
    let write = begin(&fs, ino, 5000, 3);
    write.write(b"new").expect("space");
    assert_eq!(fs.inode(ino).expect("it exists").size, 5000);
    assert_eq!(fs.finish_container_write(&write, Ok(()), b"new", later).expect("no failure"), 3);
    let inode = fs.inode(ino).expect("it exists");
    assert_eq!((inode.size, inode.modified, inode.changed), (5003, later, later));
    let expected = [&contents(ino, 5000)[..], b"new"].concat();
    assert_eq!(read(&fs, ino), expected);
    fs.sync().expect("no failure");
    let memory = fs.into_memory().after_power_loss(|_| 0);
    let fs = open(memory, &containers.after_power_loss(&mut |_| 0));
    assert_eq!(read(&fs, ino), expected, "the container was not made durable before the size");
    assert!(check_with_containers(&fs).is_clean());
}

#[test]
fn what_is_not_a_plain_write_to_a_container_is_left_to_operations() {
    let (mut fs, _, ino, _) = evicted(5000);
    assert!(fs.begin_container_write(ino, 5001, 1).expect("no failure").is_none(), "a gap is zeroed");
    let max = fs.geometry().file_bytes_max();
    assert!(fs.begin_container_write(ino, 5000, max).expect("no failure").is_none(), "it is too large");
    fs.prepare_passthrough(ino, true).expect("no failure");
    assert!(fs.begin_container_write(ino, 0, 1).expect("no failure").is_none(), "the kernel changes it");
    let new = New { kind: crate::layout::inode::Kind::File, ..crate::testing::NEW };
    let (other, _) = fs.create_file(Ino::ROOT, b"other", &new, NOW).expect("space");
    assert!(fs.begin_container_write(other, 0, 1).expect("no failure").is_none(), "the region has it");
    assert!(matches!(fs.begin_container_write(Ino::ROOT, 0, 1), Err(Error::IsDirectory)));
}

#[test]
fn nothing_is_written_if_nothing_can_be_changed() {
    let (fs, containers, ino, _) = evicted(5000);
    let fs = FileSystem::open_read_only_with(fs.into_memory(), |_, _| Ok(Arc::new(containers)));
    let fs = fs.expect("the file system");
    assert!(fs.begin_container_write(ino, 0, 1).expect("no failure").is_none());
}

/// A full tier is no reason to fail if another one has space.
#[test]
fn a_write_for_which_the_tier_has_no_space_moves_the_file() {
    let (mut fs, containers, ino, container) = evicted(5000);
    containers.limit(container.tier, 6000);
    let (write, new) = (begin(&fs, ino, 5000, 3000), [7; 3000]);
    let written = write.write(&new);
    assert!(written.is_err());
    assert_eq!(fs.finish_container_write(&write, written, &new, NOW).expect("another tier"), 3000);
    let moved = fs.inode(ino).expect("it exists").form;
    assert!(matches!(moved, Form::Container(other) if other.tier != container.tier), "{moved:?}");
    assert_eq!(read(&fs, ino), [&contents(ino, 5000)[..], &new].concat());
}

#[test]
fn a_failed_write_changes_nothing_of_the_file() {
    let (mut fs, containers, ino, container) = evicted(5000);
    let write = begin(&fs, ino, 0, 3);
    containers.set_gone(Some(container.tier));
    let written = write.write(b"new");
    assert!(matches!(fs.finish_container_write(&write, written, b"new", NOW), Err(Error::Container(_))));
    containers.set_gone(None);
    assert_eq!(read(&fs, ino), contents(ino, 5000));
}

/// What a container lacks must not become zeros.
#[test]
fn a_container_that_was_cut_off_is_not_made_longer() {
    let (mut fs, containers, ino, container) = evicted(5000);
    containers.set_len(container, 100).expect("it exists");
    let write = begin(&fs, ino, 5000, 3);
    let written = write.write(b"new");
    assert!(matches!(fs.finish_container_write(&write, written, b"new", NOW), Err(Error::Container(_))));
    assert_eq!(containers.len(container).expect("it exists"), 100);
}

/// A container becomes shorter after the commit of the size, and before the kernel reads it.
#[test]
fn a_cut_does_not_take_what_is_being_appended() {
    for is_opened in [false, true] {
        let (mut fs, _, ino, _) = evicted(9000);
        if !is_opened {
            fs.truncate(ino, 5000, NOW).expect("no failure");
        }
        let size = fs.inode(ino).expect("it exists").size;
        let write = begin(&fs, ino, size, 3);
        write.write(b"new").expect("space");
        match is_opened {
            true => fs.prepare_passthrough(ino, false).expect("no failure"),
            false => fs.sync().expect("no failure"),
        }
        assert_eq!(fs.finish_container_write(&write, Ok(()), b"new", NOW).expect("space"), 3);
        let expected = [&contents(ino, 9000)[..size as usize], b"new"].concat();
        assert_eq!(read(&fs, ino), expected, "opened: {is_opened}");
    }
}

/// Also those that were set while it was in progress.
#[test]
fn a_write_keeps_to_limits() {
    use crate::layout::quota::{Limit, Owner};
    let (mut fs, _, ino, _) = evicted(9000);
    let write = begin(&fs, ino, 9000, 3);
    fs.set_limit(Owner::User(0), Limit { bytes: Some(5000), inodes: None }).expect("space");
    while fs.count_inodes(1000) {}
    fs.enforce_limits(true);
    let finished = fs.finish_container_write(&write, write.write(b"new"), b"new", NOW);
    assert!(matches!(finished, Err(Error::OverQuota)), "{finished:?}");
    assert!(
        fs.begin_container_write(ino, 9000, 3).expect("no failure").is_none(),
        "the limit is asked first"
    );
    let write = begin(&fs, ino, 8997, 3);
    assert_eq!(fs.finish_container_write(&write, write.write(b"new"), b"new", NOW).expect("no growth"), 3);
}

/// Two writes beside each other, neither of which is done twice.
#[test]
fn writes_do_not_disturb_each_other() {
    let (mut fs, containers, ino, _) = evicted(5000);
    let writes = [begin(&fs, ino, 0, 3), begin(&fs, ino, 10, 3)];
    for write in &writes {
        write.write(b"new").expect("space");
    }
    containers.set_gone(Some(TierNumber(0)));
    for write in &writes {
        assert_eq!(fs.finish_container_write(write, Ok(()), b"new", NOW).expect("it is written"), 3);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin { program: usize, offset: u64, len: u64 },
    Write { program: usize },
    Finish { program: usize },
    Overwrite { offset: u64, len: u64 },
    Truncate(u64),
    Allocate { from: u64, len: u64, how: Allocate },
    Promote,
    Evict,
    Move,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    let at = || 0..20_000_u64;
    let len = || 1..5000_u64;
    let how = prop_oneof![
        Just(Allocate::PunchHole),
        Just(Allocate::Zero { keep_size: false }),
        Just(Allocate::Space { keep_size: false })
    ];
    prop_oneof![
        6 => (0..2_usize, 0..PART_BYTES, len()).prop_map(|(program, offset, len)| Step::Begin {
            program,
            offset: PARTS[program] + offset,
            len: len.min(PART_BYTES - offset),
        }),
        6 => (0..2_usize).prop_map(|program| Step::Write { program }),
        4 => (0..2_usize).prop_map(|program| Step::Finish { program }),
        1 => (at(), len()).prop_map(|(offset, len)| Step::Overwrite { offset, len }),
        1 => at().prop_map(Step::Truncate),
        1 => (at(), len(), how).prop_map(|(from, len, how)| Step::Allocate { from, len, how }),
        1 => Just(Step::Promote),
        2 => Just(Step::Evict),
        1 => Just(Step::Move),
        1 => Just(Step::Sync),
    ]
}

/// A write that a program waits for.
struct Pending {
    write: ContainerWrite,
    bytes: Vec<u8>,
    written: Option<io::Result<()>>,
}

/// A file, and what it should have.
struct Run {
    fs: Fs,
    ino: Ino,
    model: Vec<u8>,
    pending: [Option<Pending>; 2],
    /// Differs for each write.
    tag: u8,
}

impl Run {
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        self.tag = self.tag.wrapping_add(1).max(1);
        vec![self.tag; len as usize]
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let (at, end) = (offset as usize, offset as usize + bytes.len());
        self.model.resize(self.model.len().max(end), 0);
        self.model[at..end].copy_from_slice(bytes);
    }

    fn zero(&mut self, from: u64, end: u64) {
        let end = (end as usize).min(self.model.len());
        if let Some(part) = self.model.get_mut(from as usize..end) {
            part.fill(0);
        }
    }

    fn run(&mut self, step: &Step) {
        let ino = self.ino;
        match *step {
            Step::Begin { program, offset, len } if self.pending[program].is_none() => {
                let bytes = self.bytes(len);
                let begun = self.fs.begin_container_write(ino, offset, len).expect("no failure");
                self.pending[program] = begun.map(|write| Pending { write, bytes, written: None });
            }
            Step::Write { program } => {
                if let Some(pending) =
                    self.pending[program].as_mut().filter(|pending| pending.written.is_none())
                {
                    pending.written = Some(pending.write.write(&pending.bytes));
                }
            }
            Step::Finish { program } => self.finish(program),
            Step::Overwrite { offset, len } => {
                let bytes = self.bytes(len);
                assert_eq!(self.fs.write(ino, offset, &bytes, NOW).expect("space"), bytes.len());
                self.store(offset, &bytes);
            }
            Step::Truncate(size) => {
                self.fs.truncate(ino, size, NOW).expect("space");
                self.model.resize(size as usize, 0);
            }
            Step::Allocate { from, len, how } => {
                self.fs.allocate(ino, from..from + len, how, NOW).expect("space");
                if !matches!(how, Allocate::Space { .. }) {
                    self.zero(from, from + len);
                }
                if how != Allocate::PunchHole {
                    self.model.resize(self.model.len().max((from + len) as usize), 0);
                }
            }
            // They do nothing if the file is elsewhere.
            Step::Promote => drop(self.fs.promote(ino)),
            Step::Evict => drop(self.fs.evict_now(ino)),
            Step::Move => drop(self.fs.relocate(ino)),
            Step::Sync => self.fs.sync().expect("no failure"),
            Step::Begin { .. } => {}
        }
        if self.pending.iter().all(Option::is_none) {
            assert!(read(&self.fs, ino) == self.model, "after {step:?}");
        }
    }

    fn finish(&mut self, program: usize) {
        let Some(Pending { write, bytes, written }) = self.pending[program].take() else { return };
        let written = written.unwrap_or_else(|| write.write(&bytes));
        let done = self.fs.finish_container_write(&write, written, &bytes, NOW).expect("space");
        assert_eq!(done, bytes.len());
        self.store(write.offset, &bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// A write counts when it is finished, whatever happened to the file since it began.
    #[test]
    fn nothing_comes_between_a_write_and_its_acknowledgement(steps in prop::collection::vec(step(), 1..40)) {
        let (fs, containers, ino, _) = evicted(9000);
        let model = contents(ino, 9000);
        let mut run = Run { fs, ino, model, pending: [None, None], tag: 0 };
        for step in &steps {
            run.run(step);
        }
        (0..2).for_each(|program| run.finish(program));
        prop_assert!(read(&run.fs, ino) == run.model);
        prop_assert!(lock(&run.fs.tiers.writing).0.is_empty(), "what was disturbed once stays so");
        run.fs.sync().expect("no failure");
        prop_assert!(check_with_containers(&run.fs).is_clean());
        let memory = run.fs.into_memory().after_power_loss(|_| 0);
        let fs = open(memory, &containers.after_power_loss(&mut |_| 0));
        prop_assert!(read(&fs, ino) == run.model, "it was not durable");
    }
}
