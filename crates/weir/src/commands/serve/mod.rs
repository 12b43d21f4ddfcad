//! `weir serve` opens the pool, listens, and serves until it is told to stop.

mod endpoint;

use super::show;
use crate::args::{Accept, Common};
use crate::devices::{
    OpenedPool, Opening, PoolDescription, ineffective_key_notes, warn_of_readable_files, without_option,
};
use crate::failure::Failure;
use crate::pool::{self, CONTROL, policy, set_volume_policies, settings};
use crate::progress;
use crate::status::{SERVED, Status};
use clap::Args;
use endpoint::{Endpoint, UnixSocket, listen_failure};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_device::{Arena, DeviceError, Listen, Reactor, ReactorOptions, SocketAccess};
use weir_engine::{Engine, Options, PoolStatus};
use weir_model::ErrorKind;
use weir_serve::{Describe, Limits, Server, ServerOutcome};

/// Longest time to wait until the kernel releases the socket of a killed server.
const SOCKET_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Notes on access and limits, and examples, for `weir serve --help`.
const NOTES: &str = "Access:
  Only the server's user may connect to a unix socket, unless its mode, owner or
  group is set: unix:PATH,mode=0660,owner=NAME,group=NAME.
  NBD over TCP has no authentication.

Limits, set under [serve] in the pool file:
  clients              connected clients [default: 1024]
  clients_per_address  connected clients of one IP address [default: 256]
  handshake_timeout    time a client has to choose a volume [default: 30s]
  control_timeout      longest silence of a control session [default: 60s]

Examples:
  weir serve
  weir serve --nbd 127.0.0.1:10809
  weir serve --nbd unix:/run/weir.sock,mode=0660,group=libvirt --nbd [::1]:10809";

/// `weir serve ...`
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct ServeArgs {
    /// For a pool with absent devices.
    #[command(flatten)]
    pub accept: Accept,
    /// Listen for NBD clients at a unix socket or a TCP address (repeatable)
    /// [default: unix:NAME.sock beside the pool file NAME.toml]
    #[arg(long, value_name = "unix:PATH|HOST:PORT", value_parser = endpoint::parse)]
    pub nbd: Vec<Endpoint>,
}

/// Serves the pool until it is told to stop.
///
/// # Errors
/// Fails if the pool cannot be opened, or if the server cannot listen at an address.
pub(crate) fn run(args: &ServeArgs, common: &Common) -> Result<(), Failure> {
    serve(&common.pool, args, |ready| show(common, &ready.document(), |_| ready.human()))
}

/// The server's report once it accepts connections.
#[derive(Debug)]
struct Ready {
    pool: String,
    nbd: Vec<Endpoint>,
    control: PathBuf,
    volumes: Vec<String>,
}

/// The document of `weir serve`, printed once the server answers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "weir serve")]
pub(crate) struct ReadyDocument<'a> {
    /// Name of the pool.
    pool: &'a str,
    /// Addresses at which NBD is served, as `--nbd` takes them; a TCP port 0 is replaced by the port in use.
    nbd: Vec<String>,
    /// Path of the control socket. It is relative to the folder of the server if the path of the pool file
    /// is.
    control: &'a Path,
    /// Names of the volumes.
    volumes: &'a [String],
}

