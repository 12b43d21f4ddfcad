//! A tier that does not answer holds up what uses it, and nothing else.

use crate::fs::{Region, can_mount};
use crate::harness::installed;

/// Six programs write to files in a tier whose file system is frozen. Others go on meanwhile; what the six
/// wrote is there once the tier answers.
const SCRIPT: &str = r#"
    mkdir device
    truncate -s 64M image
    mkfs.ext4 -q image
    mount -o loop image device || { echo 'no loop devices' >&2; exit 77; }
    mkdir device/tier
    "$WEIR" fs create region --size 32MiB --flash device/tier >/dev/null
    "$WEIR" fs mount region files >/dev/null
    server=$("$WEIR" fs status files --json | jq .mount.pid)
    for n in 1 2 3 4 5 6; do
        head -c 1M /dev/urandom >files/old$n
        "$WEIR" fs evict files/old$n >/dev/null
        ! command -v setfattr >/dev/null || setfattr -n user.name -v value files/old$n
        head -c 1M /dev/urandom >new$n
    done
    fsfreeze -f device
    for n in 1 2 3 4 5 6; do
        dd if=new$n of=files/old$n bs=64k conv=notrunc status=none &
    done
    waiting() { cat /proc/$server/task/*/status | grep -c '^State:.D' || true; }
    for attempt in $(seq 100); do
        [ "$(waiting)" -ge 6 ] && break
        sleep 0.1
    done
    echo "$(waiting) requests wait" >&2
    code=0
    timeout 60 sh -euc '
        ls -l files >/dev/null
        df files >/dev/null
        echo text >files/other
        [ "$(cat files/other)" = text ]
        mkdir files/directory
        mv files/other files/directory/other
        cmp files/old1 files/old1
        rm -r files/directory' || code=$?
    fsfreeze -u device
    [ $code = 0 ] || { echo "others waited, too: $code" >&2; exit 1; }
    wait
    "$WEIR" fs unmount files >/dev/null
    "$WEIR" fs check region >/dev/null
    "$WEIR" fs mount region files >/dev/null
    for n in 1 2 3 4 5 6; do
        cmp new$n files/old$n
    done
    "$WEIR" fs unmount files >/dev/null
    umount device"#;

#[test]
fn a_tier_that_does_not_answer_holds_up_nothing_else() {
    if !can_mount() || !installed(&["mkfs.ext4", "losetup", "fsfreeze", "jq"]) {
        return;
    }
    let region = Region::new("16MiB");
    std::fs::remove_file(region.folder().join("region")).expect("it was created");
    let Some((code, said)) = region.script(SCRIPT) else { return };
    assert_eq!(code, Some(0), "{said}");
}
