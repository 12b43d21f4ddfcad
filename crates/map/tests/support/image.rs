//! Images of devices as text: per page a title, and the rows of 32 bytes that are not all zeros.

use super::store::MemStore;
use std::fmt::Write;
use weir_map::PAGE;
use weir_model::DeviceId;

/// Returns the image of a pool of two devices.
#[allow(clippy::unwrap_used, reason = "writing into a String cannot fail")]
pub fn image_of(store: &MemStore) -> String {
    let mut text = String::new();
    for device in [DeviceId(0), DeviceId(1)] {
        for number in store.pages(device) {
            writeln!(text, "page {number} of device {}", device.0).unwrap();
            for (i, row) in
                store.page(device, number).chunks(32).enumerate().filter(|(_, r)| r.iter().any(|b| *b != 0))
            {
                let hex: String = row.iter().map(|b| format!("{b:02x}")).collect();
                writeln!(text, "{:03x} {hex}", i * 32).unwrap();
            }
        }
    }
    text
}

/// Returns the devices of an image.
pub fn store_of(image: &str) -> MemStore {
    let mut store = MemStore::new(2);
    for page in image.split("page ").skip(1) {
        let (title, rows) = page.split_once('\n').expect("a title");
        let (number, device) = title.split_once(" of device ").expect("page and device");
        let mut bytes = [0; PAGE];
        for row in rows.lines() {
            let (at, hex) = row.split_once(' ').expect("offset and bytes");
            let at = usize::from_str_radix(at, 16).expect("an offset");
            for (i, to) in bytes[at..at + 32].iter_mut().enumerate() {
                *to = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("two digits");
            }
        }
        store.set_page(DeviceId(device.parse().expect("a device")), number.parse().expect("a page"), bytes);
    }
    store
}
