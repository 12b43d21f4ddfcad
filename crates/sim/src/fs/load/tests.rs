//! Loads name files that exist, and have the published sizes.

use super::*;
use std::collections::BTreeMap;

/// Runs all steps of a load, or so many; returns the files that exist, the bytes written and the work.
fn play(text: &str, steps: usize) -> (BTreeMap<FileKey, u64>, u64, u64) {
    let mut load = parse(text, 3).expect("a load");
    let (mut files, mut written, mut work) = (BTreeMap::new(), 0, 0);
    for nth in 0..steps {
        let Some(step) = load.next_step(nth % load.clients()) else { break };
        work += u64::from(step.work);
        match step.op {
            FileOp::Create(file, len) => {
                written += len.0;
                assert_eq!(files.insert(file, len.0), None, "{text}: {file:?} exists");
            }
            FileOp::Append(file, len) => {
                written += len.0;
                *files.get_mut(&file).expect("it exists") += len.0;
            }
            FileOp::Read(file) | FileOp::Stat(file) => assert!(files.contains_key(&file), "{text}: {file:?}"),
            FileOp::Remove(file) => assert!(files.remove(&file).is_some(), "{text}: {file:?}"),
        }
    }
    (files, written, work)
}

#[test]
fn postmark_has_the_published_numbers() {
    let (files, _, work) = play("postmark", usize::MAX);
    assert_eq!(work, 200_000);
    assert!((68_000..72_000).contains(&files.len()), "as many removed as created: {}", files.len());
    assert!(files.values().all(|size| (512..=10_035).contains(size)));
    let (files, _, work) = play("postmark scale=1/100", usize::MAX);
    assert_eq!((work, files.len().abs_diff(700) < 200), (2000, true));
}

/// Transactions of one kind leave all files as they were, or read none.
#[test]
fn postmark_reads_or_changes_only() {
    let (files, _, work) = play("postmark mix=reads files=50 transactions=900", usize::MAX);
    assert_eq!((files.len(), work), (50, 900));
    let mut load = parse("postmark mix=changes files=50 transactions=900", 3).expect("a load");
    let mut steps = std::iter::from_fn(|| load.next_step(0));
    assert!(!steps.any(|step| matches!(step.op, FileOp::Read(_))));
    assert!(parse("postmark mix=none", 3).is_err_and(|error| error.to_string().contains("changes")));
}

#[test]
fn an_archive_has_the_published_sizes() {
    let (files, written, work) = play("untar", usize::MAX);
    assert_eq!((files.len(), work), (12_680, 12_680));
    assert!((written as f64 / 1.56e9 - 1.0).abs() < 0.03, "{written}");
    assert!(files.values().all(|size| (30_000..=1_000_000).contains(size)));
}

#[test]
fn files_of_servers_have_the_published_means() {
    for (text, mean) in [("fileserver", 131_072.0), ("webproxy", 16_384.0), ("create-files", 1.2e6)] {
        let (files, written, _) = play(text, 8000);
        let found = written as f64 / files.len().max(1) as f64;
        assert!((found / mean - 1.0).abs() < 0.05, "{text}: {found}");
    }
    let (files, _, _) = play("create-files", 8000);
    assert!(files.values().all(|size| (73_000..=3_600_000).contains(size)));
}

#[test]
fn a_kernel_has_25_mb_of_objects() {
    let (files, _, work) = play("kernel-compile", usize::MAX);
    assert_eq!((files.len(), work), (7500, 1500));
    let objects: u64 = files.range(FileKey(6000)..).map(|(_, size)| size).sum();
    assert!((objects as f64 / 25e6 - 1.0).abs() < 0.1, "{objects}");
    let (files, ..) = play("kernel-compile files=10 sources=2000 source=13KB", usize::MAX);
    let sources: u64 = files.range(..FileKey(2000)).map(|(_, size)| size).sum();
    assert_eq!(files.len(), 2010);
    assert!((sources as f64 / 26e6 - 1.0).abs() < 0.1, "{sources}");
}

#[test]
fn words_that_no_load_has_are_rejected_with_those_it_has() {
    for (text, part) in [
        ("mail", "there are postmark, create-files"),
        ("postmark fiels=3", "\"fiels\"; there are scale, size, files, transactions"),
        ("postmark files=0", "files must be a whole number from 1"),
        ("postmark size=9KiB-1KiB", "smaller size to the larger"),
        ("webproxy append=1KiB", "no \"append\""),
        ("untar mean=x", "mean must be a size"),
        ("untar files", "write key=value"),
        ("untar scale=2", "scale must be from 1/1000 to 1"),
        ("", "there is no load \"\""),
    ] {
        let error = parse(text, 1).err().expect("rejected").to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
