//! Checks the book in `docs/`: `SUMMARY.md` lists every page once, links lead to existing pages and headings,
//! pages have at most [`LINES`] lines, and every block of commands states whether a test runs it.

use super::{Finding, source};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The folder of the book.
const BOOK: &str = "docs";
/// The table of contents, in mdBook's form.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Maximum number of lines of a page.
const LINES: usize = 300;
/// Maximum width of a line of prose, in characters.
const WIDTH: usize = 100;
/// Markdown outside the book whose links are checked as well.
const OTHER_FILES: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "bench/README.md",
    "python/README.md",
];
/// Info strings of code blocks that are not commands.
const LANGUAGES: [&str; 9] = ["toml", "json", "text", "rust", "python", "xml", "ini", "yaml", "promql"];

/// A parsed Markdown file: its anchors, links, code blocks and wide lines.
#[derive(Debug, Default)]
struct Page {
    anchors: BTreeSet<String>,
    /// Links, each with its line number, from 1.
    links: Vec<(usize, String)>,
    /// Info strings of fenced code blocks, each with its line number.
    fences: Vec<(usize, String)>,
    /// Numbers of the prose lines that are wider than [`WIDTH`].
    wide: Vec<usize>,
    lines: usize,
}

/// Checks every page, and the files of [`OTHER_FILES`].
pub(super) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let mut pages = BTreeMap::new();
    let files = walkdir::WalkDir::new(root.join(BOOK)).sort_by_file_name();
    for entry in files.into_iter().filter_map(Result::ok) {
        let path = entry.path().strip_prefix(root).expect("below the root").to_owned();
        if path.extension().is_some_and(|extension| extension == "md") && !path.starts_with("docs/book") {
            pages.insert(path, Page::read(&source::read(entry.path())?));
        }
    }
    for name in OTHER_FILES {
        pages.insert(name.into(), Page::read(&source::read(&root.join(name))?));
    }
    let mut findings = contents(&pages);
    for (path, page) in &pages {
        findings.extend(page.broken_links(path, &pages, root));
        if path.starts_with(BOOK) {
            findings.extend(page.shape(path));
        }
    }
    Ok(findings)
}

/// Returns findings for pages that `SUMMARY.md` lists twice or not at all. A listed page that does not exist
/// is a broken link.
fn contents(pages: &BTreeMap<PathBuf, Page>) -> Vec<Finding> {
    let Some(summary) = pages.get(Path::new(SUMMARY)) else {
        return vec![Finding::new(SUMMARY, 0, "does not exist")];
    };
    let mut listed = BTreeMap::<PathBuf, usize>::new();
    for (_, link) in &summary.links {
        *listed.entry(normalized(&Path::new(BOOK).join(link))).or_default() += 1;
    }
    let twice = listed.iter().filter(|(_, times)| **times > 1);
    let twice = twice.map(|(path, _)| Finding::new(SUMMARY, 0, format!("lists {} twice", path.display())));
    let in_book = pages.keys().filter(|path| path.starts_with(BOOK) && *path != Path::new(SUMMARY));
    let missing = in_book.filter(|path| !listed.contains_key(*path));
    let missing = missing.map(|path| Finding::new(path, 0, format!("{SUMMARY} does not list it")));
    twice.chain(missing).collect()
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self { lines: text.lines().count(), ..Self::default() };
        let line = |offset: usize| text[..offset].matches('\n').count() + 1;
        let (mut heading, mut unwrapped) = (None, BTreeSet::new());
        let parser = Parser::new_ext(text, Options::ENABLE_TABLES);
        for (event, range) in parser.into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Text(part) | Event::Code(part) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line(range.start), dest_url.into_string()));
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    page.fences.push((line(range.start), info.into_string()));
                    unwrapped.extend(line(range.start)..=line(range.end));
                }
                Event::Start(Tag::Table(_) | Tag::CodeBlock(_) | Tag::HtmlBlock) => {
                    unwrapped.extend(line(range.start)..=line(range.end));
                }
                Event::Html(html) | Event::InlineHtml(html) => page.anchors.extend(html_anchor(&html)),
                _ => {}
            }
        }
        let wide = (1..).zip(text.lines()).filter(|(_, line)| line.chars().count() > WIDTH);
        // A heading, and a word or link that is wide by itself, cannot be wrapped.
        let wide = wide.filter(|(_, line)| line.contains(' ') && !line.starts_with('#') && !is_link(line));
        page.wide = wide.map(|(number, _)| number).filter(|number| !unwrapped.contains(number)).collect();
        page
    }

    /// Adds the anchor of a heading, as GitHub and mdBook name it: the second heading of a name ends in `-1`.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let free = [anchor.clone()].into_iter().chain(numbered).find(|name| !self.anchors.contains(name));
        self.anchors.extend(free);
    }

    fn broken_links(&self, path: &Path, pages: &BTreeMap<PathBuf, Page>, root: &Path) -> Vec<Finding> {
        let outside = |link: &str| link.contains("://") || link.starts_with("mailto:");
        let broken = self.links.iter().filter(|(_, link)| !outside(link)).filter_map(|(line, link)| {
            let (to, anchor) = link.split_once('#').map_or((&**link, None), |(to, at)| (to, Some(at)));
            let target = match to {
                "" => path.to_owned(),
                _ => normalized(&path.parent().unwrap_or(Path::new("")).join(to)),
            };
            let what = match (pages.get(&target), anchor) {
                (Some(page), Some(anchor)) if !page.anchors.contains(anchor) => {
                    format!("{} has no heading #{anchor}", target.display())
                }
                (None, _) if !root.join(&target).exists() => format!("{} does not exist", target.display()),
                _ => return None,
            };
            Some(Finding::new(path, *line, what))
        });
        broken.collect()
    }

    /// Returns findings for length, width and code blocks.
    fn shape(&self, path: &Path) -> Vec<Finding> {
        let finding = |line, what: String| Finding::new(path, line, what);
        let mut findings = Vec::new();
        if self.lines > LINES {
            findings.push(finding(0, format!("{} lines, more than {LINES}: split the page", self.lines)));
        }
        findings.extend(self.wide.iter().map(|line| finding(*line, format!("wider than {WIDTH}"))));
        for (line, info) in &self.fences {
            let what = match info.split_once(' ').unwrap_or((info, "")) {
                ("sh", "" | "guest" | "fuse") => continue,
                ("sh", rest) if rest.strip_prefix("norun").is_some_and(|why| why.trim().len() > 5) => {
                    continue;
                }
                ("sh", rest) if rest.starts_with("norun") => {
                    "say why it cannot run: `sh norun REASON`".to_owned()
                }
                (language, "") if LANGUAGES.contains(&language) => continue,
                _ => format!(
                    "`{info}` is none of sh, sh fuse, sh guest, sh norun REASON, {}",
                    LANGUAGES.join(", ")
                ),
            };
            findings.push(finding(*line, what));
        }
        findings
    }
}

