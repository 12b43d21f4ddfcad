//! Fair scheduling: equal shares for parties, however many connections each has.
//!
//! A *party* is the unit of fairness: the connections of one peer to one volume. Each party has a clock of
//! the service it has received, in [`Cost`]. The ready party whose clock is furthest behind is next
//! (start-time fair queueing), and its ready members take turns. A party that becomes ready again starts at
//! the clock of the party served last: idle time earns no credit.
//!
//! The module is pure: no sockets, and no clock except that of service.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Amount of service, scaled so that a small request is [`Cost::REQUEST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(pub u64);

impl Cost {
    /// Cost of a request of any kind.
    pub const REQUEST: Self = Self(16);
    /// Service per turn of the engine: 32 requests of 4 KiB, or two pieces of 256 KiB.
    pub const TURN: Self = Self(32 * (Self::REQUEST.0 + 4));
    /// Cost of a FLUSH: a whole turn. It uses device time, and makes other clients' writes durable as well.
    /// If twenty connections flush and one writes, twenty flushes run for each turn of the writer.
    pub const FLUSH: Self = Self::TURN;
    /// Cost of a block status, which reads the map.
    pub const STATUS: Self = Self(64);

    /// Returns the cost of a request with a payload of `bytes`.
    pub const fn of_payload(bytes: u64) -> Self {
        Self(Self::REQUEST.0 + bytes / 1024)
    }

    /// Returns the cost of a change of `bytes` without payload, which visits a part of the map.
    pub const fn of_range(bytes: u64) -> Self {
        Self(Self::REQUEST.0 + bytes / (1 << 20))
    }
}

/// The members of all parties, by number, and the order of their turns. `K` identifies a party.
#[derive(Debug)]
pub struct Turns<K> {
    parties: BTreeMap<K, Party>,
    /// Parties with ready members, by clock.
    order: BTreeSet<(Cost, K)>,
    members: Vec<Option<Member<K>>>,
    /// Clock of the party served last.
    now: Cost,
}

#[derive(Debug, Default)]
struct Party {
    clock: Cost,
    ready: VecDeque<u16>,
    members: u32,
}

#[derive(Clone, Copy, Debug)]
struct Member<K> {
    party: K,
    is_ready: bool,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        let (parties, order) = (BTreeMap::new(), BTreeSet::new());
        Self { parties, order, members: Vec::new(), now: Cost(0) }
    }
}

impl<K: Copy + Ord> Turns<K> {
    /// Adds a member to a party.
    pub fn join(&mut self, number: u16, party: K) {
        let at = usize::from(number);
        if self.members.len() <= at {
            self.members.resize_with(at + 1, || None);
        }
        self.members[at] = Some(Member { party, is_ready: false });
        self.parties.entry(party).or_default().members += 1;
    }

    /// Removes a member.
    pub fn leave(&mut self, number: u16) {
        let Some(member) = self.members.get_mut(usize::from(number)).and_then(Option::take) else { return };
        let Some(party) = self.parties.get_mut(&member.party) else { return };
        party.members -= 1;
        if member.is_ready {
            party.ready.retain(|other| *other != number);
        }
        if party.ready.is_empty() {
            self.order.remove(&(party.clock, member.party));
        }
        if party.members == 0 {
            self.parties.remove(&member.party);
        }
    }

    /// Marks a member as ready: it has something to do.
    pub fn mark_ready(&mut self, number: u16) {
        let Some(member) = self.members.get_mut(usize::from(number)).and_then(Option::as_mut) else { return };
        if std::mem::replace(&mut member.is_ready, true) {
            return;
        }
        let Some(party) = self.parties.get_mut(&member.party) else { return };
        if party.ready.is_empty() {
            party.clock = party.clock.max(self.now);
            self.order.insert((party.clock, member.party));
        }
        party.ready.push_back(number);
    }

    /// Takes the next member, which is then no longer ready; [`served`](Self::charge) must follow.
    pub fn take_next(&mut self) -> Option<u16> {
        let (clock, key) = *self.order.first()?;
        let party = self.parties.get_mut(&key)?;
        let number = party.ready.pop_front()?;
        if party.ready.is_empty() {
            self.order.pop_first();
        }
        self.now = clock;
        if let Some(Some(member)) = self.members.get_mut(usize::from(number)) {
            member.is_ready = false;
        }
        Some(number)
    }

