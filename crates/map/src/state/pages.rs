//! Map pages: for each volume a radix tree of 504 words per page, from extent to word.
//!
//! They contain the *durable* map: the state that recovery would find. Changes that are not yet durable are
//! in [`overlay`](crate::state::overlay).

use crate::format::page::PAYLOAD;
use crate::format::value::{PageId, Word};
use weir_model::ExtentIndex;

/// The number of words in a map page.
pub(crate) const WORDS: usize = PAYLOAD / 8;

/// The root of a volume's tree. An empty tree has no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The number of levels: 1 to 5.
    pub height: u8,
    /// The topmost page.
    pub root: Option<PageId>,
}

impl Tree {
    /// Returns the empty tree of a volume of this many extents.
    pub fn new(extents: u64) -> Self {
        let (mut height, mut reach) = (1, WORDS as u64);
        while reach < extents {
            height += 1;
            reach = reach.saturating_mul(WORDS as u64);
        }
        Self { height, root: None }
    }
}

/// A map page in memory.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) words: Box<[u64; WORDS]>,
    /// The number of non-empty words.
    pub(crate) live: u16,
    pub(crate) level: u8,
}

impl Page {
    pub(crate) fn new(level: u8) -> Self {
        Self { words: Box::new([0; WORDS]), live: 0, level }
    }

    fn set(&mut self, slot: usize, word: u64) -> u64 {
        let old = std::mem::replace(&mut self.words[slot], word);
        self.live = self.live + u16::from(word != 0) - u16::from(old != 0);
        old
    }
}

/// An observer of page changes, so that a checkpoint in progress can capture a page first.
pub(crate) trait PageObserver {
    /// Called before page `id` changes, with its old content.
    fn before_page_change(&mut self, id: PageId, page: &Page);
}

/// All map pages of the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Option<Page>>,
    /// Ids without a page, to be reused.
    unused: Vec<PageId>,
    live: usize,
}

impl Pages {
    /// Returns the number of pages in use.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Returns the number of ids ever used: the length of the table of pages.
    pub(crate) fn ids(&self) -> usize {
        self.pages.len()
    }

    #[inline]
    pub(crate) fn get(&self, id: PageId) -> Option<&Page> {
        self.pages.get(id.0 as usize)?.as_ref()
    }

    /// Returns the word of an extent. Cost: one dependent load per level.
    #[inline]
    pub(crate) fn word(&self, tree: Tree, index: ExtentIndex) -> u64 {
        let Some(mut id) = tree.root else { return 0 };
        let mut level = u32::from(tree.height - 1);
        loop {
            let Some(page) = self.get(id) else { return 0 };
            let word = page.words[slot(index, level)];
            if level == 0 || word == 0 {
                return word;
            }
            id = PageId(word as u32);
            level -= 1;
        }
    }

    /// Returns the words from that of an extent to the end of its page, at least one. Cost: as of
    /// [`Self::word`].
    pub(crate) fn words(&self, tree: Tree, index: ExtentIndex) -> &[u64] {
        const NONE: [u64; WORDS] = [0; WORDS];
        let mut id = tree.root;
        for level in (1..u32::from(tree.height)).rev() {
            let word = id.and_then(|id| self.get(id)).map_or(0, |page| page.words[slot(index, level)]);
            id = (word != 0).then_some(PageId(word as u32));
        }
        let page = id.and_then(|id| self.get(id));
        &page.map_or(&NONE, |page| &page.words)[slot(index, 0)..]
    }

    /// Returns how many of the pages from an extent's leaf upwards do not exist.
    pub(crate) fn missing_pages(&self, tree: Tree, index: ExtentIndex) -> u8 {
        let Some(mut id) = tree.root else { return tree.height };
        for level in (1..tree.height).rev() {
            match self.get(id).map_or(0, |p| p.words[slot(index, level.into())]) {
                0 => return level,
                word => id = PageId(word as u32),
            }
        }
        0
    }

    /// Whether every interior word leads to a page of the level below; otherwise part of a volume would
    /// wrongly read as zeros.
    pub(crate) fn is_complete(&self, tree: Tree) -> bool {
        tree.root.is_none_or(|root| self.is_complete_below(root, tree.height - 1))
    }

    fn is_complete_below(&self, id: PageId, level: u8) -> bool {
        self.get(id).is_some_and(|page| {
            let mut children = page.words.iter().filter(|w| **w != 0);
            page.level == level
                && (level == 0 || children.all(|w| self.is_complete_below(PageId(*w as u32), level - 1)))
        })
    }

