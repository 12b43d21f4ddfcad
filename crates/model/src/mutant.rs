//! Mutation testing: plausible faults that can be planted in map and engine, to prove that tests detect them.
//!
//! A build with the cargo feature `mutants` contains all of them; the value [`Planted`], given to the map
//! when a pool is opened, selects at most one. Without the feature that value has no size, no mutant can be
//! planted, and each query whether one is planted is the constant `false`.
//!
//! `cargo xtask mutants` plants each in turn and runs the tests that must find it; see
//! `docs/internals/mutation-testing.md`.

use std::fmt;

/// The test that must find a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// The crash campaign: `cargo xtask crash`.
    Campaign,
    /// The crash campaign with the whole server: `cargo xtask crash --mix served`.
    Served,
    /// The offline check, which the crash campaign runs after each crash.
    Check,
    /// The property test of this name.
    Property(&'static str),
    /// The test of this name, for a case that the campaign seldom or never meets.
    Test(&'static str),
    /// None: it concerns a second line of defence, and is harmless for this reason while the first one holds.
    SecondLine(&'static str),
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Campaign => f.write_str("crash campaign"),
            Self::Served => f.write_str("crash campaign, served"),
            Self::Check => f.write_str("offline check"),
            Self::Property(name) => write!(f, "property test {name}"),
            Self::Test(name) => write!(f, "test {name}"),
            Self::SecondLine(reason) => write!(f, "harmless: {reason}"),
        }
    }
}

/// The rules that mutants break. Numbers are those of docs/internals/invariants.md.
mod rules {
    pub(super) const DATA_FIRST: &str = "1: a change is committed only after its data was flushed";
    pub(super) const IN_ORDER: &str = "1: versions of an extent are committed in order";
    pub(super) const WITHDRAWN: &str = "1: changes whose data is lost are withdrawn, and nothing else";
    pub(super) const ACKNOWLEDGED: &str = "1: FLUSH and FUA are answered when what they cover is durable";
    pub(super) const DOUBT: &str = "1: lost blocks fail until rewritten, and the next FLUSH fails";
    pub(super) const LOST_ONCE: &str = "1: a lost write is reported once; no later success refutes it";
    pub(super) const QUARANTINE: &str = "2: space is reused when its release is durable and no I/O uses it";
    pub(super) const OWNERS: &str = "2: every extent, slot and id has one owner";
    pub(super) const INTENT: &str = "3: what several places hold is overwritten under a durable intent";
    pub(super) const COPIES: &str = "3: a copy that missed a write stops being one, durably";
    pub(super) const MOVES: &str = "3: a move copies what is durable, current, and not being written";
    pub(super) const HARDENING: &str = "4: with hardening `write` a map change is durable when answered";
    pub(super) const MEMBERS: &str = "5: a missing member is recorded before anything is answered";
    pub(super) const JOURNAL: &str = "the journal and two roots always lead to the newest durable map";
    pub(super) const RENEWED: &str = "each opening begins a journal of its own";
    pub(super) const RECOVERY: &str = "what recovery reads is durable before anything builds on it";
    pub(super) const TRUTH: &str = "a bitmap names the blocks that a place holds, and zeros are zeros";
    pub(super) const ZEROES: &str = "TRIM clears whole blocks, WRITE_ZEROES its range, NO_HOLE keeps space";
    pub(super) const LOCKS: &str = "a block range in flight has one writer, and a reply means the end";
    pub(super) const CACHE: &str = "the extent cache answers what a read of the devices would";
    pub(super) const STREAM: &str =
        "server: what a client is sent is a sequence of whole replies, each to one request";
    pub(super) const CLIENTS: &str =
        "server: what one client does or fails to do costs no other one more than its turn";
    pub(super) const ABANDONED: &str = "server: a lost connection writes nothing once its client is back";
    pub(super) const LEFT: &str = "server: of a client that has gone nothing is left";
    pub(super) const RECORDED: &str = "server: what is recorded is what clients asked for, all of it";
    pub(super) const ANSWERED: &str = "a command that cannot be carried out any more fails";
    pub(super) const VERIFIED: &str = "nothing is durable on a device that was truncated";
}

