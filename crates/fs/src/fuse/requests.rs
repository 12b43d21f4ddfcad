//! Requests of the kernel, each answered by one call of the file system.

use super::acl;
use super::convert::{attributes, file_type, requested_time};
use super::handler::{Handler, ino};
use super::now;
use super::quotas::WriteFor;
use crate::error::{Error, Result};
use crate::layout::inode::Inode;
use crate::layout::{Ino, NAME_BYTES_MAX};
use crate::namespace::{Allocate, Change, RenameHow, Seek, SetAttribute, SetTime};
use crate::nvm::Memory;
use crate::report::{Command, LimitChange, QuotaPage, TierCommand};
use crate::tiers::space_of_all;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long the kernel may keep names and attributes: nobody else changes them, so for long.
const VALID: Duration = Duration::from_secs(3600);
/// Largest request to write, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// What the kernel can be told to do, or not to do.
const CAPABILITIES: [InitFlags; 9] = [
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DO_READDIRPLUS,
    // Without it the kernel asks for the file's capabilities before each write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_READDIRPLUS_AUTO,
];

fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

/// Replies with an error, or with what the expression makes of the value.
macro_rules! answer {
    ($reply:expr, $result:expr, $value:pat => $ok:expr) => {
        match $result {
            Ok($value) => $ok,
            Err(error) => $reply.error(errno(&error)),
        }
    };
}

/// Returns how long the kernel may keep attributes: not at all if it changes the file without the server.
const fn validity(inode: &Inode) -> &'static Duration {
    if inode.is_passthrough { &Duration::ZERO } else { &VALID }
}

fn generation(inode: &Inode) -> Generation {
    Generation(u64::from(inode.generation))
}

/// Replies with a new file that the kernel has open.
fn reply_opened(result: Result<(Ino, Inode)>, reply: ReplyCreate) {
    answer!(reply, result, (ino, inode) => {
        let (attributes, flags) = (attributes(ino, &inode), FopenFlags::FOPEN_KEEP_CACHE);
        reply.created(&VALID, &attributes, generation(&inode), FileHandle(0), flags);
    });
}

fn reply_created(result: Result<(Ino, Inode)>, reply: ReplyEntry) {
    answer!(reply, result, (ino, inode) =>
        reply.entry(validity(&inode), &attributes(ino, &inode), generation(&inode)));
}

