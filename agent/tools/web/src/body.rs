//! What came as the body of a page: its encoding, its kind, and what a model is shown of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use reqwest::Url;
use serde::Deserialize;

use super::html;
use provider::message::Image;

/// What a page of HTML becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PageFormat {
    /// Words and lines.
    Text,
    /// Markdown.
    Markdown,
    /// The page as it came.
    Html,
}

/// What a model is shown.
#[derive(Debug, Default)]
pub(crate) struct ShownBody {
    /// What it reads.
    pub text: String,
    /// The page's title, when it has one.
    pub title: String,
    /// A picture.
    pub images: Vec<Image>,
}

/// Bytes of a picture: services take 5 MB of base64.
const MOST_PICTURE: usize = 3_750_000;
/// So much of the beginning tells text from bytes, and holds the name of an encoding.
const BEGINNING: usize = 4096;
/// Kinds that are neither text nor a picture that models see.
const UNREADABLE: &[&str] =
    &["video/", "audio/", "font/", "application/zip", "application/pdf", "application/gzip"];

impl PageFormat {
    /// What is asked for, best first.
    pub(crate) fn accepts(self) -> &'static str {
        match self {
            PageFormat::Markdown => {
                "text/markdown;q=1.0, text/x-markdown;q=0.9, text/plain;q=0.8, text/html;q=0.7, \
                 */*;q=0.1"
            }
            PageFormat::Text => "text/plain;q=1.0, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.1",
            PageFormat::Html => {
                "text/html;q=1.0, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.1"
            }
        }
    }
}

/// Whether a body of this type can be shown; the error is the end of a sentence.
pub(crate) fn worth_reading(content_type: &str) -> Result<(), String> {
    let kind = kind(content_type);
    match UNREADABLE.iter().any(|unreadable| kind.starts_with(unreadable)) {
        true => Err(unreadable(&kind)),
        false => Ok(()),
    }
}

/// What a model is shown of a body; the error is the end of a sentence.
pub(crate) fn shown(
    bytes: Vec<u8>,
    content_type: &str,
    url: &Url,
    form: PageFormat,
) -> Result<ShownBody, String> {
    let kind = kind(content_type);
    if let Some(media_type) = picture(&bytes) {
        if bytes.len() > MOST_PICTURE {
            return Err(format!("is a picture of {} bytes, too large to be shown", bytes.len()));
        }
        let text = format!("a picture, {media_type}, {} bytes", bytes.len());
        let image = Image { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) };
        return Ok(ShownBody { text, images: vec![image], ..ShownBody::default() });
    }
    let is_html = kind == "text/html" || kind == "application/xhtml+xml";
    let text = decode(&bytes, content_type).ok_or_else(|| unreadable(&kind))?;
    let is_html = is_html || kind.is_empty() && looks_like_html(&text);
    let plain = |text: String| ShownBody { text, ..ShownBody::default() };
    let converted = |form| {
        let html::Page { text, title } = html::convert(&text, url, form);
        ShownBody { text, title, images: Vec::new() }
    };
    Ok(match form {
        PageFormat::Markdown if is_html => converted(html::Form::Markdown),
        PageFormat::Text if is_html => converted(html::Form::Text),
        PageFormat::Html => plain(text),
        PageFormat::Markdown | PageFormat::Text if is_json(&kind) => plain(indented(text)),
        PageFormat::Markdown | PageFormat::Text => plain(text),
    })
}

/// The type without what follows it.
fn kind(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_lowercase()
}

fn unreadable(kind: &str) -> String {
    let kind = if kind.is_empty() { "bytes of no known type" } else { kind };
    format!("is {kind}, neither text nor a picture (png, jpeg, gif, webp); a command can store it")
}

