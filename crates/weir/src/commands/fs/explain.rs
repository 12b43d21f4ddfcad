//! `weir fs explain` shows where a file's bytes are, and why.

use super::status::ask;
use crate::failure::Failure;
use crate::output::{Width, table};
use std::path::Path;
use weir_fs::report::{ContainerPart, EXPLAIN, Explanation, RangePart};
use weir_model::Bytes;

/// Returns where a file of a mounted file system is.
///
/// # Errors
/// Fails if there is no such file, or if it is in no mount of weir.
pub(super) fn explain(file: &Path) -> Result<Explanation, Failure> {
    ask(file, EXPLAIN)?.ok_or_else(|| {
        Failure::usage(
            format!("{} is in no mounted file system of weir", file.display()),
            "name a file below the directory of a mount (weir fs mount)",
        )
    })
}

/// Returns the explanation for people.
pub(super) fn human(explained: &Explanation, width: Width) -> String {
    let mut text = format!(
        "{} of {}, inode {}, {} allocated\n{}: {}\n",
        explained.kind.replace('_', " "),
        Bytes(explained.size_bytes),
        explained.inode,
        Bytes(explained.allocated_bytes),
        match explained.form.as_str() {
            "run" => "one run of pages",
            "chunks" => "chunks of its own",
            "container" => "a container",
            "lost" => "data lost",
            _ => "no space",
        },
        explained.reason
    );
    if explained.pinned {
        text += "pinned: it is not evicted (weir fs unpin)\n";
    }
    if let Some(ContainerPart { tier, class, number, path }) = &explained.container {
        text += &format!("\ncontainer {number} of tier {tier} ({class}):\n{path}\n");
    }
    if explained.ranges.is_empty() {
        return text;
    }
    let row = |range: &RangePart| {
        [
            range.offset_bytes.to_string(),
            Bytes(range.length_bytes).to_string(),
            format!("byte {}", range.region_offset_bytes),
            if range.unwritten { "not written yet: zeros" } else { "data" }.to_owned(),
            range.wear.to_string(),
        ]
    };
    let heading = ["OFFSET", "ALLOCATED", "IN THE REGION", "STATE", "WEAR"];
    text += &format!("\n{}", table(width, heading, explained.ranges.iter().map(row)));
    if explained.more_ranges > 0 {
        text += &format!("... and {} more ranges\n", explained.more_ranges);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::assert_fits;

    fn sample() -> Explanation {
        let range = RangePart {
            offset_bytes: u64::MAX,
            length_bytes: 2 << 20,
            region_offset_bytes: 1 << 40,
            unwritten: true,
            wear: 3,
        };
        Explanation {
            inode: 17,
            kind: "file".to_owned(),
            size_bytes: 5 << 20,
            allocated_bytes: 6 << 20,
            form: "chunks".to_owned(),
            reason: "it is large".to_owned(),
            container: Some(ContainerPart {
                tier: 1,
                class: "disk".to_owned(),
                number: 17,
                path: "/mnt/disk/weir/containers/11/17".to_owned(),
            }),
            pinned: true,
            ranges: vec![range],
            more_ranges: 4,
        }
    }

    #[test]
    fn explanation_is_formatted() {
        let mut explained = sample();
        let text = human(&explained, Width::UNLIMITED);
        for part in [
            "container 17 of tier 1",
            "pinned",
            "inode 17",
            "6 MiB allocated",
            "byte 1099511627776",
            "not written",
            "4 more ranges",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        explained.ranges.clear();
        assert!(!human(&explained, Width::UNLIMITED).contains("OFFSET"));
    }

    #[test]
    fn an_explanation_fits_the_terminal() {
        assert_fits(|width| width.fold(&human(&sample(), width)));
    }
}
