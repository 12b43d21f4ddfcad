//! Device files that are moved while they are served, and files that are removed or truncated unnoticed:
//! while the server stops, with the whole folder of the pool, before an operator's change.

use crate::harness::{Pool, Server};
use crate::nbd::{Client, Command};
use crate::truncated_devices::{EXTENT, command_in, connect, fill, in_use, places, truncate};
use std::io::Read as _;
use std::path::Path;

fn run(command: &str) {
    let done = std::process::Command::new("sh").args(["-c", command]).status();
    assert!(done.is_ok_and(|status| status.success()), "{command}");
}

/// Waits until the log of the server contains `what`.
fn wait_for_log(server: &Server, what: &str) {
    let said = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        server.log().contains(what)
    });
    assert!(said, "{what:?} in\n{}", server.log());
}

fn lines_with(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

fn read_all(client: &mut Client) {
    for i in 0..64 {
        assert_eq!(client.read(i * EXTENT, 4096).expect("it is there"), [7; 4096], "extent {i}");
    }
}

/// Returns a client that receives only the beginning of its reply, so that a stop waits for the rest.
fn stalled_client(pool: &Pool) -> Client {
    let mut client = connect(pool);
    client.send(Command::Read, 0, 0, 8 << 20, &[]).expect("a request");
    client.reply().expect("the reply has begun");
    client
}

#[test]
fn moved_device_file_is_reported_and_restored_while_served() {
    for place in places() {
        for (replaced, put_back) in [(false, true), (true, true), (false, false)] {
            let (of, server, mut client) = in_use(&place);
            let other = of.paths[0].with_extension("moved");
            std::fs::rename(&of.paths[0], &other).expect("it is moved");
            if replaced {
                std::fs::write(&of.paths[0], "something else").expect("another file");
            }
            client.write(0, &[7; 4096]).expect("a write");
            client.flush().expect("nothing is lost");
            let status = of.pool.json(&["pool", "status"]);
            let device = &status["devices"][0];
            assert_eq!(device["state"], "moved", "{device}");
            assert_eq!(device["moved"]["replaced"], replaced, "{device}");
            assert_eq!(device["moved"]["found_at"], other.display().to_string(), "{device}");
            let metrics = of.pool.run(["pool", "status", "--metrics"]);
            assert!(metrics.contains("weir_device_moved{pool=\"test\",device=\"data\"} 1"), "{metrics}");
            // The server checks the paths at intervals while there is activity.
            let told = (0..600).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                client.flush().expect("nothing is lost");
                server.log().contains("it was moved away from")
            });
            assert!(told, "{}", server.log());
            if !put_back {
                client.disconnect();
                // No data is lost, so the server succeeds, and reports that the next start will not find the
                // file.
                server.stop("TERM");
                of.pool.refused(&["serve", "--nbd", "unix:nbd.sock"], 3);
                let file = of.pool.path("pool.toml");
                let text = std::fs::read_to_string(&file).expect("the pool file");
                let text = text.replace(&of.paths[0].display().to_string(), &other.display().to_string());
                std::fs::write(&file, text).expect("the pool file");
            } else {
                run(device["moved"]["restore_command"].as_str().expect("a command"));
                let status = of.pool.json(&["pool", "status"]);
                assert_eq!(
                    (&status["devices"][0]["state"], &status["devices"][0]["moved"]),
                    (&"ok".into(), &serde_json::Value::Null)
                );
                assert_eq!(lines_with(&server.log(), "it was moved away from"), 1, "told once");
                client.disconnect();
                server.stop("TERM");
            }
            let server = of.pool.serve();
            read_all(&mut connect(&of.pool));
            server.stop("TERM");
        }
    }
}

#[test]
fn device_removed_during_stop_can_be_saved() {
    for place in places() {
        let (of, server, client) = in_use(&place);
        client.disconnect();
        let deaf = stalled_client(&of.pool);
        server.signal("TERM");
        wait_for_log(&server, "stopping: answering requests in flight");
        std::fs::remove_file(&of.paths[0]).expect("removed");
        drop(deaf);
        wait_for_log(&server, "not stopping: device files were removed");
        run(&command_in(&server.log()));
        drop(server);
        let server = of.pool.serve();
        read_all(&mut connect(&of.pool));
        server.stop("TERM");
    }
}

