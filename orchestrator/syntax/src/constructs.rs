//! The lists of each language whose entries are merged one by one.

use grammars::Grammar;
use tree_sitter::Node;

/// What separates the entries of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// Lines; a semicolon belongs to its entry.
    Line,
    /// A comma, which may follow the last entry as well.
    Comma,
    /// A comma that is not needed after a closing brace.
    CommaOrBrace,
}

/// Which entries both sides may add at the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Additions {
    /// All.
    All,
    /// Those of these kinds: the order of others matters.
    Only(&'static [&'static str]),
}

/// A list.
#[derive(Debug)]
pub(crate) struct Construct {
    /// The kind of its node.
    pub kind: &'static str,
    /// The kind of the parent, if only lists there are merged.
    pub parent: Option<&'static str>,
    /// The child after which the entries begin; the first one if `None`.
    pub open: Option<&'static str>,
    /// The child at which the entries end; one of these. The end of the node if empty.
    pub close: &'static [&'static str],
    /// What separates the entries.
    pub separator: Separator,
    /// Which entries both sides may add at the same place.
    pub additions: Additions,
}

/// A language.
#[derive(Debug)]
pub(crate) struct MergeLanguage {
    /// The grammar.
    pub grammar: &'static Grammar,
    /// The lists.
    pub constructs: &'static [Construct],
    /// Kinds of nodes that belong to the next entry.
    pub attached: &'static [&'static str],
    /// Kinds of entries that come before all others in a file.
    pub leading: &'static [&'static str],
}

/// Lines between two children.
const fn lines(
    kind: &'static str,
    open: &'static str,
    close: &'static [&'static str],
    kinds: &'static [&'static str],
) -> Construct {
    let (separator, additions) = (Separator::Line, Additions::Only(kinds));
    Construct { kind, parent: None, open: Some(open), close, separator, additions }
}

/// Entries with commas between two children.
const fn commas(
    kind: &'static str,
    open: &'static str,
    close: &'static [&'static str],
    additions: Additions,
) -> Construct {
    let separator = Separator::Comma;
    Construct { kind, parent: None, open: Some(open), close, separator, additions }
}