macro_rules! mutants {
    ($($(#[doc = $fault:literal])+ $mutant:ident = $name:literal, $rule:expr, $net:expr;)*) => {
        /// A fault that can be planted: one wrong action, at every opportunity.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[doc = $fault])+ $mutant,)*
        }

        impl Mutant {
            /// All mutants, in the order of the rules they break.
            pub const ALL: &[Self] = &[$(Self::$mutant),*];

            /// Returns its name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$mutant => $name,)* }
            }

            /// Returns a sentence about the fault.
            #[must_use]
            pub fn fault(self) -> &'static str {
                match self { $(Self::$mutant => concat!($($fault),+).trim_ascii(),)* }
            }

            /// Returns the rule it breaks.
            #[must_use]
            pub const fn rule(self) -> &'static str {
                match self { $(Self::$mutant => $rule,)* }
            }

            /// Returns the test that must find it.
            #[must_use]
            pub const fn net(self) -> Net {
                match self { $(Self::$mutant => $net,)* }
            }
        }
    };
}

mutants! {
    // Journal, commits and checkpoints.
    /// A commit begins without flushing the devices.
    FlushSkipped = "flush-skipped", rules::DATA_FIRST, Net::Campaign;
    /// A FLUSH is answered without a commit though devices owe what was acknowledged before.
    FlushAnsweredEarly = "flush-answered-early", rules::DATA_FIRST, Net::Campaign;
    /// A commit flushes the metadata members only and takes the other devices' data for durable.
    OtherDevicesNotFlushed = "other-devices-not-flushed", rules::DATA_FIRST, Net::Campaign;
    /// A flush beside a commit counts as soon as it begins.
    FlushBesideNotAwaited = "flush-beside-not-awaited", rules::DATA_FIRST, Net::Campaign;
    /// A state that is revised before it is durable forgets which flushes it needs.
    RevisedStateNeedsNothing = "revised-state-needs-nothing", rules::DATA_FIRST, Net::Campaign;
    /// A change enters a commit though its data was written after the flush began.
    CommittedBeforeItsFlush = "committed-before-its-flush", rules::DATA_FIRST, Net::Campaign;
    /// Writes that complete while a flush is in flight count as covered by it.
    EpochNotClosed = "epoch-not-closed", rules::DATA_FIRST, Net::Campaign;
    /// A device whose flush is in flight is said to owe nothing.
    FlushInFlightOwesNothing = "flush-in-flight-owes-nothing", rules::DATA_FIRST,
        Net::Test("device::tests::flush_is_needed_until_flush_in_flight_succeeds");
    /// The newest version of an extent whose own flushes have succeeded is committed, whatever earlier ones
    /// need.
    VersionsOutOfOrder = "versions-out-of-order", rules::IN_ORDER, Net::Campaign;
    /// A version that takes the place of the last one waits for the last one's flushes instead of its own.
    NeedsOfReplacedVersionKept = "needs-of-replaced-version-kept", rules::DATA_FIRST, Net::Campaign;
    /// A version that adds copies replaces the one that records where the data was.
    CopiesReplaceData = "copies-replace-data", rules::WITHDRAWN, Net::Campaign;
    /// A FLUSH submitted while a commit is in progress is answered with that commit.
    WaiterJoinsLate = "waiter-joins-late", rules::ACKNOWLEDGED, Net::Campaign;
    /// The waiters of a commit are answered when its frame is sent, not when it is durable.
    JournalAfterAcknowledgement = "journal-after-acknowledgement", rules::ACKNOWLEDGED, Net::Campaign;
    /// A FLUSH is answered although a device that it covers was found to lack data and no commit records this
    /// yet.
    ClearedNotCommitted = "cleared-not-committed", rules::ACKNOWLEDGED, Net::Campaign;
    /// A FLUSH does not wait until a later write elsewhere, over a lost write that it covers, is durable.
    CoveringWriteNotAwaited = "covering-write-not-awaited", rules::ACKNOWLEDGED,
        Net::Test("tests::redirect::flush_waits_for_write_covering_a_lost_one");
    /// A FLUSH waits only once for each device that loses what it covers.
    LossAwaitedOnce = "loss-awaited-once", rules::ACKNOWLEDGED,
        Net::Test("tests::redirect::flush_waits_while_covering_writes_are_lost");
    /// A write that the map learns of after later ones counts as durable once its device has flushed it.
    LateWriteNotNoted = "late-write-not-noted", rules::WITHDRAWN,
        Net::Test("tests::copies::late_map_change_is_lost_with_its_epoch");
    /// Pending changes still claim that a device has the data it lost.
    PendingNotDistrusted = "pending-not-distrusted", rules::WITHDRAWN,
        Net::Test("tests::moves::change_in_flight_does_not_validate_lost_blocks");
    /// Second copies that a failed flush reverts are not noted as lacking.
    WithdrawnCopyNotNoted = "withdrawn-copy-not-noted", rules::COPIES,
        Net::Test("tests::copies::resynced_copy_lost_by_failed_flush_is_made_again");
    /// An overwrite in place ignores FUA.
    FuaIgnoredInPlace = "fua-ignored-in-place", rules::ACKNOWLEDGED, Net::Campaign;
    /// A write of zeros with FUA is answered before it is durable.
    FuaIgnoredForZeros = "fua-ignored-for-zeros", rules::ACKNOWLEDGED,
        Net::Test("tests::hardening::zeros_with_fua_are_durable_when_acknowledged");
    /// A durable WRITE_ZEROES of blocks that read as zeros does not wait until that is durable.
    ZerosNotAwaited = "zeros-not-awaited", rules::ACKNOWLEDGED,
        Net::Test("tests::hardening::zeros_with_fua_are_durable_when_acknowledged");
    /// A durable TRIM or WRITE_ZEROES is answered before its change is committed.
    ClearNotAwaited = "clear-not-awaited", rules::ACKNOWLEDGED, Net::Campaign;
    /// Changes of volumes with `hardening = write` are answered before they are durable.
    HardeningIgnored = "hardening-ignored", rules::HARDENING, Net::Campaign;
    /// Journal frames are written like data, without FUA.
    FrameNotDurable = "frame-not-durable", rules::JOURNAL, Net::Campaign;
    /// A checkpoint's root is written before its pages are flushed.
    RootBeforePages = "root-before-pages", rules::JOURNAL, Net::Campaign;
    /// The journal overwrites frames that the roots need.
    JournalOverrun = "journal-overrun", rules::JOURNAL, Net::Campaign;
    /// The journal computes its free space without the padding at the end of the ring.
    RingPaddingForgotten = "ring-padding-forgotten", rules::JOURNAL,
        Net::Property("log::journal::tests::frames_since_either_root_are_replayed");
    /// The journal that only the older root needs is overwritten once a newer root is durable.
    OlderJournalGivenUp = "older-journal-given-up", rules::JOURNAL, Net::Campaign;
    /// Journal frames are accepted whatever their checksum.
    TornFrameAccepted = "torn-frame-accepted", rules::JOURNAL, Net::Campaign;
    /// Replay accepts a frame that does not continue its predecessor.
    FrameChainIgnored = "frame-chain-ignored", rules::JOURNAL,
        Net::Test("log::journal::tests::foreign_journal_frame_is_not_replayed");
    /// Replay takes a damaged frame that was durable for the end of the journal.
    DamageTakenForTail = "damage-taken-for-tail", rules::JOURNAL, Net::Campaign;
    /// Frames do not say which of their predecessors are durable.
    DurableSequenceStale = "durable-sequence-stale", rules::JOURNAL, Net::Campaign;
    /// Opening the pool continues the old journal's id.
    JournalIdKept = "journal-id-kept", rules::RENEWED, Net::Campaign;
    /// Opening the pool keeps the journal's incarnation.
    JournalIncarnationKept = "journal-incarnation-kept", rules::RENEWED,
        Net::Test("each_opening_begins_new_journal");
    /// Metadata pages are accepted whatever their checksum.
    PageChecksumIgnored = "page-checksum-ignored", rules::JOURNAL, Net::Campaign;
    /// The older root is opened without the journal behind it.
    StaleRootChosen = "stale-root-chosen", rules::JOURNAL, Net::Campaign;
    /// A page that changes while a checkpoint is in progress is not written by the next one.
    ChangeDuringCheckpointClean = "change-during-checkpoint-clean", rules::JOURNAL, Net::Campaign;
    /// Pages that the older root reaches are reused once a newer root is durable.
    OlderPagesReused = "older-pages-reused", rules::JOURNAL, Net::Campaign;
    /// Pages that the newest root reaches are reused before the next root is durable.
    ReplacedPagesReused = "replaced-pages-reused", rules::JOURNAL, Net::Campaign;
    /// The release of an extent is not journalled.
    TrimNotJournalled = "trim-not-journalled", rules::JOURNAL, Net::Campaign;
    /// The release of a record is not journalled.
    RecordDropNotJournalled = "record-drop-not-journalled", rules::JOURNAL, Net::Check;
    /// Opening leaves a killed server's writes in the devices' caches.
    CachesNotFlushedWhenOpening = "caches-not-flushed-when-opening", rules::RECOVERY, Net::Campaign;

    // Space.
    /// Space is reused as soon as it is released, before the release is durable.
    ReusedBeforeDurable = "reused-before-durable", rules::QUARANTINE, Net::Campaign;
    /// Space is reused while commands submitted against it are in flight.
    ReusedWhileInUse = "reused-while-in-use", rules::QUARANTINE, Net::Campaign;
    /// Slots of a write that failed or selects its target again are reused at once.
    FailedSlotsReused = "failed-slots-reused", rules::QUARANTINE,
        Net::Test("tests::redirect::slots_of_failed_write_stay_quarantined");
    /// Slots that a move took and does not use are reused at once.
    MovedSlotsReused = "moved-slots-reused", rules::QUARANTINE, Net::Campaign;
    /// Slots of a write that failed or selects its target again are never reused.
    RefusedSlotsLeaked = "refused-slots-leaked", rules::QUARANTINE, Net::Campaign;
    /// Opening takes slots in use for free.
    SlotsFreeAfterOpening = "slots-free-after-opening", rules::OWNERS, Net::Campaign;
    /// The space reserved for journal and checkpoints is given away.
    ReserveIgnored = "reserve-ignored", rules::QUARANTINE, Net::Campaign;
    /// Space that a volume gives back stays on its account.
    UsageNotReduced = "usage-not-reduced", rules::OWNERS, Net::Campaign;
    /// WRITE_ZEROES with NO_HOLE does not keep the space.
    KeptSpaceForgotten = "kept-space-forgotten", rules::ZEROES, Net::Campaign;
    /// A volume created beside another one gets the same id.
    VolumeIdReused = "volume-id-reused", rules::OWNERS, Net::Campaign;
    /// A volume is removed while requests to it are in flight.
    RemovalNotDrained = "removal-not-drained", rules::OWNERS, Net::Campaign;
    /// A removal that waits for requests in flight is forgotten when the metadata fails.
    DrainingRemovalForgotten = "draining-removal-forgotten", rules::ANSWERED,
        Net::Test("tests::admin::removal_in_progress_fails_with_the_metadata");

    // Reads, writes and locks.
    /// The last block of every longer write is left out of the bitmap.
    BitmapBitLost = "bitmap-bit-lost", rules::TRUTH, Net::Campaign;
    /// A write to part of an extent makes all of it valid.
    PartialAllocationVisible = "partial-allocation-visible", rules::TRUTH, Net::Campaign;
    /// A TRIM clears blocks that it covers only in part.
    TrimRoundsOutward = "trim-rounds-outward", rules::ZEROES, Net::Campaign;
    /// A write that ends within a block does not complete that block.
    TailBlockNotCompleted = "tail-block-not-completed", rules::TRUTH, Net::Campaign;
    /// Sectors are written to a block that is not valid there.
    SectorsToInvalidBlock = "sectors-to-invalid-block", rules::TRUTH, Net::Campaign;
    /// Only equal block ranges exclude each other.
    PartialOverlapNotLocked = "partial-overlap-not-locked", rules::LOCKS, Net::Campaign;
    /// A piece overtakes those that wait for the same blocks.
    LockOvertaken = "lock-overtaken", rules::LOCKS,
        Net::Test("request::block_locks::tests::waiting_piece_is_not_overtaken");
    /// A read of several parts ends with the first one.
    ReadEndsWithFirstPart = "read-ends-with-first-part", rules::LOCKS, Net::Campaign;
    /// Commands are joined that lie side by side on the device but not in memory.
    JoinedAcrossBuffers = "joined-across-buffers", rules::LOCKS, Net::Campaign;
    /// A read of blocks that are cleared meanwhile is not repeated.
    ReadNotRepeatedAfterClear = "read-not-repeated-after-clear", rules::LOCKS, Net::Campaign;
    /// The extent cache takes blocks from a fetch although a client began to change them in the meantime.
    FetchBringsStaleBlocks = "fetch-brings-stale-blocks", rules::CACHE, Net::Campaign;
    /// The extent cache keeps blocks that are cleared.
    CacheKeepsCleared = "cache-keeps-cleared", rules::CACHE, Net::Campaign;
    /// The extent cache keeps blocks that come into doubt.
    CacheKeepsDoubtful = "cache-keeps-doubtful", rules::CACHE, Net::Campaign;
    /// The extent cache answers with a write that has not ended.
    CachedBeforeWritten = "cached-before-written", rules::CACHE, Net::Campaign;

    // Two copies and moves.
    /// Blocks valid in several places are overwritten in place without a write intent.
    IntentSkipped = "intent-skipped", rules::INTENT, Net::Campaign;
    /// A write does not wait until its write intent is durable.
    IntentNotAwaited = "intent-not-awaited", rules::INTENT, Net::Campaign;
    /// A write intent is withdrawn before the copies are flushed.
    IntentClosedUnflushed = "intent-closed-unflushed", rules::INTENT, Net::Campaign;
    /// A write intent is withdrawn while writes to the extent are in flight.
    IntentClosedUnderWrites = "intent-closed-under-writes", rules::INTENT,
        Net::Test("tests::copies::an_intent_stays_open_under_a_write_in_flight");
    /// Recovery keeps both copies of blocks with a write intent.
    IntentNotSettled = "intent-not-settled", rules::INTENT, Net::Campaign;
    /// Recovery selects a copy without rewriting it.
    SettledCopyNotRewritten = "settled-copy-not-rewritten", rules::INTENT, Net::Campaign;
    /// Whether blocks may be overwritten is judged without the versions that are not durable.
    OverwriteIgnoresPending = "overwrite-ignores-pending", rules::INTENT, Net::Campaign;
    /// Whether blocks may be overwritten is judged without the durable map.
    OverwriteIgnoresDurable = "overwrite-ignores-durable", rules::INTENT, Net::Campaign;
    /// After a commit, blocks valid in several places count as valid in one.
    SharedBlocksNotNoted = "shared-blocks-not-noted", rules::INTENT, Net::Campaign;
    /// A write to slots of two devices is answered when the first one has it.
    SecondCopyNotAwaited = "second-copy-not-awaited", rules::COPIES, Net::Campaign;
    /// A write to two devices becomes durable with the flush of the first one.
    DuplexNeedsOneFlush = "duplex-needs-one-flush", rules::COPIES, Net::Campaign;
    /// A copy whose write failed still counts.
    CopyFailureIgnored = "copy-failure-ignored", rules::COPIES, Net::Campaign;
    /// A durable write is answered before it is durable which copy failed.
    FailedCopyNotCommitted = "failed-copy-not-committed", rules::COPIES, Net::Test(
        "tests::copies::failed_copy_is_invalidated_before_reply_and_resynced");
    /// Blocks of which no copy took a write are not in doubt.
    BothFailedNotDoubted = "both-failed-not-doubted", rules::COPIES, Net::Campaign;
    /// A read does not wait for writes to both copies of its blocks.
    ReadBesideCopies = "read-beside-copies", rules::COPIES, Net::Campaign;
    /// An extent that lost a copy is not noted for resynchronization.
    LackingCopyForgotten = "lacking-copy-forgotten", rules::COPIES, Net::Campaign;
    /// A first write to an extent of a volume with two copies takes one place, and the lack is not noted.
    SecondPlaceNotTaken = "second-place-not-taken", rules::COPIES, Net::Campaign;
    /// Copies that extents lack are noted and never made.
    LackingCopyNotMade = "lacking-copy-not-made", rules::COPIES, Net::Campaign;
    /// A copy that missed writes is never made complete again.
    StaleCopyNotRefreshed = "stale-copy-not-refreshed", rules::COPIES, Net::Campaign;
    /// A duplexed write goes to slots of the first device only.
    BufferedInOneSlot = "buffered-in-one-slot", rules::COPIES, Net::Campaign;
    /// A move does not learn which blocks are written during it.
    MoveNotToldOfWriters = "move-not-told-of-writers", rules::MOVES, Net::Campaign;
    /// A move copies blocks that a write in flight has locked.
    MoveReadsHeldBlocks = "move-reads-held-blocks", rules::MOVES, Net::Campaign;
    /// A moved run waits for the flush that its first write needs.
    MoveNeedsFirstWrite = "move-needs-first-write", rules::MOVES, Net::Campaign;
    /// A copy is committed before its source is durable.
    MoveSourceNotFlushed = "move-source-not-flushed", rules::MOVES, Net::Campaign;
    /// A move continues although a device lost writes in the meantime.
    MoveIgnoresLostWrites = "move-ignores-lost-writes", rules::MOVES, Net::Campaign;
    /// A move writes to a place that may become valid for the blocks again.
    MoveOverReturningPlace = "move-over-returning-place", rules::MOVES, Net::Campaign;
    /// Whether a place may come back is judged without the versions that are not durable.
    ReturningPlaceWithoutVersions = "returning-place-without-versions", rules::MOVES,
        Net::Test("undurable_version_place_may_return");
    /// A write does not wait for a move's write to the same location.
    WriteBesideMove = "write-beside-move", rules::MOVES, Net::Campaign;

    // Failing devices.
    /// A flush that failed is tried again.
    FlushRetried = "flush-retried", rules::LOST_ONCE, Net::Campaign;
    /// A write that failed is retried although a flush failed in the meantime.
    SpoiltWriteRetried = "spoilt-write-retried", rules::LOST_ONCE,
        Net::SecondLine("a flush that fails makes the writes in flight fail");
    /// A durable write that reports a lack of space is taken to have done nothing.
    FullDurableWriteIgnored = "full-durable-write-ignored", rules::LOST_ONCE, Net::Campaign;
    /// A flush counts though one that began before it has not ended.
    FlushCountsAtOnce = "flush-counts-at-once", rules::LOST_ONCE, Net::Campaign;
    /// A write that succeeds counts though a flush failed while it was in flight.
    SpoiltSuccessCounts = "spoilt-success-counts", rules::LOST_ONCE,
        Net::SecondLine("a flush that fails makes the writes in flight fail");
    /// Writes that a failed flush should have covered are not in doubt, only later ones.
    FlushingNotDoubted = "flushing-not-doubted", rules::DOUBT, Net::Campaign;
    /// Writes in flight when a flush fails are not in doubt.
    WritesInFlightNotDoubted = "writes-in-flight-not-doubted", rules::DOUBT, Net::Campaign;
    /// A write that failed leaves no trace of what it may have written.
    FailedWriteNotNoted = "failed-write-not-noted", rules::DOUBT, Net::Campaign;
    /// A durable write settles doubt though the map's change is not durable.
    DurableWriteSettlesPending = "durable-write-settles-pending", rules::DOUBT, Net::Campaign;
    /// When a flush fails, copies are noted only on devices with a higher number.
    CopiesNotedOnLaterDevices = "copies-noted-on-later-devices", rules::DOUBT,
        Net::Test("tests::redirect::successive_losses_on_two_devices_cause_doubt");
    /// Only the first run of blocks in doubt gets a write intent.
    FirstDoubtfulRunIntended = "first-doubtful-run-intended", rules::DOUBT,
        Net::Test("tests::failing::every_run_of_blocks_in_doubt_has_an_intent");
    /// A FLUSH in progress succeeds though a device lost what it covers.
    FlushWaitersNotTold = "flush-waiters-not-told", rules::DOUBT, Net::Campaign;
    /// With no FLUSH in progress, lost writes are reported to none.
    NextFlushNotFailed = "next-flush-not-failed", rules::DOUBT, Net::Campaign;
    /// A write to part of a block in doubt succeeds.
    PartWriteClearsDoubt = "part-write-clears-doubt", rules::DOUBT, Net::Campaign;
    /// A read in flight when its device loses writes is not repeated.
    ReadNotRepeatedAfterLoss = "read-not-repeated-after-loss", rules::DOUBT, Net::Campaign;
    /// The map withdraws only the first of the versions that need lost data.
    WithdrawFirstVersionOnly = "withdraw-first-version-only", rules::WITHDRAWN, Net::Campaign;
    /// Space that a withdrawn change needs again is released all the same.
    WithdrawKeepsReleases = "withdraw-keeps-releases", rules::WITHDRAWN, Net::Campaign;
    /// Withdrawing a change forgets the write intents that it had ended.
    WithdrawDropsIntents = "withdraw-drops-intents", rules::WITHDRAWN, Net::Campaign;
    /// A lost copy is removed from the visible state, but not from versions that may become durable.
    DistrustedInEffectOnly = "distrusted-in-effect-only", rules::WITHDRAWN, Net::Campaign;
    /// Writes in flight to an extent that lost blocks do not say what they make valid.
    WritesInFlightNotReviewed = "writes-in-flight-not-reviewed", rules::WITHDRAWN, Net::Campaign;
    /// A buffer is reused while a device that was given up may still write to it.
    AbandonedBufferReused = "abandoned-buffer-reused", rules::QUARANTINE, Net::Campaign;
    /// Devices are not verified: a truncated one is not noticed.
    TruncationNotChecked = "truncation-not-checked", rules::VERIFIED, Net::Campaign;
    /// The record of a removed or replaced file does not say that an older file no longer counts.
    DamageNotRecorded = "damage-not-recorded", rules::VERIFIED,
        Net::Test("tests::outdated::older_file_is_ignored_if_others_have_its_data");
    /// The data of a device that is present as an older file counts when the pool is opened.
    OutdatedDeviceTrusted = "outdated-device-trusted", rules::VERIFIED,
        Net::Test("tests::outdated::older_file_is_ignored_if_others_have_its_data");
    /// A device that was verified once is not verified again.
    VerifiedOnceForAll = "verified-once-for-all", rules::VERIFIED, Net::Campaign;

    // Metadata members.
    /// A metadata member that was left behind is taken for current.
    StaleMirrorOpened = "stale-mirror-opened", rules::MEMBERS, Net::Campaign;
    /// A member is left behind without raising the pool's generation.
    GenerationNotRaised = "generation-not-raised", rules::MEMBERS, Net::Campaign;
    /// Requests are answered before the devices know which member was left behind.
    RecordNotAwaited = "record-not-awaited", rules::MEMBERS, Net::Campaign;
    /// Journal frames go to the first member only.
    FrameToOneMember = "frame-to-one-member", rules::MEMBERS, Net::Campaign;
    /// The pages of a checkpoint go to the first member only.
    PagesToOneMember = "pages-to-one-member", rules::MEMBERS, Net::Campaign;
    /// Roots go to the first member only.
    RootToOneMember = "root-to-one-member", rules::MEMBERS, Net::Campaign;
    /// A member that was left behind joins again without a copy of the metadata.
    StaleMemberNotCopied = "stale-member-not-copied", rules::MEMBERS, Net::Campaign;
    /// A damaged metadata page is read from the other member and not repaired.
    RepairNotWritten = "repair-not-written", rules::MEMBERS, Net::Campaign;
    /// Both copies of a superblock are written at once.
    SuperblockCopiesUnordered = "superblock-copies-unordered", rules::MEMBERS,
        Net::SecondLine("versions differ in one sector, which no power loss tears");
    /// A change of a superblock by opening is written to its first copy only.
    SecondSuperblockNotWritten = "second-superblock-not-written", rules::MEMBERS, Net::Campaign;
    /// Opening begins the new journal in one root slot only.
    SecondRootNotWritten = "second-root-not-written", rules::RENEWED, Net::Campaign;

    // The server.
    /// While a simple reply has begun and is not whole, other replies are sent.
    ReplyInsideReply = "reply-inside-reply", rules::STREAM, Net::Served;
    /// Replies that were held back behind one that had begun are forgotten when it is whole.
    HeldBackForgotten = "held-back-forgotten", rules::STREAM, Net::Served;
    /// The later pieces of a read leave in another order.
    PiecesOutOfOrder = "pieces-out-of-order", rules::STREAM, Net::Served;
    /// Data that arrives while a receive is cancelled is lost.
    CancelledReceiveLost = "cancelled-receive-lost", rules::STREAM, Net::Served;
    /// A client that sends no more is closed before its requests are answered.
    HalfClosedNotAnswered = "half-closed-not-answered", rules::STREAM, Net::Served;
    /// A FLUSH is answered at once if nothing else of its connection is in flight.
    FlushOfIdleConnectionSkipped = "flush-of-idle-connection-skipped", rules::ACKNOWLEDGED, Net::Served;
    /// Only the first piece of a long write with FUA is durable.
    FuaOfFirstPieceOnly = "fua-of-first-piece-only", rules::ACKNOWLEDGED, Net::Served;
    /// A part of a long write is lost before the rest is done, and the write is answered as if it were
    /// complete.
    LossOfPiecesHidden = "loss-of-pieces-hidden", rules::LOST_ONCE, Net::Test(
        "connection::tests::lost::partly_lost_write_fails");
    /// The failure of a FLUSH is forgotten with the connection of the client that requested it.
    UnheardLossForgotten = "unheard-loss-forgotten", rules::LOST_ONCE,
        Net::Test("server::tests::unseen_loss_is_reported_again");
    /// A loss of writes is reported to one client of a volume, and not to the others.
    LossToldOnce = "loss-told-once", rules::LOST_ONCE,
        Net::Test("server::tests::every_client_sees_a_loss");
    /// Requests of a lost connection are executed after its client is back.
    LostConnectionGoesOn = "lost-connection-goes-on", rules::ABANDONED, Net::Served;
    /// The memory of a write stays on its client's account.
    CreditNotReturned = "credit-not-returned", rules::CLIENTS, Net::Served;
    /// Buffers of data that was read and not sent are lost with the connection.
    UnsentBuffersLeaked = "unsent-buffers-leaked", rules::LEFT, Net::Served;
    /// A buffer of a connection is given back while the outside still has it.
    BufferGivenBackEarly = "buffer-given-back-early", rules::LEFT, Net::Served;
    /// A client that has gone counts against the limit.
    GoneClientCounted = "gone-client-counted", rules::LEFT, Net::Served;
    /// Limits on clients are checked when they connect, not when they are admitted.
    LimitsNotCheckedAgain = "limits-not-checked-again", rules::CLIENTS, Net::Served;
    /// A FLUSH that failed is answered as one that succeeded.
    FlushErrorHidden = "flush-error-hidden", rules::LOST_ONCE,
        Net::Test("connection::tests::lost::failed_flush_is_reported");
    /// Requests of clients while a frame is in flight are not recorded.
    RecordedWithGaps = "recorded-with-gaps", rules::RECORDED, Net::Served;
    /// A volume is removed although clients use it.
    UsedVolumeRemoved = "used-volume-removed", rules::OWNERS, Net::Served;
}

