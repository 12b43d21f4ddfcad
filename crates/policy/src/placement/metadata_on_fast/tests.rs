use super::super::testing::{Pool, device, fine, key, whole};
use super::*;
use weir_model::{Bytes, Hint};

#[test]
fn metadata_goes_to_fast_device() {
    let mut pool = Pool::new(vec![device(0, 64, 5000), device(1, 64, 100)]);
    pool.map.put(0, whole(0));
    let mut policy = MetadataOnFast::new(&Settings::default());
    let mut access = pool.access_at(0, 4, Op::Write, Bytes::kib(8));
    assert_eq!(pool.ask(|context| policy.allocate(context, &access)).0, Some(DeviceId(0)));
    assert_eq!(pool.ask(|context| policy.write_to(context, &access)).0, WriteTo::InPlace);
    access.hint = Hint::Metadata;
    assert_eq!(pool.ask(|context| policy.write_to(context, &access)).0, WriteTo::Fine(DeviceId(1)));
    access.op = Op::Read;
    let (_, actions) = pool.ask(|context| policy.accessed(context, &access));
    assert_eq!(actions, [Action::Move { key: key(0), blocks: access.blocks, to: fine(1) }]);
    pool.act(&actions);
    let mut again = pool.access_at(0, 4, Op::Read, Bytes::kib(8));
    again.hint = Hint::Metadata;
    assert_eq!(pool.ask(|context| policy.accessed(context, &again)).1, [], "it is there");
}

#[test]
fn no_space_moves_nothing() {
    for devices in
        [vec![device(0, 64, 100)], vec![device(0, 64, 5000), DeviceView { free: 0, ..device(1, 64, 100) }]]
    {
        let mut pool = Pool::new(devices);
        pool.map.put(0, whole(0));
        let mut access = pool.access_at(0, 4, Op::Read, Bytes::kib(8));
        access.hint = Hint::Metadata;
        let mut policy = MetadataOnFast::new(&Settings::default());
        assert_eq!(pool.ask(|context| policy.accessed(context, &access)).1, []);
        assert_eq!(pool.ask(|context| policy.write_to(context, &access)).0, WriteTo::InPlace);
        assert_eq!(pool.ask(|context| policy.allocate(context, &access)).0, Some(DeviceId(0)));
    }
}

#[test]
fn ranges_are_on_the_fast_device_and_the_rest_is_striped() {
    let mut pool = Pool::new(vec![device(0, 64, 5000), device(1, 64, 100)]);
    let mut settings = Settings::default();
    assert!(settings.set(&REST, STRIPE as f64));
    assert!(settings.set(&METADATA_RANGE, f64::from(200 << 10)));
    assert!(settings.set(&METADATA_EVERY, f64::from(1 << 20)));
    let mut policy = MetadataOnFast::new(&settings);
    let mut allocate = |index| {
        let access = pool.access(index, Op::Write, Bytes::kib(4));
        pool.ask(|context| policy.allocate(context, &access)).0.map(|device| device.0)
    };
    let devices: Vec<_> = (0..12).filter_map(&mut allocate).collect();
    assert_eq!(devices, [1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1], "extents 0, 1, 8 and 9 have metadata");
}
