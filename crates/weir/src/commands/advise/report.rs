//! Formats advice as text and as JSON.

mod document;

pub(crate) use document::AdviceDocument;

use super::device_list::DeviceList;
use crate::output::{Width, table};
use std::path::PathBuf;
use weir_model::{Bytes, Nanos};
use weir_sim::advise::{
    BudgetCost, Cents, DeviceGroup, DeviceSet, Forecast, Limits, RequiredCapacity, Rule, SetFigures,
    Simulated, Years, is_fast,
};
use weir_sim::plot::{Frontier, PlottedSet};
use weir_sim::{AmplificationSource, DeviceEndurance, Responses};

/// The recommendation and its alternatives.
#[derive(Debug)]
pub(super) struct Advice {
    pub(super) trace: String,
    /// Parts of the trace that could not be used as they are.
    pub(super) notes: Vec<String>,
    pub(super) policy: String,
    pub(super) seed: u64,
    /// Whether the predictions are from the first half of the trace and the simulations from the second.
    pub(super) is_held_out: bool,
    /// Number of requests that the predictions are from.
    pub(super) requests: usize,
    pub(super) footprint: Bytes,
    pub(super) required: RequiredCapacity,
    pub(super) rule: Rule,
    pub(super) limits: Limits,
    pub(super) list: DeviceList,
    pub(super) rows: Vec<Row>,
    /// Indices of the simulated rows, by ascending price.
    pub(super) finalists: Vec<usize>,
    /// Index of the picked row.
    pub(super) pick: usize,
    /// The cells for which the life of flash is computed.
    pub(super) cell: String,
    /// A write budget, and what it costs; `None` if the pick has no fast device that is flash.
    pub(super) write_budget: Option<(Bytes, Option<BudgetCost>)>,
    pub(super) pool_file: Option<PathBuf>,
}

/// A set of devices with its predicted and simulated results.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) set: DeviceSet,
    pub(super) forecast: Forecast,
    pub(super) is_on_frontier: bool,
    pub(super) run: Option<EngineRun>,
}

/// The result of simulating a set with the engine.
#[derive(Debug)]
pub(super) struct EngineRun {
    pub(super) figures: SetFigures,
    pub(super) responses: Responses,
    pub(super) unanswered: u64,
    /// Requests answered a second, and requests offered a second.
    rates: (f64, f64),
    /// The reason, if the set could not keep up.
    overload_reason: Option<String>,
    /// Share of clients' commands that the fast devices carried out.
    served: f64,
    /// Endurance of the flash of each kind that is flash.
    endurance: Vec<(DeviceGroup, DeviceEndurance)>,
}

impl EngineRun {
    pub(super) fn new(simulated: Simulated) -> Self {
        let outcome = &simulated.outcome;
        let seconds = outcome.measured.as_secs_f64().max(1e-9);
        let unmeasured =
            || (outcome.all.count == 0).then(|| "nothing that it answers is measured".to_owned());
        let devices = &outcome.devices;
        let fast = devices.iter().filter(|device| is_fast(&device.name));
        Self {
            figures: simulated.figures,
            responses: outcome.all,
            unanswered: outcome.unanswered,
            rates: (outcome.rate, outcome.requests as f64 / seconds),
            overload_reason: outcome.cannot_keep_up().or_else(unmeasured),
            served: fast.map(|device| device.served).sum(),
            endurance: simulated.endurance,
        }
    }
}

impl Row {
    pub(super) fn new(set: DeviceSet, forecast: Forecast) -> Self {
        Self { set, forecast, is_on_frontier: false, run: None }
    }

    /// Returns the reason if the set cannot keep up with the trace: by the simulation, or else by the
    /// prediction.
    pub(super) fn cannot_keep_up(&self) -> Option<String> {
        self.run.as_ref().map_or_else(|| self.forecast.cannot_keep_up(), |run| run.overload_reason.clone())
    }

    /// Returns the response times of all requests: simulated, or else predicted.
    fn responses(&self) -> &Responses {
        self.run.as_ref().map_or(&self.forecast.responses, |run| &run.responses)
    }

    /// Returns the simulated figures, or else the predicted ones.
    pub(super) fn figures(&self) -> SetFigures {
        self.run.as_ref().map_or(self.forecast.figures, |run| run.figures)
    }
}

