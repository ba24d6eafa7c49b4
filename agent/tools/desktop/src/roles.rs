//! Names of control roles in other systems: those of web pages (WAI-ARIA,
//! <https://www.w3.org/TR/wai-aria-1.2/#role_definitions>) and of toolkits, in addition to AT-SPI's
//! own.

/// Roles of AT-SPI and their other names, written without spaces and hyphens.
const NAMES: &[(&[&str], &[&str])] = &[
    (&["push button", "button", "toggle button", "push button menu"], &["button"]),
    (&["toggle button", "switch"], &["switch", "togglebutton"]),
    (
        &["text", "entry", "password text", "editbar", "autocomplete"],
        &["textbox", "textfield", "textarea", "entry", "edit", "input", "searchbox", "textinput"],
    ),
    (&["password text"], &["password", "passwordbox"]),
    (&["check box"], &["checkbox", "checkbutton", "tickbox"]),
    (&["radio button"], &["radio", "radiobutton"]),
    (&["combo box"], &["combobox", "dropdown", "select", "choice"]),
    (&["list box", "list"], &["listbox", "listview"]),
    (&["list item"], &["listitem", "option", "row"]),
    (&["page tab"], &["tab", "tabitem", "notebooktab"]),
    (&["page tab list"], &["tablist", "notebook"]),
    (&["menu item", "check menu item", "radio menu item"], &["menuitem"]),
    (&["menu bar"], &["menubar"]),
    (&["link"], &["hyperlink", "anchor"]),
    (&["label", "static", "text"], &["label", "statictext"]),
    (&["slider"], &["range", "scale"]),
    (&["spin button"], &["spinbutton", "spinner", "stepper"]),
    (&["progress bar"], &["progressbar", "progress"]),
    (&["scroll bar"], &["scrollbar"]),
    (&["tool bar"], &["toolbar"]),
    (&["tool tip"], &["tooltip"]),
    (&["image", "icon"], &["img", "image", "icon", "picture"]),
    (&["table cell"], &["cell", "gridcell", "tablecell"]),
    (&["tree item"], &["treeitem"]),
    (&["table", "tree table"], &["grid", "treegrid"]),
    (&["frame", "window"], &["window", "frame"]),
    (&["dialog", "alert"], &["dialog", "alertdialog", "messagebox"]),
    (&["document web", "document frame"], &["document", "webpage"]),
    (&["heading"], &["header", "title"]),
];

/// Whether a name refers to this role, fully or by a part of its own name.
pub(crate) fn matches(role: &str, expected: &str) -> bool {
    normalize(role).contains(&normalize(expected)) || is_named(role, expected)
}

/// Whether a control of this role has this name in another system.
pub(crate) fn is_named(role: &str, expected: &str) -> bool {
    let (role, expected) =
        (role.trim().to_lowercase().replace(['_', '-'], " "), normalize(expected));
    NAMES
        .iter()
        .any(|(roles, names)| names.contains(&expected.as_str()) && roles.contains(&role.as_str()))
}

/// Normalizes a role name.
fn normalize(role: &str) -> String {
    role.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_names_of_web_pages_and_toolkits_are_recognized() {
        for (role, expected) in [
            ("text", "textbox"),
            ("entry", "TextBox"),
            ("text", "entry"),
            ("check box", "checkbox"),
            ("push button", "button"),
            ("push button", "push_button"),
            ("combo box", "select"),
            ("page tab", "tab"),
            ("list item", "option"),
        ] {
            assert!(matches(role, expected), "{role} {expected}");
        }
        for (role, expected) in [("push button", "textbox"), ("link", "checkbox"), ("text", "link")]
        {
            assert!(!matches(role, expected), "{role} {expected}");
        }
    }

    #[test]
    fn names_are_normalized_and_roles_are_written_as_in_atspi() {
        for (roles, names) in NAMES {
            assert!(names.iter().all(|name| normalize(name) == *name), "{names:?}");
            assert!(roles.iter().all(|role| role.to_lowercase() == *role), "{roles:?}");
        }
    }
}
