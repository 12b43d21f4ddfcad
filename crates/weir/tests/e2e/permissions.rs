//! Permissions of the files that weir creates: devices, dumps, sockets.

use crate::harness::Pool;
use crate::nbd::Client;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::{Command, Output, Stdio};

const USAGE: i32 = 2;

/// Runs `weir` in the folder of the pool with umask 000.
fn weir_unmasked(pool: &Pool, arguments: &[&str]) -> Output {
    let shell = ["-c", "umask 000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_weir")];
    let output = Command::new("sh")
        .args(shell)
        .args(arguments)
        .current_dir(pool.folder.path())
        .env_remove("WEIR_POOL")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn mode(pool: &Pool, name: &str) -> u32 {
    std::fs::metadata(pool.path(name)).expect(name).mode() & 0o7777
}

#[test]
fn data_files_are_private_with_any_umask() {
    let pool = Pool::small();
    weir_unmasked(&pool, &["pool", "create"]);
    weir_unmasked(&pool, &["pool", "dump", "saved"]);
    assert_eq!(["fast.img", "slow.img", "saved"].map(|name| mode(&pool, name)), [0o600; 3]);
    let server = pool.serve();
    assert_eq!(["nbd.sock", "pool.control"].map(|name| mode(&pool, name)), [0o600; 2]);
    server.stop("TERM");
}

#[test]
fn socket_permissions_follow_the_options() {
    let pool = Pool::small().create("disk", "1GiB");
    let group = std::fs::metadata(pool.path("pool.toml")).expect("it is there").gid();
    let shared = format!("unix:shared.sock,mode=0660,group={group}");
    let server = pool.serve_with(&["--nbd", &shared, "--nbd", "unix:owned.sock,mode=0640"]);
    assert_eq!((mode(&pool, "shared.sock"), mode(&pool, "owned.sock")), (0o660, 0o640));
    assert_eq!(std::fs::metadata(pool.path("shared.sock")).expect("it is there").gid(), group);
    let mut client = Client::connect(&pool.path("shared.sock"), "disk").expect("it serves");
    client.write(0, &[3; 4096]).expect("it writes");
    client.disconnect();
    server.stop("TERM");
    assert!(!pool.path("shared.sock").exists());
}

#[test]
fn unknown_socket_owner_is_rejected() {
    let pool = Pool::small().create("disk", "1GiB");
    for (options, says) in [
        ("group=no-such-group", "there is no group \"no-such-group\""),
        ("owner=no-such-user", "there is no user \"no-such-user\""),
        ("mode=0888", "octal"),
        ("groop=x", "\"groop=x\" is no option"),
    ] {
        let said = pool.refused(&["serve", "--nbd", &format!("unix:a.sock,{options}")], USAGE);
        assert!(said.contains(says), "{says:?} should be in:\n{said}");
        assert!(!pool.path("a.sock").exists());
    }
}

#[test]
fn default_address_is_the_documented_one() {
    let pool = Pool::small().create("disk", "1GiB");
    std::fs::rename(pool.path("pool.toml"), pool.path("home.toml")).expect("renamed");
    let help = pool.run(["serve", "--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[default: unix:NAME.sock beside the pool file NAME.toml]"), "{help}");
    let server = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["--pool", "home.toml", "serve", "--json"])
        .current_dir(pool.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut server = server.expect("it starts");
    let mut says = std::io::BufReader::new(server.stdout.take().expect("its output"));
    let mut line = String::new();
    while !line.ends_with("}\n") && std::io::BufRead::read_line(&mut says, &mut line).expect("it is read") > 0
    {
    }
    let is_there = pool.path("home.sock").exists();
    let _ = server.kill().and_then(|()| server.wait());
    assert!(is_there && line.contains("home.sock"), "{line}");
    crate::schemas::validate_as("serve", line.as_bytes());
}

#[test]
fn device_files_and_addresses_open_to_others_cause_warnings() {
    let pool = Pool::small().create("disk", "1GiB");
    let server = pool.serve_with(&["--nbd", "127.0.0.1:0", "--nbd", "[::1]:0"]);
    let quiet = server.log();
    server.stop("TERM");
    assert!(!quiet.contains("every user") && !quiet.contains("authentication"), "{quiet}");
    let all = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(pool.path("slow.img"), all).expect("as it was made before");
    let server = pool.serve_with(&["--nbd", "0.0.0.0:0", "--nbd", "[::]:0"]);
    let told = server.log();
    server.stop("TERM");
    let slow = pool.path("slow.img");
    for part in [format!("(mode 0644); chmod 600 {}", slow.display()), "0.0.0.0:0".into(), "[::]:0".into()] {
        assert!(told.contains(&part), "{part:?} should be in:\n{told}");
    }
    assert_eq!(told.matches("no authentication").count(), 2, "{told}");
    assert!(!told.contains("fast.img (mode"), "{told}");
}
