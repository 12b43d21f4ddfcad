//! The io_uring backend: one `io_uring_enter` per turn submits everything started and reaps everything
//! completed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use io_uring::squeue::{self, Entry};
use io_uring::types::{Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Submitter, cqueue, opcode};
use weir_model::ConnId;

use super::backend::{Action, FileOp, Finished, Sleep, TurnContext};
use super::disk::{TransferStep, lent};
use super::signal::{Signals, WakeSource};
use super::socket::{Direction, ListenerId, Sockets};
use super::{Event, ReactorOptions, SKIPS_MAX};
use crate::arena::Region;

/// Delay before accepting is retried after it failed for lack of a resource.
static ACCEPT_PAUSE: Timespec = Timespec::new().nsec(100_000_000);

/// The ring and its commands in flight.
pub(super) struct Uring {
    ring: IoUring,
    /// Entries that found the submission queue full.
    backlog: VecDeque<Entry>,
    /// Device commands in flight, by slot.
    ops: Vec<FileOp>,
    free: Vec<u32>,
    /// Buffers for the bells' bytes; boxed because the kernel writes there.
    wake_buffers: Box<[[u8; 16]; WakeSource::ALL.len()]>,
    wake_descriptors: [Option<RawFd>; WakeSource::ALL.len()],
    /// Listeners that failed to accept, until a timeout in flight ends.
    paused: Vec<ListenerId>,
    /// Listeners that do not accept at the moment.
    waiting: Vec<ListenerId>,
    accepting: bool,
    /// Completions of this turn; kept to reuse its memory.
    reaped: Vec<cqueue::Entry>,
    /// Number of entries that the kernel will still complete: device commands, transfers, accepts, bells.
    in_flight: u32,
    /// True if device commands wait for submission.
    urgent: bool,
    skipped: u32,
    has_fixed_buffer: bool,
    stopping: bool,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

/// Kind of an entry, in the upper half of its user data; the lower half is its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum EntryKind {
    File = 0,
    Recv = 1,
    Send = 2,
    Accept = 3,
    Wake = 4,
    Resume = 5,
    Cancel = 6,
}

impl EntryKind {
    fn tag(self, index: u32) -> u64 {
        u64::from(self as u32) << 32 | u64::from(index)
    }
    fn of(tag: u64) -> Self {
        match tag >> 32 {
            0 => Self::File,
            1 => Self::Recv,
            2 => Self::Send,
            3 => Self::Accept,
            4 => Self::Wake,
            5 => Self::Resume,
            _ => Self::Cancel,
        }
    }
    fn of_way(way: Direction) -> Self {
        match way {
            Direction::In => Self::Recv,
            Direction::Out => Self::Send,
        }
    }
}

impl Uring {
    /// Creates a ring; `files` are the devices' files by id.
    pub(super) fn new(
        options: &ReactorOptions,
        files: &[Option<RawFd>],
        region: &Region,
        signals: &Signals,
    ) -> io::Result<Self> {
        let ring = build(options.depth.clamp(8, 4096).next_power_of_two())?;
        let files: Vec<RawFd> = files.iter().map(|file| file.unwrap_or(-1)).collect();
        if !files.is_empty() {
            ring.submitter().register_files(&files)?;
        }
        let has_fixed_buffer = options.fixed_buffers && register_buffer(&ring.submitter(), region);
        let mut new = Self {
            ring,
            backlog: VecDeque::new(),
            ops: Vec::new(),
            free: Vec::new(),
            wake_buffers: Box::default(),
            wake_descriptors: WakeSource::ALL.map(|bell| signals.source(bell)),
            paused: Vec::new(),
            waiting: Vec::new(),
            accepting: true,
            reaped: Vec::new(),
            in_flight: 0,
            urgent: false,
            skipped: 0,
            has_fixed_buffer,
            stopping: false,
        };
        WakeSource::ALL.iter().for_each(|&bell| new.watch(bell));
        Ok(new)
    }

    /// Reports whether started commands can be submitted in a later turn.
    pub(super) fn can_defer(&mut self) -> bool {
        self.skipped += 1;
        !self.urgent && self.backlog.is_empty() && self.skipped <= SKIPS_MAX
    }

