//! Width of text in a plot.

/// Widths of the printable ASCII characters of Noto Sans, from the space on, in thousandths of the font size.
const WIDTHS: [u16; 95] = [
    260, 269, 408, 646, 572, 831, 732, 225, 300, 300, 551, 572, 268, 322, 268, 372, 572, 572, 572, 572, 572,
    572, 572, 572, 572, 572, 268, 268, 572, 572, 572, 434, 899, 639, 650, 632, 730, 556, 519, 728, 741, 339,
    273, 619, 524, 907, 760, 781, 605, 781, 622, 549, 556, 731, 600, 930, 586, 566, 572, 329, 372, 329, 572,
    444, 281, 561, 615, 480, 615, 564, 344, 615, 618, 258, 258, 534, 258, 935, 618, 605, 615, 615, 413, 479,
    361, 618, 508, 786, 529, 510, 470, 380, 551, 380, 572,
];
/// Width of other characters: enough for Latin, Greek and Cyrillic letters.
const OTHER_WIDTH: u16 = 700;
/// Width of characters that fill a square.
const SQUARE_WIDTH: u16 = 1000;

/// Returns the width of text at a font size. Fonts other than Noto Sans may need a little more.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|letter| f64::from(letter_width(letter))).sum::<f64>() * size / 1000.0
}

fn letter_width(letter: char) -> u16 {
    let printable = (letter as usize).checked_sub(usize::from(b' ')).and_then(|at| WIDTHS.get(at));
    printable.copied().unwrap_or(if letter > '\u{2e80}' { SQUARE_WIDTH } else { OTHER_WIDTH })
}

/// Breaks text into lines of whole words that are not wider than `most`; a longer word is broken.
pub(super) fn wrap(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let fits = |line: &str, word: &str| width(line, size) + width(word, size) <= most;
        let mut word = if lines.last().is_some_and(|line| line.is_empty()) {
            word.to_owned()
        } else {
            format!(" {word}")
        };
        if !lines.last().is_some_and(|line| fits(line, &word)) {
            word = word.trim_start().to_owned();
            lines.push(String::new());
        }
        for letter in word.chars() {
            let letter = letter.to_string();
            match lines.last_mut() {
                Some(line) if line.is_empty() || fits(line, &letter) => *line += &letter,
                _ => lines.push(letter),
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_into_lines_that_fit() {
        assert_eq!(wrap("some words and more", 10.0, 60.0), ["some words", "and more"]);
        let long = format!("{}.csv.gz: miss ratios", "x".repeat(300));
        let broken = wrap(&long, 17.0, 760.0);
        assert!(broken.len() > 2 && broken.iter().all(|line| width(line, 17.0) <= 760.0), "{broken:?}");
        assert_eq!(broken.concat().replace(' ', ""), long.replace(' ', ""));
        assert!(wrap("", 10.0, 60.0).is_empty());
    }
}
