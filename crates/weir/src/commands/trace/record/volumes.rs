//! Records clients' requests to volumes, which the server reports over its control socket.

use super::{CHECK_INTERVAL, RecordedTrace, RecordingOutcome, StopCondition};
use crate::devices::PoolDescription;
use crate::failure::Failure;
use crate::pool::{CONTROL, is_server_absent, unexpected_answer_failure};
use std::path::Path;
use std::time::Instant;
use weir_model::{Hint, Nanos};
use weir_serve::control::Answer;
use weir_serve::recording::{RecordedRequest, Recording, RecordingState};
use weir_trace::{Disk, Record};

pub(super) fn record(
    pool_file: &Path,
    volumes: &[String],
    stop: &StopCondition,
    recorded: &mut RecordedTrace<'_, '_>,
) -> Result<RecordingOutcome, Failure> {
    let mut recording = begin(pool_file, volumes)?;
    let began = Instant::now();
    crate::output::print_stderr(&format!("recording requests to {}; Ctrl-C ends it", volumes.join(", ")));
    let unreadable = |error: std::io::Error| {
        Failure::environment(format!("the server's recording cannot be read: {error}"), "try again")
    };
    // Requests after the duration are not part of the recording.
    let end = stop.duration.map_or(Nanos(u64::MAX), |duration| Nanos(duration.as_nanos() as u64));
    let mut heard = Vec::new();
    let mut write = |heard: &mut Vec<RecordedRequest>| {
        let in_time = heard.drain(..).filter(|one| one.at < end);
        let mut is_more = true;
        for RecordedRequest { at, volume, op, offset, len } in in_time {
            let disk = volumes.get(usize::from(volume)).map_or("", |name| name);
            let record = Record { at, disk: Disk(volume.into()), op, offset, len, hint: Hint::None };
            is_more = is_more && recorded.write(&record, disk)?;
        }
        // Earlier requests may wait to be saved even if there are no new ones.
        Ok::<_, Failure>(is_more && recorded.save_if_due()?)
    };
    let mut how = RecordingState::Active;
    let mut is_more = true;
    while is_more && how == RecordingState::Active && !stop.is_over(began) {
        how = recording.receive(CHECK_INTERVAL, |one| heard.push(one)).map_err(unreadable)?;
        is_more = write(&mut heard)?;
    }
    let lasted = began.elapsed();
    let mut dropped = recording.dropped();
    if is_more && how == RecordingState::Active {
        (how, dropped) = recording.end(|one| heard.push(one)).map_err(unreadable)?;
        write(&mut heard)?;
    }
    let broken = (how == RecordingState::Truncated)
        .then(|| "the server went away: its last requests may be missing".into());
    Ok(RecordingOutcome {
        disks: volumes.to_vec(),
        duration: lasted,
        dropped,
        notes: broken.into_iter().collect(),
    })
}

/// Asks the server to report clients' requests to these volumes.
///
/// # Errors
/// Fails if the pool is not served, if there is no such volume, or if another recording is active.
fn begin(pool_file: &Path, volumes: &[String]) -> Result<Recording, Failure> {
    let described = PoolDescription::read(pool_file)?;
    let control = described.sibling_path(CONTROL);
    match Recording::begin(&control, volumes) {
        Ok(Ok(recording)) => Ok(recording),
        Ok(Err(Answer::Failed { class, message })) => Err(Failure::from_message(class.into(), &message)),
        Ok(Err(answer)) => Err(unexpected_answer_failure(&answer)),
        Err(error) if is_server_absent(&error) => Err(Failure::refused(
            format!("pool {} is not being served, so it gets no requests", described.file.name),
            "start it: weir serve",
        )),
        Err(error) => Err(Failure::os("ask the server at", &control, &error)),
    }
}
