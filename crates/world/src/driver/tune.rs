//! Changes of an operator during use: policies, and when a volume's map is durable.

use super::{Crash, Driver, Failure, Health, SettingChange};
use weir_engine::AdminCommand;
use weir_map::Hardening;
use weir_policy::placement::for_tests;

impl Driver {
    pub(super) fn tune(&mut self, tune: &SettingChange) -> Result<(), Failure> {
        let now = self.world.now();
        match *tune {
            SettingChange::PoolPolicy(policy) => {
                let choice = for_tests(policy).ok_or_else(|| Failure::UnknownPolicy(policy.to_owned()))?;
                self.engine.set_policy(now, choice.create());
                policy.clone_into(&mut self.setup.policy);
                self.has_moved = true;
                self.pump()
            }
            SettingChange::VolumePolicy(volume, policy) => {
                let volume = volume % self.volumes.len();
                let volume = &mut self.volumes[volume];
                volume.spec.policy = policy;
                self.engine.set_volume_policy(now, &volume.name, policy.and_then(for_tests));
                self.has_moved = true;
                self.pump()
            }
            SettingChange::Hardening(volume, hardening) => {
                self.harden(volume % self.volumes.len(), hardening)
            }
        }
    }

    /// Changes a volume's hardening. With failing devices this may not complete: then a power loss
    /// repairs the devices.
    fn harden(&mut self, volume: usize, hardening: Hardening) -> Result<(), Failure> {
        if hardening == Hardening::Flush {
            self.oracle.first_writes_are_not_durable(volume);
        }
        self.hardening = Some((volume, hardening));
        let name = self.volumes[volume].name.clone();
        match self.admin(AdminCommand::SetHardening { name, hardening }) {
            Ok(()) => {}
            Err(Failure::Admin { .. }) if self.health == Health::Broken => {
                return Err(self.pending_crash.crash_now(&Crash::power_loss_now()));
            }
            Err(failure) => return Err(failure),
        }
        self.hardening = None;
        self.hardened(volume, hardening);
        Ok(())
    }

    pub(super) fn hardened(&mut self, volume: usize, hardening: Hardening) {
        self.volumes[volume].spec.hardening = hardening;
        if hardening == Hardening::Write {
            self.oracle.first_writes_are_durable(volume);
        }
    }

    /// Settles a change of a volume's hardening that a crash has interrupted: it has either value.
    pub(super) fn settle_hardening(&mut self) {
        let Some((volume, _)) = self.hardening.take() else { return };
        let id = self.volumes[volume].id;
        let found = self.engine.volumes().find(|found| found.id == id).map(|found| found.hardening);
        if let Some(hardening) = found {
            self.hardened(volume, hardening);
        }
    }
}