    /// Charges the cost of a member's turn to its party; `more` marks the member as ready again.
    pub fn charge(&mut self, number: u16, cost: Cost, more: bool) {
        let Some(Some(member)) = self.members.get(usize::from(number)) else { return };
        let key = member.party;
        let Some(party) = self.parties.get_mut(&key) else { return };
        let was_ready = self.order.remove(&(party.clock, key));
        party.clock = Cost(party.clock.0 + cost.0);
        if was_ready {
            self.order.insert((party.clock, key));
        }
        if more {
            self.mark_ready(number);
        }
    }

    /// Reports whether no member is ready.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the service of each member after `turns` turns, if all are always ready and a turn of a member
    /// costs its entry of `costs`.
    fn shares(parties: &[u8], costs: &[u64], turns: usize) -> Vec<u64> {
        let mut all = Turns::default();
        for (number, party) in (0u16..).zip(parties) {
            all.join(number, *party);
            all.mark_ready(number);
        }
        let mut got = vec![0; parties.len()];
        for _ in 0..turns {
            let number = all.take_next().expect("somebody is ready");
            got[usize::from(number)] += costs[usize::from(number)];
            all.charge(number, Cost(costs[usize::from(number)]), true);
        }
        got
    }

    #[test]
    fn parties_share_equally() {
        let mut parties = vec![1; 20];
        parties.push(2);
        let got = shares(&parties, &[100; 21], 4000);
        let many: u64 = got[..20].iter().sum();
        assert!(got[20].abs_diff(many) <= 100, "{got:?}");
        assert!(got[..20].iter().all(|one| one.abs_diff(many / 20) <= 100), "{got:?}");
    }

    #[test]
    fn costly_members_get_fewer_turns() {
        // A single member among twenty that flush still has one turn in each round.
        let mut costs = vec![160; 20];
        costs.push(320);
        let got = shares(&[1; 21], &costs, 2100);
        assert_eq!(got[20], 320 * 100);
    }

    #[test]
    fn idle_party_accumulates_no_credit() {
        let mut all = Turns::default();
        all.join(0, 'a');
        all.join(1, 'b');
        all.mark_ready(0);
        for _ in 0..1000 {
            assert_eq!(all.take_next(), Some(0));
            all.charge(0, Cost(100), true);
        }
        all.mark_ready(1);
        let mut of_b = 0;
        for _ in 0..100 {
            let number = all.take_next().expect("ready");
            of_b += u32::from(number == 1);
            all.charge(number, Cost(100), true);
        }
        assert!((49..=51).contains(&of_b), "{of_b} of 100 turns");
    }

    #[test]
    fn occasional_client_is_served_next() {
        let mut all = Turns::default();
        (0..20).for_each(|number| {
            all.join(number, 'f');
            all.mark_ready(number);
        });
        all.join(20, 'g');
        for _ in 0..100 {
            for _ in 0..7 {
                let number = all.take_next().expect("a flood");
                all.charge(number, Cost(160), true);
            }
            all.mark_ready(20);
            let first = all.take_next().expect("ready");
            all.charge(first, Cost(20), first != 20);
            // At most one other member comes first: one that is equally far behind.
            if first != 20 {
                assert_eq!(all.take_next(), Some(20));
                all.charge(20, Cost(20), false);
            }
        }
    }

    proptest! {
        /// Every ready member eventually gets a turn, and no other member does.
        #[test]
        fn only_ready_members_get_turns(
            steps in prop::collection::vec((0u8..5, 0u16..12, 0u8..3, 1u64..500), 1..400),
        ) {
            let mut turns = Turns::default();
            let mut twin: BTreeMap<u16, bool> = BTreeMap::new();
            for (what, number, party, cost) in steps {
                match what {
                    0 if !twin.contains_key(&number) => {
                        turns.join(number, party);
                        twin.insert(number, false);
                    }
                    1 => {
                        turns.leave(number);
                        twin.remove(&number);
                    }
                    2 | 3 => {
                        turns.mark_ready(number);
                        twin.entry(number).and_modify(|ready| *ready = true);
                    }
                    _ => match turns.take_next() {
                        Some(next) => {
                            prop_assert_eq!(twin.get(&next), Some(&true));
                            let more = cost % 2 == 0;
                            turns.charge(next, Cost(cost), more);
                            twin.insert(next, more);
                        }
                        None => prop_assert!(twin.values().all(|ready| !ready)),
                    },
                }
                prop_assert_eq!(turns.is_empty(), twin.values().all(|ready| !ready));
            }
            let ready = twin.values().filter(|ready| **ready).count();
            for _ in 0..ready {
                let next = turns.take_next();
                prop_assert!(next.is_some());
            }
            prop_assert_eq!(turns.take_next(), None);
        }
    }
}
