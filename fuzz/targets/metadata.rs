//! Overwrites bytes of a small pool's metadata, chosen by the input, and opens the pool. The result is a map
//! or an error, never a panic.
#![no_main]

use weir_map::{NewDevice, NewPool, PoolId};
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentSize, IoError, Store};

const SIZE: Bytes = Bytes::mib(4);

struct Disk(Vec<u8>);

impl Store for Disk {
    fn read(&mut self, _: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        bytes.copy_from_slice(self.0.get(at.0 as usize..).and_then(|b| b.get(..bytes.len())).ok_or(IoError::Short)?);
        Ok(())
    }
    fn write(&mut self, _: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let to = self.0.get_mut(at.0 as usize..).and_then(|b| b.get_mut(..bytes.len()));
        to.ok_or(IoError::Short)?.copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut disk = Disk(vec![0; SIZE.0 as usize]);
    let pool = NewPool {
        id: PoolId([0; 16]),
        name: "fuzz".into(),
        extent: ExtentSize::DEFAULT,
        devices: vec![NewDevice { name: "d".into(), size: SIZE, class: DeviceClass::Ssd }],
        metadata: vec![DeviceId(0)],
    };
    let superblocks = weir_map::create(&mut disk, &pool).expect("a device large enough");
    // Each step gives the page, offset and value, in a region that holds roots, journal and pages.
    for step in bytes.chunks_exact(5).take(64) {
        let page = usize::from(step[0]) + 16;
        let at = page * weir_map::PAGE + (usize::from(step[1]) | usize::from(step[2]) << 8) % weir_map::PAGE;
        disk.0[at] = step[3];
        if step[4] & 1 == 1 {
            // A correct checksum lets the parser reach the contents of the root.
            let root = &mut disk.0[page * weir_map::PAGE..][..weir_map::PAGE];
            root[8..12].fill(0);
            let crc = weir_map::crc32c(root);
            root[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    }
    if let Ok((map, _)) = weir_map::open(&mut disk, &superblocks, &weir_map::OpenOptions::default()) {
        let volumes: Vec<_> = map.catalogue().volumes.keys().copied().collect();
        volumes.into_iter().for_each(|volume| map.for_each(volume, |_, _| {}));
    }
});
