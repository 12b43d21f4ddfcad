//! Random operations.

use super::model::{Model, ROOT};
use super::tiers::TIERS_MAX;
use rand::Rng as _;
use rand::rngs::SmallRng;
use weir_fs::layout::inode::Kind;
use weir_fs::layout::quota::{Limit, Owner};
use weir_fs::namespace::{Allocate, RenameHow};

/// Files that were created without a name and are open at a time.
const UNNAMED_MAX: usize = 5;

/// An operation; files are named by the model's numbers.
#[derive(Clone, Debug)]
pub enum Operation {
    Create {
        parent: u64,
        name: Vec<u8>,
        kind: Kind,
        permissions: u32,
        target: Vec<u8>,
    },
    /// Creates a file without a name, which is open then.
    CreateUnnamed {
        parent: u64,
        permissions: u32,
        is_linkable: bool,
    },
    /// Closes a file that was created without a name.
    CloseUnnamed {
        file: u64,
    },
    Link {
        file: u64,
        parent: u64,
        name: Vec<u8>,
    },
    Unlink {
        parent: u64,
        name: Vec<u8>,
    },
    RemoveDirectory {
        parent: u64,
        name: Vec<u8>,
    },
    Rename {
        from: (u64, Vec<u8>),
        to: (u64, Vec<u8>),
        how: RenameHow,
    },
    Write {
        file: u64,
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        file: u64,
        size: usize,
    },
    Allocate {
        file: u64,
        from: usize,
        to: usize,
        how: Allocate,
    },
    Copy {
        from: (u64, usize),
        to: (u64, usize),
        len: usize,
    },
    SetPermissions {
        file: u64,
        permissions: u32,
        uid: u32,
        gid: u32,
    },
    SetAttribute {
        file: u64,
        name: Vec<u8>,
        value: Vec<u8>,
    },
    RemoveAttribute {
        file: u64,
        name: Vec<u8>,
    },
    /// Sets or removes limits, which no operation reaches.
    SetLimit {
        owner: Owner,
        limit: Limit,
    },
    /// Counts some inodes.
    Count {
        max: u64,
    },
    /// Frees the pages that files have ahead of need.
    Trim,
    /// Moves data so that chunks wear alike.
    Level,
    /// Makes null files ahead of need.
    MakeNullFiles,
    /// Moves a file to a container, by one operation or step by step.
    Evict {
        file: u64,
        at_once: bool,
    },
    /// Copies a file to a container; other operations come before the end of that.
    BeginEviction {
        file: u64,
    },
    FinishEvictions,
    Promote {
        file: u64,
    },
    Pin {
        file: u64,
        is_pinned: bool,
    },
    /// Has the kernel access a file in a container without the server.
    OpenPassthrough {
        file: u64,
        writes: bool,
    },
    /// Writes to one of the files that the kernel has open so.
    WriteBehind {
        nth: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// Closes one of them.
    ClosePassthrough {
        nth: usize,
    },
    /// Closes all of them, and ends passthrough.
    EndPassthrough,
    /// Removes containers that no file has.
    Sweep,
    AddTier,
    SetLeaving {
        tier: u32,
        is_leaving: bool,
    },
    /// Moves all files out of a tier that leaves, and with `remove`, removes the tier then.
    EmptyTier {
        tier: u32,
        remove: bool,
    },
    Sync,
    Remount,
}

impl Operation {
    /// Returns whether it moves data or space, which programs do not see.
    pub const fn is_move(&self) -> bool {
        matches!(
            self,
            Self::Trim
                | Self::Level
                | Self::MakeNullFiles
                | Self::Evict { .. }
                | Self::BeginEviction { .. }
                | Self::FinishEvictions
                | Self::Promote { .. }
                | Self::OpenPassthrough { .. }
                | Self::ClosePassthrough { .. }
                | Self::EndPassthrough
                | Self::Sweep
                | Self::AddTier
                | Self::SetLeaving { .. }
                | Self::EmptyTier { .. }
        )
    }
}

/// What random operations look like.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Largest file, in bytes.
    pub file_bytes_max: usize,
    /// Largest write, in bytes.
    pub write_bytes_max: usize,
    /// Number of different names.
    pub names: u32,
    /// Share of operations on one file's contents, in percent.
    pub data_percent: u32,
    /// Whether the file system is sometimes mounted again.
    pub remounts: bool,
    /// Share of operations that move files between the region and containers, in percent.
    pub move_percent: u32,
    /// Share of operations around files that the kernel accesses without the server, in percent.
    pub passthrough_percent: u32,
    /// Share of operations that limit what users and groups have or leave little of a file, in percent.
    pub limit_percent: u32,
    /// Whether the region begins full of small files, every second of which is removed.
    pub is_scattered: bool,
}

fn files(model: &Model, wanted: impl Fn(Kind) -> bool) -> Vec<u64> {
    // Files that have lost their last name stay reachable only by their number; here they are left alone,
    // unless they were created without a name and are open.
    let living = model.nodes.iter().filter(|(id, node)| model.is_alive(**id) && wanted(node.kind));
    living.map(|(id, _)| *id).collect()
}

