//! Deliberate faults in map and engine, to prove that the simulated world sees such faults.
//!
//! Without the cargo feature `sabotage` none of this can be switched on, and every question whether it
//! is costs nothing. With it, one fault at a time is on for the running thread: a switch that many
//! places ask is not worth an argument through all of them.

/// One thing done wrongly, each time there is occasion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sabotage {
    /// A commit begins without flushing the devices.
    FlushSkipped,
    /// A FLUSH is answered without a commit though devices owe what was acknowledged before.
    FlushAnsweredEarly,
    /// A commit flushes the devices that carry the map, and takes the others' data for durable.
    OtherDevicesNotFlushed,
    /// What a flush beside commits is to make durable counts as durable when it begins.
    FlushBesideNotAwaited,
    /// A state that is revised before it is durable forgets which flushes it needs.
    RevisedStateNeedsNothing,
    /// A change enters a commit though its data was written after the flush began.
    CommittedBeforeItsFlush,
    /// Those who wait for a commit are answered when its frame is sent, not when it is durable.
    JournalAfterAcknowledgement,
    /// Journal frames are written like data, without FUA.
    FrameNotDurable,
    /// A checkpoint's root is written without flushing its pages first.
    RootBeforePages,
    /// The journal does not keep what the roots need.
    JournalOverrun,
    /// Journal frames are believed whatever their checksum says.
    TornFrameAccepted,
    /// Metadata pages are believed whatever their checksum says.
    PageChecksumIgnored,
    /// The older root is opened, as if there was no journal behind it.
    StaleRootChosen,
    /// Opening leaves what a killed server wrote in the devices' caches.
    CachesNotFlushedWhenOpening,
    /// That an extent was given up is not journalled.
    TrimNotJournalled,
    /// Space is reused when it is given up, not when that is durable.
    ReusedBeforeDurable,
    /// Space is reused while commands submitted against it are under way.
    ReusedWhileInUse,
    /// The last block of every longer write is left out of the bitmap.
    BitmapBitLost,
    /// A write to part of an extent makes all of it valid.
    PartialAllocationVisible,
    /// The room kept for journal and checkpoints is given away.
    ReserveIgnored,
    /// Blocks that several places hold are written in place without a write intent.
    IntentSkipped,
    /// A metadata member that was left behind is taken for current.
    StaleMirrorOpened,
    /// A write to slots of two devices is acknowledged when the first one has it.
    SecondCopyNotAwaited,
    /// Devices are not verified: one that was truncated while it was used is not noticed.
    TruncationNotChecked,
    /// A durable write that reports a lack of space is taken to have done nothing, and to say nothing of others.
    FullDurableWriteIgnored,
}

impl Sabotage {
    /// All there are, by name.
    pub const ALL: [(&str, Self); 25] = [
        ("flush-skipped", Self::FlushSkipped),
        ("flush-answered-early", Self::FlushAnsweredEarly),
        ("other-devices-not-flushed", Self::OtherDevicesNotFlushed),
        ("flush-beside-not-awaited", Self::FlushBesideNotAwaited),
        ("revised-state-needs-nothing", Self::RevisedStateNeedsNothing),
        ("committed-before-its-flush", Self::CommittedBeforeItsFlush),
        ("journal-after-acknowledgement", Self::JournalAfterAcknowledgement),
        ("frame-not-durable", Self::FrameNotDurable),
        ("root-before-pages", Self::RootBeforePages),
        ("journal-overrun", Self::JournalOverrun),
        ("torn-frame-accepted", Self::TornFrameAccepted),
        ("page-checksum-ignored", Self::PageChecksumIgnored),
        ("stale-root-chosen", Self::StaleRootChosen),
        ("caches-not-flushed-when-opening", Self::CachesNotFlushedWhenOpening),
        ("trim-not-journalled", Self::TrimNotJournalled),
        ("reused-before-durable", Self::ReusedBeforeDurable),
        ("reused-while-in-use", Self::ReusedWhileInUse),
        ("bitmap-bit-lost", Self::BitmapBitLost),
        ("partial-allocation-visible", Self::PartialAllocationVisible),
        ("reserve-ignored", Self::ReserveIgnored),
        ("intent-skipped", Self::IntentSkipped),
        ("stale-mirror-opened", Self::StaleMirrorOpened),
        ("second-copy-not-awaited", Self::SecondCopyNotAwaited),
        ("truncation-not-checked", Self::TruncationNotChecked),
        ("full-durable-write-ignored", Self::FullDurableWriteIgnored),
    ];

    /// The one of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, sabotage)| *sabotage)
    }

    /// Whether this fault is on.
    #[cfg(not(feature = "sabotage"))]
    #[inline(always)]
    #[must_use]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether this fault is on.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn is_on(self) -> bool {
        ON.get() == Some(self)
    }

    /// From now on this fault is on for the running thread, or none.
    #[cfg(feature = "sabotage")]
    pub fn switch(to: Option<Self>) {
        ON.set(to);
    }
}

#[cfg(feature = "sabotage")]
thread_local! {
    static ON: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}
