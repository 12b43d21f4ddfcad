use super::super::testing::{Pool, device, fine, key, whole};
use super::*;
use weir_model::{Bytes, Hint};

#[test]
fn metadata_goes_to_fast_device() {
    let mut pool = Pool::new(vec![device(0, 64, 5000), device(1, 64, 100)]);
    pool.map.put(0, whole(0));
    let mut policy = MetadataOnFast;
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
        assert_eq!(pool.ask(|context| MetadataOnFast.accessed(context, &access)).1, []);
        assert_eq!(pool.ask(|context| MetadataOnFast.write_to(context, &access)).0, WriteTo::InPlace);
        assert_eq!(pool.ask(|context| MetadataOnFast.allocate(context, &access)).0, Some(DeviceId(0)));
    }
}