/// The top of a file.
const fn file(kind: &'static str, kinds: &'static [&'static str]) -> Construct {
    let (separator, additions) = (Separator::Line, Additions::Only(kinds));
    Construct { kind, parent: None, open: None, close: &[], separator, additions }
}

const BRACE: &[&str] = &["}"];
const BRACKET: &[&str] = &["]"];
const PAREN: &[&str] = &[")"];

const RUST_ITEMS: &[&str] = &[
    "use_declaration",
    "extern_crate_declaration",
    "mod_item",
    "function_item",
    "function_signature_item",
    "struct_item",
    "enum_item",
    "union_item",
    "trait_item",
    "impl_item",
    "type_item",
    "associated_type",
    "const_item",
    "static_item",
    "foreign_mod_item",
    "inner_attribute_item",
];

static RUST: [Construct; 8] = [
    file("source_file", RUST_ITEMS),
    lines("declaration_list", "{", BRACE, RUST_ITEMS),
    commas("field_declaration_list", "{", BRACE, Additions::All),
    commas("enum_variant_list", "{", BRACE, Additions::All),
    commas("use_list", "{", BRACE, Additions::All),
    Construct {
        separator: Separator::CommaOrBrace,
        ..commas("match_block", "{", BRACE, Additions::All)
    },
    commas(
        "field_initializer_list",
        "{",
        BRACE,
        Additions::Only(&["field_initializer", "shorthand_field_initializer"]),
    ),
    commas("array_expression", "[", BRACKET, Additions::All),
]; // A tuple struct is not here: its fields are known by their positions.

const PYTHON_ITEMS: &[&str] = &[
    "import_statement",
    "import_from_statement",
    "function_definition",
    "class_definition",
    "decorated_definition",
    "type_alias_statement",
    // Assignments to a name only.
    "expression_statement",
];

static PYTHON: [Construct; 8] = [
    file("module", PYTHON_ITEMS),
    Construct { parent: Some("class_definition"), ..file("block", PYTHON_ITEMS) },
    commas("list", "[", BRACKET, Additions::All),
    commas("set", "{", BRACE, Additions::All),
    commas("dictionary", "{", BRACE, Additions::Only(&["pair"])),
    commas("import_from_statement", "(", PAREN, Additions::All),
    commas("import_from_statement", "import", &[], Additions::All),
    commas("argument_list", "(", PAREN, Additions::Only(&["keyword_argument"])),
];

const SCRIPT_ITEMS: &[&str] = &[
    "import_statement",
    "export_statement",
    "function_declaration",
    "generator_function_declaration",
    "class_declaration",
    "abstract_class_declaration",
    "lexical_declaration",
    "variable_declaration",
    "interface_declaration",
    "type_alias_declaration",
    "enum_declaration",
    "ambient_declaration",
    "function_signature",
];

const SCRIPT_MEMBERS: &[&str] = &[
    "method_definition",
    "field_definition",
    "public_field_definition",
    "method_signature",
    "abstract_method_signature",
    "property_signature",
    "index_signature",
];

static SCRIPT: [Construct; 9] = [
    file("program", SCRIPT_ITEMS),
    lines("class_body", "{", BRACE, SCRIPT_MEMBERS),
    lines("interface_body", "{", BRACE, SCRIPT_MEMBERS),
    lines("object_type", "{", BRACE, SCRIPT_MEMBERS),
    commas(
        "object",
        "{",
        BRACE,
        Additions::Only(&["pair", "shorthand_property_identifier", "method_definition"]),
    ),
    commas("array", "[", BRACKET, Additions::All),
    commas("named_imports", "{", BRACE, Additions::All),
    commas("export_clause", "{", BRACE, Additions::All),
    commas("enum_body", "{", BRACE, Additions::All),
];

static GO: [Construct; 6] = [
    file(
        "source_file",
        &[
            "import_declaration",
            "function_declaration",
            "method_declaration",
            "type_declaration",
            "var_declaration",
            "const_declaration",
        ],
    ),
    lines("import_spec_list", "(", PAREN, &["import_spec"]),
    lines("var_spec_list", "(", PAREN, &["var_spec"]),
    lines("field_declaration_list", "{", BRACE, &["field_declaration"]),
    lines("interface_type", "{", BRACE, &["method_elem", "type_elem"]),
    commas("literal_value", "{", BRACE, Additions::All),
];

const JAVA_MEMBERS: &[&str] = &[
    "field_declaration",
    "constant_declaration",
    "method_declaration",
    "constructor_declaration",
    "class_declaration",
    "interface_declaration",
    "enum_declaration",
    "record_declaration",
    "annotation_type_declaration",
];

static JAVA: [Construct; 6] = [
    file(
        "program",
        &[
            "import_declaration",
            "class_declaration",
            "interface_declaration",
            "enum_declaration",
            "record_declaration",
            "annotation_type_declaration",
        ],
    ),
    lines("class_body", "{", BRACE, JAVA_MEMBERS),
    lines("interface_body", "{", BRACE, JAVA_MEMBERS),
    lines("enum_body_declarations", ";", &[], JAVA_MEMBERS),
    commas("enum_body", "{", &["enum_body_declarations", "}"], Additions::All),
    commas("array_initializer", "{", BRACE, Additions::All),
];

const C_ITEMS: &[&str] = &[
    "preproc_include",
    "preproc_def",
    "preproc_function_def",
    "declaration",
    "function_definition",
    "type_definition",
    "struct_specifier",
    "union_specifier",
    "enum_specifier",
    "class_specifier",
    "linkage_specification",
    "namespace_definition",
    "namespace_alias_definition",
    "template_declaration",
    "using_declaration",
    "alias_declaration",
    "concept_definition",
    "static_assert_declaration",
    "field_declaration",
    "friend_declaration",
];

static C: [Construct; 6] = [
    file("translation_unit", C_ITEMS),
    // Include guards.
    lines("preproc_ifdef", "identifier", &["preproc_else", "#endif"], C_ITEMS),
    lines("declaration_list", "{", BRACE, C_ITEMS),
    lines("field_declaration_list", "{", BRACE, C_ITEMS),
    commas("enumerator_list", "{", BRACE, Additions::All),
    commas("initializer_list", "{", BRACE, Additions::All),
];

const KOTLIN_ITEMS: &[&str] = &[
    "import",
    "function_declaration",
    "class_declaration",
    "object_declaration",
    "property_declaration",
    "type_alias",
    "companion_object",
    "secondary_constructor",
];

static KOTLIN: [Construct; 4] = [
    file("source_file", KOTLIN_ITEMS),
    lines("class_body", "{", BRACE, KOTLIN_ITEMS),
    commas("enum_class_body", "{", &[";", "}"], Additions::All),
    lines("when_expression", "{", BRACE, &["when_entry"]),
];

/// Creates a language.
const fn language(
    grammar: &'static Grammar,
    constructs: &'static [Construct],
    attached: &'static [&'static str],
    leading: &'static [&'static str],
) -> MergeLanguage {
    MergeLanguage { grammar, constructs, attached, leading }
}

