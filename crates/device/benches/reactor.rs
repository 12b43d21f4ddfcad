//! Benchmark of the reactor on this machine: device commands and replies per second, and the processor time
//! of each. Prints a table; run it with `cargo bench -p weir-device`.
//!
//! The arguments are folders for the device's file (default: the system's temporary folder and `/dev/shm`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use weir_device::{Arena, Device, DeviceOptions, Devices, Event, Listen, Reactor, ReactorOptions, Ring};
use weir_model::{
    BLOCK, Buffer, Bytes, DeviceId, DeviceOffset, Io, IoCompletion, IoId, IoKind, Memory, Nanos, ReceiveMode,
};

const SIZE: Bytes = Bytes::mib(256);

/// How long each row is measured. `--test` only checks that the benchmark runs.
fn time() -> Nanos {
    if std::env::args().any(|argument| argument == "--test") { Nanos::millis(20) } else { Nanos::secs(1) }
}

fn main() {
    let mut folders: Vec<_> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if folders.is_empty() {
        folders = vec![std::env::temp_dir().display().to_string(), "/dev/shm".into()];
    }
    println!("{:44} {:>10} {:>10} {:>10}", "", "op/s", "ns each", "CPU ns");
    for folder in &folders {
        let Ok(folder) = tempfile::tempdir_in(folder) else { continue };
        for (name, ring, fixed_buffers) in [
            ("io_uring", Ring::Uring, false),
            ("registered", Ring::Uring, true),
            ("plain", Ring::Plain, false),
        ] {
            let options = ReactorOptions { ring, fixed_buffers, ..Default::default() };
            for depth in [1, 32] {
                devices(&options, name, folder.path(), depth);
            }
        }
    }
    for folder in &folders {
        let Ok(folder) = tempfile::tempdir_in(folder) else { continue };
        println!("paced, in {}", folder.path().display());
        for model in weir_timing::NAMES {
            for depth in [1, 8] {
                pacing(&ReactorOptions::default(), folder.path(), model, depth);
            }
        }
    }
    for (name, ring) in [("io_uring", Ring::Uring), ("plain", Ring::Plain)] {
        for (depth, block) in [(1, Bytes(BLOCK)), (32, Bytes(BLOCK)), (8, Bytes::mib(1))] {
            replies(&ReactorOptions { ring, ..Default::default() }, name, depth, block);
        }
    }
}

/// Measures random 4 KiB reads from a modelled drive: the measured time against the model's.
fn pacing(options: &ReactorOptions, folder: &Path, model: &str, depth: u64) {
    let mut arena = Arena::new(Bytes::mib(4)).expect("memory");
    let mut devices = Devices::new();
    let how = DeviceOptions { size: Some(SIZE), pace: Some(model.to_owned()), ..Default::default() };
    devices.open(DeviceId(0), &folder.join("device"), &how).expect("a file");
    weir_model::Store::write(&mut devices, DeviceId(0), DeviceOffset(0), &vec![7; SIZE.0 as usize])
        .expect("filled");
    let mut twin = weir_timing::model(model, SIZE, weir_timing::ssd::without_collection).expect("a model");
    let Ok(mut reactor) = Reactor::new(options, devices, &arena) else { return };
    let buffers: Vec<Buffer> = (0..depth).map(|_| arena.take(Bytes(BLOCK)).expect("room")).collect();
    let mut starts = vec![Nanos(0); buffers.len()];
    let (mut measured, mut modelled, mut count) = (0, 0, 0u64);
    let (time, begin, busy) = (time(), reactor.now(), processor());
    let (mut events, mut now, mut random) = (Vec::new(), begin, 88_172_645_463_325_252u64);
    // Batch by batch, so that the model can be queried for each batch.
    while now.since(begin) < time {
        for (id, &buffer) in (0..).zip(&buffers) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = DeviceOffset(random % (SIZE.0 / BLOCK) * BLOCK);
            let (kind, id) = (IoKind::Read, IoId(id));
            starts[id.0 as usize] = reactor.now();
            reactor.start(Io { id, device: DeviceId(0), kind, at, buffer });
            twin.submit(starts[id.0 as usize], id, kind, at, Bytes(BLOCK));
        }
        while let Some(due) = twin.next() {
            while let Some(id) = twin.pop(due) {
                modelled += due.since(starts[id.0 as usize]).0;
            }
        }
        let mut left = depth;
        while left > 0 {
            now = reactor.wait(None, &mut events);
            for event in events.drain(..) {
                let Event::Io(IoCompletion { id, result }) = event else { continue };
                result.expect("device");
                measured += now.since(starts[id.0 as usize]).0;
                (left, count) = (left - 1, count + 1);
            }
        }
    }
    let (each, model_each) = (measured as f64 / count as f64 / 1e3, modelled as f64 / count as f64 / 1e3);
    let over = reactor.pace_stats(DeviceId(0)).expect("paced").overrun_share() * 100.0;
    let busy = (processor() - busy).as_secs_f64() * 100.0 / now.since(begin).as_secs_f64();
    println!(
        "{model:10} depth {depth:2}: {each:9.1} us, model {model_each:9.1} us ({:+.2} %), {over:.2} % overruns, {busy:.0} % of a core",
        (each / model_each - 1.0) * 100.0
    );
}

