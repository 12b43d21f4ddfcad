//! Real programs in a mounted file system.

use crate::fs::{Region, can_mount};
use crate::fs_tiers::tier_files;
use crate::harness::installed;
use std::fs;
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

/// A crate with a build script, modules, and tests.
const CRATE: [(&str, &str); 7] = [
    ("Cargo.toml", "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n"),
    ("words", "one two three\n"),
    (
        "build.rs",
        "fn main() {
             println!(\"cargo:rerun-if-changed=words\");
             let count = std::fs::read_to_string(\"words\").unwrap().split_whitespace().count();
             let out = std::path::PathBuf::from(std::env::var_os(\"OUT_DIR\").unwrap());
             std::fs::write(out.join(\"count.rs\"), format!(\"{count}\")).unwrap();
         }",
    ),
    ("src/counts.rs", "pub const WORDS: usize = include!(concat!(env!(\"OUT_DIR\"), \"/count.rs\"));"),
    ("src/text.rs", "pub fn text(count: usize) -> String { format!(\"{count} words\") }"),
    (
        "src/lib.rs",
        "pub mod counts;
         pub mod text;
         #[test]
         fn words_are_counted() { assert!(text::text(counts::WORDS).starts_with(char::is_numeric)); }",
    ),
    ("src/main.rs", "fn main() { println!(\"{}\", sample::text::text(sample::counts::WORDS)); }"),
];

/// A part of the target directory is in containers. Cargo decides by times of files what to build again, so
/// these have to be kept, too.
#[test]
fn cargo_builds_and_tests_a_crate() {
    if !can_mount() || !installed(&["cargo", "rustc", "cc"]) {
        return;
    }
    let region = Region::with("16MiB", &["ssd", "hdd"], &["--flash", "ssd", "--disk", "hdd"]);
    region.mount();
    fs::create_dir(region.path("src")).expect("space");
    for (name, text) in CRATE {
        fs::write(region.path(name), text).expect("space");
    }
    // Half of the region is taken, so that what cargo writes (some 10 MiB) does not fit beside it.
    for name in ["one", "two"] {
        fs::write(region.path(name), vec![1; 4 << 20]).expect("space");
        region.weir(&["fs", "pin", &format!("files/{name}")]);
    }
    // What this test itself is built with does not apply to the crate.
    let cargo = "
        export CARGO_TARGET_DIR=$PWD/target CARGO_INCREMENTAL=1
        unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_TARGET
        builds() { cargo build --offline -v >log 2>&1 || { cat log; exit 1; }; }
        prints() { test \"$(target/debug/sample)\" = \"$1\"; }";
    let build = "
        builds
        prints '3 words'
        cargo test --offline
        builds; grep -q 'Fresh sample' log
        sleep 0.01
        sed -i 's/words/WORDS/' src/text.rs
        builds; grep -q 'Dirty sample' log; prints '3 WORDS'
        sleep 0.01
        echo four >>words
        builds; grep -q 'Running.*build-script-build' log; prints '4 WORDS'";
    run(&region, &format!("{cargo}\n{build}"));
    assert!(tier_files(&region, "files") > 0, "a part of the target directory is in containers");
    region.unmount();
    region.mount();
    run(
        &region,
        &format!("{cargo}\nbuilds; grep -q 'Fresh sample' log; prints '4 WORDS'; cargo test --offline"),
    );
    region.unmount();
}
