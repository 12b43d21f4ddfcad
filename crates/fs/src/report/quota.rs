//! What `weir fs quota` shows and changes, as the server of a mount tells it and is told.

use crate::error::{Error, Result};
use crate::layout::quota::{Limit, Owner};
use crate::namespace::{Counting, FileSystem, OwnerUsages};
use crate::nvm::Memory;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// Owners of a page; with more, it would not fit into an attribute.
const OWNERS_MAX: usize = 250;
/// What [`QuotaOwner::kind`] is for users.
const USER: &str = "user";
/// Prefix of the names of the attributes whose values are [`QuotaPage`]s, in JSON.
const PAGE: &str = "weir.quota.";

/// Usage and limits of users and groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "weir fs quota")]
pub struct Quota {
    /// Path of the region.
    pub region: String,
    /// Directory that it is mounted at; `null` if it is not mounted.
    pub directory: Option<String>,
    /// `off`: there are no limits, and a mount counts nothing; `counting`: limits are not enforced until
    /// usage is counted; `enforced`; `not_mounted`: the next mount counts again, and then enforces limits.
    #[schemars(extend("enum" = ["off", "counting", "enforced", "not_mounted"]))]
    pub state: String,
    /// How much is counted.
    pub counted_percent: u8,
    /// Users and groups that have limits or files. A mount shows users other than root and its own theirs
    /// alone.
    pub owners: Vec<QuotaOwner>,
}

/// A user or group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaOwner {
    /// `user` or `group`.
    #[schemars(extend("enum" = ["user", "group"]))]
    pub kind: String,
    /// Its number.
    pub id: u32,
    /// Its name; `null` if the number has none.
    pub name: Option<String>,
    /// Sizes of its regular files and symbolic links, as far as they are counted; at most 2^64 - 1.
    pub used_bytes: u64,
    /// Largest sum of these; `null` if there is no limit.
    pub limit_bytes: Option<u64>,
    /// Number of its files, directories included, as far as they are counted.
    pub used_files: u64,
    /// Largest number of these; `null` if there is no limit.
    pub limit_files: Option<u64>,
}

impl QuotaOwner {
    /// Returns a number by which owners are in order: users before groups, each by their numbers.
    fn rank(&self) -> u64 {
        u64::from(self.kind != USER) << 32 | u64::from(self.id)
    }

    /// Returns whether it can have nothing more of what is limited, or not of all that is.
    pub fn is_at_limit(&self) -> bool {
        self.limit_bytes.is_some_and(|max| self.used_bytes >= max)
            || self.limit_files.is_some_and(|max| self.used_files >= max)
    }
}

impl Quota {
    /// Returns usage and limits in a file system whose region has this path, mounted or not. `is_shown` says
    /// of which owners.
    pub fn of<M: Memory>(
        fs: &FileSystem<M>,
        region: &Path,
        directory: Option<&Path>,
        is_shown: impl Fn(Owner) -> bool,
    ) -> Self {
        let (state, counted_percent) = match (directory, fs.counting()) {
            (None, _) => ("not_mounted", 100),
            (_, Counting::Off) => ("off", 0),
            (_, Counting::Running { percent }) => ("counting", percent),
            (_, Counting::Complete) => ("enforced", 100),
        };
        let owners = match directory {
            None => owners(fs, &fs.count_owners(), is_shown),
            Some(_) => owners(fs, fs.owner_usages(), is_shown),
        };
        Self {
            region: region.display().to_string(),
            directory: directory.map(|directory| directory.display().to_string()),
            state: state.to_owned(),
            counted_percent,
            owners,
        }
    }
}

fn owners<M: Memory>(
    fs: &FileSystem<M>,
    usages: &OwnerUsages,
    is_shown: impl Fn(Owner) -> bool,
) -> Vec<QuotaOwner> {
    let all: BTreeSet<Owner> = usages.keys().chain(fs.limits().keys()).copied().collect();
    let part = |owner: Owner| {
        let (usage, limit) = (usages.get(&owner).copied(), fs.limits().get(&owner).copied());
        let (usage, limit) = (usage.unwrap_or_default(), limit.unwrap_or_default());
        QuotaOwner {
            kind: kind(owner).to_owned(),
            id: owner.id(),
            name: None,
            used_bytes: u64::try_from(usage.bytes).unwrap_or(u64::MAX),
            limit_bytes: limit.bytes,
            used_files: usage.inodes,
            limit_files: limit.inodes,
        }
    };
    all.into_iter().filter(|owner| is_shown(*owner)).map(part).collect()
}

