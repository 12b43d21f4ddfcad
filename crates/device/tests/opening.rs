//! Tests of opening devices: refusals and their messages.
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{SIZE, folders, open, options};
use weir_device::{Contents, Device, DeviceError, DeviceOptions, Devices, FileChange};
use weir_model::{Bytes, DeviceClass, DeviceId, ErrorKind};

fn refusal(path: &Path, options: &DeviceOptions) -> DeviceError {
    let error = Device::open(path, options).expect_err("must be refused");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error
}

#[test]
fn a_file_is_created_sparse_and_keeps_its_size() {
    use std::os::unix::fs::MetadataExt;
    for folder in folders() {
        let path = folder.path().join("new");
        let without_size = DeviceOptions { size: None, ..options() };
        assert_eq!(refusal(&path, &without_size).kind(), ErrorKind::Usage);
        let device = open(&path);
        assert_eq!(device.size(), SIZE);
        assert!(device.sector().0 >= 512 && device.sector().0 <= 4096);
        assert!(device.memory_backed() == (device.class() == DeviceClass::Nvm));
        assert!(!device.is_block());
        assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
        drop(device);
        assert_eq!(Device::open(&path, &without_size).unwrap().size(), SIZE);
        let other = DeviceOptions { size: Some(Bytes::mib(32)), ..options() };
        assert!(matches!(refusal(&path, &other), DeviceError::SizeDiffers { .. }));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), SIZE.0, "not touched");
    }
}

#[test]
fn a_folder_is_no_device_and_a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(refusal(folder.path(), &options()), DeviceError::NotADevice { .. }));
    let nowhere = folder.path().join("no").join("where");
    assert_eq!(refusal(&nowhere, &options()).kind(), ErrorKind::Environment);
}

