//! The names of entries.

use tree_sitter::Node;

/// Maximum number of nodes from an entry to its name.
const MAX_STEPS: usize = 8;

/// Fields that hold the name itself.
const NAME_FIELDS: &[&str] = &["alias", "name", "key", "field", "pattern"];
/// Fields that lead to the node with the name.
const INNER_FIELDS: &[&str] = &["declarator", "left", "definition", "declaration", "operand"];
/// Nodes without such fields whose children have the name.
const WRAPPERS: &[&str] = &[
    "export_statement",
    "expression_statement",
    "template_declaration",
    "ambient_declaration",
    "type_declaration",
    "lexical_declaration",
    "variable_declaration",
    "var_declaration",
    "var_spec_list",
    "const_declaration",
    "property_declaration",
    "export_clause",
];

/// Returns the names that an entry defines; none for entries that are identified by their text.
pub(crate) fn of(node: Node<'_>, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    match node.kind() {
        // The type, and the trait if there is one.
        "impl_item" => {
            if let Some(body) = node.child_by_field_name("body") {
                found.push(normalized(&text[node.start_byte()..body.start_byte()]));
            }
        }
        // Its names are entries of its own list.
        "import_from_statement" => {}
        // A method of Go belongs to the type of its receiver.
        "method_declaration" if node.child_by_field_name("receiver").is_some() => {
            let receiver = node.child_by_field_name("receiver").map(|it| &text[it.byte_range()]);
            let is_word = |word: &&str| !word.is_empty();
            let receiver = receiver.unwrap_or_default();
            let mut words = receiver.split(|c: char| !c.is_alphanumeric() && c != '_');
            let of_type = words.rfind(is_word).unwrap_or_default();
            let name = node.child_by_field_name("name").map(|it| &text[it.byte_range()]);
            found.push(format!("{of_type}.{}", name.unwrap_or_default()));
        }
        _ => collect(node, text, MAX_STEPS, &mut found),
    }
    found.retain(|name| !matches!(name.as_str(), "" | "_" | "."));
    found
}

fn collect(node: Node<'_>, text: &str, steps: usize, found: &mut Vec<String>) {
    if steps == 0 {
        return;
    }
    // `Type::name` in C++: the name alone would be that of another function.
    if node.kind() == "qualified_identifier" || (node.is_named() && node.child_count() == 0) {
        found.push(normalized(&text[node.byte_range()]));
        return;
    }
    for field in NAME_FIELDS {
        if let Some(name) = node.child_by_field_name(field) {
            found.push(normalized(&text[name.byte_range()]));
            return;
        }
    }
    let mut cursor = node.walk();
    for field in INNER_FIELDS {
        let inner: Vec<Node<'_>> = node.children_by_field_name(field, &mut cursor).collect();
        if !inner.is_empty() {
            // The left side of an assignment is a name as a whole: `module.exports`.
            match *field == "left" {
                true => found.push(normalized(&text[inner[0].byte_range()])),
                false => inner.iter().for_each(|it| collect(*it, text, steps - 1, found)),
            }
            return;
        }
    }
    if WRAPPERS.contains(&node.kind()) {
        let is_wrapped = |it: &Node<'_>| {
            node.kind() != "property_declaration" || it.kind() == "variable_declaration"
        };
        let children: Vec<Node<'_>> = node.named_children(&mut cursor).filter(is_wrapped).collect();
        children.iter().for_each(|it| collect(*it, text, steps - 1, found));
    } else if node.kind() == "enum_entry" {
        // Kotlin: its first child after the modifiers.
        let mut children = node.named_children(&mut cursor);
        let name = children.find(|it| it.kind() == "identifier");
        found.extend(name.map(|it| normalized(&text[it.byte_range()])));
    }
}

/// Returns a text with one space in place of each whitespace.
fn normalized(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