const fn kind(owner: Owner) -> &'static str {
    match owner {
        Owner::User(_) => USER,
        Owner::Group(_) => "group",
    }
}

/// A part of a [`Quota`] that fits into an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaPage {
    /// The quota, with some of the owners.
    pub quota: Quota,
    /// Rank of the first owner of the next page; `None` if this is the last.
    pub next: Option<u64>,
    /// Whether the stored limits cannot be read; none are shown then.
    #[serde(default)]
    pub is_damaged: bool,
}

impl QuotaPage {
    /// Returns the page whose owners have this rank or higher ones: an owner that comes or goes between two
    /// pages moves no other to another page.
    pub fn of(mut quota: Quota, first: u64) -> Self {
        quota.owners.retain(|owner| owner.rank() >= first);
        let next = quota.owners.get(OWNERS_MAX).map(QuotaOwner::rank);
        quota.owners.truncate(OWNERS_MAX);
        Self { quota, next, is_damaged: false }
    }

    /// Returns the name of the attribute whose value is the page from this rank on.
    pub fn attribute(first: u64) -> String {
        format!("{PAGE}{first}")
    }

    /// Returns the least rank of the page that is the value of an attribute; `None` if the attribute is none
    /// of a page.
    pub fn of_attribute(name: &[u8]) -> Option<u64> {
        str::from_utf8(name.strip_prefix(PAGE.as_bytes())?).ok()?.parse().ok()
    }
}

/// What happens to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewLimit {
    /// It stays.
    Keep,
    /// It is removed.
    Remove,
    /// It is this one.
    Set(u64),
}

impl NewLimit {
    const fn of(self, before: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => before,
            Self::Remove => None,
            Self::Set(max) => Some(max),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Keep => "keep".to_owned(),
            Self::Remove => "none".to_owned(),
            Self::Set(max) => max.to_string(),
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        match text {
            "keep" => Some(Self::Keep),
            "none" => Some(Self::Remove),
            text => text.parse().ok().map(Self::Set),
        }
    }
}

/// What `weir fs quota set` asks of the server, by setting an attribute of any file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitChange {
    /// Whose limits.
    pub owner: Owner,
    /// The limit of bytes.
    pub bytes: NewLimit,
    /// The limit of files.
    pub files: NewLimit,
}

impl LimitChange {
    const SET: &'static str = "weir.set-quota";

    /// Returns the limits after the change.
    pub const fn of(self, before: Limit) -> Limit {
        Limit { bytes: self.bytes.of(before.bytes), inodes: self.files.of(before.inodes) }
    }

    /// Carries it out. Durable when it returns.
    ///
    /// # Errors
    /// As [`FileSystem::set_limit`].
    pub fn apply<M: Memory>(self, fs: &mut FileSystem<M>) -> Result<()> {
        let before = fs.limits().get(&self.owner).copied().unwrap_or_default();
        fs.set_limit(self.owner, self.of(before))
    }

    /// Returns the name of the attribute, and its value.
    pub fn attribute(&self) -> (&'static str, Vec<u8>) {
        let Self { owner, bytes, files } = self;
        let value = format!("{} {} {} {}", kind(*owner), owner.id(), bytes.text(), files.text());
        (Self::SET, value.into_bytes())
    }

    /// Returns the command of an attribute; `None` if it has another name.
    ///
    /// # Errors
    /// `Invalid` if the value is none of a command.
    pub fn of_attribute(name: &[u8], value: &[u8]) -> Option<Result<Self>> {
        let command = || {
            let words: Vec<_> = str::from_utf8(value).ok()?.split(' ').collect();
            let [kind, id, bytes, files] = words[..] else { return None };
            let id = id.parse().ok()?;
            let owner = match kind {
                "user" => Owner::User(id),
                "group" => Owner::Group(id),
                _ => return None,
            };
            Some(Self { owner, bytes: NewLimit::of_text(bytes)?, files: NewLimit::of_text(files)? })
        };
        (name == Self::SET.as_bytes()).then(|| command().ok_or(Error::Invalid))
    }
}

