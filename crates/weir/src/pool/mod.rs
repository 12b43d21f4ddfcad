//! Access of commands to a pool: through its server, or on its devices while the pool is idle.

mod device_lock;
mod idle;

use crate::args::Accept;
use crate::devices::{OpenedPool, PoolDescription};
use crate::failure::Failure;
use crate::output;
use crate::status::{IDLE, Status, VolumePart};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_model::ErrorKind;
use weir_policy::placement::Settings;
use weir_serve::control::{Answer, Request};

pub(crate) use device_lock::lock_holder;
pub(crate) use idle::IdlePool;
pub use idle::{policy, set_volume_policies, settings};

/// Extension of the control socket beside the pool file.
pub const CONTROL: &str = "control";
/// Time for which a command waits for devices that another process holds.
const DEVICE_WAIT: Duration = Duration::from_secs(10);
/// Time in which a server must answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks whether the process that holds the devices is a server.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the status of the pool.
///
/// # Errors
/// Fails if the pool cannot be opened.
pub fn status(pool_file: &Path) -> Result<Status, Failure> {
    status_accepting(pool_file, &Accept::default())
}

/// Works as [`status`], for a pool of which devices or copies of metadata may be absent.
///
/// # Errors
/// Fails if the pool cannot be opened.
pub fn status_accepting(pool_file: &Path, accept: &Accept) -> Result<Status, Failure> {
    let mut status = match execute(pool_file, &Request::Status, accept)? {
        Outcome::Served(Answer::Status(status)) => {
            serde_json::from_value::<Status>(status).map_err(|error| {
                Failure::environment(format!("the server's status is not understood: {error}"), VERSION_HELP)
            })?
        }
        Outcome::Served(answer) => return Err(unexpected_answer_failure(&answer)),
        Outcome::Idle(status) => *status,
    };
    status.note_pending_settings(&PoolDescription::read(pool_file)?.file);
    Ok(status)
}

