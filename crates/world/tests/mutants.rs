//! Tests that short histories still find the mutants that they find quickly. They need the feature `mutants`;
//! all mutants, and longer campaigns, are for `cargo xtask mutants`.
#![cfg(feature = "mutants")]

use weir_world::campaign::HistoryKind;
use weir_world::driver::HistoryStep;
use weir_world::{History, Mutant, Planted, Seed, net};

/// Number of histories that a mutant may survive. Most are found within the first dozen.
const SEEDS: u64 = 600;

/// Mutants found within the first few histories when the list was made.
const FOUND_AT_ONCE: &[Mutant] = &[
    Mutant::FlushSkipped,
    Mutant::OtherDevicesNotFlushed,
    Mutant::CommittedBeforeItsFlush,
    Mutant::EpochNotClosed,
    Mutant::WaiterJoinsLate,
    Mutant::JournalAfterAcknowledgement,
    Mutant::FuaIgnoredInPlace,
    Mutant::HardeningIgnored,
    Mutant::ClearNotAwaited,
    Mutant::RootBeforePages,
    Mutant::FrameNotDurable,
    Mutant::StaleRootChosen,
    Mutant::ChangeDuringCheckpointClean,
    Mutant::ReplacedPagesReused,
    Mutant::TrimNotJournalled,
    Mutant::RecordDropNotJournalled,
    Mutant::ReusedBeforeDurable,
    Mutant::RefusedSlotsLeaked,
    Mutant::SlotsFreeAfterOpening,
    Mutant::KeptSpaceForgotten,
    Mutant::BitmapBitLost,
    Mutant::PartialAllocationVisible,
    Mutant::TrimRoundsOutward,
    Mutant::TailBlockNotCompleted,
    Mutant::SectorsToInvalidBlock,
    Mutant::PartialOverlapNotLocked,
    Mutant::ReadEndsWithFirstPart,
    Mutant::JoinedAcrossBuffers,
    Mutant::FetchBringsStaleBlocks,
    Mutant::CacheKeepsCleared,
    Mutant::IntentSkipped,
    Mutant::SharedBlocksNotNoted,
    Mutant::SecondCopyNotAwaited,
    Mutant::MoveNotToldOfWriters,
    Mutant::MoveReadsHeldBlocks,
    Mutant::FlushRetried,
    Mutant::FlushingNotDoubted,
    Mutant::NextFlushNotFailed,
    Mutant::TruncationNotChecked,
    Mutant::VerifiedOnceForAll,
    Mutant::GenerationNotRaised,
    Mutant::FrameToOneMember,
    Mutant::StaleMemberNotCopied,
];

/// Number of histories of served pools that a mutant of the server may survive. Most are found within the
/// first dozen; a change of the engine changes the history of a seed, and then a mutant may take a few more.
const SERVED: u64 = 100;

/// Mutants of the server.
const FOUND_BY_CLIENTS: &[Mutant] = &[
    Mutant::ReplyInsideReply,
    Mutant::HeldBackForgotten,
    Mutant::PiecesOutOfOrder,
    Mutant::CancelledReceiveLost,
    Mutant::HalfClosedNotAnswered,
    Mutant::FlushOfIdleConnectionSkipped,
    Mutant::LostConnectionGoesOn,
    Mutant::CreditNotReturned,
    Mutant::UnsentBuffersLeaked,
    Mutant::BufferGivenBackEarly,
    Mutant::GoneClientCounted,
    Mutant::UsedVolumeRemoved,
    Mutant::FuaOfFirstPieceOnly,
    Mutant::LimitsNotCheckedAgain,
    Mutant::RecordedWithGaps,
    Mutant::KeptSpaceForgotten,
];

/// Returns the seed of a served pool that finds a mutant.
fn found_served(mutant: Mutant) -> Option<u64> {
    (0..SERVED).find(|seed| {
        let mut history = net::history(Seed(*seed));
        history.setup.planted = Planted::one(mutant);
        let failure = history.run().failure;
        failure
            .iter()
            .for_each(|failure| eprintln!("{} found with seed {seed}: {}", mutant.name(), failure.0));
        failure.is_some()
    })
}

