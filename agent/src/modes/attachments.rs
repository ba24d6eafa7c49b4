//! Attachments of a user's message: files and directories named as `@path`, and images.

use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};
use base::text::count;

use gate::paths;
use provider::message::{ContentPart, Image, Message, MessageRole};
use tools::image;

/// Maximum number of files attached to a message.
const FILES: usize = 20;
/// Maximum number of bytes attached of a file.
const FILE_BYTES: usize = 64 << 10;
/// Maximum number of entries listed of a directory.
const ENTRIES: usize = 200;
/// Extensions of files that are attached as images if the text contains their path.
const PICTURES: [&str; 5] = ["png", "jpg", "jpeg", "gif", "webp"];

/// A message with its attachments, and the notes about them for the user.
pub(crate) struct AttachedMessage {
    /// The text, the attached files and the images.
    pub message: Message,
    /// One line for each file.
    pub notes: Vec<String>,
}

/// Reads an image that `--image` names.
pub(crate) fn picture(cwd: &Path, typed: &Path) -> Result<Image> {
    let path = cwd.join(paths::expand_home(&typed.to_string_lossy()));
    let failed = |reason: String| {
        Failure::usage(format!("cannot attach {}", typed.display()))
            .because(reason)
            .hint("--image takes a PNG, JPEG, GIF or WebP file")
    };
    image::prepare_file(&path).map(|(image, _)| image).map_err(failed)
}

/// Builds the user's message: the text, the files that it names and these images.
pub(crate) fn message(words: String, pictures: Vec<Image>, cwd: &Path) -> AttachedMessage {
    let mut attached = AttachedMessage {
        message: Message::text(MessageRole::User, String::new()),
        notes: Vec::new(),
    };
    let mut texts = Vec::new();
    let mut images: Vec<ContentPart> = pictures.into_iter().map(ContentPart::Image).collect();
    let mut seen: Vec<PathBuf> = Vec::new();
    for token in tokens(&words) {
        let Some((display_name, path)) = named(&token, cwd) else { continue };
        if seen.contains(&path) || seen.len() >= FILES {
            continue;
        }
        seen.push(path.clone());
        let note = if is_picture(&path) {
            match image::prepare_file(&path) {
                Ok((image, facts)) => {
                    images.push(ContentPart::Image(image));
                    format!("attached {display_name}: {facts}")
                }
                Err(error) => format!("cannot attach {display_name}: {error}"),
            }
        } else if path.is_dir() {
            let (text, note) = directory(&display_name, &path);
            texts.push(text);
            note
        } else {
            match file(&display_name, &path) {
                Ok((text, note)) => {
                    texts.push(text);
                    note
                }
                Err(error) => format!("cannot attach {display_name}: {error}"),
            }
        };
        attached.notes.push(note);
    }
    let notes = texts.into_iter().map(ContentPart::context);
    let words = std::iter::once(ContentPart::Text { text: words });
    attached.message.parts = words.chain(notes).chain(images).collect();
    attached
}