/// Returns the keys of a policy that the pool file tunes.
pub(crate) fn tuning(described: &PoolDescription, policy: &str) -> BTreeMap<String, f64> {
    let tuned = described.file.tuning.get(policy).into_iter().flat_map(Settings::overrides);
    tuned.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Sends the server a request that only a server can execute; `instead` says what to write in the pool file
/// if there is no server.
pub(crate) fn require_server(
    described: &PoolDescription,
    request: &Request,
    instead: impl Fn() -> String,
) -> Result<(), Failure> {
    match ask(&described.sibling_path(CONTROL), request)? {
        Some(Answer::Done) => Ok(()),
        Some(answer) => Err(unexpected_answer_failure(&answer)),
        None => Err(Failure::refused(
            format!("pool {} is not being served", described.file.name),
            format!("{} in {}", instead(), described.path.display()),
        )),
    }
}

/// Executes a change of volumes and returns the volumes after it.
///
/// # Errors
/// Fails if the change is refused, or the pool cannot be opened.
pub(crate) fn change(pool_file: &Path, request: &Request) -> Result<Vec<VolumePart>, Failure> {
    match execute(pool_file, request, &Accept::default())? {
        Outcome::Served(Answer::Done) => Ok(status(pool_file)?.volumes),
        Outcome::Served(answer) => Err(unexpected_answer_failure(&answer)),
        Outcome::Idle(status) => Ok(status.volumes),
    }
}

/// How a request was executed.
#[derive(Debug)]
enum Outcome {
    /// The server executed it and returned this answer.
    Served(Answer),
    /// The command executed it on the devices; this is the status of the pool afterwards.
    Idle(Box<Status>),
}

const VERSION_HELP: &str = "use the weir the server was started with, or restart the server";

/// Executes a request through the server if there is one, else on the idle pool. A server may start or stop
/// at any time, so both are tried as long as another process holds the devices.
fn execute(pool_file: &Path, request: &Request, accept: &Accept) -> Result<Outcome, Failure> {
    let described = PoolDescription::read(pool_file)?;
    // A server has decided already without which devices it goes on, but a mistyped name is told.
    described.ids(&accept.without)?;
    let control = described.sibling_path(CONTROL);
    retry_until_unlocked(&described, |pause| {
        if let Some(answer) = ask(&control, request)? {
            return Ok(Outcome::Served(answer));
        }
        let idle = IdlePool::open(&described, accept, pause)?;
        Ok(Outcome::Idle(Box::new(execute_on_idle(&described, idle, request)?)))
    })
}

/// Opens the devices of a pool for a new server, and waits until the previous server releases them.
///
/// # Errors
/// Fails if the pool is already being served, and as [`PoolDescription::open_pool`] does.
pub fn open_to_serve(described: &PoolDescription, accept: &Accept) -> Result<OpenedPool, Failure> {
    retry_until_unlocked(described, |pause| {
        refuse_served(described)?;
        described.open_pool(accept, pause)
    })
}

/// Retries `attempt` until no other process holds the devices or [`DEVICE_WAIT`] has passed, and reports the
/// wait on standard error. Each attempt waits for a device as long as its argument says.
pub(crate) fn retry_until_unlocked<T>(
    described: &PoolDescription,
    mut attempt: impl FnMut(Duration) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let began = Instant::now();
    let mut has_said_so = false;
    loop {
        match attempt(RETRY_INTERVAL) {
            Err(failure @ Failure { locked: Some(_), .. }) if began.elapsed() < DEVICE_WAIT => {
                if !std::mem::replace(&mut has_said_so, true) {
                    output::print_stderr(&format!(
                        "waiting up to {} s: {}",
                        DEVICE_WAIT.as_secs(),
                        failure.message
                    ));
                }
            }
            Err(Failure { locked: Some(device), .. }) => {
                return Err(device_lock::explain(&device, &described.sibling_path(CONTROL)));
            }
            other => return other,
        }
    }
}

pub(crate) fn refuse_served(described: &PoolDescription) -> Result<(), Failure> {
    if !weir_serve::control::is_answering(&described.sibling_path(CONTROL), ANSWER_TIMEOUT) {
        return Ok(());
    }
    Err(Failure::refused(
        format!("pool {} ({}) is already being served", described.file.name, described.path.display()),
        "weir pool status shows it; SIGTERM to its weir serve stops it",
    ))
}

/// Returns the answer of the server; `None` if there is no server.
pub(crate) fn ask(control: &Path, request: &Request) -> Result<Option<Answer>, Failure> {
    match weir_serve::control::ask(control, request) {
        Ok(Answer::Failed { class, message }) => Err(Failure::from_message(class.into(), &message)),
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_server_absent(&error) => Ok(None),
        // The server is being killed. Any request but a status may already have been executed.
        Err(error) if *request == Request::Status && is_disconnected(&error) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(Failure::from_message(ErrorKind::Environment, &error.to_string()))
        }
        Err(error) => Err(Failure::os("ask the server at", control, &error)),
    }
}

/// Returns whether the error means that there is no server.
pub(crate) fn is_server_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn is_disconnected(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

pub(crate) fn unexpected_answer_failure(answer: &Answer) -> Failure {
    Failure::environment(format!("the server answered {answer:?}"), VERSION_HELP)
}

fn execute_on_idle(
    described: &PoolDescription,
    mut idle: IdlePool,
    request: &Request,
) -> Result<Status, Failure> {
    let result = request.command().map(|command| idle.admin(command).result);
    idle.count_missing_copies();
    let engine = idle.engine();
    let status = Status::new(IDLE, described, engine.map(), engine.status(), &[], idle.opening());
    let status = status.with_devices(|id| idle.device(id));
    let damaged = idle.close();
    result.transpose()?;
    let failed = damaged.map(|device| {
        Failure::environment(
            format!(
                "device {} was removed, truncated or overwritten just now",
                described.name_and_path(device)
            ),
            "what was changed may be gone with it: weir pool check says what is left",
        )
    });
    failed.map_or(Ok(status), Err)
}
