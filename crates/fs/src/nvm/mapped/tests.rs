//! Tests of mapped regions.

use super::*;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

#[test]
fn stores_are_in_the_file_after_a_fence() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut memory = Mapped::create(&path, 1 << 20, false).expect("a new file");
    memory.store(4090, b"across a page");
    memory.zero(4092, 2);
    memory.flush(4090, 13);
    memory.fence().expect("fdatasync succeeds");
    drop(memory);
    let bytes = std::fs::read(&path).expect("the file");
    assert_eq!(bytes[4090..4103], *b"ac\0\0ss a page");
    let memory = Mapped::open(&path, false).expect("the file");
    let mut out = [0; 13];
    memory.load(4090, &mut out);
    assert_eq!(&out, b"ac\0\0ss a page");
    assert_eq!(memory.size(), 1 << 20);
}

#[test]
fn a_region_in_use_is_refused() {
    let directory = directory();
    let path = directory.path().join("region");
    let memory = Mapped::create(&path, 1 << 16, false).expect("a new file");
    assert!(matches!(Mapped::open(&path, true), Err(OpenError::InUse(_))));
    assert!(matches!(Mapped::open(&path, false), Err(OpenError::InUse(_))));
    assert!(matches!(Mapped::create(&path, 1 << 16, true), Err(OpenError::InUse(_))));
    drop(memory);
    assert!(Mapped::create(&path, 1 << 16, false).is_err(), "an existing file needs `overwrite`");
    let reader = Mapped::open(&path, false).expect("free again");
    assert!(Mapped::open(&path, false).is_ok(), "readers share");
    assert!(matches!(Mapped::open(&path, true), Err(OpenError::InUse(_))));
    drop(reader);
}

#[test]
#[should_panic(expected = "ends beyond the region")]
fn accesses_beyond_the_end_panic() {
    let directory = directory();
    let mut memory = Mapped::create(&directory.path().join("region"), 4096, false).expect("a new file");
    memory.store(4090, b"1234567");
}

/// Every instruction that this processor has leaves the contents as they are.
#[test]
fn flushed_lines_keep_their_contents() {
    let Some(best) = Instruction::best() else { return };
    let bytes: Vec<u8> = (0..=255).collect();
    // SAFETY: the range is that of a vector.
    unsafe { best.flush(bytes[3..].as_ptr(), 200) };
    lines::fence();
    assert!(bytes.iter().copied().eq(0..=255));
}

/// Whatever pages the kernel grants, the contents stay.
#[test]
fn other_pages_leave_the_contents() {
    let directory = directory();
    let mut memory = Mapped::create(&directory.path().join("region"), 4 << 20, false).expect("a new file");
    memory.store((2 << 20) - 2, b"text");
    for pages in [MappedPages::Large, MappedPages::Collapsed, MappedPages::Small] {
        // The kernel, or the file's file system, may have no large pages.
        let _ = memory.ask_for(pages);
        let mut out = [0; 4];
        memory.load((2 << 20) - 2, &mut out);
        assert_eq!(&out, b"text", "{pages:?}");
    }
}
