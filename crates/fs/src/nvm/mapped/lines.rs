//! Flushes of cache lines, by the best instruction that the processor has.

/// An instruction that writes a cache line back to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// CLWB: keeps the line in the cache.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// CLFLUSHOPT: evicts the line; flushes of different lines may overtake each other.
    #[cfg(target_arch = "x86_64")]
    ClFlushOpt,
    /// CLFLUSH: evicts the line; flushes are ordered.
    #[cfg(target_arch = "x86_64")]
    ClFlush,
}

#[cfg(target_arch = "x86_64")]
impl Instruction {
    /// Returns the best instruction of this processor.
    pub(super) fn best() -> Option<Self> {
        use std::arch::x86_64::{__cpuid_count, __get_cpuid_max};
        let features = if __get_cpuid_max(0).0 >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        Some(match features {
            _ if features & 1 << 24 != 0 => Self::Clwb,
            _ if features & 1 << 23 != 0 => Self::ClFlushOpt,
            _ => Self::ClFlush,
        })
    }

    /// Flushes every line that the range touches.
    ///
    /// # Safety
    /// The range must be mapped.
    pub(super) unsafe fn flush(self, from: *const u8, len: usize) {
        use std::arch::asm;
        if len == 0 {
            return;
        }
        let line = super::super::LINE_BYTES as usize;
        let first = from as usize / line * line;
        for address in (first..from as usize + len).step_by(line) {
            // SAFETY: the line is mapped, as it overlaps the range; the instructions change no contents.
            unsafe {
                match self {
                    Self::Clwb => asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags)),
                    Self::ClFlushOpt => {
                        asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
                    }
                    Self::ClFlush => asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags)),
                }
            }
        }
    }
}

/// Waits for the flushes before it.
#[cfg(target_arch = "x86_64")]
pub(super) fn fence() {
    // SAFETY: the instruction only orders stores and flushes; every x86-64 processor has it.
    unsafe { std::arch::x86_64::_mm_sfence() }
}

#[cfg(not(target_arch = "x86_64"))]
impl Instruction {
    /// Returns `None`: on this architecture every region is made durable by `fdatasync`.
    pub(super) fn best() -> Option<Self> {
        None
    }

    /// Never runs: there is no value of this type.
    ///
    /// # Safety
    /// None needed.
    pub(super) unsafe fn flush(self, _: *const u8, _: usize) {
        match self {}
    }
}

/// Never runs: [`Instruction::best`] returns `None`.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn fence() {}
