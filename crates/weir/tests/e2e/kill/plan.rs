//! The pool of a crash test and its load, drawn at random or fixed.

use crate::harness::Pool;
use std::fmt::Write as _;
use weir_model::Rng;
use weir_policy::placement;
use weir_world::StopKind;

/// Name of the device that fails on demand.
const FAILING: &str = "bad";

/// A pool and its load.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    policy: &'static str,
    /// The server's setting `poll`.
    pub(super) poll: &'static str,
    /// Whether the devices are files in memory: other threads copy long writes to those.
    pub(super) in_memory: bool,
    devices: Vec<Device>,
    /// Number of copies of the blocks of each volume.
    pub(super) copies: [u8; 2],
    /// Number of connections to each volume.
    pub(super) connections: u64,
    /// What happens to unflushed writes when the server is killed.
    pub(super) stop: StopKind,
    /// Whether a device fails at times.
    pub(super) fails: bool,
}

#[derive(Clone, Debug)]
struct Device {
    name: &'static str,
    size: &'static str,
    /// Further lines of the pool file.
    options: String,
}

impl Plan {
    /// Returns a plan with two devices that have the same options.
    pub(super) fn fixed(policy: &'static str, options: &str, how: StopKind) -> Self {
        let device = |name, size| Device { name, size, options: options.to_owned() };
        let devices = vec![device("fast", "64MiB"), device("slow", "512MiB")];
        let (poll, in_memory) = ("auto", false);
        Self { policy, poll, in_memory, devices, copies: [1, 1], connections: 2, stop: how, fails: false }
    }

    /// Draws a plan: devices of different speed, any policy, volumes of one or two copies. If a device fails,
    /// it is one without metadata, whose errors the engine may return to clients.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let policy = pick(rng, placement::ALL).name;
        let (fault, how) = *pick(
            rng,
            &[
                ("", StopKind::Kill),
                ("forget-unflushed", StopKind::PowerLoss),
                ("forget-some", StopKind::PowerLoss),
                ("on-demand", StopKind::Kill),
            ],
        );
        let fails = fault == "on-demand";
        let mirrored = fails || rng.chance(0.7);
        let device = |rng: &mut Rng, name, size, paces: &[&str]| {
            let mut options = String::new();
            let mut line = |key: &str, value: &str| match value {
                "" => {}
                value => _ = writeln!(options, "{key} = \"{value}\""),
            };
            line("pace", pick::<&str>(rng, paces));
            if !fails || name == FAILING {
                line("fault", fault);
            }
            if name == FAILING {
                line("deadline", "300ms");
                options.push_str("metadata = false\n");
            } else if mirrored && name != "third" {
                options.push_str("metadata = true\n");
            }
            Device { name, size, options }
        };
        let mut devices = vec![
            device(rng, "fast", "64MiB", &["", "nvm", "ssd-nvme"]),
            device(rng, "slow", "512MiB", &["ssd-sata", "hdd-7200", "hdd-15k"]),
        ];
        if fails {
            devices.push(device(rng, FAILING, "128MiB", &["", "ssd-sata"]));
        } else if rng.chance(0.5) {
            devices.push(device(rng, "third", "128MiB", &["", "ssd-sata", "hdd-7200"]));
        }
        // Two copies require a mirrored map.
        let most = if mirrored { 2 } else { 1 };
        let copies = [1 + rng.below(most) as u8, 1 + rng.below(most) as u8];
        let connections = 1 + rng.below(3);
        let poll = pick::<&str>(rng, &["auto", "off", "200us"]);
        let in_memory = rng.chance(0.5);
        Self { policy, poll, in_memory, devices, copies, connections, stop: how, fails }
    }

    /// Returns the pool, not yet created.
    pub(super) fn pool(&self) -> Pool {
        let new = if self.in_memory { Pool::from_text_in_memory } else { Pool::from_text };
        new(&self.pool_file())
    }

    fn pool_file(&self) -> String {
        let Self { policy, poll, .. } = self;
        let mut text = format!("[pool]\nname = \"test\"\npolicy = \"{policy}\"\npoll = \"{poll}\"\n");
        for Device { name, size, options } in &self.devices {
            let _ = write!(
                text,
                "\n[[device]]\nname = \"{name}\"\npath = \"{name}.img\"\nsize = \"{size}\"\n{options}\n"
            );
        }
        text
    }

    /// Makes the device fail.
    pub(super) fn fail(&self, pool: &Pool, rng: &mut Rng) {
        let words = *pick(rng, &["reads", "writes", "flushes", "reads writes", "gone", "hang"]);
        println!("{words} of {FAILING} fail");
        std::fs::write(pool.path(&format!("{FAILING}.img.fault")), words).expect("the fault is asked for");
    }

    /// Makes the device work again.
    pub(super) fn heal(&self, pool: &Pool) {
        let _ = std::fs::remove_file(pool.path(&format!("{FAILING}.img.fault")));
    }
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[rng.below(from.len() as u64) as usize]
}