impl Advice {
    /// Returns the frontier for plotting.
    pub(super) fn picture(&self) -> Frontier {
        let shown = |(index, row): (usize, &Row)| PlottedSet {
            name: row.set.name(&self.list.offers),
            predicted: row.forecast.figures,
            simulated: row.run.as_ref().map(|run| run.figures),
            keeps_up: row.cannot_keep_up().is_none(),
            is_on_frontier: row.is_on_frontier,
            is_pick: index == self.pick,
        };
        Frontier {
            currency: self.list.currency.clone(),
            sets: self.rows.iter().enumerate().map(shown).collect(),
        }
    }

    /// Returns the text that is printed without `--json`: the pick in words, and a table of the finalists.
    pub(super) fn human(&self, width: Width) -> String {
        let mut text = format!("{}: {}\n\n", self.trace, self.describe_basis());
        for words in self.summary() {
            text += &format!("{words}\n");
        }
        text += "\n";
        // The simulated figures decide, so narrow terminals show those.
        let heading = [
            "SET",
            &self.list.currency,
            "MEAN",
            "P99",
            "FLASH LASTS",
            "HITS",
            "PREDICTED MEAN",
            "PREDICTED P99",
            "PREDICTED LIFE",
        ];
        text += &table(width, heading, self.finalists.iter().map(|index| self.cells(*index)));
        text += &self.remarks();
        let slow = self.rows.iter().filter(|row| row.cannot_keep_up().is_some()).count();
        let beaten = self.rows.iter().filter(|row| !row.is_on_frontier).count() - slow;
        text += &format!(
            "\n{} sets were looked at; {beaten} of them are no better than another one in anything",
            self.rows.len()
        );
        text += &if slow > 0 { format!(", {slow} cannot keep up.\n") } else { ".\n".into() };
        if let Some(path) = &self.pool_file {
            text += &format!("The pool file is {}; put in where the devices are.\n", path.display());
        }
        for note in &self.notes {
            text += &format!("\nnote: {note}\n");
        }
        text
    }

    /// Returns the basis of the advice: requests, footprint, capacity and policy.
    fn describe_basis(&self) -> String {
        let mut text = format!("{} requests to {}", self.requests, self.footprint);
        if self.required.active != self.footprint {
            text += &format!(", which stand for {} in use", self.required.active);
        }
        text += &format!("; room for {}; {}", self.required.capacity, self.policy);
        if self.is_held_out {
            text += "; predicted from the first half, simulated on the second";
        }
        text
    }

    /// Returns remarks on the sets in the table.
    fn remarks(&self) -> String {
        let mut text = String::new();
        for row in self.finalists.iter().map(|index| &self.rows[*index]) {
            let name = row.set.name(&self.list.offers);
            match row.cannot_keep_up() {
                Some(why) => text += &format!("\n{name} {why}\n"),
                None => {
                    let tail = row.responses().heavy_tail();
                    text += &tail.map_or(String::new(), |tail| format!("\n* {name}: {tail}\n"));
                }
            }
        }
        text
    }

    fn cells(&self, index: usize) -> [String; 9] {
        let row = &self.rows[index];
        let predicted = &row.forecast.figures;
        let cannot = || "cannot keep up".to_owned();
        let time = |time: Nanos, is_starred: bool| format!("{time}{}", if is_starred { " *" } else { "" });
        let run =
            |figure: &dyn Fn(&EngineRun) -> String| row.run.as_ref().map_or_else(|| "-".to_owned(), figure);
        let measured = |figure: &dyn Fn(&EngineRun) -> String| {
            run(&|run| if run.overload_reason.is_some() { "-".to_owned() } else { figure(run) })
        };
        let forecast = |text: String| if row.forecast.keeps_up() { text } else { "-".to_owned() };
        [
            format!("{} {}", if index == self.pick { "->" } else { "  " }, row.set.name(&self.list.offers)),
            predicted.price.to_string(),
            run(&|run| match run.overload_reason {
                Some(_) => cannot(),
                None => time(run.figures.mean, run.responses.heavy_tail().is_some()),
            }),
            measured(&|run| run.figures.p99.to_string()),
            measured(&|run| run.figures.life.to_string()),
            if row.set.fast.is_some() {
                format!("{:.0} %", row.forecast.hit_share * 100.0)
            } else {
                "-".into()
            },
            if row.forecast.keeps_up() { predicted.mean.to_string() } else { cannot() },
            forecast(predicted.p99.to_string()),
            forecast(predicted.life.to_string()),
        ]
    }

