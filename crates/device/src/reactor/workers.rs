//! Threads that execute device commands, each one at a time.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};

use super::backend::{Action, FileOp};
use crate::arena::Region;

/// The threads, their queue and their results.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
    collected: Vec<(FileOp, i32)>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    done: Mutex<Vec<(FileOp, i32)>>,
    /// Readable when a command has completed.
    completion_event: OwnedFd,
    region: Region,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<(FileOp, RawFd)>,
    closed: bool,
}

impl Workers {
    pub(super) fn new(threads: usize, region: &Region) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            filled: Condvar::new(),
            done: Mutex::default(),
            completion_event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            region: region.clone(),
        });
        let mut workers = Self { shared, threads: Vec::new(), in_flight: 0, collected: Vec::new() };
        for number in 0..threads {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("weir-device-{number}"));
            workers.threads.push(thread.spawn(move || shared.work())?);
        }
        Ok(workers)
    }

    /// Hands a command to the next free thread.
    pub(super) fn start(&mut self, op: FileOp, file: Option<RawFd>) {
        self.in_flight += 1;
        // A command only comes here for an open device; -1 would fail with EBADF.
        lock(&self.shared.queue).jobs.push_back((op, file.unwrap_or(-1)));
        self.shared.filled.notify_one();
    }

    /// Returns the completed commands, with bytes moved or a negated error number.
    pub(super) fn collect(&mut self) -> impl Iterator<Item = (FileOp, i32)> + use<> {
        let _ = rustix::io::read(&self.shared.completion_event, &mut [0u8; 8]);
        self.collected.clear();
        std::mem::swap(&mut *lock(&self.shared.done), &mut self.collected);
        self.in_flight -= self.collected.len();
        std::mem::take(&mut self.collected).into_iter()
    }

    /// Returns the descriptor that is readable when there is something to collect.
    pub(super) fn completion_event(&self) -> RawFd {
        self.shared.completion_event.as_raw_fd()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.shared.queue).closed = true;
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some((op, file)) = self.next() {
            let answer = self.execute(&op, file);
            lock(&self.done).push((op, answer));
            let _ = rustix::io::write(&self.completion_event, &1u64.to_ne_bytes());
        }
    }

    /// Returns the next command; `None` when there will be no more.
    fn next(&self) -> Option<(FileOp, RawFd)> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn execute(&self, op: &FileOp, file: RawFd) -> i32 {
        let (rest, at) = (op.rest(), op.rest_at() as i64);
        let (bytes, len) = (self.region.pointer(rest).cast::<libc::c_void>(), rest.len as usize);
        let vector = libc::iovec { iov_base: bytes, iov_len: len };
        // SAFETY: in bounds (`Region::pointer`), mapped as long as `self.region`, and given away
        // by its owner until this command is collected.
        let result = unsafe {
            match op.action {
                Action::Read => libc::pread(file, bytes, len, at),
                Action::Write { durable: false } => libc::pwrite(file, bytes, len, at),
                Action::Write { durable: true } => {
                    libc::pwritev2(file, &raw const vector, 1, at, libc::RWF_DSYNC)
                }
                Action::Sync => libc::fdatasync(file) as isize,
            }
        };
        if result >= 0 {
            return result as i32;
        }
        -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
    }
}

/// Locks a mutex. No thread panics while holding one of these locks; if one did, the data would still be
/// consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