/// What `weir fs status` shows of limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Limits")]
pub struct LimitsPart {
    /// Users and groups that have limits.
    pub owners: u64,
    /// Of these, users and groups that can have nothing more of what is limited, as far as usage is counted.
    pub at_limit: u64,
    /// As of `weir fs quota`.
    #[schemars(extend("enum" = ["off", "counting", "enforced", "not_mounted"]))]
    pub state: String,
}

impl LimitsPart {
    /// Returns what the status shows; `None` if there are no limits.
    pub(super) fn of<M: Memory>(fs: &FileSystem<M>, directory: Option<&Path>) -> Option<Self> {
        if fs.limits().is_empty() {
            return None;
        }
        let Quota { owners, state, .. } =
            Quota::of(fs, Path::new(""), directory, |owner| fs.limits().contains_key(&owner));
        let at_limit = owners.iter().filter(|owner| owner.is_at_limit()).count() as u64;
        Some(Self { owners: owners.len() as u64, at_limit, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: u32) -> QuotaOwner {
        QuotaOwner {
            kind: "group".to_owned(),
            id,
            name: None,
            used_bytes: u64::MAX,
            limit_bytes: Some(u64::MAX),
            used_files: u64::MAX,
            limit_files: Some(u64::MAX),
        }
    }

    #[test]
    fn pages_have_all_owners_and_fit_into_an_attribute() {
        let quota = Quota {
            region: "/".repeat(4096),
            directory: Some("/".repeat(4096)),
            state: "not_mounted".to_owned(),
            counted_percent: 100,
            owners: (u32::MAX - 777..=u32::MAX).map(owner).collect(),
        };
        let (mut owners, mut next) = (Vec::new(), Some(0));
        while let Some(first) = next {
            assert_eq!(QuotaPage::of_attribute(QuotaPage::attribute(first).as_bytes()), Some(first));
            let page = QuotaPage::of(quota.clone(), first);
            let bytes = serde_json::to_vec(&page).expect("JSON").len();
            assert!(bytes < crate::report::BYTES_MAX, "{bytes}");
            owners.extend(page.quota.owners);
            next = page.next;
        }
        assert_eq!(owners, quota.owners);
        let mut others = quota.clone();
        let second = QuotaPage::of(quota.clone(), 0).next.expect("there is another page");
        others.owners.retain(|owner| owner.id % 2 == 0);
        others.owners.insert(0, QuotaOwner { kind: "user".to_owned(), ..owner(5) });
        let page = QuotaPage::of(others, second).quota;
        assert_eq!(page.owners[0], quota.owners[OWNERS_MAX], "an owner that comes or goes moves no other");
        assert_eq!(QuotaPage::of(quota, u64::MAX).next, None);
        assert_eq!(QuotaPage::of_attribute(b"weir.quota"), None);
    }

    #[test]
    fn changes_are_read_back() {
        for (bytes, files) in
            [(NewLimit::Keep, NewLimit::Remove), (NewLimit::Set(0), NewLimit::Set(u64::MAX))]
        {
            for owner in [Owner::User(0), Owner::Group(u32::MAX)] {
                let change = LimitChange { owner, bytes, files };
                let (name, value) = change.attribute();
                let read = LimitChange::of_attribute(name.as_bytes(), &value);
                assert!(matches!(read, Some(Ok(read)) if read == change), "{read:?}");
            }
        }
        assert!(LimitChange::of_attribute(b"weir.pin", b"").is_none());
        for value in ["", "user 1 2", "user 1 2 3 4", "all 1 2 3", "user -1 2 3", "user 1 2 many"] {
            let read = LimitChange::of_attribute(b"weir.set-quota", value.as_bytes());
            assert!(matches!(read, Some(Err(Error::Invalid))), "{value}");
        }
    }
}
