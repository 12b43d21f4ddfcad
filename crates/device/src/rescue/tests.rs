use super::*;
use crate::DeviceOptions;
use std::fs::File;
use std::process::Command;
use weir_model::Bytes;

#[test]
fn save_command_copies_all_removed_devices() {
    let removed = |path: &str, is_cut| RemovedFile {
        path: path.into(),
        open: format!("/proc/77/fd/{}", path.len()),
        is_truncated: is_cut,
    };
    assert_eq!(save_removed(&[]), None);
    let said = save_removed(&[removed("/x/a b", false), removed("/x/it's", false)]).expect("a command");
    let command = "kill -STOP 77 && mkdir -p '/x' && cp -p --sparse=always '/proc/77/fd/6' '/x/a b' && \
                   cp -p --sparse=always '/proc/77/fd/7' '/x/it'\\''s' && sync && kill -KILL 77 ;";
    assert!(said.contains(command) && said.contains("nothing is missing"), "{said}");
    let said = save_removed(&[removed("/x/a", true)]).expect("a command");
    assert!(said.contains("what was cut off is missing"), "{said}");
}

fn run(command: &str) {
    let done = Command::new("sh").args(["-c", command]).status();
    assert!(done.is_ok_and(|status| status.success()), "{command}");
}

#[test]
fn moved_file_is_restored_while_in_use() {
    for (whole_folder, replaced) in [(false, false), (false, true), (true, false), (true, true)] {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, path) = (folder.path().join("it's"), folder.path().join("it's/device"));
        std::fs::create_dir(&home).expect("a folder");
        let options = DeviceOptions { size: Some(Bytes::mib(1)), ..DeviceOptions::default() };
        let device = Device::open(&path, &options).expect("a device");
        assert_eq!(device.moved(), None);
        let moved = match whole_folder {
            true => std::fs::rename(&home, folder.path().join("other")).map(|()| "other/device"),
            false => std::fs::rename(&path, folder.path().join("other")).map(|()| "other"),
        };
        let moved = folder.path().join(moved.expect("moved"));
        if replaced {
            std::fs::create_dir_all(&home).expect("a folder");
            File::create(&path).expect("another file");
        }
        let found = device.moved().expect("it is told");
        assert_eq!((found.replaced, found.found_at.as_ref()), (replaced, Some(&moved)));
        assert_eq!(device.removed_file(), None, "it has a name");
        run(found.restore_command.as_ref().expect("a command"));
        assert_eq!(device.moved(), None, "it is back");
        assert!(!replaced || path.with_extension("other").exists(), "what was there is kept");
    }
}

#[test]
fn hard_links_and_symlinks_are_distinguished() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, link, name] = ["file", "link", "name"].map(|name| folder.path().join(name));
    File::create(&file).and_then(|file| file.set_len(1 << 20)).expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let device = Device::open(&link, &DeviceOptions::default()).expect("a device");
    std::fs::hard_link(&file, &name).expect("a second name");
    assert_eq!(device.moved(), None);
    std::fs::remove_file(&file).expect("the first name");
    let found = device.moved().expect("the link leads nowhere");
    assert_eq!((found.replaced, &found.found_at), (false, &None), "the system does not say where");
    // The path is a symbolic link whose target was removed.
    run(&format!("ln -sfn {} {}", name.display(), link.display()));
    assert_eq!(device.moved(), None, "the link leads to it again");
    std::fs::remove_file(&name).expect("the last name");
    assert_eq!(device.moved(), None, "that is no place any more");
    assert!(device.removed_file().is_some());
}
