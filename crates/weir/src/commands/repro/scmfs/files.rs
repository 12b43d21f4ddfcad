//! The file systems of the experiments: weir's in the builds of SCMFS, and the models of Linux's.

use super::experiment::{Build, RECORD_MAX, Setup, System};
use super::machine::Prepared;
use super::region::{Charged, Charges, Shared};
use crate::failure::{Failure, REPORT_DEFECT};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weir_fs::error::Error;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::superblock::Superblock;
use weir_fs::layout::{Geometry, Ino, Time};
use weir_fs::namespace::{Change, Durability, FileSystem, New, SetTime};
use weir_policy::eviction::items::FileKey;
use weir_sim::memory::{Address, Cycles, LinuxFs, LinuxKind, Machine, PageSize, Picos, Place, Vfs};

/// Where the buffers of programs are, one for each core.
const BUFFERS: Address = Address(20 << 40);
const BUFFER_DISTANCE: u64 = 1 << 32;
const NEW: New<'static> =
    New { kind: Kind::File, permissions: 0o644, uid: 0, gid: 0, device: 0, target: &[], attributes: &[] };

/// Returns the buffer of the program on a core. Programs have pages of 4 KiB.
pub(super) const fn buffer(core: usize) -> Place {
    Place { at: BUFFERS.plus(core as u64 * BUFFER_DISTANCE), pages: PageSize::Small }
}

fn failure(error: Error) -> Failure {
    Failure::environment(format!("the file system of an experiment: {error}"), REPORT_DEFECT)
}

/// A file system on a machine.
#[derive(Debug)]
pub(super) struct Files {
    shared: Rc<RefCell<Shared>>,
    vfs: Vfs,
    kind: FilesKind,
}

#[derive(Debug)]
enum FilesKind {
    Linux(LinuxFs),
    Scmfs(Box<Scmfs>),
}

impl Files {
    /// Creates an empty file system with so many directories, and space for so many bytes.
    ///
    /// # Errors
    /// Fails if the file system cannot be created.
    pub(super) fn new(job: &Prepared, directories: u64, bytes: u64) -> Result<Self, Failure> {
        let Setup { system, linear, .. } = job.setup;
        let shared = Shared { machine: Machine::new(job.machine), buffer: None };
        let shared = Rc::new(RefCell::new(shared));
        let vfs = Vfs::new(job.vfs, linear);
        let kind = match system {
            System::Ramfs => LinuxKind::Ramfs,
            System::Tmpfs => LinuxKind::Tmpfs,
            System::Ext2 => LinuxKind::Ext2,
            System::Scmfs(build, pages) => {
                let scmfs = Scmfs::new(job, build, pages, &shared, directories, bytes).map_err(failure)?;
                return Ok(Self { shared, vfs, kind: FilesKind::Scmfs(Box::new(scmfs)) });
            }
        };
        let linux = LinuxFs::new(kind, job.linux(kind), vfs, directories);
        Ok(Self { shared, vfs, kind: FilesKind::Linux(linux) })
    }

    /// Calls `change` on the machine.
    pub(super) fn machine<T>(&self, change: impl FnOnce(&mut Machine) -> T) -> T {
        change(&mut self.shared.borrow_mut().machine)
    }

    /// Creates a file.
    pub(super) fn create(&mut self, core: usize, file: FileKey) -> Result<(), Failure> {
        self.operate(core, |kind, shared, vfs| match kind {
            FilesKind::Linux(linux) => {
                linux.create(&mut shared.borrow_mut().machine, file);
                Ok(())
            }
            FilesKind::Scmfs(scmfs) => {
                vfs.create(&mut shared.borrow_mut().machine, file);
                scmfs.create(core, file)
            }
        })
    }

    /// Opens and closes a file.
    pub(super) fn open(&mut self, core: usize, file: FileKey) -> Result<(), Failure> {
        self.operate(core, |_, shared, vfs| {
            vfs.open(&mut shared.borrow_mut().machine, file);
            Ok(())
        })
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, core: usize, file: FileKey) -> Result<(), Failure> {
        self.operate(core, |kind, shared, vfs| match kind {
            FilesKind::Linux(linux) => {
                linux.remove(&mut shared.borrow_mut().machine, file);
                Ok(())
            }
            FilesKind::Scmfs(scmfs) => {
                vfs.remove(&mut shared.borrow_mut().machine, file);
                scmfs.remove(core, file)
            }
        })
    }

