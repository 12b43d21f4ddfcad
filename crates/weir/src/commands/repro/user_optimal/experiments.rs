//! The experiments: servers, their disks and networks, policies and loads.

use super::steps;
use crate::commands::repro::experiment::{MakeLoad, pool};
use crate::commands::repro::loads::{ProcessLoad, nfs_server, ramp_rates, shape};
use crate::commands::repro::parameters::Parameters;
use crate::commands::repro::results::Metrics;
use crate::failure::{Failure, REPORT_DEFECT};
use std::sync::Arc;
use weir_engine::Percent;
use weir_model::{Bytes, ErrorKind, Nanos, Seed};
use weir_policy::placement::{Placement, Settings, ValueKind, find_policy};
use weir_sim::place::hosts::{Host, place_hosts};
use weir_sim::place::migrations::MigrationLog;
use weir_sim::{Load, Mode, Plan, PoolSpec, SimError};

/// A policy and its keys that differ from the defaults.
#[derive(Clone, Debug)]
struct TunedPolicy {
    policy: &'static str,
    keys: Vec<(&'static str, f64)>,
}

/// A server: its disks, the local one first, and the rates of its ramp.
pub(super) struct Server {
    /// Drive and size of each disk.
    disks: Vec<(String, Bytes)>,
    /// The brick of each disk.
    bricks: Vec<usize>,
    rates: Vec<f64>,
    load: MakeLoad,
}

/// What the servers of all experiments have in common.
#[derive(Clone, Debug)]
struct ServerConfig {
    chunk: Bytes,
    mover_share: Percent,
    /// Number of clients of the closed loop: the server's threads, and those that write back.
    clients: usize,
}

/// An experiment: servers whose loads rise at the same time.
pub(super) struct RampExperiment {
    pub(super) name: String,
    pub(super) servers: Vec<Server>,
    config: Arc<ServerConfig>,
    policy: TunedPolicy,
    /// Whether a new policy begins after the fill, so that it has measured nothing of it.
    forgets_fill: bool,
}

/// The experiments in preparation.
struct Experiments<'p> {
    p: &'p Parameters,
    config: Arc<ServerConfig>,
    /// The parameter with the memory of a server.
    memory: &'static str,
    all: Vec<RampExperiment>,
}

impl ServerConfig {
    /// Reads the parameters. `writeback_depth` is the one with the commands that write-back keeps in flight.
    fn new(p: &Parameters, writeback_depth: &str) -> Result<Self, Failure> {
        let clients = p.count("nfs_threads")? + p.count(writeback_depth)?;
        Ok(Self {
            chunk: p.size("chunk")?,
            mover_share: p.percent("mover_share")?,
            clients: clients as usize,
        })
    }
}

/// Returns all experiments.
///
/// # Errors
/// Fails if a parameter is unusable.
pub(super) fn all(p: &Parameters) -> Result<Vec<RampExperiment>, Failure> {
    let config = Arc::new(ServerConfig::new(p, "writeback_depth")?);
    let mut all = Experiments { p, config, memory: "nfs_memory", all: Vec::new() };
    let [stripe, sequential] =
        ["stripe", "sequential"].map(|policy| TunedPolicy { policy, keys: Vec::new() });
    let migration = user_optimal(p)?;
    let with = |key: &'static str, value: f64| {
        let mut tuned = migration.clone();
        tuned.keys.retain(|(name, _)| *name != key);
        tuned.keys.push((key, value));
        tuned
    };
    let in_sequence = with("allocation", 1.0);
    for (ms, remote) in [(9, REMOTE_9), (17, "remote_17"), (25, REMOTE_25)] {
        let ways = [
            ("STR-NOMIG", &stripe),
            ("STR-MIG", &migration),
            ("SEQ-NOMIG", &sequential),
            ("SEQ-MIG", &in_sequence),
        ];
        for (way, policy) in ways {
            all.single(&format!("{way}, {ms} ms"), policy, remote, PARTITION)?;
        }
    }
    all.single("STR-MIG, 9 ms, one token", &with("tokens", p.number("one_token")?), REMOTE_9, PARTITION)?;
    let locality = with("rule", 1.0);
    all.single("locality, 9 ms", &locality, REMOTE_9, PARTITION)?;
    all.single("locality, 9 ms, small local disk", &locality, REMOTE_9, "small_local_disk")?;
    all.causes(&stripe, &migration, &in_sequence)?;
    let loads = p.shares::<3>("three_servers")?;
    let equal = [p.share("equal_servers")?; 3];
    for (way, policy) in [("STR-NOMIG", &stripe), ("STR-MIG", &migration)] {
        all.several(&format!("three servers, {way}"), policy, &loads)?;
        all.several(&format!("three servers, equal loads, {way}"), policy, &equal)?;
    }
    let loads = p.shares::<2>("two_servers")?;
    for (way, policy) in [("SEQ-NOMIG", &sequential), ("SEQ-MIG", &in_sequence)] {
        all.several(&format!("two servers, {way}"), policy, &loads)?;
    }
    Ok(all.all)
}

