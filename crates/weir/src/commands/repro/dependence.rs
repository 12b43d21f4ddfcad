//! Finds rows that others determine: the third of three ratios has no vote, whatever it compares.
//!
//! The logarithm of a ratio is the sum of the logarithms of its metrics, so a row is determined by others if
//! it is a linear combination of them. Shares are not added up: only the same share again is determined.

use super::published::{Publication, Published, Row, Run, Source};
use std::collections::BTreeMap;

/// Metrics of experiments, by name, with their exponents in a ratio.
type Exponents = BTreeMap<String, f64>;

/// Exponents that are as small as this come from rounding.
const ZERO: f64 = 1e-9;

/// Rows that are independent of each other.
#[derive(Debug, Default)]
pub(super) struct Independent {
    /// By a metric that no other of them has.
    rows: BTreeMap<String, Exponents>,
}

impl Independent {
    /// Adds a row. Returns whether those before do not determine it.
    pub(super) fn add(&mut self, row: &Row) -> bool {
        let Source::Run(run) = &row.source else { return true };
        let mut rest = self.reduce(exponents(run, matches!(row.published, Published::Share(_))));
        let Some((pivot, exponent)) =
            rest.first_key_value().map(|(name, exponent)| (name.clone(), *exponent))
        else {
            return false;
        };
        rest.values_mut().for_each(|one| *one /= exponent);
        for other in self.rows.values_mut() {
            if let Some(factor) = other.get(&pivot).copied() {
                subtract(other, &rest, factor);
            }
        }
        self.rows.insert(pivot, rest);
        true
    }

    /// Returns what is left of a row without those that are known.
    fn reduce(&self, mut exponents: Exponents) -> Exponents {
        let names: Vec<_> = exponents.keys().cloned().collect();
        for name in names {
            if let Some((row, factor)) = self.rows.get(&name).zip(exponents.get(&name).copied()) {
                subtract(&mut exponents, row, factor);
            }
        }
        exponents
    }
}

fn subtract(from: &mut Exponents, what: &Exponents, factor: f64) {
    for (name, exponent) in what {
        let left = from.get(name).copied().unwrap_or_default() - factor * exponent;
        match left.abs() < ZERO {
            true => from.remove(name),
            false => from.insert(name.clone(), left),
        };
    }
}

/// Returns the metrics of which a row is made.
fn exponents(run: &Run, is_share: bool) -> Exponents {
    let mut all = Exponents::new();
    add_run(&mut all, run, is_share, 1.0);
    all.retain(|_, exponent| exponent.abs() >= ZERO);
    all
}

fn add_run(all: &mut Exponents, run: &Run, is_share: bool, sign: f64) {
    let metric = |names: &[String]| {
        let best = if names.len() > 1 { format!("{:?} {:?}", run.best, run.numbers) } else { String::new() };
        format!("{is_share} {} of {} {best}", run.metric, names.join("; "))
    };
    *all.entry(metric(&run.of)).or_default() += sign;
    if !run.to.is_empty() {
        *all.entry(metric(&run.to)).or_default() -= sign;
    }
    if let Some(over) = &run.over {
        add_run(all, over, is_share, -sign);
    }
}

/// Notes which rows are determined by those with a vote before them.
pub(super) fn mark(publication: &mut Publication) {
    let mut independent = Independent::default();
    for row in publication.tables.iter_mut().flat_map(|table| &mut table.rows) {
        row.is_determined = row.has_vote() && !independent.add(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_of_three_ratios_is_determined() {
        let row = |quantity: &str, published: &str, of: &str, to: &str| {
            let to = if to.is_empty() { String::new() } else { format!(", to = {to:?}") };
            format!(
                "[[table.row]]\nquantity = {quantity:?}\n{published}\n\
                 run = {{ metric = \"rate\", of = {of:?}{to} }}\n"
            )
        };
        let rows = [
            row("a to c", "ratio = [2, 2]", "a", "c"),
            row("b to c", "direction = \"more\"", "b", "c"),
            row("c to d", "ratio = [2, 2]", "c", "d"),
            row("a to b", "direction = \"less\"", "a", "b"),
            row("d to a", "words = \"similar\"", "d", "a"),
            row("e to a", "ratio = [2, 2]", "e", "a"),
            // (h / i) / (h / k) is k / i.
            row("gain", "ratio = [2, 2]", "h", "i")
                .replace(" }", ", over = { metric = \"rate\", of = \"h\", to = \"k\" } }"),
            row("k to i", "ratio = [2, 2]", "k", "i"),
            row("share of a", "share = [0.1, 0.2]", "a", ""),
            row("share of a again", "share = [0.1, 0.3]", "a", ""),
        ];
        let text = format!(
            "source = \"s\"\n[[table]]\nat = \"t\"\nwhat = \"w\"\nbaseline = \"b\"\n{}",
            rows.concat()
        );
        let mut publication = Publication::read(&text).expect("valid");
        mark(&mut publication);
        let votes: Vec<_> = publication.rows().map(|(_, row)| row.has_vote()).collect();
        assert_eq!(votes, [true, true, true, false, false, true, true, false, true, false]);
    }
}
