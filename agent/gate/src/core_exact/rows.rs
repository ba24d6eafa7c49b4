//! The tables of the policy `core-exact`: the routes of tools, the messages, and the lists that a
//! configuration may replace.

/// The messages about a call.
#[derive(Debug)]
pub(crate) struct Announcement {
    /// The reason, for programs.
    pub reason: &'static str,
    /// The message to be spoken; empty if there is nothing to say.
    pub voice_message: &'static str,
    /// Whether the user is asked first.
    pub require_confirmation: bool,
}

/// The route of a tool.
#[derive(Debug)]
pub(crate) enum ToolRoute {
    /// Always on this machine.
    Host(Announcement),
    /// On this machine, unless its path is restricted.
    File,
    /// Determined by its command.
    Command,
}

const fn quiet(reason: &'static str) -> Announcement {
    Announcement { reason, voice_message: "", require_confirmation: false }
}

const fn spoken(reason: &'static str, voice_message: &'static str) -> Announcement {
    Announcement { reason, voice_message, require_confirmation: false }
}

const fn confirmed(reason: &'static str, voice_message: &'static str) -> Announcement {
    Announcement { reason, voice_message, require_confirmation: true }
}

/// All tools that the policy knows, including ones that g3 does not have. Others are unknown.
static TOOLS: &[(&[&str], ToolRoute)] = &[
    (&["execute_cli"], ToolRoute::Command),
    (&["read_file", "edit_file", "find_files"], ToolRoute::File),
    (
        &["execute_gui"],
        ToolRoute::Host(spoken("gui_requires_host", "This acts on the screen, so it runs here.")),
    ),
    (
        &["execute_computer_use"],
        ToolRoute::Host(spoken(
            "gemini_computer_use_native",
            "The model takes over the screen now.",
        )),
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
        ToolRoute::Host(spoken(
            "browser_requires_host",
            "This drives the browser, so it runs here.",
        )),
    ),
    (
        &["execute_skill"],
        ToolRoute::Host(spoken("skill_workflow_execution", "A skill is at work.")),
    ),
    (&["load_skill"], ToolRoute::Host(quiet("skill_instructions_load"))),
    (
        &["create_skill"],
        ToolRoute::Host(confirmed("skill_authoring", "This makes a new skill. Shall I go on?")),
    ),
    (
        &["edit_skill"],
        ToolRoute::Host(confirmed("skill_authoring", "This changes a skill. Shall I go on?")),
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

/// Returns the route of a tool, or `None` if it is unknown.
pub(crate) fn route_of(tool: &str) -> Option<&'static ToolRoute> {
    TOOLS.iter().find(|(names, _)| names.contains(&tool)).map(|(_, route)| route)
}

/// Returns all tool names that the policy knows.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().flat_map(|(names, _)| names.iter().copied())
}

/// The user's decision.
pub(crate) const FORCED: Announcement = spoken("user_override", "You allowed it, so it runs here.");
/// A file that is not restricted.
pub(crate) const FILE: Announcement = quiet("file_operation");
/// A file in a restricted location.
pub(crate) const RESTRICTED_FILE: Announcement =
    spoken("restricted_path", "That file is in a restricted location.");
/// An unknown tool.
pub(crate) const UNKNOWN: Announcement =
    spoken("unknown_tool", "I do not know that tool, so it is sandboxed.");
/// An empty command.
pub(crate) const EMPTY: Announcement = confirmed("empty_command", "");
/// A forbidden command.
pub(crate) const FORBIDDEN_COMMAND: Announcement =
    spoken("forbidden_command", "That command is forbidden here, so it goes to the sandbox.");
/// A command that names a restricted path.
pub(crate) const RESTRICTED_PATH: Announcement =
    spoken("restricted_path", "That command names a restricted path, so it goes to the sandbox.");
/// A destructive command.
pub(crate) const DESTRUCTIVE_COMMAND: Announcement =
    confirmed("destructive_command", "That command may destroy something. Shall I go on?");
/// Any other command.
pub(crate) const SAFE: Announcement = spoken("safe", "That command is safe to run here.");

/// Forbidden command prefixes, unless configured otherwise.
pub(crate) const FORBIDDEN: [&str; 5] =
    ["rm -rf /", "mkfs", "dd if=", "format C:", r"del /f /s /q C:\"];

/// Restricted paths, unless configured otherwise.
pub(crate) const RESTRICTED: [&str; 6] = [
    "/root",
    "/etc/shadow",
    "/etc/passwd",
    r"C:\Windows",
    r"C:\Windows\System32",
    r"C:\Windows\SysWOW64",
];

/// Destructive words and phrases, unless configured otherwise.
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

/// Words that are always destructive, regardless of the configuration.
pub(crate) const ALWAYS_DESTRUCTIVE: [&str; 14] = [
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

/// Prefixes of commands.
pub(crate) const PREFIXES: [&str; 6] = ["sudo", "env", "nohup", "nice", "time", "doas"];
