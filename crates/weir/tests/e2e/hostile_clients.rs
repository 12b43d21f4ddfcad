//! Hundreds of misbehaving clients: a good client is served among them, and they leave no resources behind.

use crate::harness::{Pool, Server};
use crate::nbd::Client;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

fn descriptors(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server's descriptors").count()
}

fn assert_works(client: &mut Client, byte: u8) {
    let bytes = vec![byte; 100_003];
    client.write(4095, &bytes).expect("it writes");
    assert!(client.read(4095, bytes.len()).expect("it reads") == bytes);
}

#[test]
fn hostile_clients_leak_no_descriptors_and_starve_no_client() {
    let pool = Pool::from_text(
        "[pool]\nname = \"test\"\n[serve]\nclients = 20\n\
         [[device]]\nname = \"d\"\npath = \"d.img\"\nsize = \"64MiB\"\n",
    )
    .create("disk", "16MiB");
    let server = pool.serve();
    let mut good = Client::connect(&pool.socket(), "disk").expect("the server answers");
    assert_works(&mut good, 1);
    let before = descriptors(&server);
    let connect = || UnixStream::connect(pool.socket()).expect("the server listens");

    (0..500).for_each(|_| drop(connect()));
    assert_works(&mut good, 2);
    let half_open: Vec<_> = (0..400).map(|_| connect()).collect();
    assert_works(&mut good, 3);
    let mut second = Client::connect(&pool.socket(), "disk").expect("handshakes give way");
    assert_works(&mut second, 4);
    let garbage: Vec<_> = (0..100u8)
        .map(|n| {
            let mut stream = connect();
            let _ = stream.write_all(&[n; 4096]);
            stream
        })
        .collect();
    let lists: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = connect();
            let _ = stream.write_all(&[0, 0, 0, 3]);
            let _ = stream.write_all(&b"IHAVEOPT\0\0\0\x03\0\0\0\0".repeat(100));
            stream
        })
        .collect();
    let mut others = Vec::new();
    let refused = loop {
        match Client::connect(&pool.socket(), "disk") {
            Ok(client) => others.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(others.len(), 18, "with these there are 20; then: {refused}");
    assert_works(&mut good, 5);

    let clients = pool.json(&["pool", "status"])["pool"]["clients"].clone();
    assert_eq!((&clients["connected"], &clients["limit"]), (&20.into(), &20.into()), "{clients}");
    assert!(clients["refused"].as_u64() >= Some(1), "{clients}");
    let text = pool.run(["pool", "status"]);
    assert!(text.contains("clients: 20 of 20 connected"), "{text}");
    let metrics = pool.run(["pool", "status", "--metrics"]);
    assert!(metrics.contains("weir_clients{pool=\"test\"} 20.0"), "{metrics}");
    let log = server.log();
    assert!(log.contains("refused: 20 clients are connected, the limit"), "{log}");

    drop((half_open, garbage, lists, others, second));
    // The loop waits for the server to notice, not for a fixed time.
    while descriptors(&server) > before {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_works(&mut good, 6);
    server.stop("TERM");
}

#[test]
fn fewer_open_files_mean_fewer_clients_and_a_warning() {
    let pool = Pool::small().create("disk", "64MiB");
    let weir = env!("CARGO_BIN_EXE_weir");
    let script = format!(
        "ulimit -n 900; exec {weir} --pool {} serve --nbd unix:{} 2>{}",
        pool.path("pool.toml").display(),
        pool.path("few").display(),
        pool.path("few.log").display()
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).stdout(std::process::Stdio::null());
    let mut server = command.spawn().expect("a shell, which becomes the server");
    let log = || std::fs::read_to_string(pool.path("few.log")).unwrap_or_default();
    while !log().contains("the limit on open files (900) allows") {
        assert!(!log().contains("error:"), "{}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    while UnixStream::connect(pool.path("few")).is_err() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let limit = pool.json(&["pool", "status"])["pool"]["clients"]["limit"].as_u64().expect("a limit");
    assert!(limit < 400 && limit > 100, "{limit}");
    let stopped = std::process::Command::new("kill").arg(server.id().to_string()).status().expect("kill");
    assert!(stopped.success());
    // It is gone before its devices are: without them it would refuse to end.
    assert!(server.wait().expect("it ends").success());
}

const UNALIGNED: &str = "
import nbd, random, sys
random.seed(int(sys.argv[2]))
size = None
for structured in (True, False):
    h = nbd.NBD()
    h.set_request_structured_replies(structured)
    h.set_request_block_size(False)
    h.add_meta_context('base:allocation')
    h.connect_uri(sys.argv[1])
    h.set_strict_mode(0)
    size = h.get_size()
    h.trim(size, 0) if size < 1 << 32 else None
    h.zero(size, 0)
    twin = bytearray(size)
    for _ in range(300):
        at = random.choice([random.randrange(size), random.randrange(size // 512) * 512])
        length = min(random.choice([1, 3, 511, 513, 4095, 5000, 70000]), size - at)
        what = random.choice('wwzrt')
        fua = random.choice([0, nbd.CMD_FLAG_FUA])
        if what == 'w':
            data = random.randbytes(length)
            h.pwrite(data, at, fua)
            twin[at:at + length] = data
        elif what == 'z':
            h.zero(length, at, fua | random.choice([0, nbd.CMD_FLAG_NO_HOLE]))
            twin[at:at + length] = bytes(length)
        elif what == 't':
            h.trim(length, at, fua)
            first, last = -(-at // 4096) * 4096, (at + length) // 4096 * 4096
            if first < last:
                twin[first:last] = bytes(last - first)
        else:
            assert h.pread(length, at) == twin[at:at + length], (length, at)
    assert h.pread(size, 0) == twin
    assert h.pread(0, 5) == b'' and h.pread(0, size) == b''
    h.pwrite(b'', 0); h.zero(0, size); h.trim(0, 7)
    for wrong in (lambda: h.pread(2, size - 1), lambda: h.pread(0, size + 1), lambda: h.pwrite(b'ab', size - 1)):
        try:
            wrong()
        except nbd.Error:
            continue
        raise SystemExit('past the end')
    if structured:
        h.zero(131072, 0, nbd.CMD_FLAG_NO_HOLE)
        h.trim(131072, 131072)
        seen = []
        h.block_status(262144, 0, lambda context, offset, entries, error: seen.extend(entries) or 0)
        assert seen[:4] == [131072, 2, 131072, 3], seen
    h.shutdown()
";

/// A client that negotiates no block size may request any byte range, as it may of nbdkit and qemu-nbd.
#[test]
fn libnbd_reads_and_writes_any_bytes() {
    if !crate::libnbd::installed() {
        return;
    }
    let pool = Pool::small().create("disk", "1049088B");
    let server = pool.serve();
    let seed = std::env::var("WEIR_SEED").unwrap_or_else(|_| "7".into());
    println!("seed {seed}: WEIR_SEED={seed} repeats the requests");
    let output = std::process::Command::new(crate::libnbd::PYTHON)
        .args(["-c", UNALIGNED, &pool.uri("disk"), &seed])
        .output()
        .expect("Python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.stop("TERM");
}
