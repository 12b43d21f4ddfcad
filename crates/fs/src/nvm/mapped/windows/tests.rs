use super::*;
use std::io::Write as _;

const CHUNK: u64 = 64 << 10;
const HOLE: ChunkPlace = ChunkPlace::Hole;

/// A file whose chunk `n` consists of bytes `n`.
fn region(chunks: u8) -> File {
    let mut file = tempfile::tempfile().expect("a new file");
    (0..chunks).for_each(|number| file.write_all(&[number; CHUNK as usize]).expect("space"));
    file
}

fn at(chunk: u64) -> ChunkPlace {
    ChunkPlace::At(chunk * CHUNK)
}

/// Asks for whole chunks from `first` on, of a file of four or more.
fn chunks<'a>(
    windows: &'a Windows,
    region: &File,
    file: u64,
    first: u64,
    places: &[ChunkPlace],
) -> WindowBytes<'a> {
    let bytes = first * CHUNK..(first + places.len() as u64) * CHUNK;
    let request =
        WindowRequest { file, file_bytes: bytes.end.max(4 * CHUNK), bytes, chunk_bytes: CHUNK, places };
    windows.bytes(region, &request).expect("the kernel maps chunks")
}

/// Returns the number that each chunk consists of.
#[track_caller]
fn numbers(bytes: &[u8]) -> Vec<u8> {
    let number = |chunk: &[u8]| {
        assert!(chunk.iter().all(|byte| *byte == chunk[0]), "a chunk has the bytes of several");
        chunk[0]
    };
    bytes.chunks(CHUNK as usize).map(number).collect()
}

#[test]
fn chunks_are_in_the_order_of_the_file() {
    let (windows, region) = (Windows::default(), region(8));
    let bytes = chunks(&windows, &region, 1, 0, &[at(5), HOLE, at(7), at(2)]);
    assert_eq!(numbers(&bytes), [5, 0, 7, 2]);
    // A part of it, in the same window, also when it has grown.
    let base = bytes.as_ptr();
    assert_eq!(numbers(&chunks(&windows, &region, 1, 2, &[at(7), at(2)])), [7, 2]);
    assert_eq!(chunks(&windows, &region, 1, 0, &[at(5)]).as_ptr(), base);
    let request = WindowRequest {
        file: 1,
        file_bytes: 3 * CHUNK,
        bytes: CHUNK - 1..2 * CHUNK + 1,
        chunk_bytes: CHUNK,
        places: &[at(5), HOLE, at(7)],
    };
    let across = windows.bytes(&region, &request).expect("it is mapped");
    assert_eq!((across.len() as u64, across[0], across[1], across[across.len() - 1]), (CHUNK + 2, 5, 0, 7));
}

#[test]
fn chunks_that_move_are_mapped_anew() {
    let (windows, region) = (Windows::default(), region(8));
    drop(chunks(&windows, &region, 1, 0, &[at(1), at(2), HOLE]));
    let bytes = chunks(&windows, &region, 1, 0, &[at(3), HOLE, at(4)]);
    assert_eq!(numbers(&bytes), [3, 0, 4]);
    // Another file has the number.
    drop(bytes);
    assert_eq!(numbers(&chunks(&windows, &region, 1, 0, &[at(6); 5])), [6; 5]);
}

/// What someone reads stays, whatever others ask for.
#[test]
fn bytes_in_use_keep_their_chunks() {
    let (mut windows, region) = (Windows::default(), region(8));
    windows.chunks_max = 4;
    let before = chunks(&windows, &region, 1, 0, &[at(1), at(2)]);
    let moved = chunks(&windows, &region, 1, 0, &[at(3), at(2)]);
    let longer = chunks(&windows, &region, 1, 0, &[at(4); 100]);
    (10..20).for_each(|file| drop(chunks(&windows, &region, file, 0, &[at(7); 4])));
    assert_eq!((numbers(&before), numbers(&moved)), (vec![1, 2], vec![3, 2]));
    assert_eq!(numbers(&longer), [4; 100]);
    // Chunks that were never handed out join a window in use.
    let first = chunks(&windows, &region, 2, 0, &[at(1)]);
    let second = chunks(&windows, &region, 2, 1, &[at(2)]);
    let distance = second.as_ptr() as usize - first.as_ptr() as usize;
    assert_eq!(distance as u64, CHUNK);
}

