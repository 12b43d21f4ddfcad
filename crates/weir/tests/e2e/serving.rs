//! A server and its clients: stopping, commands while it serves, misbehaving clients.

use crate::harness::Pool;
use crate::nbd::{Client, Command, FUA};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn stop_makes_unflushed_writes_durable() {
    let pool = Pool::small().create("disk", "1GiB");
    for (round, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
        assert_eq!(client.size, 1 << 30);
        let bytes = vec![round as u8 + 1; 300 << 10];
        client.write(round as u64 * 512 * 1001, &bytes).expect("it writes");
        server.stop(signal);

        let server = pool.serve();
        let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers again");
        let found = client.read(round as u64 * 512 * 1001, bytes.len()).expect("it reads");
        assert!(found == bytes, "what was written before SIG{signal} is there after it");
        server.stop("TERM");
    }
}

#[test]
fn volume_policy_lasts_until_the_server_ends() {
    let pool = Pool::small().create("disk", "1GiB");
    let policy = |of: &serde_json::Value| of["volumes"][0]["policy"].as_str().map(str::to_owned);
    pool.refused(&["volume", "set", "disk", "--policy", "stripe"], 3);
    let server = pool.serve();
    pool.run(["volume", "set", "disk", "--policy", "stripe"]);
    assert_eq!(policy(&pool.json(&["pool", "status"])), Some("stripe".into()));
    pool.refused(&["volume", "set", "disk", "--policy", "strip"], 2);
    pool.refused(&["volume", "set", "dusk", "--policy", "stripe"], 2);
    pool.refused(&["volume", "set", "disk"], 2);
    pool.run(["volume", "set", "disk", "--policy", "pool", "--hardening", "write"]);
    let volumes = pool.json(&["volume", "list"]);
    assert_eq!(policy(&volumes), None);
    assert_eq!(volumes["volumes"][0]["hardening"], "write");
    server.stop("TERM");

    let file = pool.path("pool.toml");
    let text = std::fs::read_to_string(&file).expect("the pool file");
    let own = "[volume.disk]\npolicy = \"wardrop\"\n";
    std::fs::write(&file, text + "\n" + own).expect("written");
    assert_eq!(policy(&pool.json(&["pool", "status"])), Some("wardrop".into()));
    let server = pool.serve();
    assert_eq!(policy(&pool.json(&["pool", "status"])), Some("wardrop".into()));
    server.stop("TERM");
}

