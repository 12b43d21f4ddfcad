//! Searches for mutants with the campaign and the tests, in rounds if only a number of them must be found.

use super::{Args, Wanted, campaign, suite};
use crate::mix::Mix;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use weir_world::{Mutant, Net};

/// Number of rounds when the number of mutants to find is limited.
const ROUNDS: u32 = 10;

/// The search for a mutant, with its progress.
pub(super) struct Search {
    pub(super) mutant: Mutant,
    pub(super) campaign: campaign::Position,
    pub(super) found: Option<Found>,
}

/// How a mutant was found.
pub(super) struct Found {
    pub(super) by: String,
    pub(super) time: Duration,
    pub(super) crashes: Option<u64>,
    /// The symptom.
    pub(super) symptom: String,
    pub(super) evidence: Evidence,
}

/// What a failure says about a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The campaign's oracle or a test states a fault: the mutant is found.
    Verdict,
    /// A panic, a history or test that does not end, or a program that ends abnormally. It does not count: it
    /// depends on assertions that other builds lack, and on time limits.
    NoVerdict,
    /// The same seed fails without the mutant: a bug of weir.
    Bug,
}

impl Search {
    pub(super) fn is_found(&self) -> bool {
        self.has(Evidence::Verdict)
    }

    pub(super) fn has(&self, evidence: Evidence) -> bool {
        self.found.as_ref().is_some_and(|found| found.evidence == evidence)
    }

    fn is_for_tests(&self) -> bool {
        matches!(self.mutant.net(), Net::Test(_) | Net::Property(_))
    }

    /// Returns the mix of the campaign's histories.
    pub(super) fn mix(&self, args: &Args) -> Mix {
        if self.mutant.net() == Net::Served { Mix::Served } else { args.mix }
    }

    fn print(&self) {
        let Some(Found { symptom, evidence, .. }) = &self.found else { return };
        let name = self.mutant.name();
        match evidence {
            Evidence::Bug => println!("{name}: a bug that needs no mutant: {symptom}"),
            Evidence::NoVerdict => println!("{name}: does not count: {symptom}"),
            Evidence::Verdict => println!("{name}: {symptom}"),
        }
    }
}

/// Searches for the mutants with the nets wanted.
pub(super) fn run(args: &Args, wanted: &[Mutant], seed: u64) -> Result<Vec<Search>, String> {
    let from = campaign::Position::from(seed);
    let search = |&mutant| Search { mutant, campaign: from, found: None };
    let mut searches: Vec<_> = wanted.iter().map(search).collect();
    let needs_tests = |search: &Search| match args.net {
        Wanted::Named => search.is_for_tests(),
        Wanted::Campaign => false,
        Wanted::Tests | Wanted::All => true,
    };
    let programs = searches.iter().any(needs_tests).then(suite::build).transpose()?.unwrap_or_default();
    println!("{} mutants, {} at a time, seeds from {seed} on, {:?} mix", wanted.len(), args.jobs, args.mix);
    // The campaign finds mutants that it must find sooner than others: these come first in each round. Others
    // are searched for in the first and the last round only, unless many are searched for together.
    searches.sort_by_key(Search::is_for_tests);
    let for_campaign = searches.partition_point(|search| !search.is_for_tests());
    let rounds = if args.enough.is_some() && args.net == Wanted::Campaign { ROUNDS } else { 1 };
    for round in (0..rounds).rev() {
        let (is_first, is_last) = (round + 1 == rounds, round == 0);
        let count = if is_first || is_last || args.together > 1 { searches.len() } else { for_campaign };
        let together = if is_first { 1 } else { args.together };
        let found = searches.iter().filter(|search| search.is_found()).count();
        let needed = args.enough.unwrap_or(usize::MAX).saturating_sub(found);
        let groups = groups(args, &mut searches[..count], together);
        search_groups(args, args.minutes / (1 << round), needed, groups, &programs);
    }
    Ok(searches)
}

