//! Numbers formatted for people.

use weir_model::Bytes;

/// Formats a number with a comma between thousands: `10,737,418,240`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size in a unit and exactly: `10 GiB (10,737,418,240 bytes)`.
pub fn exact(size: Bytes) -> String {
    format!("{size} ({} bytes)", grouped(size.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_exactly() {
        let numbers = [0, 999, 1000, 1_234_567];
        assert_eq!(numbers.map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(exact(Bytes::gib(10)), "10 GiB (10,737,418,240 bytes)");
    }
}