/// Serves the pool until SIGTERM, SIGINT or a stop request at the control socket. Calls `ready` once the
/// server accepts connections.
///
/// # Errors
/// Fails if the pool cannot be opened, or if the server cannot listen at an address.
fn serve(pool_file: &Path, args: &ServeArgs, ready: impl FnOnce(&Ready)) -> Result<(), Failure> {
    let described = PoolDescription::read(pool_file)?;
    let endpoints = match args.nbd.as_slice() {
        [] => vec![Endpoint::Unix(UnixSocket::private(described.sibling_path("sock")))],
        given => given.to_vec(),
    };
    let places = endpoints.iter().map(listen_at).collect::<Result<Vec<_>, _>>()?;
    places.iter().for_each(warn_of_remote_access);

    let OpenedPool { mut devices, superblocks, options: accepted } =
        pool::open_to_serve(&described, &args.accept)?;
    described.refuse_unwritable(&devices)?;
    warn_of_readable_files(&described, &devices)?;
    for warning in ineffective_key_notes(&described.file, &superblocks) {
        tracing::warn!("{warning}");
    }
    let (opened, opening) = progress::during("opening the pool", || {
        Opening::timed(&mut devices, |store| weir_map::open(store, &superblocks, &accepted))
    });
    let (mut map, recovery) = opened.map_err(|error| described.explain(error))?;
    let (frames, read) = (recovery.frames, recovery.bytes_read);
    tracing::info!(pool = described.file.name, frames, %read, "the pool is open");
    described.report_recovery(&mut map, &recovery);
    let limits = fit_open_files(described.file.serve, described.file.devices.len());
    let mut arena = Arena::new(limits.memory() + described.file.extent_cache)?;
    let settings = settings(&described, &devices);
    let (poll, cpu_latency) = (described.file.poll, described.file.cpu_latency);
    let reactor_options = ReactorOptions { signals: true, poll, cpu_latency, ..ReactorOptions::default() };
    let reactor = Reactor::new(&reactor_options, devices, &arena)?;
    let options = Options {
        space: described.file.space.clone(),
        moves: described.file.moves,
        mover_share: described.file.mover_share,
        extent_cache: described.file.extent_cache,
        ..Options::default()
    };
    let mut engine = Engine::new(reactor.now(), map, policy(&described)?, &settings, options, &mut arena)?;
    set_volume_policies(&mut engine, reactor.now(), &described);

    let control = described.sibling_path(CONTROL);
    let pool = described.file.name.clone();
    let ways_on =
        superblocks.iter().map(|sb| (sb.device, described.name_and_path(sb.device), without_option(sb)));
    let ways_on: Vec<_> = ways_on.collect();
    let volumes = engine.volumes().map(|volume| volume.name).collect();
    let mut server = Server::new(reactor, arena, engine, &limits, describe(described, opening));
    let mut nbd = Vec::new();
    for (endpoint, place) in endpoints.into_iter().zip(&places) {
        // For port 0, the kernel has selected a port now.
        let listening = retry_listen(|| server.listen(place));
        nbd.push(match listening.map_err(|error| listen_failure(error, args.nbd.is_empty()))? {
            Some(address) => Endpoint::Tcp(address.to_string()),
            None => endpoint,
        });
    }
    retry_listen(|| server.listen_for_control(&control)).map_err(|error| listen_failure(error, true))?;
    ready(&Ready { pool, nbd, control, volumes });
    match server.run() {
        ServerOutcome::Graceful => tracing::info!("the pool is closed"),
        ServerOutcome::Immediate => {
            tracing::warn!("stopped at once; writes that were not flushed may be lost");
        }
        ServerOutcome::Damaged(device) => {
            let known = ways_on.iter().find(|(id, ..)| *id == device);
            return Err(known.map_or_else(
                || damage_failure("?", None),
                |(_, name, way)| damage_failure(name, way.as_deref()),
            ));
        }
    }
    Ok(())
}

/// Returns the failure for a device that was damaged while it was served. `without` has the options that open
/// the pool without the device; `None` if the pool cannot do without it.
fn damage_failure(device: &str, without: Option<&str>) -> Failure {
    let restore = "restore it from a backup, if no volume has two copies";
    let help = match without {
        Some(without) => format!("start without it: weir serve {without}; or {restore}"),
        None => {
            format!("it has the pool's only metadata: {restore}, or put that back: weir pool restore FILE")
        }
    };
    Failure::new(
        ErrorKind::Corrupt,
        format!(
            "device {device} was removed, truncated or overwritten while it was served, and data that was \
             durable is gone with it"
        ),
        help,
    )
}

/// Number of open files besides clients' sockets and devices: the pool's other files, the ring, the log,
/// control sessions and connections in the handshake.
const OTHER_FILES: u64 = 64 + 32 + 2 * weir_serve::HANDSHAKES_MAX as u64;