/// The languages. Haskell and Scheme are not here: there, the order of the definitions of a file
/// has a meaning.
pub(crate) static LANGUAGES: [MergeLanguage; 10] = [
    language(
        &grammars::RUST,
        &RUST,
        &["attribute_item"],
        &["inner_attribute_item", "extern_crate_declaration", "use_declaration"],
    ),
    language(&grammars::PYTHON, &PYTHON, &[], &["import_statement", "import_from_statement"]),
    language(&grammars::JAVASCRIPT, &SCRIPT, &["decorator"], &["import_statement"]),
    language(&grammars::TYPESCRIPT, &SCRIPT, &["decorator"], &["import_statement"]),
    language(&grammars::TSX, &SCRIPT, &["decorator"], &["import_statement"]),
    language(&grammars::GO, &GO, &[], &["import_declaration"]),
    language(&grammars::JAVA, &JAVA, &[], &["import_declaration"]),
    language(&grammars::C, &C, &[], &["preproc_include"]),
    language(&grammars::CPP, &C, &[], &["preproc_include", "using_declaration"]),
    language(&grammars::KOTLIN, &KOTLIN, &[], &["import"]),
];

impl MergeLanguage {
    /// Returns the list that a node is.
    pub(crate) fn construct(&self, node: Node<'_>) -> Option<&'static Construct> {
        let mut cursor = node.walk();
        let mut has_child = |kind: &str| node.children(&mut cursor).any(|it| it.kind() == kind);
        self.constructs.iter().find(|construct| {
            construct.kind == node.kind()
                && construct.open.is_none_or(&mut has_child)
                && construct
                    .parent
                    .is_none_or(|kind| node.parent().is_some_and(|it| it.kind() == kind))
        })
    }

    /// Returns the position of an entry among those that come first in a file.
    pub(crate) fn rank(&self, kind: &str) -> usize {
        self.leading.iter().position(|it| *it == kind).unwrap_or(self.leading.len())
    }
}

impl Construct {
    /// Returns whether both sides may add entries like this one at the same place.
    pub(crate) fn may_add(&self, node: Node<'_>) -> bool {
        let kind = node.kind();
        match self.additions {
            Additions::All => !matches!(kind, "spread_element" | "list_splat" | "wildcard_import"),
            Additions::Only(kinds) if !kinds.contains(&kind) => false,
            // In Python, other expressions are statements: their order matters.
            Additions::Only(_) if kind == "expression_statement" => {
                let assignment = node.named_child(0).filter(|it| it.kind() == "assignment");
                let left = assignment.and_then(|it| it.child_by_field_name("left"));
                left.is_some_and(|it| it.kind() == "identifier")
            }
            Additions::Only(_) => true,
        }
    }
}
