//! Real programs in a mounted file system.

use crate::fs::{Region, can_mount};
use crate::harness::installed;
use std::path::Path;
use std::process::Command;

/// Runs a shell script in the mount, which must succeed.
#[track_caller]
fn run(region: &Region, script: &str) {
    let output = Command::new("sh")
        .args(["-euc", script])
        .current_dir(region.path(""))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .expect("sh starts");
    assert!(
        output.status.success(),
        "{}:\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn git_clones_a_repository() {
    if !can_mount() || !installed(&["git"]) {
        return;
    }
    let region = Region::mounted("128MiB");
    let commits = "
        git init -q origin
        cd origin
        git config user.name test
        git config user.email test@example.org
        for commit in 1 2 3 4 5; do
            mkdir -p d$commit/deep
            for file in 1 2 3 4 5 6 7 8; do
                seq $commit $((commit * file * 200)) > d$commit/deep/$file
            done
            git add .
            git commit -q -m $commit
        done
        git gc -q";
    run(&region, commits);
    let clone = "
        git clone -q --no-hardlinks origin clone
        cd clone
        git fsck --full --strict
        test -z \"$(git status --porcelain)\"
        git checkout -q HEAD~2
        git checkout -q -";
    run(&region, clone);
    region.unmount();
    region.mount();
    let verify = "
        for repository in origin clone; do
            cd $repository
            git fsck --full --strict
            test -z \"$(git status --porcelain)\"
            cd ..
        done
        test \"$(git -C origin rev-parse HEAD)\" = \"$(git -C clone rev-parse HEAD)\"";
    run(&region, verify);
    region.unmount();
}

#[test]
fn sqlite_keeps_its_databases() {
    if !can_mount() || !installed(&["sqlite3"]) {
        return;
    }
    let region = Region::mounted("64MiB");
    let fill = "
        for mode in delete wal truncate persist; do
            sqlite3 $mode.db \"pragma journal_mode=$mode; create table t(a integer primary key, b text);
                create index i on t(b);
                with recursive n(x) as (select 1 union all select x + 1 from n where x < 20000)
                insert into t select x, hex(randomblob(20)) from n;
                delete from t where a % 3 = 0; update t set b = b || 'x' where a % 7 = 0; vacuum;\"
        done";
    run(&region, fill);
    region.unmount();
    region.mount();
    let verify = "
        for mode in delete wal truncate persist; do
            test \"$(sqlite3 $mode.db 'pragma integrity_check; select count(*) from t')\" = \"ok
13334\"
        done";
    run(&region, verify);
    region.unmount();
}

#[test]
fn rsync_finds_no_difference() {
    if !can_mount() || !installed(&["rsync"]) {
        return;
    }
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let region = Region::mounted("64MiB");
    let copy = format!(
        "
        mkdir tree
        cp -a '{}' tree/src
        ln tree/src/main.rs tree/hard
        ln -s src/main.rs tree/soft
        touch -d 1969-07-20T20:17:40.123456789Z tree/old
        truncate -s 40M tree/sparse
        rsync -aHSX --delete tree/ copy/
        test -z \"$(rsync -aHX --delete --exclude sparse --checksum --itemize-changes tree/ copy/)\"
        test -z \"$(rsync -aHX --delete --itemize-changes tree/ copy/)\"",
        tree.display()
    );
    run(&region, &copy);
    region.unmount();
    region.mount();
    let verify = format!(
        "
        test -z \"$(rsync -aHX --delete --itemize-changes tree/ copy/)\"
        diff -r '{}' copy/src
        test \"$(stat -c %h copy/hard)\" = 2",
        tree.display()
    );
    run(&region, &verify);
    region.unmount();
}
