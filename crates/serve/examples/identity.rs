//! Serves one device as one volume, byte for byte, without a map. `bench/map-cost` compares the server with
//! it; the remaining difference is the cost of the map and the engine.
//!
//! ```text
//! cargo run --release -p weir-serve --example identity -- /tmp/s DEVICE 256 [MODEL]
//! ```
//!
//! The arguments are the socket's path, the device (a file that does not exist is created), its size in MiB
//! and, to pace it, a modelled drive. Reads and writes are whole 4 KiB blocks. The server ends at SIGTERM or
//! SIGINT.

use std::collections::VecDeque;
use std::path::PathBuf;
use weir_device::{Arena, DeviceOptions, Devices, Listen, Reactor, ReactorOptions};
use weir_engine::{
    AdminCommand, AdminError, AdminId, AdminReply, BlockStatus, Driver, Hardening, Notice, VolumeInfo,
};
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceOffset, Io, IoCompletion, IoId, IoKind, Memory, Nanos, Op,
    ReadShape, Reply, Request, RequestError, VolumeId,
};
use weir_serve::volumes::{RunQuery, Volumes};
use weir_serve::{ClientCounts, Limits, Server};

const DEVICE: DeviceId = DeviceId(0);
/// Maximum number of requests in flight.
const REQUESTS: usize = 1024;

/// A volume whose bytes have the same addresses on the device.
struct Identity {
    size: Bytes,
    /// Requests on the device, by the number of their command.
    in_flight: Vec<Option<(Request, Nanos)>>,
    free: Vec<usize>,
    commands: VecDeque<Io>,
    replies: VecDeque<Reply>,
    refused: VecDeque<AdminReply>,
    stopping: bool,
}

impl Identity {
    fn new(size: Bytes) -> Self {
        Self {
            size,
            in_flight: vec![None; REQUESTS],
            free: (0..REQUESTS).collect(),
            commands: VecDeque::new(),
            replies: VecDeque::new(),
            refused: VecDeque::new(),
            stopping: false,
        }
    }

    fn reply(&mut self, request: &Request, result: Result<ReadShape, RequestError>, response: Nanos) {
        self.replies.push_back(Reply { id: request.id, result, buffer: request.buffer, response });
    }

    /// Returns the device command of a request; `None` if it needs none.
    fn command(request: &Request) -> Result<Option<IoKind>, RequestError> {
        let is_aligned = (request.offset.0 | request.len.0).is_multiple_of(BLOCK);
        match request.op {
            Op::Flush => Ok(Some(IoKind::Flush)),
            Op::Trim => Ok(None),
            Op::Read if is_aligned => Ok(Some(IoKind::Read)),
            Op::Write if is_aligned => Ok(Some(IoKind::Write { fua: request.fua })),
            _ => Err(RequestError::Misaligned { offset: request.offset, len: request.len }),
        }
    }
}

impl Volumes for Identity {
    fn submit<M: Memory>(&mut self, now: Nanos, request: Request, _: &mut M) {
        let kind = match Self::command(&request) {
            Ok(Some(kind)) => kind,
            Ok(None) => return self.reply(&request, Ok(ReadShape::Data), Nanos(0)),
            Err(error) => return self.reply(&request, Err(error), Nanos(0)),
        };
        let slot = self.free.pop().expect("no more than can be accepted");
        self.in_flight[slot] = Some((request, now));
        let id = IoId(slot as u64);
        let (at, buffer) = (DeviceOffset(request.offset.0), request.buffer.unwrap_or(Buffer::EMPTY));
        self.commands.push_back(Io { id, device: DEVICE, kind, at, buffer });
    }
    fn complete<M: Memory>(&mut self, now: Nanos, done: IoCompletion, _: &mut M) {
        let slot = done.id.0 as usize;
        let Some((request, since)) = self.in_flight[slot].take() else { return };
        self.free.push(slot);
        let failed = |error| RequestError::Io {
            device: DEVICE,
            kind: Self::command(&request).ok().flatten().unwrap_or(IoKind::Flush),
            at: DeviceOffset(request.offset.0),
            len: request.len,
            error,
        };
        let result = done.result.map(|()| ReadShape::Data).map_err(failed);
        self.reply(&request, result, now - since);
    }
    fn pump<D: Driver>(&mut self, driver: &mut D) {
        while let Some(io) = self.commands.pop_front() {
            if let Some(result) = driver.start(io) {
                self.complete(driver.now(), IoCompletion { id: io.id, result }, driver.memory());
            }
        }
    }
    fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }
    fn deadline(&self) -> Option<Nanos> {
        None
    }
    fn can_accept(&self) -> bool {
        !self.free.is_empty()
    }
    fn volumes(&self) -> Vec<VolumeInfo> {
        vec![VolumeInfo {
            metadata: None,
            id: VolumeId(0),
            name: "v".into(),
            size: self.size,
            allocated: self.size,
            hardening: Hardening::Flush,
            copies: 1,
            policy: None,
            moves: None,
            degraded: Bytes(0),
            unreachable: Bytes(0),
            scan_in_progress: false,
        }]
    }
    fn runs(&self, of: RunQuery, runs: &mut Vec<BlockStatus>) {
        runs.push(BlockStatus { len: of.len, kind: weir_engine::RunKind::Data });
    }
    fn admin(&mut self, _: Nanos, id: AdminId, _: AdminCommand) {
        self.refused.push_back(AdminReply { id, result: Err(AdminError::BadName("v".into())) });
    }
    fn next_admin_reply(&mut self) -> Option<AdminReply> {
        self.refused.pop_front()
    }
    fn device_name(&self, _: DeviceId) -> String {
        "the device".into()
    }
    fn next_notice(&mut self) -> Option<Notice> {
        None
    }
    fn stop_waiting_for_space(&mut self, _: Nanos) {}
    fn begin_stop(&mut self, _: Nanos) {
        self.stopping = true;
    }
    fn stopped(&self) -> bool {
        self.stopping && self.free.len() == REQUESTS && self.replies.is_empty()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().ok_or("give the path of a socket")?);
    let file = PathBuf::from(arguments.next().ok_or("give the path of a device")?);
    let size = Bytes::mib(arguments.next().ok_or("give the size in MiB")?.parse()?);
    let options = DeviceOptions { size: Some(size), pace: arguments.next(), ..DeviceOptions::default() };
    let mut devices = Devices::default();
    devices.open(DEVICE, &file, &options)?;
    let limits = Limits::default();
    let arena = Arena::new(limits.memory())?;
    let options = ReactorOptions { signals: true, ..ReactorOptions::default() };
    let reactor = Reactor::new(&options, devices, &arena)?;
    let describe = Box::new(|_: &Identity, _: &Reactor, _: &ClientCounts| serde_json::Value::Null);
    let mut server = Server::new(reactor, arena, Identity::new(size), &limits, describe);
    server.listen(&Listen::private(path))?;
    println!("{:?}", server.run());
    Ok(())
}
