//! Compares the metadata that weir finds in a volume's file system with the report of e2fsprogs.

use crate::harness::{Pool, client, installed};
use std::collections::BTreeSet;
use std::time::Duration;

/// Returns the 4 KiB blocks of the primary superblock and descriptors, the bitmaps and the inode tables, from
/// the output of dumpe2fs.
fn dumpe2fs_blocks(said: &str, block: u64) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    let mut note = |text: &str| {
        let number = text.split(|c: char| !c.is_ascii_digit() && c != '-').next().unwrap_or_default();
        let (first, last) = number.split_once('-').unwrap_or((number, number));
        let (first, last): (u64, u64) = (first.parse().expect("a block"), last.parse().expect("a block"));
        found.extend(first * block / 4096..=((last + 1) * block - 1) / 4096);
    };
    let mut group = 0u32;
    for line in said.lines() {
        let line = line.trim();
        // The header has lines with the same beginning.
        let number = line.strip_prefix("Group ").and_then(|rest| rest.split(':').next()?.parse().ok());
        group = number.unwrap_or(group);
        for part in line.split(", ") {
            let primary = ["Primary superblock at ", "Group descriptors at ", "Reserved GDT blocks at "];
            let of_all = ["Block bitmap at ", "Inode bitmap at ", "Inode table at "];
            let first_only = primary.iter().filter(|_| group == 0);
            if let Some(rest) = first_only.chain(&of_all).find_map(|what| part.strip_prefix(what)) {
                note(rest);
            }
        }
    }
    // The superblock shares its first 4 KiB with the bytes before it.
    found.insert(0);
    found
}

#[test]
fn file_system_metadata_matches_e2fsprogs() {
    if !installed(&["mke2fs", "dumpe2fs", "nbdcopy"]) {
        return;
    }
    let pool = Pool::from_text(
        "[pool]\nname = \"test\"\npolicy = \"metadata_on_fast\"\n\
         [[device]]\nname = \"fast\"\npath = \"fast.img\"\nsize = \"512MiB\"\n\
         [[device]]\nname = \"slow\"\npath = \"slow.img\"\nsize = \"4GiB\"\n",
    );
    pool.run(["pool", "create"]);
    let kinds: [(&str, u64, &[&str]); 3] = [
        ("ext4", 4096, &["-t", "ext4", "-b", "4096"]),
        ("ext2", 1024, &["-t", "ext2", "-b", "1024"]),
        ("wide", 4096, &["-t", "ext4", "-b", "4096", "-O", "64bit,^flex_bg"]),
    ];
    for (name, _, _) in kinds {
        pool.run(["volume", "create", name, "--size", "768MiB"]);
    }
    let server = pool.serve();
    let mut expected = Vec::new();
    for (name, block, how) in kinds {
        let image = pool.path(&format!("{name}.img"));
        let image = image.to_str().expect("utf-8");
        client("mke2fs", [&["-q", "-F"], how, &[image, "768M"]].concat());
        let said = client("dumpe2fs", [image]);
        expected.push((name, dumpe2fs_blocks(&said, block).len() as u64 * 4096));
        client("nbdcopy", [image, &pool.uri(name)]);
    }
    expected.sort_unstable();
    let found = || -> Vec<(String, Option<u64>)> {
        let status = pool.json(&["pool", "status"]);
        let volumes = status["volumes"].as_array().expect("volumes");
        volumes
            .iter()
            .map(|v| {
                (v["name"].as_str().expect("a name").to_owned(), v["file_system_metadata_bytes"].as_u64())
            })
            .collect()
    };
    // weir reads the superblock five seconds after it was written.
    for _ in 0..600 {
        if found().iter().all(|(_, bytes)| bytes.is_some()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let expected: Vec<_> = expected.into_iter().map(|(name, bytes)| (name.to_owned(), Some(bytes))).collect();
    assert_eq!(found(), expected);
    server.stop("TERM");
}