    /// Returns sentences about the pick, and about the effect of spending less and more.
    fn summary(&self) -> Vec<String> {
        let pick = &self.rows[self.pick];
        let judged = pick.figures();
        let mut words = vec![
            format!("Buy {}: {} {}.", self.full_names(&pick.set), judged.price, self.list.currency),
            format!("{}.", self.pick_reason()),
            format!(
                "A request takes {} on average, and 99 of 100 take at most {}. {}",
                judged.mean,
                judged.p99,
                format_life(judged.life)
            ),
        ];
        words.extend(pick.responses().heavy_tail().map(|tail| format!("{}.", capitalised(&tail))));
        if pick.set.fast.is_some() {
            let [of_all, of_fastest] =
                [pick.forecast.hit_share, pick.forecast.fastest_share].map(|share| share * 100.0);
            let fastest = pick.set.second.map_or(String::new(), |_| {
                format!(" ({of_fastest:.0} % the faster kind, {:.0} % the other one)", of_all - of_fastest)
            });
            words.push(format!(
                "What is used most is on the fast devices, which answer {of_all:.0} % of the reads{fastest}; the slow ones have \
                 room for everything."
            ));
        }
        words
            .extend(pick.run.iter().flat_map(|run| &run.endurance).map(|kind| self.describe_endurance(kind)));
        words.extend(stacked_logs(pick));
        words.extend(self.write_budget.map(|(budget, cost)| describe_budget(budget, cost, pick)));
        let at = self.finalists.iter().position(|index| *index == self.pick).unwrap_or(0);
        let ran =
            |index: &&usize| self.rows[**index].run.as_ref().is_some_and(|run| run.overload_reason.is_none());
        if let Some(less) = self.finalists[..at].iter().rfind(ran) {
            words.push(self.compare_sets(&self.rows[*less], pick, "Going from"));
        }
        if let Some(more) = self.finalists[at + 1..].iter().find(ran) {
            words.push(self.compare_sets(pick, &self.rows[*more], "Going on from"));
        }
        words
    }

    /// Returns a sentence about the endurance of a kind of flash.
    fn describe_endurance(&self, (kind, found): &(DeviceGroup, DeviceEndurance)) -> String {
        let name = &self.list.offers[kind.offer].name;
        let Some(written) = found.lifetime.bytes_per_day else {
            return format!("Nothing is written to {name}.");
        };
        let how = match found.source {
            AmplificationSource::ClosedForm => "at most, if all writes were random",
            AmplificationSource::Log | AmplificationSource::UnsteadyLog => "as these writes make it clean",
        };
        format!(
            "{name} gets {} a day and programs {:.2} times as much ({how}; {:.0} % of its flash spare): \
             {} last {}.",
            Bytes(written as u64),
            found.amplification,
            found.spare_factor * 100.0,
            self.cell,
            found.lifetime.life_years.map_or(Years::UNLIMITED, Years)
        )
    }

    fn pick_reason(&self) -> String {
        // A finalist with shorter flash life could be better otherwise.
        let is_short = self.finalists.iter().any(|index| self.wears_out_early(&self.rows[*index]));
        let lasting = |how: &str| match is_short {
            true => format!(" {how} lasts {} years", self.limits.life.0),
            false => String::new(),
        };
        match self.rule {
            Rule::Cheapest => "It is the cheapest that keeps to the limits".to_owned(),
            Rule::Fastest => {
                let limit = format!("{} {}", self.limits.budget.unwrap_or_default(), self.list.currency);
                let pick = self.rows[self.pick].figures();
                let is_faster = |index: &usize| {
                    let row = &self.rows[*index];
                    let judged = row.figures();
                    let is_eligible = row.cannot_keep_up().is_none() && self.limits.is_satisfied_by(&judged);
                    is_eligible && judged.response() < pick.response() && judged.price > pick.price
                };
                let lasting = lasting("whose flash");
                match self.finalists.iter().any(is_faster) {
                    true => format!(
                        "It is the cheapest of the fastest for up to {limit}{lasting}: those within 5 % \
                         count as equally fast"
                    ),
                    false => format!("It is the fastest for up to {limit}{lasting}"),
                }
            }
            Rule::Balanced => format!(
                "It has the best ratio of speed to price of the simulated sets{}: a dearer set adds more to the price \
                 than it takes from the response time, in proportion, and a cheaper set the other way round",
                lasting("whose flash")
            ),
        }
    }

