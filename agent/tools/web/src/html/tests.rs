//! Usual pages, malformed pages and hostile pages.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

fn page(html: &str, form: Form) -> Page {
    convert(html, &Url::parse("https://site.example/docs/page.html").unwrap(), form)
}

fn markdown(html: &str) -> String {
    page(html, Form::Markdown).text
}

fn text(html: &str) -> String {
    page(html, Form::Text).text
}

#[test]
fn headings_rules_emphasis_and_code() {
    let html = "<h1>One</h1><p>a <b>bold</b>, <em>leaning </em>and<code>x`y</code></p><hr>\
                <h3>Th<i>re</i>e</h3><del>gone</del> 2 &lt; 3 &amp;&nbsp;ü &#8364;";
    let expected = "# One\n\na **bold**, *leaning* and``x`y``\n\n---\n\n### Th*re*e\n\n\
                    ~~gone~~ 2 < 3 &\u{a0}ü €";
    assert_eq!(markdown(html), expected);
    assert_eq!(text(html), "One\n\na bold, leaning andx`y\n\nThree\n\ngone 2 < 3 &\u{a0}ü €");
}

#[test]
fn lists_within_lists() {
    let html = "<ul><li>one<ul><li>a</li><li>b<ol start=3><li>x<li>y</ol></ul><li><p>two</p>\
                <p>more</p></li></ul><p>end</p>";
    let expected = "- one\n  - a\n  - b\n    3. x\n    4. y\n- two\n\n  more\n\nend";
    assert_eq!(markdown(html), expected);
    assert_eq!(text(html), expected);
}

#[test]
fn code_keeps_its_lines_and_its_language() {
    let html = "<pre><code class=\"hl language-rust\">fn main() {\n    <span>go</span>();\n}\n\
                </code></pre><pre>plain\n  ```\n</pre>";
    let expected = "```rust\nfn main() {\n    go();\n}\n```\n\n````\nplain\n  ```\n````";
    assert_eq!(markdown(html), expected);
    assert_eq!(text(html), "fn main() {\n    go();\n}\n\nplain\n  ```");
}

#[test]
fn links_and_pictures_keep_where_they_lead() {
    let html = "<a href=\"../a b.html#x\">here</a> <a href='//other.example/(y)'>th<b>e</b>re</a> \
                <a href=javascript:alert(1)>no</a> <a href='#top'></a><img src=i.png alt='a  pic'>\
                <img src='data:image/png;base64,xx' alt=inline>";
    let expected = "[here](https://site.example/a%20b.html#x) \
                    [th**e**re](https://other.example/%28y%29) no \
                    ![a pic](https://site.example/docs/i.png)inline";
    assert_eq!(markdown(html), expected);
    assert_eq!(text(html), "here there no a picinline");
    let based = "<base href='/root/'><a href=x>y</a>";
    assert_eq!(markdown(based), "[y](https://site.example/root/x)");
    assert_eq!(
        markdown("<a href=x><div><h2>Card</h2></div><p>more</p></a>"),
        "[Card more](https://site.example/docs/x)"
    );
}

#[test]
fn tables_and_quotations() {
    let html = "<table><tr><th>k<th>v|w<tr><td>a<br>b<td><code>1</code></table>\
                <blockquote><p>so</p><p>it is</p></blockquote>\
                <table><tr><td><p>only layout</p></td></tr></table>";
    let expected = "| k | v\\|w |\n| --- | --- |\n| a b | `1` |\n\n> so\n>\n> it is\n\nonly layout";
    assert_eq!(markdown(html), expected);
    assert_eq!(text(html), "k\tv|w\na b\t1\n\nso\n\nit is\n\nonly layout");
}

#[test]
fn what_is_not_for_readers_is_left_out() {
    let html = "<head><title> The\n title </title><meta name=x content=y><link rel=z>\
                <style>p{}</style></head><p>a<script>if (1 < 2) { '</p>' }</script>b</p>\
                <noscript>n</noscript><iframe src=x>i</iframe><object>o<object>o</object></object>\
                <svg><title>t</title><path/></svg><template><p>t</p></template><embed src=x>c\
                <!-- comment --><svg/>d";
    for form in [Form::Markdown, Form::Text] {
        let page = page(html, form);
        assert_eq!((page.text.as_str(), page.title.as_str()), ("ab\n\ncd", "The title"));
    }
}

#[test]
fn what_is_not_closed_ends_where_it_must() {
    assert_eq!(markdown("<p><b>bold<p>still</b> plain"), "bold\n\nstill plain");
    assert_eq!(markdown("</b></li></table>x<td>y"), "x y");
    assert_eq!(markdown("<ul><li><b>a<li>b</ul>c"), "- **a**\n- b\n\nc");
    assert_eq!(markdown("<table><tr><td><b>a<td>b</table>"), "| **a** | b |\n| --- | --- |");
    assert_eq!(
        markdown("<a href=x>one <a href=y>two</a>"),
        "[one](https://site.example/docs/x) [two](https://site.example/docs/y)"
    );
}

#[test]
fn a_page_that_is_made_to_be_hard_takes_no_longer() {
    let took = |open: &str, close: &str, many: usize| {
        let html = open.repeat(many) + "end" + &close.repeat(many);
        let started = Instant::now();
        markdown(&html);
        started.elapsed()
    };
    for (open, close) in [
        ("<div>", ""),
        ("<b>", "</b>"),
        ("<ul><li>", ""),
        ("<table><tr><td>", ""),
        ("<a href=x>", ""),
        ("<b>x</b>", ""),
        ("<blockquote>", "</blockquote>"),
        ("<p>", "</b>"),
        ("<object>", ""),
        ("<td>", "<tr>"),
        ("<pre>", ""),
    ] {
        // Linear work takes 8 times as long, quadratic work 64 times.
        let (few, many) = (took(open, close, 4_000), took(open, close, 32_000));
        assert!(many < few.max(Duration::from_millis(5)) * 24, "{open}: {few:?}, {many:?}");
    }
}

proptest! {
    #[test]
    fn no_page_breaks_it(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "<b>", "</b>", "<p>", "</p>", "<ul>", "</ul>", "<li>", "<ol>", "<table>", "<tr>",
                "<td>", "</td>", "</table>", "<pre>", "</pre>", "<code>", "</code>", "<a href=x>",
                "</a>", "<h2>", "</h2>", "<br>", "<hr>", "ü", " ", "\n", "word", "<svg>", "</svg>",
                "<title>", "</title>", "<blockquote>", "&amp", "<", "<!--", "-->", "<x y='",
            ]),
            0..60,
        )
    ) {
        let html = parts.concat();
        for form in [Form::Markdown, Form::Text] {
            let page = page(&html, form);
            prop_assert_eq!(page.text.trim(), page.text.as_str());
        }
    }

    #[test]
    fn the_words_of_plain_paragraphs_are_all_there(
        words in prop::collection::vec("[a-zäöü0-9]{1,8}", 1..20)
    ) {
        let html: String = words.iter().map(|word| format!("<p>{word}</p>")).collect();
        prop_assert_eq!(text(&html), words.join("\n\n"));
    }
}