#[test]
fn commands_work_on_a_served_pool_and_clients_see_it_at_once() {
    let pool = Pool::small().create("disk", "1GiB");
    let server = pool.serve();
    let control =
        std::fs::metadata(pool.path("pool.control")).expect("the control socket is beside the pool file");
    assert_eq!(control.permissions().mode() & 0o777, 0o600);

    pool.run(["volume", "create", "second", "--size", "2GiB"]);
    pool.refused(&["volume", "create", "second", "--size", "2GiB"], 3);
    let mut client = Client::connect(&pool.socket(), "second").expect("the new volume is served");
    assert_eq!(client.size, 2 << 30);
    client.write(4096, &[7; 8192]).expect("it writes");
    let status = pool.json(&["pool", "status"]);
    assert_eq!(status["pool"]["state"], "served", "{status}");
    let names = |status: &serde_json::Value| -> Vec<String> {
        let volumes = status["volumes"].as_array().cloned().unwrap_or_default();
        volumes.iter().filter_map(|volume| volume["name"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(&status), ["disk", "second"]);
    client.disconnect();

    pool.run(["volume", "remove", "second"]);
    assert_eq!(names(&pool.json(&["volume", "list"])), ["disk"]);
    assert!(Client::connect(&pool.socket(), "second").is_err(), "it is no longer served");
    server.stop("TERM");

    assert!(!pool.path("pool.control").exists(), "the control socket is gone with the server");
    let status = pool.json(&["pool", "status"]);
    assert_eq!(status["pool"]["state"], "idle", "{status}");
    assert_eq!(names(&status), ["disk"]);
}

#[test]
fn fua_is_accepted_and_client_errors_have_their_codes() {
    let pool = Pool::small().create("disk", "64MiB");
    let _server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    client.ask(Command::Write, FUA, 512, 1024, &[3; 1024]).expect("a durable write");
    assert_eq!(client.read(0, 2048).expect("it reads")[512..1536], [3; 1024]);
    let error = |result: std::io::Result<()>| result.expect_err("it is refused").raw_os_error();
    let past = client.ask(Command::Write, 0, 64 << 20, 4096, &[1; 4096]);
    assert!(matches!(error(past), Some(libc_errno::ENOSPC | libc_errno::EINVAL)), "past the end");
    let past = client.ask(Command::Trim, 0, (64 << 20) - 4096, 8192, &[]);
    assert!(matches!(error(past), Some(libc_errno::ENOSPC | libc_errno::EINVAL)), "past the end");
    client.flush().expect("the connection is as good as before");
    assert!(Client::connect(&pool.socket(), "nothing").is_err(), "no such export");
}

mod libc_errno {
    pub(super) const EINVAL: i32 = 22;
    pub(super) const ENOSPC: i32 = 28;
}

#[test]
fn full_pool_reports_enospc_and_recovers() {
    let text =
        "[pool]\nname = \"full\"\n\n[[device]]\nname = \"only\"\npath = \"only.img\"\nsize = \"64MiB\"\n";
    let pool = Pool::from_text(text).create("disk", "1GiB");
    let _server = pool.serve();
    let mut client = Client::connect(&pool.socket(), "disk").expect("the server answers");
    let piece = vec![9; 1 << 20];
    let mut written = 0;
    let error = loop {
        match client.write(written << 20, &piece) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written <= 64, "64 MiB hold no more than that");
    };
    assert_eq!(error.raw_os_error(), Some(libc_errno::ENOSPC));
    assert!(written > 16, "only {written} MiB fitted");
    assert!(client.read(0, 1 << 20).expect("it reads") == piece);
    client.ask(Command::Trim, 0, 0, 8 << 20, &[]).expect("space is given back");
    client.flush().expect("durably");
    client.write(written << 20, &piece).expect("and taken again");
    assert!(client.read(0, 1 << 20).expect("it reads") == vec![0; 1 << 20]);
}

#[test]
fn hostile_clients_do_not_disturb_others() {
    let pool = Pool::small().create("disk", "256MiB");
    let server = pool.serve();
    let mut good = Client::connect(&pool.socket(), "disk").expect("the server answers");
    let garbage: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0xff; 100_000],
        vec![0; 100_000],
        [&3u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 7], &[0xff; 4], &[0xaa; 5000]].concat(),
        [&3u32.to_be_bytes()[..], b"IHAVEOPT", &[0, 0, 0, 7, 0, 0, 0, 9], &u32::MAX.to_be_bytes(), &[1; 9]]
            .concat(),
        [&u32::MAX.to_be_bytes()[..], &[7; 64]].concat(),
    ];
    let mut silent = Vec::new();
    for (round, bytes) in garbage.iter().enumerate() {
        let mut hostile = UnixStream::connect(pool.socket()).expect("anybody may connect");
        let _ = hostile.set_read_timeout(Some(Duration::from_millis(200)));
        let _ = hostile.write_all(bytes);
        let _ = hostile.read(&mut [0; 4096]);
        silent.push(hostile);

        let mut after = Client::connect(&pool.socket(), "disk").expect("the server still answers");
        let wrong: [(u16, u32, &[u8]); 3] = [
            (77, 4096, &[]),
            (Command::Read as u16, u32::MAX, &[]),
            (Command::Write as u16, u32::MAX, &[5; 777]),
        ];
        for (kind, len, payload) in wrong {
            let _ = after.raw(kind, round as u64, len, payload);
        }
        let _ = after.raw_bytes(bytes);

        let mut stalled = Client::connect(&pool.socket(), "disk").expect("the server still answers");
        let _ = stalled.raw(Command::Write as u16, 0, 1 << 20, &[1; 1000]);
        silent.push(stalled.into_stream());

        let mine = vec![round as u8 + 1; 64 << 10];
        good.write(128 << 20, &mine).expect("the good client writes");
        good.flush().expect("and flushes");
        assert!(good.read(128 << 20, mine.len()).expect("and reads") == mine);
    }
    drop(silent);
    good.disconnect();
    server.stop("TERM");
}

#[test]
fn client_that_reads_nothing_does_not_block_others() {
    let pool = Pool::small().create("disk", "1GiB");
    let server = pool.serve();
    let mut greedy = Client::connect(&pool.socket(), "disk").expect("the server answers");
    greedy.write(0, &vec![1; 8 << 20]).expect("some data to ask for");
    let deaf = std::thread::spawn(move || {
        // The loop ends when the server stops reading for lack of credit, or has closed the connection.
        greedy.give_up_after(Duration::from_secs(2));
        for _ in 0..4096 {
            if greedy.send(Command::Read, 0, 0, 8 << 20, &[]).is_err() {
                break;
            }
        }
        greedy
    });
    let mut good = Client::connect(&pool.socket(), "disk").expect("the server answers others");
    for round in 0..200u64 {
        good.write((64 << 20) + round * 4096, &[round as u8; 4096]).expect("the good client writes");
        assert_eq!(good.read((64 << 20) + round * 4096, 4096).expect("and reads"), [round as u8; 4096]);
    }
    good.flush().expect("and flushes");
    drop(deaf.join());
    server.stop("TERM");
}

#[test]
fn tcp_is_served_too() {
    let pool = Pool::small().create("disk", "1GiB");
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.expect("a free port").to_string();
    let server = pool.serve_with(&["--nbd", &address]);
    let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
    let mut hello = [0; 16];
    stream.read_exact(&mut hello).expect("it greets");
    assert_eq!(&hello, b"NBDMAGICIHAVEOPT");
    drop(stream);
    server.stop("TERM");
}