    /// Reads bytes of a file to the buffer of the core's program.
    pub(super) fn read(&mut self, core: usize, file: FileKey, offset: u64, len: u64) -> Result<(), Failure> {
        self.operate(core, |kind, shared, vfs| match kind {
            FilesKind::Linux(linux) => {
                linux.read(&mut shared.borrow_mut().machine, file, offset, len, buffer(core));
                Ok(())
            }
            FilesKind::Scmfs(scmfs) => {
                vfs.call(&mut shared.borrow_mut().machine, file);
                scmfs.read(core, file, offset, len)
            }
        })
    }

    /// Writes bytes of a file from the buffer of the core's program.
    pub(super) fn write(&mut self, core: usize, file: FileKey, offset: u64, len: u64) -> Result<(), Failure> {
        self.operate(core, |kind, shared, vfs| match kind {
            FilesKind::Linux(linux) => {
                linux.write(&mut shared.borrow_mut().machine, file, offset, len, buffer(core));
                Ok(())
            }
            FilesKind::Scmfs(scmfs) => {
                vfs.call(&mut shared.borrow_mut().machine, file);
                scmfs.write(core, file, offset, len)
            }
        })
    }

    /// Returns a file's size.
    pub(super) fn size(&self, file: FileKey) -> u64 {
        match &self.kind {
            FilesKind::Linux(linux) => linux.size(file),
            FilesKind::Scmfs(scmfs) => scmfs.files.get(&file).map_or(0, |(_, size)| *size),
        }
    }

    /// Runs an operation of a program.
    fn operate(
        &mut self,
        core: usize,
        operation: impl FnOnce(&mut FilesKind, &Rc<RefCell<Shared>>, &Vfs) -> Result<(), Error>,
    ) -> Result<(), Failure> {
        self.shared.borrow_mut().machine.begin(core);
        operation(&mut self.kind, &self.shared, &self.vfs).map_err(failure)?;
        self.shared.borrow_mut().machine.end();
        Ok(())
    }
}

/// weir's file system, as a build of SCMFS: every change is made in place when its operation ends, and the
/// first read in a tick of the kernel's clock changes the access time.
#[derive(Debug)]
struct Scmfs {
    fs: FileSystem<Charged>,
    shared: Rc<RefCell<Shared>>,
    /// Work to change a file's name and inode, and to map a page or to unmap it.
    change: Cycles,
    mapping: Cycles,
    directories: Vec<Ino>,
    /// Files, with their sizes.
    files: BTreeMap<FileKey, (Ino, u64)>,
    /// Ticks in which files were last read.
    accessed: BTreeMap<FileKey, u64>,
    tick: Picos,
    buffer: Vec<u8>,
}

impl Scmfs {
    fn new(
        job: &Prepared,
        build: Build,
        pages: PageSize,
        shared: &Rc<RefCell<Shared>>,
        directories: u64,
        bytes: u64,
    ) -> Result<Self, Error> {
        let geometry = Geometry::new(bytes, Geometry::CHUNK_BYTES).ok_or(Error::Invalid)?;
        let log = Geometry::LOG_AT..Geometry::LOG_AT + geometry.log_bytes;
        let has_order = build == Build::Consistent;
        let charges =
            Charges { has_order, flushes_data: job.flushes_data, has_log: has_order && job.has_log };
        let memory = Charged::new(bytes, Rc::clone(shared), pages, charges, log);
        let superblock = Superblock { geometry, uuid: [1; 16], hash_key: [2; 16], has_tiers: false };
        let memory = FileSystem::create(memory, &superblock, (0, 0), Time::default())?;
        let mut fs = FileSystem::open(memory, Durability::Sync)?;
        fs.set_keeps_null_files(build != Build::Plain);
        let mut scmfs = Self {
            fs,
            shared: Rc::clone(shared),
            change: job.scmfs_change,
            mapping: job.mapping,
            directories: Vec::new(),
            files: BTreeMap::new(),
            accessed: BTreeMap::new(),
            tick: job.tick,
            buffer: vec![0; RECORD_MAX.0 as usize],
        };
        let directory = New { kind: Kind::Directory, permissions: 0o755, ..NEW };
        for nth in 0..directories {
            let name = format!("directory-{nth}");
            let (ino, _) = scmfs.fs.create_file(Ino::ROOT, name.as_bytes(), &directory, Time::default())?;
            scmfs.directories.push(ino);
        }
        scmfs.fs.sync()?;
        Ok(scmfs)
    }