/// Names of the parameters with the remote drives and the size of a partition.
const REMOTE_9: &str = "remote_9";
const REMOTE_25: &str = "remote_25";
const PARTITION: &str = "partition";

/// Returns user-optimal migration over striped data.
fn user_optimal(p: &Parameters) -> Result<TunedPolicy, Failure> {
    let policy = "user_optimal";
    let choice = |key: &'static str, parameter: &str| {
        let word = p.word(parameter)?.trim_end_matches(':');
        let known = find_policy(policy).and_then(|info| info.keys.iter().find(|known| known.name == key));
        let place = known.and_then(|key| match key.kind {
            ValueKind::Choice(words) => words.iter().position(|known| *known == word),
            _ => None,
        });
        let unknown = || Failure::environment(format!("{policy} has no {key} = {word:?}"), REPORT_DEFECT);
        Ok::<_, Failure>((key, place.ok_or_else(unknown)? as f64))
    };
    let keys = vec![
        ("sds", p.number("sds")?),
        choice("deviation", "deviation")?,
        ("tokens", p.number("tokens")?),
        choice("on", "migration_on")?,
        ("list", p.number("list")?.round()),
        ("enter", p.share("enter")?),
        ("inactive", p.time("inactive")?.as_secs_f64()),
    ];
    Ok(TunedPolicy { policy, keys })
}

impl Experiments<'_> {
    /// Returns a server with a partition of each brick. Its rates are this share of a single server's.
    fn server(&self, disks: Vec<(String, Bytes)>, bricks: Vec<usize>, share: f64) -> Result<Server, Failure> {
        let p = self.p;
        let rates: Vec<f64> = ramp_rates(p)?.into_iter().map(|rate| rate * share).collect();
        let shape = shape(p, "nfs_file_system", self.memory, "nfs_dirty_limits")?;
        let clients = ProcessLoad::of(p.count("nfs_clients")? as usize, shape);
        let load = clients.offered(nfs_server(p)?, rates.clone(), p.count("nfs_threads")? as usize);
        Ok(Server { disks, bricks, rates, load })
    }

    fn add(&mut self, name: &str, policy: &TunedPolicy, servers: Vec<Server>) {
        self.all.push(RampExperiment {
            name: name.into(),
            servers,
            config: Arc::clone(&self.config),
            policy: policy.clone(),
            forgets_fill: false,
        });
    }

    /// Adds a server with a local disk and a remote one. `remote` and `local` are the parameters with the
    /// remote drive and the size of the local disk.
    fn single(&mut self, name: &str, policy: &TunedPolicy, remote: &str, local: &str) -> Result<(), Failure> {
        let p = self.p;
        let disks = vec![
            (p.word("disk")?.to_owned(), p.size(local)?),
            (p.word(remote)?.to_owned(), p.size(PARTITION)?),
        ];
        let server = self.server(disks, vec![0, 1], 1.0)?;
        self.add(name, policy, vec![server]);
        Ok(())
    }

    /// Adds servers on as many bricks, each local to one of them, 9 ms apart. The rates of each are its share
    /// of a single server's.
    fn several(&mut self, name: &str, policy: &TunedPolicy, shares: &[f64]) -> Result<(), Failure> {
        let (p, count) = (self.p, shares.len());
        let (local, remote) = (p.word("disk")?, p.word(REMOTE_9)?);
        let mut servers = Vec::new();
        for (number, share) in shares.iter().enumerate() {
            let drive = |disk| if disk == 0 { local } else { remote };
            let size = p.size(PARTITION)?;
            let disks = (0..count).map(|disk| (drive(disk).to_owned(), size)).collect();
            let bricks = (0..count).map(|disk| (number + disk) % count).collect();
            servers.push(self.server(disks, bricks, *share)?);
        }
        self.add(name, policy, servers);
        Ok(())
    }

    /// Adds the experiments that look for causes of differences: each changes one thing.
    fn causes(
        &mut self,
        stripe: &TunedPolicy,
        striped: &TunedPolicy,
        in_sequence: &TunedPolicy,
    ) -> Result<(), Failure> {
        let cases = [
            ("STR-MIG, 9 ms", striped, REMOTE_9),
            ("SEQ-MIG, 9 ms", in_sequence, REMOTE_9),
            ("SEQ-MIG, 25 ms", in_sequence, REMOTE_25),
        ];
        for (name, policy, remote) in cases {
            self.single(&format!("{name}, measured after the fill"), policy, remote, PARTITION)?;
            self.all.iter_mut().next_back().into_iter().for_each(|one| one.forgets_fill = true);
        }
        let many = self.p.number("many_tokens")?;
        let set = |mut policy: TunedPolicy, key: &'static str, value: f64| {
            policy.keys.retain(|(name, _)| *name != key);
            policy.keys.push((key, value));
            policy
        };
        let no_threshold = set(striped.clone(), "sds", 0.0);
        self.single("STR-MIG, 9 ms, no threshold", &no_threshold, REMOTE_9, PARTITION)?;
        let many = set(no_threshold, "tokens", many);
        self.single("STR-MIG, 9 ms, no threshold, many tokens", &many, REMOTE_9, PARTITION)?;
        self.memory = "little_memory";
        self.single("STR-NOMIG, 9 ms, little memory", stripe, REMOTE_9, PARTITION)?;
        self.single("STR-MIG, 9 ms, little memory", striped, REMOTE_9, PARTITION)?;
        self.single("STR-MIG, 9 ms, little memory, many tokens", &many, REMOTE_9, PARTITION)?;
        self.memory = "nfs_memory";
        let usual = Arc::clone(&self.config);
        self.config = Arc::new(ServerConfig::new(self.p, "little_writeback")?);
        self.single("SEQ-MIG, 9 ms, little write-back", in_sequence, REMOTE_9, PARTITION)?;
        self.single("SEQ-MIG, 25 ms, little write-back", in_sequence, REMOTE_25, PARTITION)?;
        self.config = usual;
        Ok(())
    }
}

