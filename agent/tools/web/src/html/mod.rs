//! HTML pages as Markdown or plain text: one pass over the tags with a bounded stack of open
//! elements, so that a hostile page takes no longer than another (docs/dependencies.md).

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

use self::frame::{Frame, Kind};
use self::stack::Stack;

mod flow;
mod frame;
mod stack;
mod table;
#[cfg(test)]
mod tests;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Headings, lists, links and code as Markdown.
    Markdown,
    /// Plain text.
    Text,
}

/// A converted page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Its text in the requested form.
    pub text: String,
    /// Its title; empty if it has none.
    pub title: String,
}

/// Elements whose content is left out.
const HIDDEN: &[&str] =
    &["script", "style", "noscript", "iframe", "object", "svg", "template", "audio", "video"];
/// Block elements without a form of their own.
const BLOCKS: &[&str] = &[
    "address",
    "article",
    "aside",
    "body",
    "center",
    "details",
    "dialog",
    "div",
    "fieldset",
    "figcaption",
    "footer",
    "form",
    "header",
    "hgroup",
    "legend",
    "main",
    "nav",
    "option",
    "search",
    "section",
    "select",
    "summary",
    "textarea",
];

/// Converts a page; `base` is its address, to which relative links are resolved.
pub(crate) fn convert(html: &str, base: &Url, form: Form) -> Page {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut reader = Converter {
        stack: Stack::new(form),
        base: base.clone(),
        form,
        hidden: None,
        in_title: false,
        titles: String::new(),
    };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        match token {
            Ok(Token::StartTag(tag)) => reader.start(&tag),
            Ok(Token::EndTag(tag)) => reader.end(&String::from_utf8_lossy(&tag.name)),
            Ok(Token::String(text)) => reader.text(&String::from_utf8_lossy(&text)),
            Ok(Token::Comment(_) | Token::Doctype(_) | Token::Error(_)) => {}
            Err(never) => match never {},
        }
    }
    let title = reader.titles.split_whitespace().collect::<Vec<_>>().join(" ");
    Page { text: reader.stack.finish(), title }
}

/// The state of a conversion.
struct Converter {
    stack: Stack,
    base: Url,
    form: Form,
    /// The open element whose content is left out, and how many with its name are open.
    hidden: Option<(String, usize)>,
    in_title: bool,
    titles: String,
}

impl Converter {
    fn text(&mut self, text: &str) {
        if self.in_title {
            self.titles.push_str(text);
        } else if self.hidden.is_none() {
            self.stack.text(text);
        }
    }

    fn start(&mut self, tag: &StartTag<()>) {
        let name = String::from_utf8_lossy(&tag.name).into_owned();
        if let Some((hidden, depth)) = &mut self.hidden {
            *depth += usize::from(*hidden == name && !tag.self_closing);
            return;
        }
        match name.as_str() {
            "title" => self.in_title = true,
            "svg" if tag.self_closing => {}
            hidden if HIDDEN.contains(&hidden) => self.hidden = Some((name, 1)),
            "base" => {
                let href = attribute(tag, "href").and_then(|href| self.base.join(&href).ok());
                self.base = href.unwrap_or_else(|| self.base.clone());
            }
            _ if self.stack.in_pre() => self.stack.start_in_pre(&name, language(tag)),
            _ => self.open(&name, tag),
        }
    }

    fn open(&mut self, name: &str, tag: &StartTag<()>) {
        let stack = &mut self.stack;
        let shows_marks = self.form == Form::Markdown;
        match name {
            "b" | "strong" if shows_marks => stack.push(Frame::inline("b", Kind::Marked("**"))),
            "i" | "em" if shows_marks => stack.push(Frame::inline("i", Kind::Marked("*"))),
            "del" | "s" | "strike" if shows_marks => {
                stack.push(Frame::inline("del", Kind::Marked("~~")));
            }
            "code" | "kbd" | "samp" | "tt" if shows_marks => {
                stack.push(Frame::inline("code", Kind::Code));
            }
            "a" if shows_marks => {
                stack.close("a");
                let href = attribute(tag, "href").and_then(|href| address(&self.base, &href));
                stack.push(Frame::inline("a", Kind::Link(href)));
            }
            "img" => {
                let alt = attribute(tag, "alt").unwrap_or_default();
                let source = attribute(tag, "src").and_then(|src| address(&self.base, &src));
                stack.image(&alt, source.as_deref());
            }
            "br" => stack.line(),
            "wbr" => {}
            "hr" => stack.rule(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = usize::from(name.as_bytes()[1] - b'0');
                stack.close("h");
                stack.push_block(Frame::block("h", Kind::Heading(level)));
            }
            "blockquote" => stack.push_block(Frame::block("blockquote", Kind::Quote)),
            "pre" | "listing" | "xmp" => {
                stack.push_block(Frame::block("pre", Kind::Pre(language(tag))));
            }
            "ul" | "menu" | "dir" => stack.push_list("ul", None),
            "ol" => {
                let first = attribute(tag, "start").and_then(|start| start.trim().parse().ok());
                stack.push_list("ol", Some(first.unwrap_or(1)));
            }
            "li" => stack.push_item(),
            "table" => stack.push_table(),
            "tr" => stack.row(),
            "td" | "th" => stack.cell(),
            "p" | "dl" | "dt" | "figure" | "caption" => stack.breaks(2),
            "dd" => stack.breaks(1),
            block if BLOCKS.contains(&block) => stack.breaks(if shows_marks { 2 } else { 1 }),
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((hidden, depth)) = &mut self.hidden {
            *depth -= usize::from(hidden == name);
            if *depth == 0 {
                self.hidden = None;
            }
            return;
        }
        let shows_marks = self.form == Form::Markdown;
        match name {
            "title" => self.in_title = false,
            "b" | "strong" => self.stack.close("b"),
            "i" | "em" => self.stack.close("i"),
            "del" | "s" | "strike" => self.stack.close("del"),
            "code" | "kbd" | "samp" | "tt" => self.stack.close("code"),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.stack.close("h"),
            "pre" | "listing" | "xmp" => self.stack.close("pre"),
            "ul" | "menu" | "dir" => self.stack.close("ul"),
            "td" | "th" | "tr" => self.stack.close("td"),
            "a" | "blockquote" | "ol" | "li" | "table" => self.stack.close(name),
            "p" | "dl" | "figure" | "caption" => self.stack.breaks(2),
            "dt" | "dd" => self.stack.breaks(1),
            block if BLOCKS.contains(&block) => {
                self.stack.breaks(if shows_marks { 2 } else { 1 });
            }
            _ => {}
        }
    }
}

fn attribute(tag: &StartTag<()>, name: &str) -> Option<String> {
    let value = tag.attributes.get(name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// The language of code, from its class.
fn language(tag: &StartTag<()>) -> Option<String> {
    let class = attribute(tag, "class")?;
    let named = class.split_whitespace().find_map(|word| {
        let prefixes = ["language-", "lang-", "highlight-source-"];
        prefixes.iter().find_map(|prefix| word.strip_prefix(prefix))
    });
    let fits = |c: char| c.is_ascii_alphanumeric() || "+-#_.".contains(c);
    named.filter(|name| !name.is_empty() && name.chars().all(fits)).map(str::to_owned)
}

/// The absolute address of a link; `None` for a scheme that cannot be followed.
fn address(base: &Url, href: &str) -> Option<String> {
    let url = base.join(href.trim()).ok()?;
    let leads = matches!(url.scheme(), "http" | "https" | "mailto" | "ftp");
    leads.then(|| url.as_str().replace('(', "%28").replace(')', "%29"))
}