#[test]
fn windows_leave_mappings_to_others() {
    assert_eq!(chunks_max(None), 16_384);
    assert_eq!(chunks_max(Some("65530\n")), 16_382);
    assert_eq!(chunks_max(Some("1048576\n")), 16_384);
    assert_eq!(chunks_max(Some("400\n")), 100);
}

/// The counts by which windows are removed are those of the windows that exist.
#[test]
fn windows_are_limited() {
    let (mut windows, region) = (Windows::default(), region(8));
    windows.chunks_max = 10;
    for file in 0..100 {
        let len = 1 + file % 7;
        drop(chunks(&windows, &region, file % 13, file % 3, &vec![at(file % 8); len as usize]));
        let table = windows.table.lock().expect("no panic");
        let entries: usize = table.windows.values().map(|window| window.entries.len()).sum();
        let bytes: u64 = table.windows.values().map(|window| window.range.len as u64).sum();
        assert_eq!((table.chunks, table.bytes), (entries, bytes));
        assert!(entries <= 10 && table.windows.contains_key(&(file % 13)), "{file}: {entries}");
    }
    // A file that alone has more has a window as long as it is read.
    assert_eq!(numbers(&chunks(&windows, &region, 1, 0, &[at(1); 11])), [1; 11]);
    assert!(windows.table.lock().expect("no panic").windows.is_empty());
    let (bytes, places) = (0..1, &[at(0)]);
    let long = WindowRequest { file: 1, file_bytes: WINDOW_BYTES_MAX + 1, bytes, chunk_bytes: CHUNK, places };
    assert!(windows.bytes(&region, &long).is_none(), "it is too long for a window");
}

/// What the kernel refuses to map is not handed out, then or later.
#[test]
fn a_window_that_cannot_be_mapped_is_gone() {
    let (windows, region) = (Windows::default(), region(8));
    // The kernel maps nothing from within a page.
    let places = &[at(1), ChunkPlace::At(7), at(2)];
    let bytes = 0..3 * CHUNK;
    let request = WindowRequest { file: 1, file_bytes: 4 * CHUNK, bytes, chunk_bytes: CHUNK, places };
    assert!((0..2).all(|_| windows.bytes(&region, &request).is_none()));
    let table = windows.table.lock().expect("no panic");
    assert_eq!((table.windows.len(), table.chunks, table.bytes), (0, 0, 0));
}

#[test]
fn the_window_that_was_used_least_recently_goes_first() {
    let (mut windows, region) = (Windows::default(), region(8));
    windows.chunks_max = 3;
    for file in [1, 2, 3, 1, 4] {
        drop(chunks(&windows, &region, file, 0, &[at(file)]));
    }
    let table = windows.table.lock().expect("no panic");
    let mut left: Vec<_> = table.windows.keys().copied().collect();
    left.sort_unstable();
    assert_eq!(left, [1, 3, 4]);
}

/// Sparse files may be much longer than the region, and virtual memory is limited as well.
#[test]
fn virtual_memory_of_all_windows_is_limited() {
    const WINDOWS_MAX: u64 = BYTES_MAX / WINDOW_BYTES_MAX;
    let (windows, region) = (Windows::default(), region(8));
    for file in 0..2 * WINDOWS_MAX {
        let (bytes, places) = (0..CHUNK, &[at(file % 8)]);
        let request = WindowRequest { file, file_bytes: WINDOW_BYTES_MAX, bytes, chunk_bytes: CHUNK, places };
        let bytes = windows.bytes(&region, &request).expect("the longest window");
        assert_eq!(numbers(&bytes), [(file % 8) as u8]);
        let table = windows.table.lock().expect("no panic");
        assert_eq!(table.windows.len() as u64, WINDOWS_MAX.min(file + 1));
        assert!(table.bytes <= BYTES_MAX && table.windows.contains_key(&file), "{file}: {}", table.bytes);
    }
}