/// Returns the processor time of this thread.
fn processor() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(what: &str, count: u64, time: Nanos, busy: Duration) {
    let each = time.0 as f64 / count as f64;
    let cpu = busy.as_nanos() as f64 / count as f64;
    println!("{what:44} {:>10.0} {each:>10.0} {cpu:>10.0}", 1e9 / each);
}

/// Measures random 4 KiB commands to a file.
fn devices(options: &ReactorOptions, name: &str, folder: &Path, depth: u64) {
    let mut arena = Arena::new(Bytes::mib(4)).expect("memory");
    let mut devices = Devices::new();
    let how = DeviceOptions { size: Some(SIZE), ..Default::default() };
    let device = Device::open(&folder.join("device"), &how).expect("a file");
    let whole = if device.memory_backed() { "memory" } else { "disk" };
    devices.insert(DeviceId(0), device).expect("one device");
    weir_model::Store::write(&mut devices, DeviceId(0), DeviceOffset(0), &vec![7; SIZE.0 as usize])
        .expect("filled");
    let Ok(mut reactor) = Reactor::new(options, devices, &arena) else {
        return println!("{name}: refused here");
    };
    for (verb, kind) in [("read", IoKind::Read), ("write", IoKind::Write { fua: false })] {
        let mut random = 88_172_645_463_325_252u64;
        let mut start = |reactor: &mut Reactor, id: IoId, buffer: Buffer| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = DeviceOffset(random % (SIZE.0 / BLOCK) * BLOCK);
            reactor.start(Io { id, device: DeviceId(0), kind, at, buffer });
        };
        let buffers: Vec<Buffer> = (0..depth).map(|_| arena.take(Bytes(BLOCK)).expect("room")).collect();
        for (id, &buffer) in (0..).zip(&buffers) {
            start(&mut reactor, IoId(id), buffer);
        }
        let (time, begin, busy) = (time(), reactor.now(), processor());
        let (mut count, mut events, mut now) = (0, Vec::new(), begin);
        while now.since(begin) < time {
            now = reactor.wait(None, &mut events);
            for event in events.drain(..) {
                let Event::Io(IoCompletion { id, result }) = event else { continue };
                result.expect("device");
                count += 1;
                start(&mut reactor, id, buffers[id.0 as usize]);
            }
        }
        report(
            &format!("{verb} {whole}, {name}, depth {depth}"),
            count,
            now.since(begin),
            processor() - busy,
        );
        let mut left = depth;
        while left > 0 {
            reactor.wait(None, &mut events);
            left -= events.drain(..).count() as u64;
        }
        buffers.into_iter().for_each(|b| arena.give(b));
    }
}

const REQUEST: usize = 28;
const HEADER: usize = 16;

/// Measures replies to a client that keeps `depth` requests in flight; no device is involved.
fn replies(options: &ReactorOptions, name: &str, depth: usize, block: Bytes) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("socket");
    let mut arena = Arena::new(Bytes::mib(16)).expect("memory");
    let Ok(mut reactor) = Reactor::new(options, Devices::new(), &arena) else { return };
    reactor.listen(&Listen::private(path.clone())).expect("listening");
    let client = std::thread::spawn(move || run_client(&path, depth, block));
    let inward = arena.take(Bytes::kib(64)).expect("room");
    let blocks: Vec<Buffer> = (0..depth).map(|_| arena.take(block).expect("room")).collect();
    let header = arena.take(Bytes(BLOCK)).expect("room").part(0, HEADER as u32);
    let (begin, busy) = (reactor.now(), processor());
    let (mut count, mut held, mut waiting, mut sending) = (0, 0, 0, false);
    let (mut events, mut parts) = (Vec::new(), Vec::new());
    loop {
        reactor.wait(None, &mut events);
        for event in events.drain(..) {
            let conn = match event {
                Event::Accepted { conn, .. } => {
                    reactor.recv(conn, &[inward], ReceiveMode::Any);
                    conn
                }
                Event::Received { result: Ok(0) | Err(_), .. } => {
                    report(
                        &format!("reply of {block}, {name}, depth {depth}"),
                        count,
                        reactor.now().since(begin),
                        processor() - busy,
                    );
                    client.join().expect("client");
                    return;
                }
                Event::Received { conn, result: Ok(len) } => {
                    waiting += (held + len) / REQUEST;
                    held = (held + len) % REQUEST;
                    reactor.recv(conn, &[inward], ReceiveMode::Any);
                    conn
                }
                Event::Sent { conn, .. } => {
                    sending = false;
                    conn
                }
                _ => continue,
            };
            if !sending && waiting > 0 {
                parts.clear();
                blocks.iter().take(waiting).for_each(|&block| parts.extend([header, block]));
                reactor.send(conn, &parts);
                count += waiting as u64;
                (waiting, sending) = (0, true);
            }
        }
    }
}

fn run_client(path: &Path, depth: usize, block: Bytes) {
    let mut socket = UnixStream::connect(path).expect("connected");
    let begin = std::time::Instant::now();
    let mut replies = vec![0; depth * (HEADER + block.0 as usize)];
    let time = Duration::from_nanos(time().0);
    while begin.elapsed() < time {
        socket.write_all(&vec![1; depth * REQUEST]).expect("sent");
        socket.read_exact(&mut replies).expect("replies");
    }
}
