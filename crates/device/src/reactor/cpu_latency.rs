//! CPU latency: the request to the kernel to keep idle processors awake.
//!
//! A processor without work halts. Waking it takes 20 to 40 µs in a virtual machine and up to 100 µs where
//! it sleeps deeply, which is more than a request takes. [`awake`](super::awake) decides when idle processors
//! are kept awake instead.
//!
//! Source: Linux's PM quality of service (`Documentation/power/pm_qos_interface.rst`): while a process
//! requests a latency of 0 through `/dev/cpu_dma_latency`, idle processors poll instead of halting, all of
//! them. The kernel withdraws the request of a process that ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The kernel's interface.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Requested latency, and the value that withdraws the request (`PM_QOS_DEFAULT_VALUE`).
pub(super) const ZERO: i32 = 0;
pub(super) const WITHDRAWN: i32 = -1;

/// With more processors than this, those that stay awake for nothing cost more than a client gains.
const PROCESSORS_MAX: i64 = 8;

/// Whether a reactor keeps idle processors awake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpuLatency {
    /// While clients are served faster for it, on machines with two to eight processors.
    #[default]
    Auto,
    /// While clients are busy.
    Low,
    /// Never.
    Off,
}

impl CpuLatency {
    /// Returns the mode on this machine: `Auto` becomes `Off` with one processor, and with many.
    pub(super) fn here(self) -> Self {
        // SAFETY: the call has no preconditions.
        self.on(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) })
    }

    fn on(self, processors: i64) -> Self {
        let pays = (2..=PROCESSORS_MAX).contains(&processors);
        if self == Self::Auto && !pays { Self::Off } else { self }
    }
}

/// The request to the kernel.
#[derive(Debug)]
pub(super) struct LatencyRequest {
    mode: CpuLatency,
    device: PathBuf,
    /// The open device; `None` before the first request.
    file: Option<File>,
    is_made: bool,
    is_refused: bool,
}

impl LatencyRequest {
    pub(super) fn new(mode: CpuLatency) -> Self {
        Self::with(mode, Path::new(DEVICE))
    }

    pub(super) fn with(mode: CpuLatency, device: &Path) -> Self {
        Self { mode, device: device.to_owned(), file: None, is_made: false, is_refused: false }
    }

    pub(super) fn mode(&self) -> CpuLatency {
        self.mode
    }

    #[inline]
    pub(super) fn is_made(&self) -> bool {
        self.is_made
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Makes or withdraws the request, unless the mode is `Off`. Does nothing once the kernel has refused it.
    #[inline]
    pub(super) fn request(&mut self, made: bool) {
        if self.is_made != made && self.mode != CpuLatency::Off && !self.is_refused {
            self.change(made);
        }
    }

    fn change(&mut self, made: bool) {
        match self.write(if made { ZERO } else { WITHDRAWN }) {
            Ok(()) => self.is_made = made,
            Err(error) => {
                let device = self.device.display();
                let what = "idle processors cannot be kept awake: clients may be slower";
                if self.mode == CpuLatency::Low {
                    tracing::warn!(%device, %error, "{what}");
                } else {
                    tracing::info!(%device, %error, "{what}");
                }
                // Closing the device withdraws the request.
                (self.file, self.is_made, self.is_refused) = (None, false, true);
            }
        }
    }

    fn write(&mut self, latency: i32) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::options().write(true).open(&self.device)?),
        };
        file.write_all_at(&latency.to_ne_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_off_where_it_costs_more_than_it_gains() {
        let auto = [-1, 0, 1, 2, 8, 9, 512].map(|processors| CpuLatency::Auto.on(processors));
        let (on, off) = (CpuLatency::Auto, CpuLatency::Off);
        assert_eq!(auto, [off, off, off, on, on, off, off]);
        assert_eq!([CpuLatency::Low.on(1), CpuLatency::Low.on(512)], [CpuLatency::Low; 2]);
    }

    #[test]
    fn request_is_made_once_and_not_where_it_is_off_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("latency");
        std::fs::write(&device, []).unwrap();
        let told = || std::fs::read(&device).unwrap();
        let mut off = LatencyRequest::with(CpuLatency::Off, &device);
        off.request(true);
        assert_eq!((off.is_made(), told()), (false, vec![]));
        let mut request = LatencyRequest::with(CpuLatency::Auto, &device);
        for (made, latency) in
            [(false, None), (true, Some(ZERO)), (true, Some(ZERO)), (false, Some(WITHDRAWN))]
        {
            request.request(made);
            let expected = latency.map_or(vec![], |latency| latency.to_ne_bytes().to_vec());
            assert_eq!((request.is_made(), told()), (made, expected));
        }
        for mode in [CpuLatency::Auto, CpuLatency::Low] {
            let later = dir.path().join("later");
            let mut refused = LatencyRequest::with(mode, &later);
            refused.request(true);
            std::fs::write(&later, []).unwrap();
            refused.request(true);
            assert_eq!((refused.is_made(), std::fs::read(&later).unwrap()), (false, vec![]), "{mode:?}");
            std::fs::remove_file(&later).unwrap();
        }
    }
}