/// Mutants found within the first few histories with audits and device losses in copies of the pool: their
/// damage is otherwise invisible until a second device fails.
const FOUND_BY_AUDITS: &[Mutant] = &[
    Mutant::SecondPlaceNotTaken,
    Mutant::LackingCopyNotMade,
    Mutant::StaleCopyNotRefreshed,
    Mutant::BufferedInOneSlot,
    Mutant::PagesToOneMember,
    Mutant::RootToOneMember,
    Mutant::FrameToOneMember,
    Mutant::SecondSuperblockNotWritten,
    Mutant::SecondRootNotWritten,
];

/// Number of steps between two audits.
const AUDIT_EVERY: usize = 50;

/// Returns the seed that finds a mutant in histories without failing devices.
fn found_by_audits(mutant: Mutant) -> Option<u64> {
    let kind =
        HistoryKind { audits: true, devices_min: 3, volumes_min: 2, ..HistoryKind::with_crashes(10, 100) };
    let mut histories = (0..).map(|seed| (seed, History::new(Seed(seed), &kind)));
    let audited = std::iter::from_fn(|| histories.find(|(_, history)| history.setup.mirrored));
    let mut audited = audited.take(SEEDS as usize);
    let found = audited.find_map(|(seed, mut history)| {
        history.setup.policy = if seed % 2 == 0 { "chaos" } else { "hystor-twice" }.to_owned();
        for volume in &mut history.setup.volumes {
            (volume.copies, volume.policy) = (2 - (seed % 2) as u8, None);
        }
        history.setup.planted = Planted::one(mutant);
        let parts = history.steps.chunks(AUDIT_EVERY).map(<[HistoryStep]>::to_vec);
        history.steps = parts.flat_map(|part| part.into_iter().chain([HistoryStep::Audit])).collect();
        history.run().failure.map(|(failure, _)| (seed, failure))
    });
    found.map(|(seed, failure)| {
        eprintln!("{} found with seed {seed}: {failure}", mutant.name());
        seed
    })
}

/// Returns the seed that finds a mutant.
fn found_by(mutant: Mutant) -> Option<u64> {
    let kind =
        HistoryKind { faults: true, devices_min: 3, volumes_min: 2, ..HistoryKind::with_crashes(10, 200) };
    (0..SEEDS).find(|seed| {
        let mut history = History::new(Seed(*seed), &kind);
        history.setup.planted = Planted::one(mutant);
        history.run().failure.is_some()
    })
}

/// Returns the mutants that are missed. Panics of the engine count as finding one.
fn missed(mutants: &[Mutant], find: impl Fn(Mutant) -> Option<u64>) -> Vec<Mutant> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let missed = mutants.iter().copied().filter(|mutant| find(*mutant).is_none()).collect();
    std::panic::set_hook(hook);
    missed
}

/// Returns an error rather than panicking: another test may have silenced panics.
fn none_missed(missed: &[Mutant], by: &str) -> Result<(), String> {
    if missed.is_empty() { Ok(()) } else { Err(format!("not found by {by}: {missed:?}")) }
}

#[test]
fn known_mutants_are_found() -> Result<(), String> {
    none_missed(&missed(FOUND_AT_ONCE, found_by), &format!("{SEEDS} histories"))
}

#[test]
fn server_mutants_are_found_by_clients() -> Result<(), String> {
    none_missed(&missed(FOUND_BY_CLIENTS, found_served), &format!("the seeds 0 to {SERVED}"))
}

#[test]
fn audit_only_mutants_are_found() -> Result<(), String> {
    let found = |mutant: &Mutant| found_by_audits(*mutant).is_some();
    let missed: Vec<_> = FOUND_BY_AUDITS.iter().copied().filter(|mutant| !found(mutant)).collect();
    none_missed(&missed, &format!("{SEEDS} histories with audits"))
}