fn any<T: Clone>(random: &mut SmallRng, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| from[random.random_range(0..from.len())].clone())
}

impl Mix {
    pub fn name(&self, random: &mut SmallRng) -> Vec<u8> {
        let number = random.random_range(0..self.names);
        let mut name = format!("n{number}").into_bytes();
        // A few names are long, so that pages of directories fill.
        if number % 7 == 3 {
            name.resize(255, b'x');
        }
        name
    }

    /// Returns an existing name, mostly.
    fn existing(&self, random: &mut SmallRng, model: &Model) -> (u64, Vec<u8>) {
        let names = model.nodes.iter().filter(|(_, node)| node.links > 0);
        let names: Vec<_> =
            names.flat_map(|(id, node)| node.entries.keys().map(|name| (*id, name.clone()))).collect();
        match any(random, &names) {
            Some(found) if random.random_ratio(9, 10) => found,
            _ => (self.directory(random, model), self.name(random)),
        }
    }

    fn directory(&self, random: &mut SmallRng, model: &Model) -> u64 {
        any(random, &files(model, |kind| kind == Kind::Directory)).unwrap_or(ROOT)
    }

    fn bytes(&self, random: &mut SmallRng) -> Vec<u8> {
        let max = [64, 5000, self.write_bytes_max][random.random_range(0..3)].min(self.write_bytes_max);
        let len = random.random_range(1..=max);
        let first: u8 = random.random();
        (0..len).map(|at| first.wrapping_add((at / 61) as u8) | 1).collect()
    }

    pub fn operation(&self, random: &mut SmallRng, model: &Model) -> Operation {
        if self.passthrough_percent > 0 && random.random_range(0..100) < self.passthrough_percent {
            return self.on_passthrough(random, model);
        }
        if self.move_percent > 0 && random.random_range(0..100) < self.move_percent {
            return self.on_tiers(random, model);
        }
        if self.limit_percent > 0 && random.random_range(0..100) < self.limit_percent {
            return self.on_limits(random, model);
        }
        let on_data = random.random_range(0..100) < self.data_percent;
        match any(random, &files(model, |kind| kind == Kind::File)).filter(|_| on_data) {
            Some(file) => self.on_data(random, model, file),
            None => self.on_names(random, model),
        }
    }

    fn on_passthrough(&self, random: &mut SmallRng, model: &Model) -> Operation {
        let Some(file) = any(random, &files(model, |kind| kind == Kind::File)) else {
            return self.on_names(random, model);
        };
        match random.random_range(0..20) {
            0..4 => Operation::OpenPassthrough { file, writes: random.random_ratio(2, 3) },
            4..11 => self.write_behind(random),
            11..14 => Operation::Sync,
            14..17 => Operation::ClosePassthrough { nth: random.random_range(0..8) },
            _ => Operation::EndPassthrough,
        }
    }

    fn write_behind(&self, random: &mut SmallRng) -> Operation {
        let (nth, bytes) = (random.random_range(0..8), self.bytes(random));
        let offset = random.random_range(0..=self.file_bytes_max - bytes.len());
        Operation::WriteBehind { nth, offset, bytes }
    }

    fn on_tiers(&self, random: &mut SmallRng, model: &Model) -> Operation {
        let Some(file) = any(random, &files(model, |kind| kind == Kind::File)) else {
            return Operation::Sweep;
        };
        let tier = random.random_range(0..TIERS_MAX as u32);
        match random.random_range(0..49) {
            0..6 => Operation::Evict { file, at_once: random.random() },
            6..9 => Operation::BeginEviction { file },
            9..12 => Operation::FinishEvictions,
            12..18 => Operation::Promote { file },
            18 => Operation::Pin { file, is_pinned: random.random_ratio(1, 3) },
            19..21 => Operation::AddTier,
            21 => Operation::SetLeaving { tier, is_leaving: random.random() },
            22..24 => Operation::EmptyTier { tier, remove: random.random_ratio(3, 4) },
            24..29 => Operation::OpenPassthrough { file, writes: random.random_ratio(2, 3) },
            29..44 => self.write_behind(random),
            44..46 => Operation::ClosePassthrough { nth: random.random_range(0..8) },
            46..48 => Operation::EndPassthrough,
            _ => Operation::Sweep,
        }
    }

