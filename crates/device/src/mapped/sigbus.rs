//! Turns SIGBUS in a guarded mapping into a flag.
//!
//! The signal means that the file no longer has the page. The handler replaces it with an empty page, so that
//! the current copy can finish, and sets the mapping's flag. Any other SIGBUS is passed to the previous
//! action.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t};

/// Maximum number of mappings guarded at once: the maximum number of devices of a pool.
const GUARDS_MAX: usize = 256;

/// A guarded range of addresses; free if `start` is zero, being taken if it is one.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    tripped: AtomicBool,
}

const FREE: usize = 0;
const RESERVED: usize = 1;

static SLOTS: [Slot; GUARDS_MAX] = [const {
    Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), tripped: AtomicBool::new(false) }
}; GUARDS_MAX];

/// The previous action of SIGBUS, and the page size; `None` if they could not be determined.
static PREVIOUS: OnceLock<Option<PreviousAction>> = OnceLock::new();

struct PreviousAction {
    action: libc::sigaction,
    page: usize,
}

/// Guards a mapping as long as it lives.
#[derive(Debug)]
pub(crate) struct Guard {
    slot: usize,
}

impl Guard {
    /// Guards the `len` bytes of a mapping at `start`.
    pub(crate) fn over(start: usize, len: usize) -> io::Result<Self> {
        if PREVIOUS.get_or_init(install).is_none() {
            return Err(io::Error::other("no handler for SIGBUS can be had"));
        }
        let take = |slot: &Slot| {
            slot.start.compare_exchange(FREE, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = SLOTS.iter().position(take).ok_or_else(|| io::Error::other("too many mappings"))?;
        SLOTS[slot].tripped.store(false, Ordering::Relaxed);
        SLOTS[slot].end.store(start + len, Ordering::Relaxed);
        SLOTS[slot].start.store(start, Ordering::Release);
        Ok(Self { slot })
    }

    /// Reports whether a page was found missing.
    #[inline]
    pub(crate) fn has_tripped(&self) -> bool {
        // The handler ran on the thread that asks, so a compiler fence is enough.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        SLOTS[self.slot].tripped.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        SLOTS[self.slot].start.store(FREE, Ordering::Release);
    }
}

fn install() -> Option<PreviousAction> {
    // SAFETY: asks for a number.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    // SAFETY: a `sigaction` of zeros is valid: the default action, no flags, an empty mask.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = handle;
    new.sa_sigaction = handler as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler only does what a handler may: atomics, `mmap` and `sigaction`.
    let installed = unsafe { libc::sigaction(libc::SIGBUS, &raw const new, &raw mut old) };
    (installed == 0).then_some(PreviousAction { action: old, page })
}

extern "C" fn handle(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid record.
    let address = unsafe { (*info).si_addr() } as usize;
    let Some(Some(before)) = PREVIOUS.get() else { return };
    let holds = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        start > RESERVED && (start..slot.end.load(Ordering::Relaxed)).contains(&address)
    };
    if let Some(slot) = SLOTS.iter().find(holds) {
        let page = (address & !(before.page - 1)) as *mut c_void;
        let (access, how) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
        // SAFETY: replaces one page of a mapping that its guard says is alive; nobody holds a
        // reference into it, only copies through raw pointers are made.
        if unsafe { libc::mmap(page, before.page, access, how, -1, 0) } == page {
            slot.tripped.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: the instruction is run again, under the previous action. SAFETY: restores what `sigaction`
    // gave.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const before.action, std::ptr::null_mut()) };
}
