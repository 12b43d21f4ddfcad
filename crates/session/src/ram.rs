//! A volume in memory: the simplest implementation of [`Volumes`]. It serves tests of the server, its fuzz
//! target, and measurements of the cost of serving without an engine.

use crate::nbd::Export;
use crate::volumes::{RunQuery, Volumes};
use std::collections::{BTreeSet, VecDeque};
use weir_engine::{
    AdminCommand, AdminError, AdminId, AdminReply, BlockStatus, Driver, Hardening, Loss, Notice, RunKind,
    VolumeInfo,
};
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceOffset, Errno, IoCompletion, IoError, IoKind, Memory, Nanos, Op,
    Planted, ReadShape, Reply, Request, RequestError, RequestId, VolumeId,
};

/// One volume named `ram`, or several names for the same bytes. Requests execute at submission, so effects
/// have the order of submission; replies wait for [`Ram::next_reply`] in the same order.
#[derive(Debug)]
pub struct Ram {
    /// Names of the volumes.
    names: Vec<String>,
    bytes: Vec<u8>,
    /// Whether each block holds data; the others are holes.
    written: Vec<bool>,
    /// Blocks that fail every request, as on a broken device.
    broken: BTreeSet<u64>,
    replies: VecDeque<Reply>,
    /// Volume whose next FLUSH fails.
    pending_error: Option<VolumeId>,
    /// Number of losses of writes.
    losses: u64,
    /// All submitted requests, if they are recorded.
    submitted: Option<Vec<(RequestId, Op)>>,
    refused: VecDeque<AdminReply>,
    stopping: bool,
}

impl Ram {
    /// Creates a volume of `size` bytes, a multiple of 4096, that is one hole.
    pub fn new(size: Bytes) -> Self {
        Self {
            names: vec!["ram".into()],
            bytes: vec![0; size.0 as usize],
            written: vec![false; (size.0 / BLOCK) as usize],
            broken: BTreeSet::new(),
            replies: VecDeque::new(),
            pending_error: None,
            losses: 0,
            submitted: None,
            refused: VecDeque::new(),
            stopping: false,
        }
    }

    /// Adds another volume with the same bytes.
    #[must_use]
    pub fn with_alias(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }

    /// Records submitted requests from now on, for [`submitted`](Self::submitted).
    #[must_use]
    pub fn with_recording(mut self) -> Self {
        self.submitted = Some(Vec::new());
        self
    }

    /// Returns the submitted requests in order, if they are [recorded](Self::with_recording).
    pub fn submitted(&self) -> &[(RequestId, Op)] {
        self.submitted.as_deref().unwrap_or_default()
    }

    /// Makes every request fail that touches the block of byte `at`.
    pub fn fail_block(&mut self, at: u64) {
        self.broken.insert(at / BLOCK);
    }

    /// Simulates the loss of acknowledged writes.
    pub const fn lose_writes(&mut self) {
        self.losses += 1;
        self.pending_error = Some(VolumeId(0));
    }

    /// Returns the volume whose next FLUSH fails, if there is one.
    pub const fn pending_error(&self) -> Option<VolumeId> {
        self.pending_error
    }

    /// Returns the exports that clients are offered.
    pub fn exports(&self) -> Vec<Export> {
        Export::all(self)
    }