#[test]
fn stop_with_truncated_device_fails() {
    for place in places() {
        for regrow in [false, true] {
            let (of, server, client) = in_use(&place);
            client.disconnect();
            let deaf = stalled_client(&of.pool);
            server.signal("TERM");
            wait_for_log(&server, "stopping: answering requests in flight");
            truncate(&of.paths[0], 4 << 20, regrow);
            drop(deaf);
            let log = server.expect_exit(4);
            assert!(log.contains("error: device data (") && log.contains("--without"), "{log}");
        }
    }
}

#[test]
fn admin_changes_fail_without_intact_metadata() {
    for place in places() {
        for removed in [false, true] {
            let (of, server, mut client) = in_use(&place);
            match removed {
                true => std::fs::remove_file(&of.paths[1]).expect("removed"),
                false => truncate(&of.paths[1], 1 << 20, true),
            }
            let said = of.pool.refused(&["volume", "create", "other", "--size", "1MiB"], 5);
            assert!(said.contains("device metadata: it was removed, truncated or overwritten"), "{said}");
            let said = of.pool.refused(&["volume", "set", "disk", "--hardening", "write"], 5);
            assert!(said.contains("device metadata:"), "{said}");
            client.flush().expect_err("it would be gone with the server");
            drop(server);
        }
    }
}

/// An operator's change only affects the metadata.
#[test]
fn admin_changes_succeed_without_a_data_device() {
    for place in places() {
        let (of, server, mut client) = in_use(&place);
        std::fs::remove_file(&of.paths[0]).expect("removed");
        of.pool.run(["volume", "create", "other", "--size", "1MiB"]);
        client.flush().expect_err("its data would be gone with the server");
        client.disconnect();
        server.kill();
        let server = of.pool.serve_with(&["--without", "data"]);
        assert_eq!(of.pool.json(&["volume", "list"])["volumes"][1]["name"], "other");
        server.stop("TERM");
    }
}

#[test]
fn pool_of_removed_folder_is_saved_by_the_logged_command() {
    let pool = Pool::small().create("disk", "32MiB");
    let server = pool.serve();
    let mut client = connect(&pool);
    fill(&mut client);
    let text = std::fs::read_to_string(pool.path("pool.toml")).expect("the pool file");
    let mut log = std::fs::File::open(pool.path("server.log")).expect("the log");
    std::fs::remove_dir_all(pool.folder.path()).expect("all of it is removed");
    client.flush().expect_err("it would be gone with the server");
    let mut said = String::new();
    let told = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        log.read_to_string(&mut said).expect("the log");
        said.contains("kill -KILL")
    });
    assert!(told, "{said}");
    run(&command_in(&said));
    std::fs::write(pool.path("pool.toml"), text).expect("the pool file");
    drop(server);
    let server = pool.serve();
    read_all(&mut connect(&pool));
    server.stop("TERM");
}

#[test]
fn removed_and_truncated_file_is_reported_as_both() {
    for place in places() {
        for regrow in [false, true] {
            let (of, server, mut client) = in_use(&place);
            let open = std::fs::File::options().write(true).open(&of.paths[0]).expect("the device file");
            std::fs::remove_file(&of.paths[0]).expect("removed");
            client.flush().expect_err("it would be gone with the server");
            assert_eq!(of.pool.json(&["pool", "status"])["devices"][0]["state"], "removed");
            open.set_len(4 << 20).expect("it is cut");
            if regrow {
                open.set_len(64 << 20).expect("it grows");
            }
            // The server checks the files at intervals while there is activity.
            let found = (0..600).any(|_| {
                client.flush().expect_err("it is gone");
                std::thread::sleep(std::time::Duration::from_millis(50));
                of.pool.json(&["pool", "status"])["devices"][0]["state"] == "lost"
            });
            assert!(found, "{}", server.log());
            let status = of.pool.json(&["pool", "status"]);
            let device = &status["devices"][0];
            assert_eq!(
                (&device["state"], &device["removed"], &device["damaged"]),
                (&"lost".into(), &true.into(), &true.into()),
                "{device}"
            );
            let human = of.pool.weir(["pool", "status"]);
            let human = [human.stdout, human.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            let words = human.concat().split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("what was cut off is missing"), "{words}");
            drop(server);
        }
    }
}

#[test]
fn consecutive_flush_failures_are_counted_in_the_log() {
    let (of, server, mut client) = in_use(Path::new("/tmp"));
    std::fs::remove_file(&of.paths[0]).expect("removed");
    for _ in 0..500 {
        client.flush().expect_err("it would be gone with the server");
    }
    let log = server.log();
    let lines = lines_with(&log, "flush failed");
    // The first failure is logged at once, then one line every ten seconds.
    assert!((1..100).contains(&lines), "{lines} lines in\n{log}");
}