#[test]
fn unknown_model_error_lists_models() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = DeviceOptions { pace: Some("drum".into()), ..options() };
    let error = refusal(&folder.path().join("paced"), &unknown);
    assert!(error.to_string().contains("hdd-7200"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[test]
fn a_file_or_a_modelled_cache_needs_its_flush_whatever_is_declared() {
    for folder in folders() {
        let declared = DeviceOptions { volatile_cache: Some(false), ..options() };
        let device = Device::open(&folder.path().join("declared"), &declared).unwrap();
        // The file system may not have written its metadata; in memory there is nothing to write.
        assert_eq!(device.needs_flush(), !device.memory_backed());
        let paced = DeviceOptions { pace: Some("hdd-7200".into()), ..options() };
        let device = Device::open(&folder.path().join("paced"), &paced).unwrap();
        assert!(device.needs_flush(), "the modelled drive has a write cache");
    }
}

#[test]
fn a_device_has_one_user_at_a_time() {
    for folder in folders() {
        let path = folder.path().join("shared");
        let first = open(&path);
        let error = refusal(&path, &options());
        assert!(matches!(error, DeviceError::InUse { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Refused);
        let patient = DeviceOptions { lock_wait: Duration::from_secs(30), ..options() };
        let second = {
            let path = path.clone();
            std::thread::spawn(move || Device::open(&path, &patient).map(|d| d.size()))
        };
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        assert_eq!(second.join().unwrap().unwrap(), SIZE);
    }
}

#[test]
fn two_names_for_one_device_are_refused() {
    for folder in folders() {
        let (path, link) = (folder.path().join("a"), folder.path().join("b"));
        let mut devices = Devices::new();
        devices.insert(DeviceId(0), open(&path)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        // The lock alone would blame another process.
        let error = devices.open(DeviceId(1), &link, &options()).unwrap_err();
        assert!(matches!(error, DeviceError::SameDevice { .. }), "{error}");
        assert!(devices.open(DeviceId(1), &folder.path().join("c"), &options()).is_ok());
        assert_eq!(devices.iter().count(), 2);
    }
}

#[test]
fn new_file_is_private_and_shared_one_reported() {
    use std::os::unix::fs::PermissionsExt;
    for folder in folders() {
        let path = folder.path().join("new");
        let device = open(&path);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(
            (device.file_change(), device.permissions_for_others().unwrap()),
            (FileChange::File, None)
        );
        drop(device);
        for (mode, told) in [(0o660, None), (0o644, Some(0o644)), (0o602, Some(0o602))] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open(&path).permissions_for_others().unwrap(), told, "{mode:o}");
        }
        assert_eq!(open(&path).file_change(), FileChange::Nothing);
    }
}

#[test]
fn no_file_is_created_in_kernel_folders() {
    let name = format!("weir-test-{}", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev", folder.path().join("link")).unwrap();
    let through_link = folder.path().join("link").join(&name);
    let through_parent = folder.path().join("link/disk/../").join(&name);
    let below = |folder: &str| Path::new(folder).join(&name);
    for path in [below("/dev"), below("/proc"), below("/sys"), below("/dev/shm/.."), through_link.clone()] {
        let error = refusal(&path, &options());
        // If the folder does not exist, nothing is created either.
        assert!(matches!(error, DeviceError::NoSuchDevice { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(!error.to_string().contains("size"), "{error}");
        let without_size = refusal(&path, &DeviceOptions { size: None, ..options() });
        assert!(!without_size.to_string().contains("size"), "no file makes sense there: {without_size}");
        assert!(!path.exists(), "{} was made", path.display());
    }
    assert!(Device::open(&through_parent, &options()).is_err());
    assert!(!below("/dev").exists());
    let link = folder.path().join("dangling");
    std::os::unix::fs::symlink(below("/dev"), &link).unwrap();
    assert!(matches!(refusal(&link, &options()), DeviceError::DanglingLink { .. }));
    assert!(!below("/dev").exists());
}

#[test]
fn a_file_is_removed_again_when_opening_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("paced");
    let unknown = DeviceOptions { pace: Some("drum".into()), ..options() };
    refusal(&path, &unknown);
    assert!(!path.exists());
    let too_large = DeviceOptions { size: Some(Bytes(1 << 63)), ..options() };
    refusal(&path, &too_large);
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    assert_eq!(open(&path).file_change(), FileChange::Size);
}

#[test]
fn contents_are_named() {
    for folder in folders() {
        let path = folder.path().join("foreign");
        let device = open(&path);
        assert_eq!(device.contents().unwrap(), None, "a hole is blank");
        drop(device);
        let made = Command::new("mkfs.ext4").args(["-q", "-L", "photos"]).arg(&path).output();
        if !made.as_ref().is_ok_and(|made| made.status.success()) {
            // Without e2fsprogs: the magic number of ext4, and another byte.
            use std::os::unix::fs::FileExt;
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"\x53\xef", 0x438).unwrap();
        }
        let held = open(&path).contents().unwrap().expect("it holds something").to_string();
        assert!(
            held.contains("ext4") && held.ends_with("file system labelled \"photos\"") || made.is_err(),
            "{held}"
        );
        assert_eq!(open(&path).known_contents().unwrap().map(|held| held.to_string()), Some(held));
        std::fs::write(&path, vec![0; SIZE.0 as usize]).unwrap();
        assert_eq!(open(&path).contents().unwrap(), None, "zeros are blank");
        std::fs::write(&path, vec![9; SIZE.0 as usize]).unwrap();
        assert_eq!(open(&path).contents().unwrap(), Some(Contents::Data { at: 0 }));
        assert_eq!(open(&path).known_contents().unwrap(), None);
    }
}

#[test]
fn other_user_of_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("used");
    let device = open(&path);
    assert_eq!(device.other_user(), None);
    match LoopDevice::over(&path) {
        Ok(disk) => {
            let user = device.other_user();
            assert_eq!(user, Some(format!("in use by {}", disk.0)));
        }
        Err(error) => println!("left out: no loop device is to be had here: {error}"),
    }
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+b')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint('locked',flush=True)\nsys.stdin.read()";
    let child = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else { return println!("left out: python3 is not to be had here") };
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    let user = device.other_user();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(user, Some(format!("in use by process {}, which has locked it", child.id())));
    assert_eq!(device.other_user(), None);
}

/// A file as a loop device, as long as it lives.
struct LoopDevice(String);

impl LoopDevice {
    fn over(file: &Path) -> Result<Self, String> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match made {
            Ok(made) if made.status.success() => {
                Ok(Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
            }
            Ok(made) => Err(String::from_utf8_lossy(&made.stderr).into_owned()),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_used_exclusively() {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    std::fs::File::create(&file).unwrap().set_len(SIZE.0).unwrap();
    let disk = match LoopDevice::over(&file) {
        Ok(disk) => disk,
        Err(e) => return println!("skipped: no loop device is to be had here: {e}"),
    };
    let path = Path::new(&disk.0);
    let device = open(path);
    assert!(device.is_block() && device.size() == SIZE && device.sector() == Bytes(512));
    assert_eq!(device.contents().unwrap(), None, "a new disk of zeros is blank");
    assert!(matches!(refusal(path, &options()), DeviceError::InUse { .. }));
    let mut rig = common::Rig::new(weir_device::Ring::Auto, Some(device));
    rig.write(weir_model::DeviceOffset(512), &[5; 1024], true).unwrap();
    rig.flush().unwrap();
    assert_eq!(rig.read(weir_model::DeviceOffset(512), Bytes(1024)).unwrap(), [5; 1024]);
    drop(rig);
    let excl = rustix::fs::OFlags::EXCL.bits() as i32;
    // The kernel releases a ring's files some time after the ring was closed.
    let claim = (0..500).find_map(|_| {
        let claim = std::fs::OpenOptions::new().read(true).custom_flags(excl).open(path);
        claim.inspect_err(|_| std::thread::sleep(std::time::Duration::from_millis(10))).ok()
    });
    let claim = claim.unwrap();
    assert!(matches!(refusal(path, &options()), DeviceError::Claimed { .. }));
    drop(claim);
    assert_eq!(open(path).contents().unwrap(), Some(Contents::Data { at: 512 }));
    let other = DeviceOptions { size: Some(Bytes::mib(32)), ..options() };
    assert!(matches!(refusal(path, &other), DeviceError::SizeDiffers { .. }));
}
