//! A file system made from a real directory tree is copied in, compared, copied out, and checked.

use crate::harness::{Pool, client, installed};
use std::io;
use std::path::Path;

/// Minimum number of bytes of files in the tree.
const TREE: u64 = 1 << 30;

#[test]
fn file_system_image_of_one_gibibyte_round_trips() {
    if !installed(&["mkfs.ext4", "e2fsck", "nbdcopy", "qemu-img", "cmp"]) {
        return;
    }
    let pool = Pool::described("fast", "512MiB", "slow", "4GiB", "").create("disk", "1536MiB");
    let (tree, image, back) = (pool.path("tree"), pool.path("in.ext4"), pool.path("out.ext4"));
    let real = copy_of_a_real_tree(&tree);
    println!("an ext4 image of {} MiB of this machine's files", real >> 20);
    let text = |path: &Path| path.to_str().expect("utf-8").to_owned();
    client("mkfs.ext4", ["-q", "-F", "-d", &text(&tree), &text(&image), "1536M"]);
    std::fs::remove_dir_all(&tree).expect("the tree is removed");

    let server = pool.serve();
    let uri = pool.uri("disk");
    client("nbdcopy", [&text(&image), &uri]);
    client("qemu-img", ["compare", "-f", "raw", "-F", "raw", &text(&image), &uri]);
    server.stop("TERM");

    let _server = pool.serve();
    client("nbdcopy", [&uri, &text(&back)]);
    client("cmp", [&image, &back]);
    client("e2fsck", ["-fn", &text(&back)]);
}

/// Copies files and symbolic links of this machine until there are [`TREE`] bytes, and generates files for
/// the rest. Returns the number of bytes copied.
fn copy_of_a_real_tree(to: &Path) -> u64 {
    let mut real = 0;
    for source in ["/usr/lib", "/usr/share", "/usr/bin", "/usr/include"] {
        let into = to.join(source.trim_start_matches('/'));
        copy_folder(Path::new(source), &into, &mut real).expect("the tree is copied");
    }
    let mut all = real;
    let filler: Vec<u8> = (0u32..1 << 18).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    while all < TREE {
        std::fs::write(to.join(format!("made-{all}")), &filler).expect("a file is made");
        all += filler.len() as u64;
    }
    real
}

fn copy_folder(from: &Path, to: &Path, done: &mut u64) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    let Ok(entries) = std::fs::read_dir(from) else { return Ok(()) };
    for entry in entries.flatten() {
        if *done >= TREE {
            return Ok(());
        }
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_folder(&entry.path(), &target, done)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(std::fs::read_link(entry.path())?, target)?;
        } else if kind.is_file() && entry.metadata()?.len() < TREE / 4 {
            // A file of another user that cannot be read is skipped.
            *done += std::fs::copy(entry.path(), target).unwrap_or(0);
        }
    }
    Ok(())
}
