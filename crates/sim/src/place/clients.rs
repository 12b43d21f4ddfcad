//! The clients of a closed loop.

use crate::Client;
use crate::load::ClientAction;
use std::collections::BTreeMap;
use weir_model::Nanos;

/// The clients of a closed loop that have no request in flight.
#[derive(Default)]
pub(super) struct Clients {
    /// Number of clients so far.
    pub(super) count: usize,
    /// Clients about to send a request.
    pub(super) idle: Vec<Client>,
    /// Clients in their think time and their next action, by its time, numbered as they began to think.
    thinking: BTreeMap<Nanos, Vec<Thinking>>,
    thoughts: u64,
}

struct Thinking {
    number: u64,
    client: Client,
    next: ClientAction,
}

impl Clients {
    /// Lets a client think until its next action is due.
    pub(super) fn think(&mut self, client: Client, next: ClientAction) {
        let number = self.thoughts;
        self.thoughts += 1;
        self.thinking.entry(next.at()).or_default().push(Thinking { number, client, next });
    }

    /// Returns when the first client has thought enough.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.thinking.keys().next().copied()
    }

    /// Takes the clients whose think time has passed, in the order in which they began to think.
    pub(super) fn take_due(&mut self, now: Nanos) -> impl Iterator<Item = (Client, ClientAction)> + use<> {
        let mut due = Vec::new();
        while let Some(first) = self.thinking.first_entry().filter(|first| *first.key() <= now) {
            due.append(&mut first.remove());
        }
        due.sort_unstable_by_key(|thinking| thinking.number);
        due.into_iter().map(|Thinking { client, next, .. }| (client, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As if all clients stood in one list and each were asked every time.
        #[test]
        fn clients_come_as_from_a_list(steps in prop::collection::vec((0..40u64, 0..40u64), 1..60)) {
            let (mut clients, mut list) = (Clients::default(), Vec::new());
            for (client, (at, now)) in steps.into_iter().enumerate() {
                let (client, next) = (Client(client), ClientAction::Wait(Nanos(at)));
                clients.think(client, next);
                list.push((client, next));
                let is_due = |(_, next): &(Client, ClientAction)| next.at() <= Nanos(now);
                let due: Vec<_> = list.extract_if(.., |entry| is_due(entry)).collect();
                prop_assert_eq!(clients.take_due(Nanos(now)).collect::<Vec<_>>(), due);
                prop_assert_eq!(clients.next_due(), list.iter().map(|(_, next)| next.at()).min());
            }
        }
    }
}
