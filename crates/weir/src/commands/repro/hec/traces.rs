//! The loads that stand for the traces.

use super::super::parameters::{Parameters, unusable};
use super::super::results::Metrics;
use super::experiments::TPCEP;
use crate::failure::Failure;
use crate::pool_file;
use weir_model::{Bytes, ErrorKind, Nanos};
use weir_sim::analysis::{Analysis, Analyzer, Settings};
use weir_sim::cache::{AdmissionPolicy, AdmissionSettings, BlockTrace, Loader};
use weir_sim::flash_cache::WarmUp;
use weir_sim::load::{parse, records};

/// The named load that the parameters of the polluted database describe.
#[cfg(test)]
pub(in super::super) const LOAD: &str = "oltp+backup";

/// Returns the words of the polluted database: a database, and a backup that reads all of it.
pub(in super::super) fn load_words(p: &Parameters) -> Result<String, Failure> {
    let percent = |name: &str| Ok::<_, Failure>(p.share(name)? * 100.0);
    let (data, database_rate, backup_rate) =
        (p.size("data")?.0, p.number("database_rate")?, p.number("backup_rate")?);
    let [page, extent]: [Bytes; 2] = p.several_sizes("database_request")?;
    let pages = p.count("pages_for_an_extent")?;
    Ok(format!(
        "hotcold hot=first part={}% hits={}% reads={}% size={}B:{pages},{}B:1 over={data}B \
         rate={database_rate} & scan size={}B pieces={}B over={data}B rate={backup_rate}",
        percent("in_use")?,
        percent("to_in_use")?,
        percent("reads")?,
        page.0,
        extent.0,
        p.blocks("backup_request")?.0,
        p.blocks("pieces")?.0,
    ))
}

/// In this time all requests of a load from `bench/published-traces` arrive at full scale.
const DURATION: Nanos = Nanos::secs(10_000);
/// The data of a load is a multiple of this.
const DATA_UNIT: u64 = 64 << 10;

/// A load that stands for a trace.
pub(super) struct TraceSource {
    words: String,
    pub(super) duration: Nanos,
    /// Share of the duration that warms the caches; `None` if the whole trace does, before it runs again.
    warm_up: Option<f64>,
}

impl TraceSource {
    /// Returns the load for a trace, in full or in the short form.
    ///
    /// # Errors
    /// Fails if a parameter is unusable.
    pub(super) fn new(p: &Parameters, trace: &str, full: bool) -> Result<Self, Failure> {
        if trace == TPCEP {
            // The backup reads everything twice, and the first pass warms the caches.
            let warm_up = Some(p.share("warm_up")?);
            return Ok(Self { words: load_words(p)?, duration: p.time("duration")?, warm_up });
        }
        let [short, whole] = p.shares("scale")?;
        let scale = if full { whole } else { short };
        let name = format!("trace_{trace}");
        let words = scaled(p.text(&name)?, scale);
        let words = words.ok_or_else(|| unusable(&name, "has no amount of data in KiB"))?;
        let duration = Nanos::from_secs_f64(DURATION.as_secs_f64() * scale);
        Ok(Self { words, duration, warm_up: None })
    }
}

/// Returns the words of a load with a share of its amount of data, and with its parts in the same places.
fn scaled(words: &str, scale: f64) -> Option<String> {
    let mut is_scaled = false;
    let word = |word: &str| {
        let Some((key @ ("over" | "at"), size)) = word.split_once('=') else { return Some(word.to_owned()) };
        let kib: f64 = size.strip_suffix("KiB")?.parse().ok()?;
        let units = (kib * 1024.0 * scale / DATA_UNIT as f64).round().max(1.0) as u64;
        is_scaled = true;
        Some(format!("{key}={}B", units * DATA_UNIT))
    };
    let words: Option<Vec<String>> = words.split(' ').map(word).collect();
    words.filter(|_| is_scaled).map(|words| words.join(" "))
}

