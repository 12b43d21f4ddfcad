//! Several hosts that share bricks, in virtual time: each has its own pool, policy and load, and its own
//! networks to the bricks, whose queues are shared.
//!
//! A host's pool names the drives as the host sees them: the drive itself where it is local, the drive behind
//! a network where it is remote. Each host has a partition of each brick.

use super::brick::Port;
use super::machine::{Machine, devices};
use super::outcome::Outcome;
use super::pool::{Layout, PoolSpec};
use super::run::{PlaceRun, Plan};
use crate::{Load, SimError, VolumeData};
use weir_model::{Bytes, Nanos};
use weir_policy::placement::Placement;
use weir_timing::drives::{Drive, DriveKind};
use weir_timing::{Network, Timing};
use weir_world::flash_log;

/// A host of an experiment.
pub struct Host<'a> {
    /// Its pool. Each device is the partition of the brick with the same index in `bricks`.
    pub pool: PoolSpec,
    /// The bricks of its devices: numbers from 0.
    pub bricks: Vec<usize>,
    /// Its policy.
    pub policy: Box<dyn Placement>,
    /// A policy that replaces it once the pool is filled, so that it has measured nothing of the fill;
    /// `None` to keep the first one.
    pub policy_after_fill: Option<Box<dyn Placement>>,
    /// Its load.
    pub load: &'a mut dyn Load,
    /// Its plan. All hosts begin at the same time.
    pub plan: Plan,
}

/// Runs the loads of all hosts at the same time. Each host's pool is filled before, one after the other.
///
/// # Errors
/// Fails if a pool is invalid for its load, if a host does not say which brick each of its devices is, or on
/// an internal error.
pub fn place_hosts(hosts: Vec<Host<'_>>) -> Result<Vec<Outcome>, SimError> {
    let mut layouts = Vec::new();
    for host in &hosts {
        if host.bricks.len() != host.pool.devices.len() {
            return Err(SimError::Bricks { bricks: host.bricks.len(), devices: host.pool.devices.len() });
        }
        let spaces = host.load.volumes(host.pool.extent);
        layouts.push((host.pool.layout(&spaces)?, spaces));
    }
    let mut ports = share_bricks(&hosts, &layouts);
    let mut now = Nanos(0);
    let mut machines = Vec::new();
    let mut loads = Vec::new();
    for ((host, (layout, spaces)), ports) in hosts.into_iter().zip(layouts).zip(&mut ports) {
        let Host { pool, policy, policy_after_fill, load, plan, .. } = host;
        let name = policy.name().to_owned();
        let devices = devices(&layout, |device, drive, _| connect(drive, ports[device].take()));
        let mut machine = Machine::with_devices(&pool, layout, devices, policy, &spaces, plan.seed, now)?;
        machine.drain()?;
        policy_after_fill.into_iter().for_each(|policy| machine.set_policy(policy));
        now = machine.now();
        machines.push(machine);
        loads.push((name, pool, load, plan));
    }
    for machine in &mut machines {
        machine.advance(now)?;
    }
    run_together(machines, loads)
}

type HostLoad<'a> = (String, PoolSpec, &'a mut dyn Load, Plan);

/// Runs the loads until each has ended.
fn run_together(machines: Vec<Machine>, mut loads: Vec<HostLoad<'_>>) -> Result<Vec<Outcome>, SimError> {
    let plans: Vec<_> = loads.iter().map(|(_, _, _, plan)| plan.clone()).collect();
    let mut runs: Vec<_> =
        machines.into_iter().zip(&plans).map(|(machine, plan)| PlaceRun::new(machine, plan)).collect();
    loop {
        let mut next: Option<Nanos> = None;
        let mut is_running = false;
        for (run, (_, _, load, _)) in runs.iter_mut().zip(&mut loads) {
            let own = run.settle(&mut **load)?;
            is_running |= own.is_some();
            let own = own.or_else(|| {
                // Its load has ended. The bricks still have its commands.
                run.machine.pump();
                run.machine.next()
            });
            next = next.into_iter().chain(own).min();
        }
        let Some(next) = next.filter(|_| is_running) else { break };
        for run in &mut runs {
            run.machine.advance(next)?;
        }
    }
    let outcomes = runs.into_iter().zip(loads);
    Ok(outcomes.map(|(run, (name, pool, load, _))| run.outcome(name, &pool, &*load)).collect())
}

/// Makes the bricks, and returns each host's port to each of its devices.
fn share_bricks(hosts: &[Host<'_>], layouts: &[(Layout, Vec<VolumeData>)]) -> Vec<Vec<Option<Port>>> {
    let mut ports: Vec<Vec<Option<Port>>> =
        hosts.iter().map(|host| host.bricks.iter().map(|_| None).collect()).collect();
    let count = hosts.iter().flat_map(|host| &host.bricks).max().map_or(0, |most| most + 1);
    for brick in 0..count {
        let mut partitions: Vec<(usize, usize, &Drive, Bytes)> = Vec::new();
        for (host, (layout, _)) in layouts.iter().enumerate() {
            let devices = hosts[host].bricks.iter().enumerate().filter(|(_, of)| **of == brick);
            partitions.extend(devices.map(|(device, _)| {
                (host, device, behind(&layout.drives[device]), layout.superblocks[device].size)
            }));
        }
        let Some((_, _, drive, _)) = partitions.first() else { continue };
        let sizes: Vec<_> = partitions.iter().map(|(.., size)| *size).collect();
        let capacity = sizes.iter().fold(Bytes(0), |all, size| all + *size);
        let shared = Port::share(drive.timing(capacity, drive.cache, flash_log), &sizes);
        for ((host, device, ..), port) in partitions.iter().zip(shared) {
            ports[*host][*device] = Some(port);
        }
    }
    ports
}

/// Returns the drive itself, without the network in front of it.
fn behind(drive: &Drive) -> &Drive {
    match &drive.kind {
        DriveKind::Remote(_, device) => behind(device),
        _ => drive,
    }
}

/// Returns the timing of a port as a host sees it: behind the network, if there is one.
fn connect(drive: &Drive, port: Option<Port>) -> Box<dyn Timing> {
    let Some(port) = port else { return drive.timing(Bytes(0), drive.cache, flash_log) };
    match &drive.kind {
        DriveKind::Remote(params, _) => Box::new(Network::new(params, Box::new(port))),
        _ => Box::new(port),
    }
}
