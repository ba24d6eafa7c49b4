//! The operations of the `lsp` tool under both of their names, and the parameters of a call.

use std::str::FromStr;

use serde::Deserialize;

use super::position::{Position, line};
use tools::call::Invocation;
use tools::output::ToolError;

/// An operation of the `lsp` tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LspOperation {
    /// Finds the definition of a symbol.
    Definition,
    /// Finds the references to a symbol.
    References,
    /// Lists the symbols of a file.
    Symbols,
    /// Returns type and documentation of a symbol.
    Hover,
    /// Finds symbols of the project by name.
    WorkspaceSymbol,
    /// Finds the implementations of a symbol.
    Implementation,
    /// Returns the function at a position.
    CallHierarchy,
    /// Finds the callers of a function.
    IncomingCalls,
    /// Finds the functions that a function calls.
    OutgoingCalls,
}

/// Name -> operation; the first name of each is the one in the texts of answers.
const NAMES: [(&str, LspOperation); 13] = [
    ("definition", LspOperation::Definition),
    ("references", LspOperation::References),
    ("symbols", LspOperation::Symbols),
    ("hover", LspOperation::Hover),
    ("goToDefinition", LspOperation::Definition),
    ("findReferences", LspOperation::References),
    ("documentSymbol", LspOperation::Symbols),
    ("workspaceSymbol", LspOperation::WorkspaceSymbol),
    ("goToImplementation", LspOperation::Implementation),
    ("prepareCallHierarchy", LspOperation::CallHierarchy),
    ("incomingCalls", LspOperation::IncomingCalls),
    ("outgoingCalls", LspOperation::OutgoingCalls),
    ("implementation", LspOperation::Implementation),
];

impl FromStr for LspOperation {
    type Err = String;

    fn from_str(name: &str) -> Result<LspOperation, String> {
        let operation =
            NAMES.iter().find(|(known, _)| *known == name).map(|(_, operation)| *operation);
        operation.ok_or_else(|| {
            let names: Vec<&str> = NAMES[..12].iter().map(|(name, _)| *name).collect();
            format!("there is no operation `{name}`; there are: {}", names.join(", "))
        })
    }
}

impl LspOperation {
    /// Returns the protocol's method, and the capability that provides it.
    pub(crate) fn method(self) -> (&'static str, &'static str) {
        match self {
            LspOperation::Definition => ("textDocument/definition", "definitionProvider"),
            LspOperation::References => ("textDocument/references", "referencesProvider"),
            LspOperation::Symbols => ("textDocument/documentSymbol", "documentSymbolProvider"),
            LspOperation::Hover => ("textDocument/hover", "hoverProvider"),
            LspOperation::WorkspaceSymbol => ("workspace/symbol", "workspaceSymbolProvider"),
            LspOperation::Implementation => {
                ("textDocument/implementation", "implementationProvider")
            }
            LspOperation::CallHierarchy
            | LspOperation::IncomingCalls
            | LspOperation::OutgoingCalls => {
                ("textDocument/prepareCallHierarchy", "callHierarchyProvider")
            }
        }
    }

    /// Returns the text of an empty answer.
    pub(crate) fn nothing(self) -> &'static str {
        match self {
            LspOperation::Definition => "No definition found",
            LspOperation::References => "No references found",
            LspOperation::Symbols | LspOperation::WorkspaceSymbol => "No symbols found",
            LspOperation::Hover => "No hover information",
            LspOperation::Implementation => "No implementation found",
            LspOperation::CallHierarchy => "No function found",
            LspOperation::IncomingCalls => "No incoming calls found",
            LspOperation::OutgoingCalls => "No outgoing calls found",
        }
    }

    fn wants_position(self) -> bool {
        !matches!(self, LspOperation::Symbols | LspOperation::WorkspaceSymbol)
    }
}

/// A request to a server.
#[derive(Debug)]
pub(crate) struct LspRequest {
    /// The operation.
    pub operation: LspOperation,
    /// The position, for operations that need one; in characters, counted from 0.
    pub position: Position,
    /// Whether references include the definition.
    pub with_declaration: bool,
    /// The name to search for in the whole project.
    pub query: String,
}

#[derive(Deserialize)]
struct Args {
    operation: String,
    line: Option<usize>,
    column: Option<usize>,
    character: Option<usize>,
    with_declaration: Option<bool>,
    #[serde(default)]
    query: String,
}

impl LspRequest {
    /// Parses the parameters of a call. Their names decide whether positions count from 0 or from
    /// 1.
    pub(crate) fn of(call: &Invocation<'_>) -> Result<LspRequest, ToolError> {
        let args: Args = call.decode()?;
        let operation: LspOperation = args.operation.parse().map_err(ToolError::invalid)?;
        let from_one = counts_from_one(call.used_name("path"), &args)?;
        let mut position = Position { line: 0, column: 0 };
        if operation.wants_position() {
            let column =
                if from_one { ("character", args.character) } else { ("column", args.column) };
            position = Position {
                line: counted(&args.operation, ("line", args.line), from_one)?,
                column: counted(&args.operation, column, from_one)?,
            };
        }
        let with_declaration = args.with_declaration.unwrap_or(true);
        Ok(LspRequest { operation, position, with_declaration, query: args.query })
    }

    /// Fails if the file does not have the line of the position.
    pub(crate) fn check(&self, text: &str, display_path: &str) -> Result<(), ToolError> {
        if self.operation.wants_position() && line(text, self.position.line).is_none() {
            let lines = text.lines().count();
            let wanted = self.position.line + 1;
            let reason = format!(
                "{display_path} has {lines} lines; line {wanted} (counted from 1) does not exist"
            );
            return Err(ToolError::invalid(reason));
        }
        Ok(())
    }
}

/// Returns whether positions count from 1: `file`, `line`, `column` count from 0; `filePath`,
/// `line`, `character` from 1.
fn counts_from_one(file: &str, args: &Args) -> Result<bool, ToolError> {
    let one = [(file == "filePath", "filePath"), (args.character.is_some(), "character")];
    let zero = [(file == "file", "file"), (args.column.is_some(), "column")];
    let of_one = one.iter().find(|(is_given, _)| *is_given);
    let of_zero = zero.iter().find(|(is_given, _)| *is_given);
    if let (Some((_, one)), Some((_, zero))) = (of_one, of_zero) {
        return Err(ToolError::invalid(format!(
            "`{one}` and `{zero}` contradict each other: `file`, `line`, `column` count from 0, \
             `filePath`, `line`, `character` from 1; use one of the two forms"
        )));
    }
    Ok(of_one.is_some())
}

/// Returns a number of the call, converted to count from 0.
fn counted(
    operation: &str,
    (key, given): (&str, Option<usize>),
    from_one: bool,
) -> Result<usize, ToolError> {
    let Some(number) = given else {
        return Err(ToolError::invalid(format!("{key} is required for `{operation}`")));
    };
    match from_one {
        false => Ok(number),
        true => number.checked_sub(1).ok_or_else(|| {
            ToolError::invalid(format!(
                "`{key}` counts from 1 where `filePath` or `character` is given"
            ))
        }),
    }
}