    /// Sets the word of an extent, creating pages on the way down and removing empty ones. Removed ids are
    /// added to `dropped`: they may be reused after the next checkpoint.
    pub(crate) fn set(
        &mut self,
        tree: &mut Tree,
        index: ExtentIndex,
        word: u64,
        before: &mut impl PageObserver,
        dropped: &mut Vec<PageId>,
    ) {
        if word == 0 && self.missing_pages(*tree, index) > 0 {
            return;
        }
        let top = u32::from(tree.height - 1);
        let root = match tree.root {
            Some(root) => root,
            None => *tree.root.insert(self.create_page(top as u8)),
        };
        self.set_below(root, top, index, word, before, dropped);
        if self.get(root).is_some_and(|p| p.live == 0) {
            self.remove_page(root, dropped);
            tree.root = None;
        }
    }

    fn set_below(
        &mut self,
        id: PageId,
        level: u32,
        index: ExtentIndex,
        word: u64,
        before: &mut impl PageObserver,
        dropped: &mut Vec<PageId>,
    ) {
        let slot = slot(index, level);
        let mut word = word;
        if level > 0 {
            let child = match self.get(id).map_or(0, |p| p.words[slot]) {
                0 => self.create_page((level - 1) as u8),
                child => PageId(child as u32),
            };
            self.set_below(child, level - 1, index, word, before, dropped);
            word = Word::Child(child).encode();
            if self.get(child).is_some_and(|p| p.live == 0) {
                self.remove_page(child, dropped);
                word = 0;
            }
        }
        if let Some(page) = self.pages.get_mut(id.0 as usize).and_then(Option::as_mut)
            && page.words[slot] != word
        {
            before.before_page_change(id, page);
            page.set(slot, word);
        }
    }

    fn create_page(&mut self, level: u8) -> PageId {
        self.live += 1;
        let page = Some(Page::new(level));
        match self.unused.pop() {
            Some(id) => {
                self.pages[id.0 as usize] = page;
                id
            }
            None => {
                self.pages.push(page);
                PageId(self.pages.len() as u32 - 1)
            }
        }
    }

    fn remove_page(&mut self, id: PageId, dropped: &mut Vec<PageId>) {
        self.pages[id.0 as usize] = None;
        self.live -= 1;
        dropped.push(id);
    }

    /// Removes pages that none of the trees reaches. Returns their ids.
    pub(crate) fn remove_unreachable(&mut self, trees: &[Tree]) -> Vec<PageId> {
        let mut reached = vec![false; self.pages.len()];
        let mut left: Vec<_> = trees.iter().filter_map(|tree| tree.root).collect();
        while let Some(id) = left.pop() {
            let Some(page) = self.get(id) else { continue };
            if !std::mem::replace(&mut reached[id.0 as usize], true) && page.level > 0 {
                left.extend(page.words.iter().filter(|w| **w != 0).map(|w| PageId(*w as u32)));
            }
        }
        let ids = (0..self.pages.len() as u32).map(PageId);
        let unreached: Vec<_> = ids.filter(|id| !reached[id.0 as usize] && self.get(*id).is_some()).collect();
        let mut dropped = Vec::new();
        unreached.iter().for_each(|id| self.remove_page(*id, &mut dropped));
        dropped
    }

    /// Makes ids reusable whose last page is no longer reachable from any root.
    pub(crate) fn reuse(&mut self, ids: impl IntoIterator<Item = PageId>) {
        self.unused.extend(ids);
    }