/// Replies with the bytes of an attribute, or with how many there are.
fn reply_attribute(reply: ReplyXattr, size: u32, value: &[u8]) {
    match size as usize {
        0 => reply.size(value.len() as u32),
        size if size < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}

/// Returns whether the file system keeps attributes with this name.
fn is_kept(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    name == acl::ACCESS || name == acl::DEFAULT || prefixes.iter().any(|prefix| name.starts_with(prefix))
}

impl<M: Memory + Send + Sync + 'static> Filesystem for Handler<M> {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in CAPABILITIES {
            // An older kernel that lacks one is slower, or sends more.
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        self.opens.negotiate(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let fs = self.shared.read();
        answer!(reply, fs.lookup(ino(parent), name.as_bytes()), (ino, inode) => {
            fs.refer(ino);
            reply.entry(validity(&inode), &attributes(ino, &inode), generation(&inode));
        });
    }

    fn forget(&self, _: &Request, number: INodeNo, count: u64) {
        let is_orphan = {
            let fs = self.shared.read();
            fs.drop_references(ino(number), count)
                && fs.inode(ino(number)).is_ok_and(|inode| inode.links == 0)
        };
        if is_orphan {
            // If it cannot be freed now, the next mount does it.
            let _ = self.shared.write().forget(ino(number), 0);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.shared.read().inode(ino(number));
        answer!(reply, found, inode => reply.attr(validity(&inode), &attributes(ino(number), &inode)));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set_time = |set: TimeOrNow| match set {
            TimeOrNow::Now => SetTime::Now,
            TimeOrNow::SpecificTime(at) => SetTime::At(requested_time(at)),
        };
        let change = Change {
            permissions: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            accessed: accessed.map(set_time),
            modified: modified.map(set_time),
        };
        let result = self.set_attributes(request, ino(number), change);
        answer!(reply, result, inode => reply.attr(validity(&inode), &attributes(ino(number), &inode)));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let fs = self.shared.read();
        answer!(reply, fs.read_link(ino(number)), target => reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        reply_created(self.create_file(request, parent, name, (mode, umask, device), &[], false), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = mode & 0o7777 | libc::S_IFDIR;
        reply_created(self.create_file(request, parent, name, (mode, umask, 0), &[], false), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.shared.write().unlink(ino(parent), name.as_bytes(), now());
        answer!(reply, result, () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.shared.write().remove_directory(ino(parent), name.as_bytes(), now());
        answer!(reply, result, () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (mode, target) = (libc::S_IFLNK | 0o777, target.as_os_str().as_bytes());
        reply_created(self.create_file(request, parent, name, (mode, 0, 0), target, false), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            flags if flags.is_empty() => RenameHow::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameHow::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameHow::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let from = (ino(parent), name.as_bytes());
        let result = self.shared.write().rename(from, (ino(new_parent), new_name.as_bytes()), how, now());
        answer!(reply, result, () => reply.ok());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut fs = self.shared.write();
        let result = fs.link(ino(number), ino(parent), name.as_bytes(), now());
        answer!(reply, result, inode => {
            fs.refer(ino(number));
            reply.entry(validity(&inode), &attributes(ino(number), &inode), generation(&inode));
        });
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if !self.opens.is_asked() {
            // From now on the kernel opens files, and keeps their pages, without asking.
            return reply.error(Errno::ENOSYS);
        }
        let opened = self.open_file(request, ino(number), flags, |file| reply.open_backing(file));
        answer!(reply, opened, backing => match backing {
            Some(backing) => reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), &backing),
            None => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mode = mode & 0o7777 | libc::S_IFREG;
        reply_opened(self.create_file(request, parent, name, (mode, umask, 0), &[], true), reply);
    }

    fn tmpfile(
        &self,
        request: &Request,
        parent: INodeNo,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let is_linkable = flags & libc::O_EXCL == 0;
        reply_opened(self.create_unnamed(request, parent, (mode, umask), is_linkable), reply);
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.read(ino(number), offset, size as usize, |result| {
            answer!(reply, result, bytes => reply.data(bytes));
        });
    }

    fn write(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ends_privileges = flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let result = self.write(request, ino(number), offset, bytes, ends_privileges);
        answer!(reply, result, len => reply.written(len as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is to be done when a file is closed: from now on the kernel does not ask.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.close_file(ino(number));
        reply.ok();
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.sync_file(ino(number)), () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.shared.sync(), () => reply.ok());
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let fs = self.shared.read();
        let result = Self::list(&fs, ino(number), offset, |ino, position, kind, name| {
            reply.add(INodeNo(ino.0), position, file_type(kind), OsStr::from_bytes(name))
        });
        answer!(reply, result, () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let fs = self.shared.read();
        let result = Self::list(&fs, ino(number), offset, |ino, position, _, name| {
            let inode = fs.inode(ino).unwrap_or_else(|_| Inode::new(0, 0, 0, now(), 0));
            let attributes: FileAttr = attributes(ino, &inode);
            let (number, name) = (INodeNo(ino.0), OsStr::from_bytes(name));
            let is_full =
                reply.add(number, position, name, validity(&inode), &attributes, generation(&inode));
            // The kernel does not count these two.
            if !is_full && name != "." && name != ".." {
                fs.refer(ino);
            }
            is_full
        });
        answer!(reply, result, () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (usage, containers, tiers) = {
            let fs = self.shared.read();
            (fs.usage(), fs.containers(), fs.tiers().len() as u32)
        };
        let below = space_of_all(&*containers, tiers);
        let pages = usage.pages + below.total_bytes / usage.page_bytes;
        let free = usage.free_pages + below.free_bytes / usage.page_bytes;
        let size = usage.page_bytes as u32;
        let files = usage.inodes + usage.free_inodes;
        reply.statfs(pages, free, free, files, usage.free_inodes, size, NAME_BYTES_MAX as u32, size);
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            0 => SetAttribute::Always,
            libc::XATTR_CREATE => SetAttribute::Create,
            libc::XATTR_REPLACE => SetAttribute::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        if let Some(command) = Command::of_attribute(name.as_bytes()) {
            let result = self.command(ino(number), command);
            return answer!(reply, result, () => reply.ok());
        }
        if let Some(command) = TierCommand::of_attribute(name.as_bytes(), value) {
            return match command.and_then(|command| self.change_tiers(request.uid(), &command)) {
                Ok(()) => reply.ok(),
                // About a directory below, and not about a file: the caller wants to know.
                Err(Error::Container(error)) => reply.error(Errno::from(error)),
                Err(error) => reply.error(errno(&error)),
            };
        }
        if let Some(change) = LimitChange::of_attribute(name.as_bytes(), value) {
            let result = change.and_then(|change| self.set_limit(request.uid(), change));
            return answer!(reply, result, () => reply.ok());
        }
        if !is_kept(name.as_bytes()) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let result = match name.as_bytes() {
            acl::ACCESS => self.set_access_list(request, ino(number), value),
            name => self.shared.write().set_attribute(ino(number), name, value, how, now()),
        };
        answer!(reply, result, () => reply.ok());
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let result = match QuotaPage::of_attribute(name.as_bytes()) {
            Some(first) => self.quota_page(request, first),
            None => self.attribute(ino(number), name.as_bytes()),
        };
        answer!(reply, result, value => reply_attribute(reply, size, &value));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let result = self.shared.read().attributes(ino(number));
        let is_shown = |name: &[u8]| request.uid() == 0 || !name.starts_with(b"trusted.");
        answer!(reply, result, all => {
            let names = all.iter().map(|(name, _)| name).filter(|name| is_shown(name));
            let list: Vec<u8> = names.flat_map(|name| name.iter().copied().chain([0])).collect();
            reply_attribute(reply, size, &list);
        });
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.shared.write().remove_attribute(ino(number), name.as_bytes(), now());
        answer!(reply, result, () => reply.ok());
    }

    fn fallocate(
        &self,
        request: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Space { keep_size },
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE => Allocate::PunchHole,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let Some(end) = offset.checked_add(length) else { return reply.error(Errno::EFBIG) };
        let mut fs = WriteFor::new(&self.shared, request);
        let ended = self.end_privileges(&mut fs, ino(number), request.uid() != 0);
        let result = ended.and_then(|()| fs.allocate(ino(number), offset..end, how, now()));
        answer!(reply, result, () => reply.ok());
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        // Programs ask whether a file is a terminal. By default, fuser warns of each.
        reply.error(Errno::ENOTTY);
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let result = self.shared.read().seek(ino(number), offset, what);
        answer!(reply, result, found => reply.offset(found.cast_signed()));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: INodeNo,
        _: FileHandle,
        source_at: u64,
        target: INodeNo,
        _: FileHandle,
        target_at: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // Others wait for it; a program asks again for the rest.
        let len = len.min(WRITE_BYTES_MAX.into());
        let (from, to) = ((ino(source), source_at), (ino(target), target_at));
        let mut fs = WriteFor::new(&self.shared, request);
        let ended = self.end_privileges(&mut fs, ino(target), request.uid() != 0);
        let result = ended.and_then(|()| fs.copy_range(from, to, len, now()));
        answer!(reply, result, done => reply.written(done as u32));
    }
}