/// A trace, ready to be played.
pub(super) struct PlayedTrace {
    pub(super) blocks: BlockTrace,
    pub(super) warm_up: WarmUp,
    /// Statistics of the part that counts.
    analysis: Analysis,
    /// Distinct blocks of the part that counts.
    unique: u64,
}

impl PlayedTrace {
    pub(super) fn new(source: &TraceSource, seed: u64) -> Result<Self, Failure> {
        let failure = |error: String| Failure::from_message(ErrorKind::Usage, &error);
        let mut load = parse(&source.words, seed, pool_file::size, pool_file::duration)
            .map_err(|error| failure(error.to_string()))?;
        let mut loader = Loader::default();
        // All blocks of the polluted database, whose critical sizes are those of its second half.
        let tracked = if source.warm_up.is_some() { u32::MAX } else { 1 << 12 };
        let mut analyzer = Analyzer::new(Settings { blocks: tracked, ..Settings::default() });
        let counts_from = source.duration.as_secs_f64() * source.warm_up.unwrap_or(0.0);
        let mut warm_up = 0;
        for record in records(&mut *load, source.duration) {
            loader.take(&record);
            if record.at.as_secs_f64() < counts_from {
                warm_up += 1;
            } else {
                analyzer.take(&record);
            }
        }
        let blocks = loader.finish().map_err(|error| failure(error.to_string()))?;
        let (analysis, _) = analyzer.finish().map_err(|error| failure(error.to_string()))?;
        Ok(Self {
            unique: if source.warm_up.is_some() { analysis.blocks } else { blocks.blocks().into() },
            warm_up: source.warm_up.map_or(WarmUp::Pass, |_| WarmUp::Requests(warm_up)),
            blocks,
            analysis,
        })
    }

    /// Returns the critical size of an admission policy in blocks.
    pub(super) fn critical(&self, policy: &AdmissionPolicy) -> u64 {
        match self.warm_up {
            WarmUp::Requests(_) => {
                let of_policy = self.analysis.critical.iter().find(|one| one.admission == policy.name);
                of_policy.map_or(0, |one| one.blocks)
            }
            WarmUp::Pass => {
                weir_sim::cache::critical_blocks(&self.blocks, policy, &AdmissionSettings::default()).into()
            }
        }
    }

    /// Returns the number of distinct blocks of the part that counts.
    pub(super) const fn unique(&self) -> u64 {
        self.unique
    }

    /// Returns the statistics of the trace, as shares of all bytes and of all requests.
    pub(super) fn statistics(&self) -> Metrics {
        let Analysis { reads, writes, sequentiality, .. } = &self.analysis;
        let bytes = (reads.bytes + writes.bytes) as f64;
        let unique = self.unique as f64 * self.blocks.block().bytes().0 as f64;
        let values = [
            ("share read", reads.bytes as f64 / bytes),
            ("share written", writes.bytes as f64 / bytes),
            ("reads to writes", reads.bytes as f64 / writes.bytes as f64),
            ("unique share", unique / bytes),
            ("sequential share", sequentiality.after_recent),
            ("other share", 1.0 - sequentiality.after_recent),
        ];
        let finite = values.into_iter().filter(|(_, value)| value.is_finite());
        finite.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn amount_of_data_is_scaled_in_whole_units() {
        let words = "uniform over=1024KiB rate=5";
        assert_eq!(scaled(words, 0.5).as_deref(), Some("uniform over=524288B rate=5"));
        assert_eq!(scaled(words, 1e-9).as_deref(), Some("uniform over=65536B rate=5"));
        assert_eq!(scaled("uniform rate=5", 0.5), None);
        let parts = scaled("uniform over=1024KiB & uniform at=1024KiB over=2048KiB", 0.5);
        let halves = "uniform over=524288B & uniform at=524288B over=1048576B";
        assert_eq!(parts.as_deref(), Some(halves), "the parts stay side by side");
    }
}