/// Reports whether a line is a single link, possibly in a list; it cannot be wrapped.
fn is_link(line: &str) -> bool {
    let line = line.trim_start_matches(['-', '*', ' ']);
    line.starts_with('[') && line.ends_with(')') && line.matches("](").count() == 1
}

/// Returns the name in `<a id="name"></a>`.
fn html_anchor(html: &str) -> Option<String> {
    let (_, rest) = html.split_once("<a id=\"")?;
    rest.split_once('"').map(|(name, _)| name.to_owned())
}

/// Returns the path without `.` and `..`.
fn normalized(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            part => result.push(part),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<_, _> =
            pages.iter().map(|(path, text)| (PathBuf::from(path), Page::read(text))).collect();
        let root = Path::new("/nowhere");
        let links = pages.iter().flat_map(|(path, page)| {
            page.broken_links(path, &pages, root).into_iter().chain(page.shape(path)).collect::<Vec<_>>()
        });
        contents(&pages).into_iter().chain(links).map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn unlisted_pages_and_broken_links_are_found() {
        let summary = "- [One](guide/one.md)\n- [Two](two.md)\n";
        let one = "# One\n\n## `weir pool`: it's 1\n\n[up](../two.md#a-place) [here](#weir-pool-its-1)\n";
        let two = "# Two\n\n<a id=\"a-place\"></a>There.\n";
        let pages = [("docs/SUMMARY.md", summary), ("docs/guide/one.md", one), ("docs/two.md", two)];
        assert_eq!(findings(&pages), Vec::<String>::new());
        let pages = [("docs/SUMMARY.md", "[Two](two.md) [Two](two.md) [No](no.md)"), pages[1], pages[2]];
        let said = findings(&pages);
        assert_eq!(
            said,
            [
                "docs/SUMMARY.md: lists docs/two.md twice",
                "docs/guide/one.md: docs/SUMMARY.md does not list it",
                "docs/SUMMARY.md:1: docs/no.md does not exist"
            ]
        );
        let pages = [pages[1], ("docs/two.md", "## A place\n## A place\n[a](#a-place-1) [b](#a-place-2)\n")];
        assert!(findings(&pages).contains(&"docs/two.md:3: docs/two.md has no heading #a-place-2".into()));
    }

    #[test]
    fn code_blocks_need_known_info_strings() {
        let fences = ["sh", "sh fuse", "sh guest", "sh norun names a real device", "toml"];
        let page = fences.map(|info| format!("```{info}\nx\n```\n")).concat();
        assert!(Page::read(&page).shape(Path::new("docs/a.md")).is_empty());
        for info in ["", "bash", "sh norun", "sh maybe"] {
            let page = Page::read(&format!("```{info}\nx\n```\n"));
            assert_eq!(page.shape(Path::new("docs/a.md")).len(), 1, "{info}");
        }
    }

    #[test]
    fn long_pages_and_wide_prose_are_found_and_wide_tables_are_not() {
        let wide = "word ".repeat(30);
        let page = format!("{wide}\n\n| a | b |\n|---|---|\n| {wide} | b |\n\n```text\n{wide}\n```\n");
        assert_eq!(Page::read(&page).wide, [1]);
        assert_eq!(Page::read(&"x\n\n".repeat(200)).shape(Path::new("docs/a.md")).len(), 1);
    }
}