/// Returns the mutants that are not found yet in groups of up to `together`, each for one mix. Neighbours in
/// the list tend to break the same rule, and to conceal one another: they come into different groups. One
/// that makes the engine panic would end the histories of others early: it is a group of its own.
fn groups<'a>(args: &Args, searches: &'a mut [Search], together: usize) -> Vec<Vec<&'a mut Search>> {
    let left = searches.iter_mut().filter(|search| !search.is_found() && !search.has(Evidence::Bug));
    let (panicking, left): (Vec<_>, Vec<_>) = left.partition(|search| search.found.is_some());
    let (of_server, left): (Vec<_>, Vec<_>) =
        left.into_iter().partition(|search| search.mix(args) != args.mix);
    let mut groups = Vec::new();
    for members in [left, of_server] {
        let first = groups.len();
        let count = members.len().div_ceil(together);
        groups.extend((0..count).map(|_| Vec::new()));
        for (at, search) in members.into_iter().enumerate() {
            groups[first + at % count].push(search);
        }
    }
    groups.extend(panicking.into_iter().map(|search| vec![search]));
    groups
}

/// Continues the search for these groups of mutants, up to a total processor time for each mutant, until as
/// many as needed are found.
fn search_groups(
    args: &Args,
    until: Duration,
    needed: usize,
    groups: Vec<Vec<&mut Search>>,
    programs: &[suite::Program],
) {
    let found = AtomicUsize::new(0);
    let groups = Mutex::new(groups.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                while found.load(Ordering::Relaxed) < needed {
                    let Some(mut group) = groups.lock().ok().and_then(|mut groups| groups.next()) else {
                        break;
                    };
                    match &mut group[..] {
                        [search] => find(args, until, search, programs),
                        group => campaign::find(args, group, until),
                    }
                    found.fetch_add(
                        group.iter().filter(|search| search.is_found()).count(),
                        Ordering::Relaxed,
                    );
                    group.iter().for_each(|search| search.print());
                }
            });
        }
    });
}

/// Runs the selected nets on a mutant until one finds it.
fn find(args: &Args, until: Duration, search: &mut Search, programs: &[suite::Program]) {
    let mutant = search.mutant;
    if matches!(
        (args.net, mutant.net()),
        (Wanted::Named, Net::Test(_) | Net::Property(_)) | (Wanted::Tests, _)
    ) {
        let name = match mutant.net() {
            Net::Test(name) | Net::Property(name) if args.net == Wanted::Named => Some(name),
            _ => None,
        };
        search.found = suite::find(mutant, programs, name);
        return;
    }
    campaign::find(args, &mut [&mut *search], until);
    let is_decided = search.is_found() || search.has(Evidence::Bug);
    if args.net == Wanted::All && !is_decided {
        search.found = suite::find(mutant, programs, None).or(search.found.take());
    }
    if args.net == Wanted::Named && mutant.net() == Net::Check {
        search.found.take_if(|found| !found.symptom.contains("the check finds"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn mutants_are_grouped_by_mix_and_away_from_their_neighbours() {
        let Command { args } = Command::parse_from(["mutants", "--enough", "1", "--together", "4"]);
        let position = campaign::Position::from(0);
        let search = |&mutant| Search { mutant, campaign: position, found: None };
        let mut searches: Vec<_> = Mutant::ALL.iter().map(search).collect();
        let found = |evidence| Found {
            by: String::new(),
            time: Duration::ZERO,
            crashes: None,
            symptom: String::new(),
            evidence,
        };
        searches[0].found = Some(found(Evidence::Verdict));
        searches[1].found = Some(found(Evidence::Bug));
        searches[2].found = Some(found(Evidence::NoVerdict));
        let groups = groups(&args, &mut searches, args.together);
        let members: Vec<Vec<_>> =
            groups.iter().map(|group| group.iter().map(|search| search.mutant).collect()).collect();
        assert_eq!(members.concat().len(), Mutant::ALL.len() - 2);
        assert_eq!(members.last().map(Vec::as_slice), Some(&Mutant::ALL[2..3]), "it panics");
        for group in &members {
            assert!(group.len() <= 4);
            let of_server = group.iter().filter(|mutant| mutant.net() == Net::Served).count();
            assert!(of_server == 0 || of_server == group.len());
            for pair in group.windows(2) {
                assert!(pair[1] as usize > pair[0] as usize + 1, "neighbours: {pair:?}");
            }
        }
    }
}
