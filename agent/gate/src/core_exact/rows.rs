//! The tables of the policy `core-exact`: which tool goes which way, what is said, and the lists
//! that a configuration may replace.

/// What is said of a call.
#[derive(Debug)]
pub(crate) struct Announcement {
    /// For programs.
    pub reason: &'static str,
    /// To be spoken; empty where there is nothing to say.
    pub voice: &'static str,
    /// Whether the user is asked first.
    pub asks: bool,
}

/// Which way a tool goes.
#[derive(Debug)]
pub(crate) enum ToolRoute {
    /// To this machine, always.
    Host(Announcement),
    /// To this machine, unless its path is restricted.
    File,
    /// As its command has it.
    Command,
}

const fn quiet(reason: &'static str) -> Announcement {
    Announcement { reason, voice: "", asks: false }
}

const fn says(reason: &'static str, voice: &'static str) -> Announcement {
    Announcement { reason, voice, asks: false }
}

const fn asks(reason: &'static str, voice: &'static str) -> Announcement {
    Announcement { reason, voice, asks: true }
}

/// Every tool that the policy knows, g3's own or not. What stands nowhere is unknown.
static TOOLS: &[(&[&str], ToolRoute)] = &[
    (&["execute_cli"], ToolRoute::Command),
    (&["read_file", "edit_file", "find_files"], ToolRoute::File),
    (
        &["execute_gui"],
        ToolRoute::Host(says("gui_requires_host", "This acts on the screen, so it runs here.")),
    ),
    (
        &["execute_computer_use"],
        ToolRoute::Host(says("gemini_computer_use_native", "The model takes over the screen now.")),
    ),
    (
        &[
            "observe_screen",
            "get_ui_context",
            "maximize_active_window",
            "wait",
            "get_action_history",
            "execute_accessible",
            "window_list",
            "window_focus",
            "resize_window",
            "clipboard_read",
            "clipboard_write",
        ],
        ToolRoute::Host(quiet("display_requires_host")),
    ),
    (
        &["execute_browser"],
        ToolRoute::Host(says("browser_requires_host", "This drives the browser, so it runs here.")),
    ),
    (&["execute_skill"], ToolRoute::Host(says("skill_workflow_execution", "A skill is at work."))),
    (&["load_skill"], ToolRoute::Host(quiet("skill_instructions_load"))),
    (
        &["create_skill"],
        ToolRoute::Host(asks("skill_authoring", "This makes a new skill. Shall I go on?")),
    ),
    (
        &["edit_skill"],
        ToolRoute::Host(asks("skill_authoring", "This changes a skill. Shall I go on?")),
    ),
    (
        &["read_pdf", "read_image", "read_excel", "write_excel"],
        ToolRoute::Host(quiet("file_operation")),
    ),
    (&["process_info", "system_info"], ToolRoute::Host(quiet("system_info"))),
    (&["download_file"], ToolRoute::Host(quiet("safe"))),
    (
        &[
            "save_dialog",
            "open_dialog",
            "launch_app",
            "open_file",
            "close_app",
            "app_menu",
            "install_app",
            "copy_between_apps",
            "fill_form",
            "extract_text",
            "set_env_var",
            "change_setting",
            "find_and_replace_in_files",
        ],
        ToolRoute::Host(quiet("workflow_operation")),
    ),
];

/// The way of a tool; `None` when it is unknown.
pub(crate) fn way(tool: &str) -> Option<&'static ToolRoute> {
    TOOLS.iter().find(|(names, _)| names.contains(&tool)).map(|(_, way)| way)
}

/// Every name that the policy knows.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().flat_map(|(names, _)| names.iter().copied())
}

/// The user's word.
pub(crate) const FORCED: Announcement = says("user_override", "You allowed it, so it runs here.");
/// A file that nobody restricted.
pub(crate) const FILE: Announcement = quiet("file_operation");
/// A file that lies where nobody should look.
pub(crate) const RESTRICTED_FILE: Announcement =
    says("restricted_path", "That file lies in a restricted place.");
/// A tool that stands nowhere.
pub(crate) const UNKNOWN: Announcement =
    says("unknown_tool", "I do not know that tool, so it is sandboxed.");
/// A command without a word.
pub(crate) const EMPTY: Announcement = asks("empty_command", "");
/// A command that is on the list.
pub(crate) const FORBIDDEN_COMMAND: Announcement =
    says("forbidden_command", "That command is forbidden here, so it goes to the sandbox.");
/// A command that names a restricted path.
pub(crate) const RESTRICTED_PATH: Announcement =
    says("restricted_path", "That command names a restricted path, so it goes to the sandbox.");
/// A command that may destroy something.
pub(crate) const DESTROYS: Announcement =
    asks("destructive_command", "That command may destroy something. Shall I go on?");
/// Any other command.
pub(crate) const SAFE: Announcement = says("safe", "That command is safe to run here.");

/// Beginnings of what is forbidden, unless the configuration has its own.
pub(crate) const FORBIDDEN: [&str; 5] =
    ["rm -rf /", "mkfs", "dd if=", "format C:", r"del /f /s /q C:\"];

/// Paths that are restricted, unless the configuration has its own.
pub(crate) const RESTRICTED: [&str; 6] = [
    "/root",
    "/etc/shadow",
    "/etc/passwd",
    r"C:\Windows",
    r"C:\Windows\System32",
    r"C:\Windows\SysWOW64",
];

/// Words and phrases that destroy, unless the configuration has its own.
pub(crate) const DESTRUCTIVE: [&str; 29] = [
    "rm",
    "rmdir",
    "del",
    "deltree",
    "rd",
    "erase",
    "mv",
    "kill",
    "killall",
    "pkill",
    "taskkill",
    "shutdown",
    "halt",
    "reboot",
    "poweroff",
    "format",
    "mkfs",
    "fdisk",
    "dd",
    "DROP TABLE",
    "DROP DATABASE",
    "TRUNCATE",
    "remove-item",
    "move-item",
    "stop-process",
    "restart-computer",
    "stop-computer",
    "clear-content",
    "clear-item",
];

/// Words that destroy whatever the configuration says.
pub(crate) const FLOOR: [&str; 14] = [
    "remove-item",
    "move-item",
    "stop-process",
    "restart-computer",
    "stop-computer",
    "clear-content",
    "clear-item",
    "set-content",
    "remove-itemproperty",
    "stop-service",
    "remove-service",
    "invoke-expression",
    "iex",
    "format-volume",
];

/// Commands before a command.
pub(crate) const PREFIXES: [&str; 6] = ["sudo", "env", "nohup", "nice", "time", "doas"];
