//! Volumes on their way out when the power goes.

use super::harness::Harness;
use weir_map::delta::Delta;
use weir_map::{Intent, IntentKind};

#[test]
fn a_removal_whose_volume_is_gone_already_ends() {
    let mut h = Harness::new(2, "sequential");
    let volume = h.volume;
    let intent = Intent { kind: IntentKind::RemoveVolume, volume, progress: 0 };
    // All but the last step of a removal, as a frame that was full would leave it.
    h.engine.map.queue(Delta::Intent { id: volume.0, intent });
    h.engine.map.queue(Delta::DropVolume { id: volume });
    h.stop();
    assert_eq!(h.engine.map().catalogue().intents.len(), 1, "not ended yet");
    h.reopen();
    assert!(h.engine.volumes().next().is_none());
    h.stop();
    h.reopen();
    assert!(h.engine.map().catalogue().intents.is_empty());
    h.create_volume().expect("a volume");
    assert!(h.free() > 0);
}
