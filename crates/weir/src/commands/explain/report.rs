//! Formats an explanation as text.

use crate::output::{Width, table};
use weir_model::{Bytes, Nanos};
use weir_serve::explain::{Explanation, PlacePart};

/// Returns the text that is printed without `--json`.
pub(super) fn human(explained: &Explanation, width: Width) -> String {
    let at = |bytes| Bytes(bytes).to_string();
    let mut text = format!(
        "volume {}, the block at {}: block {} of the extent at {}\n\n",
        explained.volume,
        at(explained.block_offset_bytes),
        explained.block_index,
        at(explained.extent_offset_bytes)
    );
    text += &places(explained, width);
    if explained.in_doubt {
        text +=
            "\nIN DOUBT: its last write was lost with a failed flush; it fails until it is written again\n";
    }
    text += &format!("\nwhat policy {} decides by:\n", explained.policy);
    let longest = explained.figures.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    explained.figures.iter().for_each(|(name, value)| text += &format!("  {name:<longest$}  {value}\n"));
    text += if explained.migrates_if.is_empty() {
        "\nnothing would make it move\n"
    } else {
        "\nit would move if\n"
    };
    explained.migrates_if.iter().for_each(|reason| text += &format!("  - {reason}\n"));
    text
}

fn places(explained: &Explanation, width: Width) -> String {
    if explained.places.is_empty() {
        return "nothing was written there: it reads as zeros and takes no space\n".into();
    }
    let row = |place: &PlacePart| {
        let address = match (place.device_offset_bytes, place.device_lost) {
            (None, _) => "not here".to_owned(),
            (Some(at), false) => format!("byte {at}"),
            (Some(at), true) => format!("byte {at}, LOST"),
        };
        let age = place.age_ns.map_or("not known".into(), |ns| Nanos(ns).to_string());
        [place.device.clone(), place.kind.clone(), address, runs(&place.blocks), age]
    };
    let rows = explained.places.iter().map(row);
    let mut text = table(width, ["DEVICE", "PLACE", "THE BLOCK", "BLOCKS OF THE EXTENT", "FOR"], rows);
    if holders(explained).next().is_none() {
        text += "the block itself was not written: it reads as zeros\n";
    } else if holders(explained).all(|place| place.device_lost) {
        text += "\nUNREACHABLE: every device that holds the block is lost or absent; it fails until one is back, \
                 or until it is written again\n";
    }
    text
}

/// Returns the places that hold the block.
fn holders(explained: &Explanation) -> impl Iterator<Item = &PlacePart> {
    explained.places.iter().filter(|place| place.device_offset_bytes.is_some())
}

/// Formats runs of blocks, such as "0-3, 7".
fn runs(blocks: &[(u16, u16)]) -> String {
    let run = |(first, last): &(u16, u16)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    let all: Vec<_> = blocks.iter().map(run).collect();
    if all.is_empty() { "none".into() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::testing::{LONG_NAME, assert_fits};

    #[test]
    fn an_explanation_fits_the_terminal() {
        let place = PlacePart {
            device: LONG_NAME.into(),
            kind: "whole".into(),
            device_offset_bytes: Some(1 << 60),
            blocks: (0..16).map(|run| (2 * run, 2 * run)).collect(),
            device_lost: true,
            age_ns: Some(u64::MAX),
        };
        let explained =
            Explanation { volume: LONG_NAME.into(), places: vec![place], ..Explanation::default() };
        assert_fits(|width| human(&explained, width));
    }

    #[test]
    fn explanation_is_formatted() {
        let place = PlacePart {
            device: "slow".into(),
            kind: "whole".into(),
            device_offset_bytes: Some(1 << 20),
            blocks: vec![(0, 3), (7, 7)],
            device_lost: false,
            age_ns: Some(2_500_000_000),
        };
        let mut explained = Explanation {
            volume: "disk".into(),
            block_offset_bytes: 5 << 10,
            extent_bytes: 128 << 10,
            places: vec![place],
            policy: "hystor".into(),
            figures: vec![("counter of the block".into(), "17".into())],
            ..Explanation::default()
        };
        let text = human(&explained, Width::UNLIMITED);
        for part in [
            "volume disk, the block at 5 KiB",
            "byte 1048576",
            "0-3, 7",
            "2.50 s",
            "policy hystor",
            "counter of the block  17",
            "nothing would make it move",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        explained.migrates_if.push("it is read".into());
        assert!(human(&explained, Width::UNLIMITED).contains("it would move if\n  - it is read\n"));
        assert!(!text.contains("LOST"), "{text}");
        explained.places[0].device_lost = true;
        let text = human(&explained, Width::UNLIMITED);
        assert!(text.contains("byte 1048576, LOST") && text.contains("UNREACHABLE: "), "{text}");
        // Another copy is there.
        explained.places.push(PlacePart { device_lost: false, ..explained.places[0].clone() });
        assert!(!human(&explained, Width::UNLIMITED).contains("UNREACHABLE"));
        explained.places.clear();
        assert!(human(&explained, Width::UNLIMITED).contains("reads as zeros"));
    }
}