    /// Returns whether the set's flash lasts less than the limit.
    fn wears_out_early(&self, row: &Row) -> bool {
        row.figures().life < self.limits.life
    }

    /// Returns a sentence that compares a set with a more expensive one.
    fn compare_sets(&self, from: &Row, to: &Row, going: &str) -> String {
        let offers = &self.list.offers;
        let (less, more) = (from.figures(), to.figures());
        let price = Cents(more.price.0.saturating_sub(less.price.0));
        let short = [from, to].into_iter().filter(|row| self.wears_out_early(row));
        let short =
            short.map(|row| format!("; the flash of {} lasts {}", row.set.name(offers), row.figures().life));
        format!(
            "{going} {} to {} costs {price} {} more and {}; 99 of 100 requests take {} instead of {}{}.",
            from.set.name(offers),
            to.set.name(offers),
            self.list.currency,
            saving(less.mean, more.mean),
            more.p99,
            less.p99,
            short.collect::<String>()
        )
    }

    /// Returns the devices of a set by their full names.
    fn full_names(&self, set: &DeviceSet) -> String {
        let kinds = set.kinds().map(|several| {
            let about = &self.list.offers[several.offer].about;
            if several.count == 1 { about.clone() } else { format!("{} x {about}", several.count) }
        });
        kinds.collect::<Vec<_>>().join(" and ")
    }
}

/// Returns advice against logs on logs, if the pick has flash, which is a log.
fn stacked_logs(pick: &Row) -> Option<String> {
    let has_flash = pick.run.as_ref().is_some_and(|run| !run.endurance.is_empty());
    has_flash.then(|| {
        "A log-structured file system or database on its volumes is a log on the SSD's log. Give it \
         segments at least as large as the SSD's, leave part of the capacity unwritten, let it TRIM whole \
         segments, and use few logs: weir sim logs computes the writes of both."
            .to_owned()
    })
}

/// Returns a sentence about what a write budget costs the pick.
fn describe_budget(budget: Bytes, cost: Option<BudgetCost>, pick: &Row) -> String {
    let Some(BudgetCost { written_per_day: [limited, free], hit_share: [less, more], .. }) = cost else {
        let has_flash = pick.run.as_ref().is_some_and(|run| !run.endurance.is_empty());
        let why = match (pick.set.fast, has_flash) {
            (None, true) => "all devices are SSDs, so writes have nowhere else to go",
            (None, false) => "no device is flash",
            (Some(_), _) => "no fast device is flash",
        };
        return format!("A budget of {budget} a day limits nothing: {why}.");
    };
    let per_day = |bytes: f64| Bytes(bytes as u64);
    format!(
        "With at most {budget} a day written to the fast devices, they would answer {:.0} % of the reads \
         instead of {:.0} %, and get {} a day instead of {}, by the prediction.",
        less * 100.0,
        more * 100.0,
        per_day(limited),
        per_day(free)
    )
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn format_life(life: Years) -> String {
    if life == Years::UNLIMITED {
        "Writing does not wear it out.".into()
    } else {
        format!("If it is always written to like this, its flash lasts {life}.")
    }
}

/// Returns a phrase that compares the second response time with the first.
fn saving(before: Nanos, after: Nanos) -> String {
    if after < before {
        let share = (before - after).0 as f64 / before.0.max(1) as f64;
        format!("saves {} of a request's {before} ({:.0} %)", before - after, share * 100.0)
    } else {
        format!("is no faster: a request takes {after} instead of {before}")
    }
}

#[cfg(test)]
mod tests;
