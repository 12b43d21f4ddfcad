//! Simulated containers, which lose what no sync covers.

use super::{
    Container, ContainerStat, Containers, Header, Seek, Tier, TierNumber, TierSpace, TierState, TierWork,
};
use crate::layout::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of a tier's marker, which loses power like a container.
const MARKER: u64 = 0;
/// The unit that survives a power loss as a whole, in bytes.
const SECTOR_BYTES: usize = 512;
/// States before changes that are kept at most between two events of the region.
const STATES_MAX: usize = 64;

/// A container with everything that it may be after a power loss.
#[derive(Clone, Debug, Default)]
struct File {
    /// Contents since the last sync, oldest first; the last are the present ones.
    versions: Vec<Arc<Vec<u8>>>,
    /// Times of the last change since the last sync, likewise.
    modified: Vec<Time>,
    exists: bool,
    /// Whether its name is durable.
    is_name_durable: bool,
    header: Option<Header>,
}

type Files = BTreeMap<Container, File>;

#[derive(Debug, Default)]
struct State {
    files: Files,
    /// What the files were before each change since the last event of the region; `None`: nobody needs that.
    before: Option<Vec<Files>>,
    /// Bytes that all containers of a tier together may have.
    bytes_max: BTreeMap<TierNumber, u64>,
    syncs_fail: bool,
    gone: Option<TierNumber>,
    /// The time of changes.
    now: Time,
    /// Containers that others have open.
    used: BTreeSet<Container>,
}

/// Containers in memory. A clone shares them.
///
/// After a power loss each sector of a container has any of its contents since the last sync, its length is
/// any of those since then, and a name that was not synced exists or not.
#[derive(Clone, Debug, Default)]
pub struct SimulatedContainers(Arc<Mutex<State>>);

impl SimulatedContainers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, remembers what the containers were before each change.
    pub(crate) fn remember_states(&self) {
        self.lock().before = Some(Vec::new());
    }

    /// Returns the containers after a power loss at any moment since the last call of
    /// [`event`](Self::event). `below` returns a random number below its argument.
    pub(crate) fn after_power_loss(&self, below: &mut dyn FnMut(u64) -> u64) -> Self {
        let state = self.lock();
        let before = state.before.as_deref().unwrap_or_default();
        let files = match below(before.len() as u64 + 1) as usize {
            at if at < before.len() => &before[at],
            _ => &state.files,
        };
        let files = files.iter().filter_map(|(container, file)| Some((*container, lost(file, below)?)));
        Self(Arc::new(Mutex::new(State { files: files.collect(), now: state.now, ..State::default() })))
    }

    /// Sets the time of later changes.
    pub fn set_now(&self, now: Time) {
        self.lock().now = now;
    }

    /// Makes a container one that others have open, or no longer.
    pub fn set_used(&self, container: Container, is_used: bool) {
        let used = &mut self.lock().used;
        if is_used {
            used.insert(container)
        } else {
            used.remove(&container)
        };
    }

    /// Notes an event of the region, or that everything was acknowledged as durable: a power loss before is
    /// no longer possible.
    pub fn event(&self) {
        if let Some(before) = &mut self.lock().before {
            before.clear();
        }
    }

    /// Makes every sync from now on fail, as a broken device does.
    pub fn fail_syncs(&self) {
        self.lock().syncs_fail = true;
    }

    /// Returns a copy that shares nothing.
    #[must_use]
    pub fn copied(&self) -> Self {
        let files = self.lock().files.clone();
        Self(Arc::new(Mutex::new(State { files, ..State::default() })))
    }

    /// Returns the UUID in the marker of a tier that was added; `None` if it has none.
    pub fn marker(&self, tier: TierNumber) -> Option<[u8; 16]> {
        let uuid = self.look(Container { tier, number: MARKER }, |bytes| bytes.try_into());
        uuid.ok()?.ok()
    }

    /// Limits the bytes of all containers of a tier together.
    pub fn limit(&self, tier: TierNumber, bytes: u64) {
        self.lock().bytes_max.insert(tier, bytes);
    }

    /// Makes a tier vanish, or come back.
    pub fn set_gone(&self, tier: Option<TierNumber>) {
        self.lock().gone = tier;
    }

    /// Changes a container, or fails as if there was none.
    fn change<T>(&self, container: Container, change: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        let mut state = self.lock();
        present(&state, container)?;
        let before = state.files.clone();
        let is_other = |other: &Container| other.tier == container.tier && *other != container;
        let others: u64 =
            before.iter().filter(|(other, _)| is_other(other)).map(|(_, file)| file.len()).sum();
        let file = state.files.get_mut(&container).expect("it is present");
        let mut bytes = file.versions.last().map(|bytes| bytes.to_vec()).unwrap_or_default();
        let done = change(&mut bytes);
        let len = bytes.len() as u64;
        if len > file.len() && state.bytes_max.get(&container.tier).is_some_and(|max| others + len > *max) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let now = state.now;
        let file = state.files.get_mut(&container).expect("it is present");
        file.versions.push(Arc::new(bytes));
        file.modified.push(now);
        remember(&mut state, before);
        Ok(done)
    }

    fn look<T>(&self, container: Container, look: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let state = self.lock();
        let file = present(&state, container)?;
        Ok(look(file.versions.last().map(|bytes| &bytes[..]).unwrap_or_default()))
    }
}