    /// Stores a page read from disk.
    pub(crate) fn load(&mut self, id: PageId, page: Page) {
        let at = id.0 as usize;
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, || None);
        }
        self.live += usize::from(self.pages[at].is_none());
        self.pages[at] = Some(page);
    }

    /// Finishes loading: ids below `len` without a page are free.
    pub(crate) fn finish_loading(&mut self, len: usize) {
        self.pages.resize_with(len.max(self.pages.len()), || None);
        self.unused = (0..self.pages.len() as u32)
            .rev()
            .map(PageId)
            .filter(|id| self.pages[id.0 as usize].is_none())
            .collect();
    }

    /// Calls `f` with every non-empty word of a volume, in order of extents.
    pub(crate) fn for_each(&self, tree: Tree, f: &mut impl FnMut(ExtentIndex, u64)) {
        if let Some(root) = tree.root {
            self.walk(root, u32::from(tree.height - 1), 0, f);
        }
    }

    fn walk(&self, id: PageId, level: u32, first: u64, f: &mut impl FnMut(ExtentIndex, u64)) {
        let Some(page) = self.get(id) else { return };
        for (slot, &word) in page.words.iter().enumerate().filter(|(_, w)| **w != 0) {
            let index = first + slot as u64 * extents_per_word(level);
            if level == 0 {
                f(ExtentIndex(index), word);
            } else {
                self.walk(PageId(word as u32), level - 1, index, f);
            }
        }
    }

    /// Returns the number of non-empty words in a volume's leaves.
    pub(crate) fn mapped(&self, tree: Tree) -> u64 {
        tree.root.map_or(0, |root| self.mapped_below(root, tree.height - 1))
    }

    fn mapped_below(&self, id: PageId, level: u8) -> u64 {
        match self.get(id) {
            None => 0,
            Some(page) if level == 0 => page.live.into(),
            Some(page) => {
                let children = page.words.iter().filter(|w| **w != 0);
                children.map(|w| self.mapped_below(PageId(*w as u32), level - 1)).sum()
            }
        }
    }

    /// Returns the first extent at or after `from` whose word is not empty. Absent pages are skipped as a
    /// whole.
    pub(crate) fn next_mapped(&self, tree: Tree, from: ExtentIndex) -> Option<ExtentIndex> {
        self.next_below(tree.root?, u32::from(tree.height - 1), 0, from.0)
    }

    fn next_below(&self, id: PageId, level: u32, first: u64, from: u64) -> Option<ExtentIndex> {
        let page = self.get(id)?;
        let start = from.saturating_sub(first) / extents_per_word(level);
        for slot in start..WORDS as u64 {
            let word = page.words[slot as usize];
            let index = first + slot * extents_per_word(level);
            if word == 0 {
                continue;
            }
            if level == 0 {
                return Some(ExtentIndex(index));
            }
            if let found @ Some(_) = self.next_below(PageId(word as u32), level - 1, index, from) {
                return found;
            }
        }
        None
    }

    /// Returns the memory in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.live * (WORDS * 8 + 16) + self.pages.capacity() * size_of::<Option<Page>>()
    }
}

/// Returns the number of extents that a word at `level` covers.
#[inline]
pub(crate) const fn extents_per_word(level: u32) -> u64 {
    (WORDS as u64).saturating_pow(level)
}

#[inline]
const fn slot(index: ExtentIndex, level: u32) -> usize {
    let words = WORDS as u64;
    let at = match level {
        0 => index.0,
        1 => index.0 / words,
        2 => index.0 / (words * words),
        _ => index.0 / extents_per_word(level),
    };
    (at % words) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct NoObserver;
    impl PageObserver for NoObserver {
        fn before_page_change(&mut self, _: PageId, _: &Page) {}
    }

    proptest! {
        /// Compares with a naive twin: a sorted map of the non-empty words.
        #[test]
        fn agrees_with_a_sorted_map(
            extents in prop_oneof![1u64..600, 1u64..300_000, 1u64..1 << 40],
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0u64..3), 1..300),
        ) {
            let mut pages = Pages::default();
            let mut tree = Tree::new(extents);
            let mut twin = BTreeMap::new();
            for (set, pick, near) in steps {
                // Few distinct extents, so that words are set and cleared again.
                let index = (pick.index(20) as u64 * (extents / 20).max(1) + near) % extents;
                let word = if set { Word::Record(crate::RecordId(index as u32)).encode() } else { 0 };
                let mut dropped = Vec::new();
                pages.set(&mut tree, ExtentIndex(index), word, &mut NoObserver, &mut dropped);
                pages.reuse(dropped);
                if set { twin.insert(index, word); } else { twin.remove(&index); }
                // From a word to the end of its page, the words of the next extents follow.
                let words = pages.words(tree, ExtentIndex(index));
                prop_assert_eq!(words.len(), WORDS - (index % WORDS as u64) as usize);
                let next = |at: &usize| pages.word(tree, ExtentIndex(index + *at as u64));
                let some = [0, 1, words.len() - 1].into_iter().filter(|at| *at < words.len());
                let some = some.filter(|at| index + (*at as u64) < extents);
                prop_assert!(some.into_iter().all(|at| words[at] == next(&at)));
                prop_assert_eq!(pages.word(tree, ExtentIndex(index)), word);
                let next = pages.next_mapped(tree, ExtentIndex(index));
                prop_assert_eq!(next.map(|e| e.0), twin.range(index..).next().map(|e| *e.0));
            }
            let mut all = BTreeMap::new();
            pages.for_each(tree, &mut |i, w| { all.insert(i.0, w); });
            prop_assert_eq!(&all, &twin);
            prop_assert_eq!(pages.live() == 0, twin.is_empty());
        }
    }
}