    /// Returns the contents of the volume.
    pub fn contents(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the replies not yet taken by [`Volumes::next_reply`].
    pub fn replies(&mut self) -> &mut VecDeque<Reply> {
        &mut self.replies
    }

    fn execute<M: Memory>(&mut self, request: &Request, memory: &mut M) -> Result<ReadShape, RequestError> {
        let (at, len) = (request.offset.0, request.len.0);
        let blocks = at / BLOCK..(at + len).div_ceil(BLOCK);
        if self.broken.range(blocks.clone()).next().is_some() {
            return Err(RequestError::Io {
                device: DeviceId(0),
                kind: IoKind::Read,
                at: DeviceOffset(at),
                len: request.len,
                error: IoError::Os(Errno::EIO),
            });
        }
        let bytes = &mut self.bytes[at as usize..(at + len) as usize];
        let written = &mut self.written[blocks.start as usize..blocks.end as usize];
        let payload = request.buffer.map(|buffer| buffer.part((at % BLOCK) as u32, len as u32));
        match (request.op, payload) {
            (Op::Read, Some(payload)) => return Ok(read(bytes, written, payload, memory)),
            (Op::Write, Some(payload)) => {
                bytes.copy_from_slice(memory.bytes(payload));
                written.fill(true);
            }
            (Op::WriteZeroes { .. }, _) => bytes.fill(0),
            (Op::Trim, _) => {
                let (first, end) = (at.next_multiple_of(BLOCK), (at + len) / BLOCK * BLOCK);
                if first < end {
                    self.bytes[first as usize..end as usize].fill(0);
                    self.written[(first / BLOCK) as usize..(end / BLOCK) as usize].fill(false);
                }
            }
            _ => {}
        }
        Ok(ReadShape::Data)
    }
}

fn read<M: Memory>(bytes: &[u8], written: &[bool], payload: Buffer, memory: &mut M) -> ReadShape {
    if !written.contains(&true) {
        return ReadShape::Zeros;
    }
    memory.bytes_mut(payload).copy_from_slice(bytes);
    if written.contains(&false) { ReadShape::Mixed } else { ReadShape::Data }
}

impl Volumes for Ram {
    fn submit<M: Memory>(&mut self, _: Nanos, request: Request, memory: &mut M) {
        if let Some(submitted) = &mut self.submitted {
            submitted.push((request.id, request.op));
        }
        let mut result = self.execute(&request, memory);
        if request.op == Op::Flush && self.pending_error.take_if(|volume| *volume == request.volume).is_some()
        {
            result = Err(RequestError::FlushFailed(DeviceId(0)));
        }
        self.replies.push_back(Reply { id: request.id, result, buffer: request.buffer, response: Nanos(0) });
    }
    fn fail_next_flush(&mut self, volume: VolumeId, _: DeviceId) {
        self.pending_error = Some(volume);
    }
    fn last_loss(&self, _: VolumeId) -> Option<Loss> {
        (self.losses > 0).then_some(Loss { number: self.losses, device: DeviceId(0) })
    }
    fn planted(&self) -> Planted {
        Planted::for_tests()
    }
    fn complete<M: Memory>(&mut self, _: Nanos, _: IoCompletion, _: &mut M) {}
    fn pump<D: Driver>(&mut self, _: &mut D) {}
    fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn can_accept(&self) -> bool {
        true
    }
    fn volumes(&self) -> Vec<VolumeInfo> {
        let size = Bytes(self.bytes.len() as u64);
        let hardening = Hardening::Flush;
        let (copies, degraded) = (1, Bytes(0));
        let info = |(id, name): (u32, &String)| VolumeInfo {
            metadata: None,
            id: VolumeId(id),
            name: name.clone(),
            size,
            allocated: size,
            hardening,
            copies,
            policy: None,
            moves: None,
            degraded,
            unreachable: Bytes(0),
            scan_in_progress: false,
        };
        (0..).zip(&self.names).map(info).collect()
    }
    fn runs(&self, of: RunQuery, runs: &mut Vec<BlockStatus>) {
        let (mut at, end) = (of.offset.0, of.offset.0 + of.len.0);
        while at < end {
            let kind = if self.written[(at / BLOCK) as usize] { RunKind::Data } else { RunKind::Hole };
            let next = (at / BLOCK * BLOCK + BLOCK).min(end);
            let known = runs.len();
            match runs.last_mut() {
                Some(run) if run.kind == kind => run.len += Bytes(next - at),
                _ if known == of.max_runs => return,
                _ => runs.push(BlockStatus { len: Bytes(next - at), kind }),
            }
            at = next;
        }
    }
    fn admin(&mut self, _: Nanos, id: AdminId, command: AdminCommand) {
        // The set of volumes is fixed, so every change is refused.
        let (AdminCommand::CreateVolume { name, .. }
        | AdminCommand::SetHardening { name, .. }
        | AdminCommand::RemoveVolume { name }) = command;
        self.refused.push_back(AdminReply { id, result: Err(AdminError::BadName(name)) });
    }
    fn next_admin_reply(&mut self) -> Option<AdminReply> {
        self.refused.pop_front()
    }
    fn next_notice(&mut self) -> Option<Notice> {
        None
    }
    fn device_name(&self, _: weir_model::DeviceId) -> String {
        "ram".into()
    }
    fn stop_waiting_for_space(&mut self, _: Nanos) {}
    fn begin_stop(&mut self, _: Nanos) {
        self.stopping = true;
    }
    fn stopped(&self) -> bool {
        self.stopping && self.replies.is_empty()
    }
}
