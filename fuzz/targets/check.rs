//! Overwrites pages of a small mirrored pool, chosen by the input, and checks the pool. The check never
//! panics and changes nothing. If it reports no damage, the pool opens. A repair makes nothing worse.
#![no_main]

use weir_map::check::Severity;
use weir_map::{NewDevice, NewPool, OpenOptions, PAGE, PoolId};
use weir_model::{Bytes, DeviceClass, DeviceId, DeviceOffset, ExtentSize, IoError, Store};

const SIZE: Bytes = Bytes::mib(4);

#[derive(Clone)]
struct Disks(Vec<Vec<u8>>);

impl Store for Disks {
    fn read(&mut self, device: DeviceId, at: DeviceOffset, bytes: &mut [u8]) -> Result<(), IoError> {
        let from = self.0[device.index()].get(at.0 as usize..).and_then(|b| b.get(..bytes.len()));
        bytes.copy_from_slice(from.ok_or(IoError::Short)?);
        Ok(())
    }
    fn write(&mut self, device: DeviceId, at: DeviceOffset, bytes: &[u8]) -> Result<(), IoError> {
        let to = self.0[device.index()].get_mut(at.0 as usize..).and_then(|b| b.get_mut(..bytes.len()));
        to.ok_or(IoError::Short)?.copy_from_slice(bytes);
        Ok(())
    }
    fn flush(&mut self, _: DeviceId) -> Result<(), IoError> {
        Ok(())
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((shape, steps)) = bytes.split_first() else { return };
    let mut disks = Disks(vec![vec![0; SIZE.0 as usize]; 2]);
    let device = |name: &str| NewDevice { name: name.into(), size: SIZE, class: DeviceClass::Ssd };
    let metadata = if shape & 1 == 0 { vec![DeviceId(0)] } else { vec![DeviceId(0), DeviceId(1)] };
    let pool = NewPool {
        id: PoolId([0; 16]),
        name: "fuzz".into(),
        extent: ExtentSize::DEFAULT,
        devices: vec![device("a"), device("b")],
        metadata,
    };
    weir_map::create(&mut disks, &pool).expect("devices large enough");
    // Each step gives the device and page, offset, value, and the checksum to correct.
    for step in steps.chunks_exact(5).take(64) {
        let disk = &mut disks.0[usize::from(step[4] >> 7)];
        let page = match step[0] {
            0 => 0,
            1 => disk.len() / PAGE - 1,
            n => usize::from(n) + 14,
        };
        let page = &mut disk[page * PAGE..][..PAGE];
        page[(usize::from(step[1]) | usize::from(step[2]) << 8) % PAGE] = step[3];
        let field = match step[4] & 3 {
            1 => 8,
            2 => 0,
            _ => continue,
        };
        page[field..field + 4].fill(0);
        let crc = weir_map::crc32c(page);
        page[field..field + 4].copy_from_slice(&crc.to_le_bytes());
    }
    let sizes = [Some(SIZE); 2];
    let before = disks.clone();
    let report = weir_map::check(&mut disks, &sizes);
    assert!(before.0 == disks.0, "a check changes nothing");
    let superblocks: Vec<_> = report.superblocks.iter().flatten().cloned().collect();
    let opens = superblocks.len() == 2
        && weir_map::open(&mut disks.clone(), &superblocks, &OpenOptions::default()).is_ok();
    assert!(opens || report.worst_severity() == Some(Severity::Damage), "it does not open: {:#?}", report.findings);
    if weir_map::check::repair(&mut disks, &report).is_ok() {
        let after = weir_map::check(&mut disks, &sizes);
        assert!(after.worst_severity() <= report.worst_severity(), "{:#?}\n{:#?}", report.findings, after.findings);
    }
});