    /// Reports whether a turn could find or submit anything.
    pub(super) fn has_pending_work(&mut self) -> bool {
        let queue = self.ring.submission();
        let waits = queue.taskrun() || queue.cq_overflow() || !queue.is_empty();
        drop(queue);
        waits || !self.backlog.is_empty() || !self.ring.completion().is_empty()
    }

    /// Queues an entry; submits when the queue is full, so that none is lost.
    fn push(&mut self, entry: Entry) {
        self.in_flight += 1;
        if !self.backlog.is_empty() || !self.make_space_and_push(&entry) {
            self.backlog.push_back(entry);
        }
    }

    /// Returns false if the kernel accepts no entry at the moment (its completion queue is full): the entry
    /// then waits until completions have been reaped.
    fn make_space_and_push(&mut self, entry: &Entry) -> bool {
        self.try_push(entry) || (self.ring.submit().is_ok() && self.try_push(entry))
    }

    fn try_push(&mut self, entry: &Entry) -> bool {
        // SAFETY: what an entry points to stays valid until its completion is reaped: arena
        // memory (the reactor holds the region), boxed transfers (a connection is removed only
        // when idle), the boxed bells; `Reactor`'s drop waits for all of them, or leaks them.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    pub(super) fn start(&mut self, op: FileOp, region: &Region) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.ops.push(op);
            self.ops.len() as u32 - 1
        });
        self.ops[slot as usize] = op;
        self.submit_op(slot, region);
    }

    fn submit_op(&mut self, slot: u32, region: &Region) {
        let op = &self.ops[slot as usize];
        let (file, rest, at) = (Fixed(u32::from(op.device.0)), op.rest(), op.rest_at());
        let (pointer, len) = (region.pointer(rest), rest.len);
        let is_registered = self.has_fixed_buffer && region.is_in_initial_part(rest);
        let entry = match (op.action, is_registered) {
            (Action::Read, false) => opcode::Read::new(file, pointer, len).offset(at).build(),
            (Action::Read, true) => opcode::ReadFixed::new(file, pointer, len, 0).offset(at).build(),
            (Action::Write { durable }, false) => {
                opcode::Write::new(file, pointer, len).offset(at).rw_flags(dsync(durable)).build()
            }
            (Action::Write { durable }, true) => {
                opcode::WriteFixed::new(file, pointer, len, 0).offset(at).rw_flags(dsync(durable)).build()
            }
            (Action::Sync, _) => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        };
        let flags = if op.is_offloaded { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
        self.urgent = true;
        self.push(entry.flags(flags).user_data(EntryKind::File.tag(slot)));
    }

    /// Accepts one client on the listener, now or when accepting is enabled again.
    pub(super) fn add_listener(&mut self, id: ListenerId, sockets: &Sockets) {
        if !self.accepting {
            return self.waiting.push(id);
        }
        if let Some(listener) = sockets.listener(id) {
            let socket = Fd(listener.socket().as_raw_fd());
            let none = std::ptr::null_mut();
            let entry = opcode::Accept::new(socket, none, none.cast()).flags(libc::SOCK_CLOEXEC).build();
            self.push(entry.user_data(EntryKind::Accept.tag(id.0)));
        }
    }

    pub(super) fn set_accepting(&mut self, accepting: bool, sockets: &Sockets) {
        self.accepting = accepting;
        if accepting {
            for id in std::mem::take(&mut self.waiting) {
                self.add_listener(id, sockets);
            }
        }
    }

    pub(super) fn stop_listening(&mut self, sockets: &Sockets) {
        self.paused.clear();
        self.waiting.clear();
        for (id, _) in sockets.listeners() {
            self.cancel_tag(EntryKind::Accept.tag(id.0));
        }
    }

    fn cancel_tag(&mut self, tag: u64) {
        self.push(opcode::AsyncCancel::new(tag).build().user_data(EntryKind::Cancel.tag(0)));
    }

    /// Starts or continues a receive or send.
    pub(super) fn transfer(&mut self, index: u32, way: Direction, sockets: &mut Sockets) {
        let Some(conn) = sockets.by_index(index) else { return };
        let socket = Fd(conn.socket.as_raw_fd());
        let transfer = conn.transfer(way);
        let flags = transfer.flags();
        let entry = match (way, transfer.single()) {
            (Direction::In, Some((at, len))) => opcode::Recv::new(socket, at, len).flags(flags).build(),
            (Direction::Out, Some((at, len))) => opcode::Send::new(socket, at, len).flags(flags).build(),
            (Direction::In, None) => {
                opcode::RecvMsg::new(socket, transfer.header()).flags(flags as u32).build()
            }
            (Direction::Out, None) => {
                opcode::SendMsg::new(socket, transfer.header()).flags(flags as u32).build()
            }
        };
        self.push(entry.user_data(EntryKind::of_way(way).tag(index)));
    }

    /// Cancels what is in flight on a connection. Shutting its socket down has ended most of it; this ends
    /// entries that wait for something else.
    pub(super) fn cancel(&mut self, conn: ConnId) {
        let index = conn.index() as u32;
        self.cancel_tag(EntryKind::Recv.tag(index));
        self.cancel_tag(EntryKind::Send.tag(index));
    }

    /// Cancels the receive in flight on a connection.
    pub(super) fn cancel_recv(&mut self, conn: ConnId) {
        self.cancel_tag(EntryKind::Recv.tag(conn.index() as u32));
    }

    fn watch(&mut self, bell: WakeSource) {
        let Some(source) = self.wake_descriptors[bell as usize] else { return };
        let bytes = &mut self.wake_buffers[bell as usize];
        let entry = opcode::Read::new(Fd(source), bytes.as_mut_ptr(), bytes.len() as u32).build();
        self.push(entry.user_data(EntryKind::Wake.tag(bell as u32)));
    }

    /// Submits, sleeps if it may and nothing has completed yet, and reaps completions.
    pub(super) fn turn(&mut self, sleep: Sleep, mut world: TurnContext<'_>) {
        self.drain_backlog();
        let sleep = if self.ring.completion().is_empty() { sleep } else { Sleep::No };
        if let Err(e) = self.enter(sleep) {
            tracing::error!(error = %e, "io_uring_enter failed; trying again");
        }
        (self.urgent, self.skipped) = (false, 0);
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion());
        for entry in reaped.drain(..) {
            self.completed(&entry, &mut world);
        }
        self.reaped = reaped;
    }

    fn drain_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.make_space_and_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    fn enter(&mut self, sleep: Sleep) -> io::Result<()> {
        const GETEVENTS: u32 = 1;
        let submitter = self.ring.submitter();
        let entered = match sleep {
            Sleep::No => {
                let waiting = { self.ring.submission().len() } as u32;
                // SAFETY: no argument is passed; GETEVENTS runs the deferred work of the kernel.
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(waiting, 0, GETEVENTS, None) }
            }
            Sleep::For(time) => {
                let time = Timespec::new().sec(time.0 / 1_000_000_000).nsec((time.0 % 1_000_000_000) as u32);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            Sleep::Forever => submitter.submit_and_wait(1),
        };
        match entered {
            Ok(_) => Ok(()),
            Err(e) => match e.raw_os_error() {
                // The timeout expired; a signal arrived; completions must be reaped first.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(e),
            },
        }
    }

    fn completed(&mut self, entry: &cqueue::Entry, world: &mut TurnContext<'_>) {
        let (answer, index) = (entry.result(), entry.user_data() as u32);
        if !cqueue::more(entry.flags()) {
            self.in_flight -= 1;
        }
        match EntryKind::of(entry.user_data()) {
            EntryKind::File => self.handle_file_result(index, answer, world),
            EntryKind::Recv => self.handle_transfer_result(index, Direction::In, answer, world),
            EntryKind::Send => self.handle_transfer_result(index, Direction::Out, answer, world),
            EntryKind::Accept => self.accepted(ListenerId(index), answer, world),
            EntryKind::Wake => self.handle_wake(index, answer, world.events),
            EntryKind::Resume => self.resume_accepting(world.sockets),
            EntryKind::Cancel => {}
        }
    }

    fn handle_file_result(&mut self, slot: u32, answer: i32, world: &mut TurnContext<'_>) {
        let op = &mut self.ops[slot as usize];
        match op.step(answer) {
            TransferStep::Continue => self.submit_op(slot, world.region),
            TransferStep::Complete(result) => {
                world.region.returned(op.buffer, lent(op.action));
                world.finished.push(Finished { op: *op, result });
                self.free.push(slot);
            }
        }
    }

    fn handle_transfer_result(
        &mut self,
        index: u32,
        way: Direction,
        answer: i32,
        world: &mut TurnContext<'_>,
    ) {
        if world.sockets.handle_transfer(index, way, answer, world.region, world.events) {
            self.transfer(index, way, world.sockets);
        }
    }

    fn accepted(&mut self, id: ListenerId, answer: i32, world: &mut TurnContext<'_>) {
        // The listener's socket is closed. With a reactor that never waited, this happens before the kernel
        // has seen the accept.
        let is_over = answer == -libc::ECANCELED || world.sockets.listener(id).is_none();
        if answer >= 0 {
            // SAFETY: a fresh descriptor that the kernel made for this completion alone.
            let socket = unsafe { OwnedFd::from_raw_fd(answer) };
            world.events.extend(world.sockets.accepted(id, socket));
        } else if !is_over {
            let error = io::Error::from_raw_os_error(-answer);
            tracing::warn!(%error, "a client could not be accepted; trying again in a moment");
        }
        if self.stopping || is_over {
            return;
        }
        if answer >= 0 { self.add_listener(id, world.sockets) } else { self.pause(id) }
    }

    /// Pauses accepting on a listener.
    fn pause(&mut self, id: ListenerId) {
        if self.paused.is_empty() {
            let timeout = opcode::Timeout::new(&raw const ACCEPT_PAUSE).build();
            self.push(timeout.user_data(EntryKind::Resume.tag(0)));
        }
        self.paused.push(id);
    }

    fn resume_accepting(&mut self, sockets: &Sockets) {
        for id in std::mem::take(&mut self.paused) {
            self.add_listener(id, sockets);
        }
    }

    /// Cancels the bells; from now on nothing is armed again automatically.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        for bell in WakeSource::ALL {
            self.cancel_tag(EntryKind::Wake.tag(bell as u32));
        }
    }

    /// Releases the devices' files now. A closed ring does so only some time later, and the files' locks
    /// would outlive the reactor.
    pub(super) fn release(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }

    /// Leaks the memory that the kernel may still write to.
    pub(super) fn leak(&mut self, region: &Region) {
        std::mem::forget(std::mem::take(&mut self.wake_buffers));
        std::mem::forget(region.clone());
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    fn handle_wake(&mut self, index: u32, answer: i32, events: &mut Vec<Event>) {
        let Some(&bell) = WakeSource::ALL.get(index as usize) else { return };
        if answer > 0 {
            events.push(bell.event());
        }
        if !self.stopping && answer != -libc::ECANCELED {
            self.watch(bell);
        }
    }
}