/// The type of a picture by its first bytes, whatever the server calls it.
fn picture(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The body as text: by its byte order mark, its header, what the page says of itself, else UTF-8,
/// else the web's old default. `None` when it is no text.
fn decode(bytes: &[u8], content_type: &str) -> Option<String> {
    let marked = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let declared = marked.or_else(|| named(content_type)).or_else(|| {
        let beginning = &bytes[..bytes.len().min(BEGINNING)];
        // A page that can be read so far is in an encoding that holds ASCII.
        named(&String::from_utf8_lossy(beginning)).filter(|encoding| encoding.is_ascii_compatible())
    });
    let is_utf8 = std::str::from_utf8(bytes).is_ok();
    let encoding = declared.unwrap_or(if is_utf8 { UTF_8 } else { WINDOWS_1252 });
    let (text, _, _) = encoding.decode(bytes);
    let end = text.char_indices().nth(BEGINNING).map_or(text.len(), |(at, _)| at);
    (!text[..end].contains('\0')).then(|| text.into_owned())
}

/// The encoding after `charset=` or `encoding=`, in a header, a meta tag or a declaration of XML.
fn named(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let after = ["charset=", "<?xml version=\"1.0\" encoding="]
        .iter()
        .find_map(|key| lower.split_once(key).map(|(_, after)| after))?;
    let name = after.trim_start_matches(['"', '\'', ' ']);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:".contains(c));
    Encoding::for_label(&name.as_bytes()[..end.unwrap_or(name.len())])
}

fn looks_like_html(text: &str) -> bool {
    let beginning = base::text::head(text.trim_start(), 64).to_ascii_lowercase();
    beginning.starts_with("<!doctype html") || beginning.starts_with("<html")
}

fn is_json(kind: &str) -> bool {
    kind == "application/json" || kind.ends_with("+json")
}

/// JSON with a line for each member; what is none stays as it is.
fn indented(text: String) -> String {
    match serde_json::from_str::<serde_json::Value>(&text) {
        Ok(value) => format!("{value:#}"),
        Err(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], content_type: &str) -> Result<String, String> {
        let url = Url::parse("http://a.example/").unwrap();
        shown(bytes.to_vec(), content_type, &url, PageFormat::Text).map(|shown| shown.text)
    }

    #[test]
    fn the_encoding_is_that_of_mark_header_page_or_the_webs_default() {
        for (bytes, content_type) in [
            (&b"\xef\xbb\xbfgr\xc3\xbcn"[..], "text/plain; charset=iso-8859-1"),
            (b"gr\xfcn", "text/plain; charset=\"ISO-8859-1\""),
            (b"<meta charset='latin1'>gr\xfcn", "text/html"),
            (b"<meta http-equiv=x content='text/html; charset=latin1'>gr\xfcn", "text/html"),
            (b"gr\xc3\xbcn", "text/plain"),
            (b"gr\xfcn", "text/plain"),
            (b"\xff\xfeg\0r\0\xfc\0n\0", "text/plain"),
        ] {
            assert_eq!(text(bytes, content_type).unwrap(), "grün", "{bytes:?} {content_type}");
        }
    }

    #[test]
    fn text_is_shown_whatever_it_is_called_and_bytes_are_not() {
        assert_eq!(text(b"fn main() {}", "application/x-rust").unwrap(), "fn main() {}");
        assert_eq!(
            text(b"{\"a\":[1]}", "application/ld+json").unwrap(),
            "{\n  \"a\": [\n    1\n  ]\n}"
        );
        assert_eq!(text(b"{no json", "application/json").unwrap(), "{no json");
        assert_eq!(text(b" <!DOCTYPE html><p>a<p>b", "").unwrap(), "a\n\nb");
        assert_eq!(text(b"<p>a", "text/plain").unwrap(), "<p>a");
        let why = text(b"\x7fELF\0\0", "application/x-executable").unwrap_err();
        assert!(why.contains("application/x-executable"), "{why}");
        assert!(worth_reading("application/pdf").unwrap_err().contains("application/pdf"));
        assert!(worth_reading("text/html; charset=utf-8").is_ok() && worth_reading("").is_ok());
    }

    #[test]
    fn a_picture_is_known_by_its_bytes() {
        let url = Url::parse("http://a.example/").unwrap();
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n.."[..], "image/png"),
            (b"\xff\xd8\xff..", "image/jpeg"),
            (b"GIF89a..", "image/gif"),
            (b"RIFF....WEBPVP8 ", "image/webp"),
        ] {
            let shown = shown(bytes.to_vec(), "text/plain", &url, PageFormat::Markdown).unwrap();
            assert_eq!(shown.images[0].media_type, kind);
            assert_eq!(STANDARD.decode(&shown.images[0].data).unwrap(), bytes);
        }
        let mut large = b"\x89PNG\r\n\x1a\n".to_vec();
        large.resize(MOST_PICTURE + 1, 0);
        assert!(
            shown(large, "image/png", &url, PageFormat::Text).unwrap_err().contains("too large")
        );
    }
}