    /// Returns the number of the tick on a core.
    fn ticks(&self, core: usize) -> u64 {
        self.shared.borrow().machine.now(core).0 / self.tick.0.max(1)
    }

    fn directory(&self, file: FileKey) -> Ino {
        self.directories[(file.0 % self.directories.len() as u64) as usize]
    }

    fn create(&mut self, core: usize, file: FileKey) -> Result<(), Error> {
        self.shared.borrow_mut().machine.work(self.change);
        let (now, directory) = (time(self.ticks(core)), self.directory(file));
        self.mapping_pages(|fs| {
            let (ino, _) = fs.create_file(directory, name(file).as_bytes(), &NEW, now)?;
            Ok(ino)
        })
        .map(|ino| {
            self.files.insert(file, (ino, 0));
        })
    }

    fn remove(&mut self, core: usize, file: FileKey) -> Result<(), Error> {
        self.shared.borrow_mut().machine.work(self.change);
        let (now, directory) = (time(self.ticks(core)), self.directory(file));
        self.accessed.remove(&file);
        self.files.remove(&file);
        self.mapping_pages(|fs| fs.unlink(directory, name(file).as_bytes(), now))
    }

    fn read(&mut self, core: usize, file: FileKey, offset: u64, len: u64) -> Result<(), Error> {
        let (ino, _) = *self.files.get(&file).ok_or(Error::NotFound)?;
        self.lend_buffer(core);
        self.fs.read(ino, offset, &mut self.buffer[..len as usize])?;
        let tick = self.ticks(core);
        if self.accessed.insert(file, tick) == Some(tick) {
            return Ok(());
        }
        let change = Change { accessed: Some(SetTime::At(time(tick))), ..Change::default() };
        self.fs.set_attributes(ino, &change, time(tick))?;
        self.fs.sync()
    }

    fn write(&mut self, core: usize, file: FileKey, offset: u64, len: u64) -> Result<(), Error> {
        let now = time(self.ticks(core));
        let (ino, size) = self.files.get_mut(&file).ok_or(Error::NotFound)?;
        *size = (*size).max(offset + len);
        let ino = *ino;
        self.lend_buffer(core);
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.mapping_pages(|fs| fs.write(ino, offset, &buffer[..len as usize], now));
        self.buffer = buffer;
        match written? == len as usize {
            true => Ok(()),
            false => Err(Error::NoSpace),
        }
    }

    /// Makes the buffer that of the program on a core.
    fn lend_buffer(&self, core: usize) {
        let start = self.buffer.as_ptr().addr();
        self.shared.borrow_mut().buffer = Some((start..start + self.buffer.len(), buffer(core)));
    }

    /// Runs an operation with all of its effects, and works for the pages that it maps or unmaps.
    fn mapping_pages<T>(
        &mut self,
        operation: impl FnOnce(&mut FileSystem<Charged>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let before = self.fs.space().free_pages();
        let done = operation(&mut self.fs)?;
        self.fs.sync()?;
        let pages = before.abs_diff(self.fs.space().free_pages());
        self.shared.borrow_mut().machine.work(Cycles(self.mapping.0 * pages));
        Ok(done)
    }
}

fn time(tick: u64) -> Time {
    Time { seconds: tick as i64, nanos: 0 }
}

fn name(file: FileKey) -> String {
    format!("file-{}", file.0)
}
