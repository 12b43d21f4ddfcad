//! Where error messages are listed for users, and which are not.

/// The pages.
pub(super) const PAGES: [&str; 3] =
    ["docs/reference/errors.md", "docs/reference/errors-fs.md", "docs/reference/errors-traces.md"];

/// Messages that no page has a row of, with the reason.
pub(super) const UNLISTED: [(&str, &str); 1] = [(
    "internal error: settings for ... devices, and the pool has ...",
    "every caller passes the settings of the pool it opened",
)];