/// Creates the ring with the best setup that this kernel supports.
fn build(depth: u32) -> io::Result<IoUring> {
    type Choose = fn(&mut io_uring::Builder) -> &mut io_uring::Builder;
    // The kernel processes completions when we ask for them, in one batch (Linux 6.1), or at our next system
    // call (5.19, which also introduced the accepts used here).
    let best: [Choose; 2] = [
        |b| b.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
        |b| b.setup_coop_taskrun().setup_taskrun_flag(),
    ];
    for choose in best {
        let mut builder = IoUring::builder();
        // The completion queue is larger than the submission queue, because many commands may be in flight.
        builder.dontfork().setup_clamp().setup_submit_all().setup_cqsize(depth * 8);
        match choose(&mut builder).build(depth) {
            Ok(ring) => {
                let deferred = ring.params().is_setup_single_issuer();
                tracing::info!(depth, deferred, "running on io_uring");
                return Ok(ring);
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("this kernel's is too old, 5.19 is needed"))
}

/// Registers the part of the buffer memory that is in use from the start; returns whether it succeeded.
fn register_buffer(submitter: &Submitter<'_>, region: &Region) -> bool {
    let (start, len) = region.initial_part();
    let part = libc::iovec { iov_base: start.cast(), iov_len: len };
    // SAFETY: the region outlives the ring: `Reactor` holds it and drops it last, or leaks it.
    match unsafe { submitter.register_buffers(&[part]) } {
        Ok(()) => true,
        Err(error) => {
            tracing::info!(%error, "the buffer memory is not registered with io_uring; \
             raise ulimit -l to register it");
            false
        }
    }
}

/// Returns the flag that makes a write durable at its completion.
fn dsync(durable: bool) -> i32 {
    if durable { libc::RWF_DSYNC } else { 0 }
}
