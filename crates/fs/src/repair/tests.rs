//! Space that two inodes claim.

use super::*;
use crate::check::check;
use crate::layout::dirent;
use crate::layout::inode::{Form, Inode, Kind, UNWRITTEN};
use crate::namespace::{Allocate, Durability, New};
use crate::nvm::Simulated;
use crate::testing::{Fs, NEW, NOW, contents, file, file_system};

fn stage(fs: &mut Fs, at: u64, bytes: &[u8]) {
    fs.store_mut().stage(at, bytes);
}

fn repaired(mut fs: Fs) -> (Fs, Outcome) {
    fs.commit().expect("no failure");
    assert!(!check(&fs).is_clean());
    let (memory, outcome): (Simulated, _) = repair(fs.into_memory(), NOW).expect("it can be repaired");
    let fs = FileSystem::open(memory, Durability::Sync).expect("the file system");
    assert!(check(&fs).is_clean());
    (fs, outcome)
}

/// Names that two directories have would be in both, with space of both.
#[test]
fn a_page_of_names_is_of_no_directory_if_it_is_of_two() {
    let (mut fs, _) = file_system(&[]);
    let linked = file(&mut fs, "file", 10);
    let new = New { kind: Kind::Directory, permissions: 0o755, ..NEW };
    let mut directory = |name: &str| fs.create_file(Ino::ROOT, name.as_bytes(), &new, NOW).expect("space").0;
    let (large, small) = (directory("large"), directory("small"));
    let overflow = |fs: &Fs| {
        let inode = fs.inode(large).expect("it exists");
        let page = |bucket| fs.bucket_page(&inode, bucket).expect("it is mapped");
        let mut chains = (0..inode.buckets).map(|bucket| fs.chain(page(bucket)).expect("sound"));
        chains.find(|chain| chain.len() > 1).map(|chain| (chain[1].0, chain[1].1))
    };
    let mut number = 0;
    while overflow(&fs).is_none() {
        fs.link(linked, large, format!("{number:0>255}").as_bytes(), NOW).expect("space");
        number += 1;
    }
    let (page, bytes) = overflow(&fs).expect("found above");
    let shared = dirent::records(&bytes).expect("sound").iter().filter(|record| record.ino.0 != 0).count();
    let first = fs.bucket_page(&fs.inode(small).expect("it exists"), 0).expect("it is mapped");
    stage(&mut fs, first.address(), &page.0.to_le_bytes());
    let (fs, outcome) = repaired(fs);
    let torn = |ino| format!("{}: names in it, as pages of it are damaged", super::file(ino));
    assert!([large, small].map(torn).iter().all(|line| outcome.lost.contains(line)), "{:?}", outcome.lost);
    let names = |ino| fs.list(ino, 0, usize::MAX).expect("a directory").len();
    assert_eq!((names(large), names(small)), (number - shared, 0));
}

/// A null file has nothing that anybody needs; the file keeps what it has.
#[test]
fn a_null_file_with_pages_of_a_file_is_given_up() {
    let (mut fs, _) = file_system(&[]);
    let (kept, null) = (file(&mut fs, "kept", 4000), file(&mut fs, "gone", 4000));
    fs.unlink(Ino::ROOT, b"gone", NOW).expect("a file");
    fs.sync().expect("no failure");
    assert_eq!(fs.roots().null_files, Some(null));
    let form @ Form::Run { .. } = fs.inode(kept).expect("it exists").form else { panic!("a small file") };
    let (at, inode) = (fs.inode_at(null).expect("it exists"), fs.raw_inode(null).expect("it exists"));
    stage(&mut fs, at, &Inode { form, ..inode }.encode());
    let (fs, _) = repaired(fs);
    assert_eq!(fs.roots().null_count, 0);
    let mut found = vec![0; 4000];
    assert_eq!(fs.read(kept, 0, &mut found).expect("it exists"), 4000);
    assert!(found == contents(kept, 4000));
}

/// Space that is allocated and not written has what a removed file had.
#[test]
fn a_chunk_that_is_found_again_is_as_unwritten_as_before() {
    let (mut fs, _) = file_system(&[]);
    let (ino, other) = (file(&mut fs, "file", 10), file(&mut fs, "other", 200_000));
    let how = Allocate::Space { keep_size: false };
    let chunk_bytes = fs.superblock().geometry.chunk_bytes;
    fs.allocate(ino, chunk_bytes..3 * chunk_bytes, how, NOW).expect("space");
    let mapped = |fs: &Fs, ino| fs.chunk_at(&fs.inode(ino).expect("it exists"), 1).expect("it is mapped");
    let (unwritten, others) = (mapped(&fs, ino), mapped(&fs, other));
    assert!(unwritten.is_unwritten && !others.is_unwritten);
    let at = fs.superblock().geometry.chunk_at(unwritten.chunk);
    fs.store_mut().store_data(at, &[9; 5000]).expect("no metadata");
    let Form::Tree { root, height: 1 } = fs.inode(ino).expect("it exists").form else { panic!("a tree") };
    stage(&mut fs, root.address() + 4, &(others.chunk.0 | UNWRITTEN).to_le_bytes());
    let (fs, _) = repaired(fs);
    assert_eq!(mapped(&fs, ino), unwritten);
    let mut found = vec![1; 5000];
    assert_eq!(fs.read(ino, chunk_bytes, &mut found).expect("it exists"), 5000);
    assert!(found.iter().all(|byte| *byte == 0), "bytes of somebody else");
}
