//! Exit codes of commands, as docs/reference/exit-codes.md lists them.

/// The command succeeded.
pub const SUCCESS: u8 = 0;

/// Exit codes of `weir pool check` and `weir fs check`, which follow those of fsck.
pub mod check {
    /// The pool is clean.
    pub const CLEAN: u8 = super::SUCCESS;
    /// Something was wrong and has been repaired.
    pub const REPAIRED: u8 = 1;
    /// Something is wrong and remains so.
    pub const UNREPAIRED: u8 = 4;
    /// The pool, or a part of it, could not be checked, or the report could not be written.
    pub const OPERATIONAL: u8 = 8;
    /// The command line or the pool file is wrong.
    pub const USAGE: u8 = 16;
    /// A signal ended the check.
    pub const CANCELLED: u8 = 32;

    /// All of them.
    pub const ALL: [u8; 6] = [CLEAN, REPAIRED, UNREPAIRED, OPERATIONAL, USAGE, CANCELLED];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use weir_model::ErrorKind;

    /// Returns the first two cells of each row of the table with this heading row.
    fn table(heading: &str) -> Vec<(u8, String)> {
        let page = include_str!("../../../docs/reference/exit-codes.md");
        let (_, rest) = page.split_once(heading).expect("the table");
        let rows = rest.lines().skip(2).take_while(|line| line.starts_with('|'));
        let cells = rows.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
        cells.map(|cells| (cells[1].parse().expect("a number"), cells[2].to_owned())).collect()
    }

    #[test]
    fn the_page_lists_every_exit_code_and_no_other() {
        let kinds = [ErrorKind::Usage, ErrorKind::Refused, ErrorKind::Corrupt, ErrorKind::Environment];
        let class = |kind| (ErrorKind::exit_code(kind), Failure::new(kind, "", "").class().to_owned());
        let codes: Vec<_> = [(SUCCESS, String::new())].into_iter().chain(kinds.map(class)).collect();
        assert_eq!(table("| code | class | what to do |"), codes);
        let codes: Vec<_> = table("| code | meaning |").into_iter().map(|(code, _)| code).collect();
        assert_eq!(codes, check::ALL);
    }
}