impl File {
    fn len(&self) -> u64 {
        if self.exists { self.versions.last().map_or(0, |bytes| bytes.len() as u64) } else { 0 }
    }
}

fn remember(state: &mut State, files: Files) {
    if let Some(before) = state.before.as_mut().filter(|before| before.len() < STATES_MAX) {
        before.push(files);
    }
}

fn present(state: &State, container: Container) -> io::Result<&File> {
    let file = state.files.get(&container).filter(|file| file.exists);
    file.filter(|_| state.gone != Some(container.tier)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns what is left of a container after a power loss; `None` if it is not there.
fn lost(file: &File, below: &mut dyn FnMut(u64) -> u64) -> Option<File> {
    let exists = if file.exists == file.is_name_durable { file.exists } else { below(2) == 1 };
    if !exists {
        return None;
    }
    let mut pick = || file.versions[below(file.versions.len() as u64) as usize].as_slice();
    let mut bytes = vec![0; pick().len()];
    for at in (0..bytes.len()).step_by(SECTOR_BYTES) {
        let end = (at + SECTOR_BYTES).min(bytes.len());
        let kept = pick();
        let kept = &kept[at.min(kept.len())..end.min(kept.len())];
        bytes[at..at + kept.len()].copy_from_slice(kept);
    }
    let modified = vec![file.modified[below(file.modified.len() as u64) as usize]];
    let (versions, header) = (vec![Arc::new(bytes)], file.header.clone());
    Some(File { versions, modified, exists: true, is_name_durable: true, header })
}

impl Containers for SimulatedContainers {
    fn create(&self, container: Container) -> io::Result<()> {
        let mut state = self.lock();
        if state.gone == Some(container.tier) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (before, now) = (state.files.clone(), state.now);
        let file = state.files.entry(container).or_default();
        file.exists = true;
        file.header = None;
        file.versions.push(Arc::default());
        file.modified.push(now);
        remember(&mut state, before);
        Ok(())
    }

    fn read(&self, container: Container, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.look(container, |bytes| {
            let bytes = bytes.get(offset as usize..).unwrap_or_default();
            let len = bytes.len().min(out.len());
            out[..len].copy_from_slice(&bytes[..len]);
            len
        })
    }

    fn write(&self, container: Container, offset: u64, new: &[u8]) -> io::Result<()> {
        self.change(container, |bytes| {
            let (at, end) = (offset as usize, offset as usize + new.len());
            bytes.resize(bytes.len().max(end), 0);
            bytes[at..end].copy_from_slice(new);
        })
    }

    fn len(&self, container: Container) -> io::Result<u64> {
        self.look(container, |bytes| bytes.len() as u64)
    }

    fn stat(&self, container: Container) -> io::Result<ContainerStat> {
        let state = self.lock();
        let file = present(&state, container)?;
        let modified = file.modified.last().copied().unwrap_or_default();
        Ok(ContainerStat { len: file.len(), accessed: Time::default(), modified })
    }

    fn set_times(&self, container: Container, _: Time, modified: Time) -> io::Result<()> {
        let mut state = self.lock();
        present(&state, container)?;
        let before = state.files.clone();
        state.files.get_mut(&container).expect("it is present").modified.push(modified);
        remember(&mut state, before);
        Ok(())
    }

    fn file(&self, _: Container) -> io::Result<Arc<std::fs::File>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn note_change(&self, _: Container) -> io::Result<()> {
        Ok(())
    }

    fn is_used_by_others(&self, container: Container) -> io::Result<bool> {
        Ok(self.lock().used.contains(&container))
    }

    fn set_len(&self, container: Container, len: u64) -> io::Result<()> {
        self.change(container, |bytes| bytes.resize(len as usize, 0))
    }

    fn punch(&self, container: Container, range: Range<u64>) -> io::Result<()> {
        self.change(container, |bytes| {
            let end = bytes.len().min(range.end as usize);
            bytes[end.min(range.start as usize)..end].fill(0);
        })
    }

    fn allocate(&self, container: Container, _: Range<u64>) -> io::Result<()> {
        self.look(container, |_| ())
    }

    fn seek(&self, container: Container, offset: u64, what: Seek) -> io::Result<Option<u64>> {
        self.look(container, |bytes| {
            let at = offset as usize;
            match what {
                _ if at >= bytes.len() => None,
                Seek::Data => (at..bytes.len()).find(|at| bytes[*at] != 0).map(|at| at as u64),
                Seek::Hole => {
                    Some((at..bytes.len()).find(|at| bytes[*at] == 0).unwrap_or(bytes.len()) as u64)
                }
            }
        })
    }

    fn sync(&self, container: Container) -> io::Result<()> {
        let mut state = self.lock();
        if state.syncs_fail {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let before = state.files.clone();
        present(&state, container)?;
        let file = state.files.get_mut(&container).expect("it is present");
        file.versions.drain(..file.versions.len() - 1);
        file.modified.drain(..file.modified.len() - 1);
        file.is_name_durable = true;
        remember(&mut state, before);
        Ok(())
    }

    fn remove(&self, container: Container) -> io::Result<()> {
        let mut state = self.lock();
        present(&state, container)?;
        let before = state.files.clone();
        let file = state.files.get_mut(&container).expect("it is present");
        file.exists = false;
        if !file.is_name_durable {
            state.files.remove(&container);
        }
        remember(&mut state, before);
        Ok(())
    }

    fn list(&self, tier: TierNumber) -> io::Result<Vec<u64>> {
        let state = self.lock();
        let present = state.files.iter().filter(|(container, file)| container.tier == tier && file.exists);
        let numbers = present.map(|(container, _)| container.number);
        Ok(numbers.filter(|number| *number != MARKER).collect())
    }

    fn header(&self, container: Container) -> io::Result<Option<Header>> {
        Ok(present(&self.lock(), container)?.header.clone())
    }

    fn set_header(&self, container: Container, header: &Header) -> io::Result<()> {
        let mut state = self.lock();
        present(&state, container)?;
        state.files.get_mut(&container).expect("it is present").header = Some(header.clone());
        Ok(())
    }

    fn adopt(&self, number: TierNumber, tier: &Tier) -> io::Result<()> {
        let marker = Container { tier: number, number: MARKER };
        if self.marker(number).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.create(marker)?;
        self.write(marker, 0, &tier.uuid)?;
        self.sync(marker)
    }

    fn release(&self, number: TierNumber) -> io::Result<()> {
        match self.remove(Container { tier: number, number: MARKER }) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn state(&self, tier: TierNumber) -> TierState {
        match self.lock().gone {
            Some(gone) if gone == tier => TierState::Gone("it was taken away".to_owned()),
            _ => TierState::Ready,
        }
    }

    fn space(&self, tier: TierNumber) -> io::Result<TierSpace> {
        let state = self.lock();
        let used: u64 =
            state.files.iter().filter(|(other, _)| other.tier == tier).map(|(_, file)| file.len()).sum();
        let total_bytes = state.bytes_max.get(&tier).copied().unwrap_or(1 << 40);
        let free_bytes = total_bytes.saturating_sub(used);
        Ok(TierSpace { device: u64::from(tier.0), total_bytes, free_bytes })
    }

    fn work(&self, _: TierNumber) -> TierWork {
        TierWork::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Container = Container { tier: TierNumber(0), number: 1 };

    /// Returns the contents after power losses, each of them once.
    fn outcomes(containers: &SimulatedContainers) -> Vec<Option<Vec<u8>>> {
        let mut seed = 1_u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        let mut found = Vec::new();
        for _ in 0..200 {
            let after = containers.after_power_loss(&mut below);
            let bytes = after.look(ONE, <[u8]>::to_vec).ok();
            if !found.contains(&bytes) {
                found.push(bytes);
            }
        }
        found.sort();
        found
    }

    #[test]
    fn only_what_is_synced_is_durable() {
        let containers = SimulatedContainers::default();
        containers.create(ONE).expect("no failure");
        containers.write(ONE, 0, b"a").expect("no failure");
        assert_eq!(outcomes(&containers), [None, Some(vec![]), Some(vec![0]), Some(b"a".to_vec())]);
        containers.sync(ONE).expect("no failure");
        assert_eq!(outcomes(&containers), [Some(b"a".to_vec())]);
        containers.write(ONE, 0, b"b").expect("no failure");
        containers.set_len(ONE, 0).expect("no failure");
        assert_eq!(
            outcomes(&containers),
            [Some(vec![]), Some(vec![0]), Some(b"a".to_vec()), Some(b"b".to_vec())]
        );
        containers.remove(ONE).expect("no failure");
        assert_eq!(outcomes(&containers).len(), 5, "the name may be back");
    }

    #[test]
    fn sectors_survive_independently() {
        let containers = SimulatedContainers::default();
        containers.create(ONE).expect("no failure");
        containers.write(ONE, 0, &[1; 2 * SECTOR_BYTES]).expect("no failure");
        containers.sync(ONE).expect("no failure");
        containers.write(ONE, 0, &[2; 2 * SECTOR_BYTES]).expect("no failure");
        let found: Vec<_> = outcomes(&containers).into_iter().flatten().collect();
        let sectors: Vec<_> = found.iter().map(|bytes| (bytes[0], bytes[SECTOR_BYTES])).collect();
        assert_eq!(sectors, [(1, 1), (1, 2), (2, 1), (2, 2)]);
    }

    #[test]
    fn a_power_loss_before_a_change_is_possible_until_the_next_event() {
        let containers = SimulatedContainers::default();
        containers.remember_states();
        containers.create(ONE).expect("no failure");
        containers.write(ONE, 0, b"a").expect("no failure");
        containers.sync(ONE).expect("no failure");
        assert!(outcomes(&containers).len() > 2);
        containers.event();
        assert_eq!(outcomes(&containers), [Some(b"a".to_vec())]);
    }
}