/// Returns the limits with at most as many clients as the process may have sockets. Raises the process's
/// limit on open files as far as the hard limit allows.
fn fit_open_files(limits: Limits, devices: usize) -> Limits {
    let others = OTHER_FILES + 4 * devices as u64;
    let wanted = others + u64::from(limits.clients);
    let allowed = weir_device::limits::open_files(wanted);
    if allowed >= wanted {
        return limits;
    }
    let clients = allowed.saturating_sub(others).clamp(1, u64::from(limits.clients)) as u16;
    tracing::warn!(
        "the limit on open files ({allowed}) allows {clients} clients instead of {}; raise the hard limit \
         (ulimit -Hn, or LimitNOFILE= of the service) to {wanted}, or lower `clients` under [serve]",
        limits.clients
    );
    Limits { clients, ..limits }
}

/// Retries while another server seems to answer at the socket. A killed server may seem to answer until the
/// kernel has closed its sockets.
fn retry_listen<T>(mut listen: impl FnMut() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    let began = Instant::now();
    loop {
        match listen() {
            Err(DeviceError::SocketInUse { .. }) if began.elapsed() < SOCKET_RELEASE_TIMEOUT => {
                std::thread::sleep(RETRY_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Returns the function that reports the pool's status at the control socket.
fn describe(described: PoolDescription, opening: Opening) -> Describe<Engine> {
    Box::new(move |engine, reactor, clients| {
        let status: PoolStatus = engine.status();
        let paces: Vec<_> = status.devices.iter().map(|device| reactor.pace_stats(device.id)).collect();
        let mut status = Status::new(SERVED, &described, engine.map(), status, &paces, &opening);
        status.pool.clients = Some(clients.into());
        json!(status.with_devices(|id| reactor.device(id)))
    })
}

fn listen_at(endpoint: &Endpoint) -> Result<Listen, Failure> {
    match endpoint {
        Endpoint::Unix(socket) => Ok(Listen::Unix { path: socket.path.clone(), access: access(socket)? }),
        Endpoint::Tcp(text) => Ok(Listen::Tcp(resolve(text)?)),
    }
}

/// Returns a socket's access rights, with names of users and groups resolved to numbers.
fn access(socket: &UnixSocket) -> Result<SocketAccess, Failure> {
    let look_up = |name: &Option<String>, kind: &str, known: fn(&str) -> Option<u32>| match name {
        None => Ok(None),
        Some(name) => match known(name).or_else(|| name.parse().ok()) {
            Some(id) => Ok(Some(id)),
            None => Err(Failure::usage(
                format!("unix:{}: there is no {kind} {name:?} on this machine", socket.path.display()),
                format!(
                    "name one that getent {} lists, or its number",
                    if kind == "group" { kind } else { "passwd" }
                ),
            )),
        },
    };
    let owner = look_up(&socket.owner, "user", |name| Some(uzers::get_user_by_name(name)?.uid()))?;
    let group = look_up(&socket.group, "group", |name| Some(uzers::get_group_by_name(name)?.gid()))?;
    Ok(SocketAccess { mode: socket.mode, owner, group })
}

/// Logs a warning if an address can be reached from other machines: NBD over TCP has no authentication.
fn warn_of_remote_access(place: &Listen) {
    if let Listen::Tcp(address) = place
        && !address.ip().to_canonical().is_loopback()
    {
        tracing::warn!(
            "whoever reaches {address} can read and write all volumes: NBD over TCP has no authentication; \
             serve at 127.0.0.1 or a unix socket, or let a firewall decide who reaches it"
        );
    }
}

fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let help = "write HOST:PORT, such as 127.0.0.1:10809, localhost:10809 or [::1]:10809";
    text.to_socket_addrs()
        .map_err(|error| Failure::environment(format!("cannot find the address {text}: {error}"), help))?
        .next()
        .ok_or_else(|| Failure::environment(format!("{text} has no address"), help))
}

impl Ready {
    fn document(&self) -> ReadyDocument<'_> {
        let nbd = self.nbd.iter().map(Endpoint::to_string).collect();
        ReadyDocument { pool: &self.pool, nbd, control: &self.control, volumes: &self.volumes }
    }

    /// Returns the text that is printed without `--json`.
    fn human(&self) -> String {
        let mut text = format!("serving pool {}; Ctrl-C or SIGTERM stops it\n", self.pool);
        for endpoint in &self.nbd {
            for volume in &self.volumes {
                text += &format!("  {}\n", endpoint.uri(volume));
            }
        }
        if self.volumes.is_empty() {
            text += "no volumes yet; make one with: weir volume create NAME --size 100GiB\n";
        }
        text
    }
}