impl Mutant {
    /// Returns the mutant of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
    }
}

/// The planted mutants, usually one or none. Without the feature `mutants`, none can be planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    /// One bit per mutant.
    #[cfg(feature = "mutants")]
    mutants: [u64; Mutant::ALL.len().div_ceil(64)],
}

impl Planted {
    /// No mutant.
    pub const NONE: Self = Self {
        #[cfg(feature = "mutants")]
        mutants: [0; Mutant::ALL.len().div_ceil(64)],
    };

    /// Returns the value that plants these mutants.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn all(mutants: &[Mutant]) -> Self {
        let mut planted = Self::NONE;
        for &mutant in mutants {
            planted.mutants[mutant as usize / 64] |= 1 << (mutant as usize % 64);
        }
        planted
    }

    /// Returns the value that plants this mutant.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn one(mutant: Mutant) -> Self {
        Self::all(&[mutant])
    }

    /// Returns the mutant that a test must find: named by the environment variable `WEIR_MUTANT`, by which
    /// `cargo xtask mutants` runs test programs. For tests only; without the feature `mutants` there is none.
    ///
    /// # Panics
    /// Panics if no mutant has that name.
    #[must_use]
    pub fn for_tests() -> Self {
        #[cfg(feature = "mutants")]
        if let Ok(name) = std::env::var("WEIR_MUTANT") {
            let Some(mutant) = Mutant::by_name(&name) else { panic!("no mutant {name:?}") };
            return Self::one(mutant);
        }
        Self::NONE
    }

    /// Whether this mutant is planted.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    #[must_use]
    pub const fn is(self, _: Mutant) -> bool {
        false
    }

    /// Whether this mutant is planted.
    #[cfg(feature = "mutants")]
    #[inline]
    #[must_use]
    pub fn is(self, mutant: Mutant) -> bool {
        self.mutants[mutant as usize / 64] >> (mutant as usize % 64) & 1 == 1
    }
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Planted>() == 0, "a build without mutants carries nothing of them");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_mutant_has_a_name_of_its_own_and_is_described() {
        let names: BTreeSet<_> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        assert_eq!(names.len(), Mutant::ALL.len());
        for mutant in Mutant::ALL {
            assert_eq!(Mutant::by_name(mutant.name()), Some(*mutant));
            assert!(mutant.fault().ends_with('.') && !mutant.rule().is_empty(), "{mutant:?}");
        }
    }
}