/// Formats a file as an attachment, and returns it with its note.
fn file(display_name: &str, path: &Path) -> std::result::Result<(String, String), String> {
    let content = tools::fs::open::read_at_most(path, 64 << 20);
    let bytes = content.map_err(|error| error.to_string())?.bytes;
    if let Some(kind) = tools::fs::open::describe_binary(&bytes) {
        return Err(format!("it is {kind}"));
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines = count(text.lines().count(), "line");
    let head = base::text::head(&text, FILE_BYTES);
    let cut = match head.len() < text.len() {
        true => format!(", of which the first {} bytes follow; read the rest", head.len()),
        false => String::new(),
    };
    let part = format!("\n\n[The user attached the file {display_name} ({lines}{cut}):\n{head}\n]");
    Ok((part, format!("attached {display_name}: {lines}{cut}")))
}

fn directory(display_name: &str, path: &Path) -> (String, String) {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let end = if entry.path().is_dir() { "/" } else { "" };
        format!("{}{end}", entry.file_name().to_string_lossy())
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    let entries =
        if names.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", names.len()) };
    names.truncate(ENTRIES);
    let part = format!(
        "\n\n[The user attached the directory {display_name} ({entries}):\n{}\n]",
        names.join("\n")
    );
    (part, format!("attached {display_name}: {entries}"))
}

/// Returns the path that a word names, as typed and absolute: `@path`, or the path of an image.
fn named(token: &str, cwd: &Path) -> Option<(String, PathBuf)> {
    let (raw, is_marked) = match token.strip_prefix('@') {
        Some(raw) => (raw, true),
        None => (token, false),
    };
    let trimmed = raw.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']);
    let file = [raw, trimmed].into_iter().filter(|raw| !raw.is_empty()).find_map(|raw| {
        let path = cwd.join(paths::expand_home(raw));
        path.exists().then(|| (raw.to_owned(), path))
    });
    file.filter(|(_, path)| is_marked || is_picture(path) && path.is_file())
}

fn is_picture(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    ending.is_some_and(|ending| PICTURES.contains(&ending.as_str()))
}

/// Splits a text into words. Quotes and backslashes keep a path with spaces together: terminals
/// paste such paths when a file is dropped on them.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (marker, body) = match rest.strip_prefix('@') {
            Some(body) => ("@", body),
            None => ("", rest),
        };
        let quote = body.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quoted = quote.and_then(|quote| body[1..].split_once(quote));
        let (token, remaining) = match quoted {
            Some((inner, remaining)) => (format!("{marker}{inner}"), remaining),
            None => bare(rest),
        };
        tokens.push(token);
        rest = remaining.trim_start();
    }
    tokens
}

/// Returns the first word of a text, with the spaces that a backslash escapes, and the rest.
fn bare(text: &str) -> (String, &str) {
    let mut token = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' if chars.next_if(|(_, next)| *next == ' ').is_some() => token.push(' '),
            c if c.is_whitespace() => return (token, &text[index..]),
            c => token.push(c),
        }
    }
    (token, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_escaped_spaces_do_not_split_a_word() {
        let text = r#"look at @"a b.txt" and 'c d.png', /tmp/my\ shot.png (don't)"#;
        let expected =
            ["look", "at", "@a b.txt", "and", "c d.png", ",", "/tmp/my shot.png", "(don't)"];
        assert_eq!(tokens(text), expected);
        assert_eq!(tokens("it's a 'quote"), ["it's", "a", "'quote"]);
    }

    #[test]
    fn files_and_directories_are_attached_and_other_words_are_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/a.rs"), "fn a() {}\n").unwrap();
        std::fs::write(dir.path().join("blob"), [0, 159, 146, 150, 0]).unwrap();
        let words = "fix @src/a.rs, see @src and @angular/core and @blob";
        let AttachedMessage { message, notes } = message(words.to_owned(), Vec::new(), dir.path());
        assert_eq!(message.user_text(), words);
        assert!(message.full_text().contains("the file src/a.rs (1 line):\nfn a() {}\n"));
        assert!(message.full_text().contains("the directory src (1 entry):\na.rs\n"));
        assert_eq!(notes[..2], ["attached src/a.rs: 1 line", "attached src: 1 entry"]);
        assert!(notes[2].starts_with("cannot attach blob: it is "), "{notes:?}");
    }

    #[test]
    fn a_long_file_is_cut_and_its_note_says_so() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("long"), "line\n".repeat(20_000)).unwrap();
        let AttachedMessage { message, notes } =
            message("@long".to_owned(), Vec::new(), dir.path());
        assert!(
            notes[0].contains("20000 lines, of which the first 65536 bytes follow"),
            "{notes:?}"
        );
        assert!(message.full_text().len() < 70_000);
    }
}