impl TunedPolicy {
    fn create(&self) -> Option<Box<dyn Placement>> {
        let info = find_policy(self.policy)?;
        let mut settings = Settings::default();
        for (name, value) in &self.keys {
            let key = info.keys.iter().find(|key| key.name == *name)?;
            settings.set(key, *value).then_some(())?;
        }
        Some((info.create)(&settings))
    }
}

impl RampExperiment {
    /// Creates the policy of a server.
    pub(super) fn policy(&self) -> Result<Box<dyn Placement>, Failure> {
        let defect = || {
            let message = format!("{}: {} cannot be tuned so", self.name, self.policy.policy);
            Failure::environment(message, REPORT_DEFECT)
        };
        self.policy.create().ok_or_else(defect)
    }

    /// Returns the metrics of each server's steps.
    pub(super) fn run(&self, seed: u64, duration: Nanos) -> Result<Metrics, Failure> {
        let refused = |error: SimError| {
            let mut failure = Failure::from_message(ErrorKind::Usage, &error.to_string());
            failure.message = format!("{}: {}", self.name, failure.message);
            failure
        };
        let of_server = |number: usize| 1000 * number as u64 + seed;
        let numbered = self.servers.iter().enumerate();
        let loads = numbered.map(|(number, server)| (server.load)(of_server(number), duration));
        let mut loads: Vec<Box<dyn Load>> = loads.collect::<Result<_, _>>().map_err(refused)?;
        let logs: Vec<_> = self.servers.iter().map(|_| MigrationLog::default()).collect();
        let mut hosts = Vec::new();
        for (number, ((server, load), log)) in self.servers.iter().zip(&mut loads).zip(&logs).enumerate() {
            let disks: Vec<_> = server.disks.iter().map(|(drive, size)| (&**drive, *size)).collect();
            let again = if self.forgets_fill { Some(log.around(self.policy()?)) } else { None };
            let plan = Plan {
                mode: Mode::Closed(vec![(Nanos(0), self.config.clients)]),
                duration,
                requests: u64::MAX,
                warm_up: Some(Nanos(0)),
                windows: 2 * server.rates.len() as u32,
                seed: Seed(of_server(number)),
            };
            hosts.push(Host {
                pool: PoolSpec { mover_share: self.config.mover_share, ..pool(self.config.chunk, &disks) },
                bricks: server.bricks.clone(),
                policy: log.around(self.policy()?),
                policy_after_fill: again,
                load: &mut **load,
                plan,
            });
        }
        let outcomes = place_hosts(hosts).map_err(refused)?;
        Ok(steps::metrics(&outcomes, &logs, duration))
    }
}