    fn on_names(&self, random: &mut SmallRng, model: &Model) -> Operation {
        let any_file = any(random, &files(model, |_| true)).unwrap_or(ROOT);
        let parent = self.directory(random, model);
        let name = self.name(random);
        match random.random_range(0..100) {
            0..9 => self.on_unnamed(random, model, parent, name),
            9..35 => {
                let kind = match random.random_range(0..20) {
                    0..5 => Kind::Directory,
                    5 => Kind::Fifo,
                    6 => Kind::CharDevice,
                    7..9 => Kind::Symlink,
                    _ => Kind::File,
                };
                let target = if kind == Kind::Symlink { self.name(random) } else { Vec::new() };
                let permissions = [0o644, 0o755, 0o2755, 0o4711][random.random_range(0..4)];
                Operation::Create { parent, name, kind, permissions, target }
            }
            35..42 => Operation::Link { file: any_file, parent, name },
            42..58 => {
                let (parent, name) = self.existing(random, model);
                Operation::Unlink { parent, name }
            }
            58..64 => {
                let (parent, name) = self.existing(random, model);
                Operation::RemoveDirectory { parent, name }
            }
            64..82 => {
                let from = self.existing(random, model);
                let to = if random.random() { (parent, name) } else { self.existing(random, model) };
                let how = match random.random_range(0..8) {
                    0 => RenameHow::NoReplace,
                    1..3 => RenameHow::Exchange,
                    _ => RenameHow::Replace,
                };
                Operation::Rename { from, to, how }
            }
            82 => Self::set_limit(random),
            83 => Operation::Count { max: random.random_range(1..200) },
            84..86 => Operation::SetPermissions {
                file: any_file,
                permissions: random.random_range(0..0o10000),
                uid: random.random_range(0..3),
                gid: random.random_range(0..3),
            },
            86..91 => {
                let max = if random.random_ratio(1, 8) { 9000 } else { 100 };
                let len = random.random_range(0..max);
                let value = vec![random.random(); len];
                Operation::SetAttribute { file: any_file, name: self.attribute(random), value }
            }
            91..94 => Operation::RemoveAttribute { file: any_file, name: self.attribute(random) },
            94..96 if self.remounts => Operation::Remount,
            _ => Operation::Sync,
        }
    }

    /// Files of limited owners give up chunks that they no longer fill.
    fn on_limits(&self, random: &mut SmallRng, model: &Model) -> Operation {
        let large = model.nodes.iter().filter(|(_, node)| node.links > 0 && node.data.len() > 40_000);
        let large: Vec<u64> = large.map(|(id, _)| *id).collect();
        match any(random, &large) {
            Some(file) if random.random() => {
                Operation::Truncate { file, size: random.random_range(1..32_000) }
            }
            _ => Self::set_limit(random),
        }
    }

    /// Creates, names or closes a file without a name.
    fn on_unnamed(&self, random: &mut SmallRng, model: &Model, parent: u64, name: Vec<u8>) -> Operation {
        let unnamed: Vec<_> = model.unnamed.iter().copied().collect();
        match (any(random, &unnamed), random.random_range(0..9)) {
            (Some(file), 4..7) => Operation::Link { file, parent, name },
            (Some(file), 7..9) => Operation::CloseUnnamed { file },
            (Some(file), _) if unnamed.len() == UNNAMED_MAX => Operation::CloseUnnamed { file },
            _ => {
                let permissions = [0o600, 0o2644][random.random_range(0..2)];
                Operation::CreateUnnamed { parent, permissions, is_linkable: random.random_ratio(4, 5) }
            }
        }
    }

    fn set_limit(random: &mut SmallRng) -> Operation {
        let id = random.random_range(0..5);
        let owner = if random.random() { Owner::User(id) } else { Owner::Group(id) };
        let mut number = || random.random_ratio(2, 3).then(|| random.random_range(1 << 40..1 << 50));
        Operation::SetLimit { owner, limit: Limit { bytes: number(), inodes: number() } }
    }

    fn attribute(&self, random: &mut SmallRng) -> Vec<u8> {
        format!("user.a{}", random.random_range(0..3)).into_bytes()
    }

    fn on_data(&self, random: &mut SmallRng, model: &Model, file: u64) -> Operation {
        let max = self.file_bytes_max;
        let len = model.get(file).data.len();
        let offset = match random.random_range(0..4) {
            0 => len,
            1 => random.random_range(0..=max),
            _ => random.random_range(0..=len),
        };
        let offset = offset.min(max);
        match random.random_range(0..21) {
            20 => {
                const ALONE: [Operation; 3] = [Operation::Trim, Operation::Level, Operation::MakeNullFiles];
                ALONE[random.random_range(0..3)].clone()
            }
            0..10 => {
                let bytes = self.bytes(random);
                Operation::Write { file, offset: offset.min(max - bytes.len()), bytes }
            }
            10..12 => Operation::Truncate { file, size: if random.random() { offset } else { 0 } },
            12..16 => {
                let to = random.random_range(offset..=max) + 1;
                let keep_size = random.random();
                let how = match random.random_range(0..3) {
                    0 => Allocate::Space { keep_size },
                    1 => Allocate::Zero { keep_size },
                    _ => Allocate::PunchHole,
                };
                Operation::Allocate { file, from: offset, to, how }
            }
            _ => {
                let from = any(random, &files(model, |kind| kind == Kind::File)).unwrap_or(file);
                let len = random.random_range(1..=self.write_bytes_max);
                let at = random.random_range(0..=model.get(from).data.len());
                Operation::Copy { from: (from, at), to: (file, offset.min(max - len)), len }
            }
        }
    }
}
