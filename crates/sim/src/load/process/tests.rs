use super::*;
use crate::load::file_system::FileSystemConfig;
use crate::load::mix::{Mix, MixProgram, Weights};

fn load(weights: Weights) -> Processes {
    let shape = FileSystemConfig::for_tests(Bytes::mib(2));
    let mut files = FileSystem::new(shape);
    let mix = Mix {
        weights,
        files: 500,
        directories: 2,
        sizes: 500..=20_000,
        mostly_small: true,
        theta: 0.8,
        read: None,
        write: 4096..=4096,
        updates_atime: false,
        sync: false,
        cpu_time: Nanos::micros(50),
    };
    let programs =
        (0..2).map(|seed| Box::new(MixProgram::new(mix.clone(), &mut files, seed)) as Box<dyn Program>);
    let programs = programs.collect();
    files.mark_all_clean();
    files.drop_clean_blocks();
    Processes::new(files, programs)
}

/// Every process gets its processor time and reads what memory does not contain; other clients write back.
#[test]
fn processes_issue_uncached_io_and_count_work() {
    let weights = Weights { stat: 2, touch: 1, read: 4, append: 1, overwrite: 1, create: 1, remove: 1 };
    let mut load = load(weights);
    let space = &load.volumes(ExtentSize::DEFAULT)[0];
    assert!(space.count() > 50 && space.size == Bytes::mib(64), "{space:?}");
    let mut clients = [Nanos(0); 4];
    let (mut reads, mut written) = (0, 0);
    for _ in 0..20_000 {
        let next = (0..4).min_by_key(|i| clients[*i]).unwrap_or(0);
        match load.next_action(Client(next), clients[next]) {
            ClientAction::Send(ask) => {
                assert!(ask.at >= clients[next] && ask.len.0 > 0 && ask.offset.0 + ask.len.0 <= space.size.0);
                clients[next] = ask.at + Nanos::micros(300);
                let read = ask.op == weir_model::Op::Read;
                assert!(next < 2 || !read, "those who write back do not read");
                reads += u64::from(read);
                written += u64::from(!read);
            }
            ClientAction::Wait(at) => {
                assert!(at > clients[next]);
                clients[next] = at;
            }
        }
    }
    assert!(reads > 1_000 && written > 200, "{reads} reads, {written} writes");
    // Each step takes at least 50 us of a process's time.
    let most = 2.0 * clients[0].as_secs_f64() / 50e-6;
    let done = load.work_done().unwrap_or(0) as f64;
    assert!(done > 0.05 * most && done < 1.05 * most, "{done} of {most}");
}

/// In an experiment, nothing delays processes that find everything in memory.
#[test]
fn waiting_processes_resume_on_time() {
    use crate::{DeviceSize, DeviceSpec, Mode, Plan, PoolSpec, place};
    let device = DeviceSpec {
        name: "d".into(),
        model: "ssd-nvme".into(),
        size: DeviceSize::Size(Bytes::mib(256)),
        metadata: None,
        noise: None,
    };
    let pool = PoolSpec {
        extent: ExtentSize::DEFAULT,
        devices: vec![device],
        mover_share: weir_engine::MOVER_SHARE,
        extent_cache: Bytes(0),
        moves: weir_policy::harm::MoveControl::default(),
    };
    let plan = Plan {
        mode: Mode::Closed(vec![(Nanos(0), 3)]),
        duration: Nanos::secs(3),
        requests: u64::MAX,
        warm_up: None,
        windows: 3,
        seed: weir_model::Seed(1),
    };
    let policy = weir_policy::placement::by_name("sequential").expect("a policy");
    let mut load = load(Weights { stat: 1, ..Weights::default() });
    let outcome = place(&pool, policy, &mut load, &plan).expect("an outcome");
    // Two processes at 50 us per step.
    let rate = outcome.work_rate.unwrap_or(0.0);
    assert!((39_000.0..41_000.0).contains(&rate), "{rate}");
}
