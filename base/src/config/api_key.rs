//! API keys of providers: from the configuration, a command or the environment.

use crate::config::providers::CommandLine;
use crate::failure::{Failure, Result};
use crate::process::{Command, OutputLimits};
use crate::secret::Secret;

/// Sources of a provider's key, in order of precedence.
#[derive(Clone, Debug)]
pub struct KeySources {
    /// `type.name`, for messages.
    pub provider: String,
    /// `api_key`.
    pub configured: Option<Secret>,
    /// `api_key_command`.
    pub command: Option<CommandLine>,
    /// Name of an environment variable.
    pub variable: Option<&'static str>,
}

/// A key and its source.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// The key.
    pub secret: Secret,
    /// The source of the key, for messages.
    pub origin: String,
}

impl KeySources {
    /// Returns the first key found, or `None` if no source has one.
    pub fn optional(&self) -> Result<Option<ApiKey>> {
        if let Some(key) = self.written() {
            return Ok(Some(ApiKey { secret: key.clone(), origin: "`api_key`".to_owned() }));
        }
        if let Some(command) = &self.command {
            let origin = "`api_key_command`".to_owned();
            return Ok(Some(ApiKey { secret: self.run(command)?, origin }));
        }
        let Some(variable) = self.variable else { return Ok(None) };
        Ok(from_environment(variable).map(|secret| ApiKey { secret, origin: variable.to_owned() }))
    }

    /// Like [`KeySources::optional`], but fails if there is no key. The failure says where to set
    /// one.
    pub fn required(&self) -> Result<ApiKey> {
        self.optional()?.ok_or_else(|| {
            let failure = Failure::usage(format!("no API key for `{}`", self.provider));
            let failure = match self.variable {
                Some(name) => failure.hint(format!("export {name}=…")),
                None => failure,
            };
            failure
                .hint(format!(
                    "or set `api_key_command` or `api_key` in [providers.{}]",
                    self.provider
                ))
                .hint("or use a model on this machine: g3 --provider embedded")
        })
    }

    /// Returns whether the key is what a command prints.
    pub fn is_command(&self) -> bool {
        self.written().is_none() && self.command.is_some()
    }

    /// Returns the key that is written in the configuration.
    fn written(&self) -> Option<&Secret> {
        self.configured.as_ref().filter(|key| !key.reveal().trim().is_empty())
    }

    /// Runs the command and returns its stdout without the trailing newline. If it fails, its
    /// stderr is shown; its stdout is never shown.
    fn run(&self, command: &CommandLine) -> Result<Secret> {
        let argv = command.argv();
        let failure = |reason: String| {
            Failure::usage(format!("`api_key_command` of `{}` returned no key", self.provider))
                .because(reason)
        };
        let Some((program, args)) = argv.split_first() else {
            return Err(failure("the command is empty".to_owned()));
        };
        let result = Command::new(program, "/").args(args).output(OutputLimits::seconds(60));
        let output = result.map_err(|reason| failure(reason.to_string()))?;
        if output.timed_out {
            return Err(failure("it did not end within 60 s".to_owned()));
        }
        if !output.ok() {
            let message = output.error_text();
            return Err(failure(format!("it ended with code {}: {message}", output.code())));
        }
        let key = output.text().trim().to_owned();
        if key.is_empty() {
            return Err(failure("it printed nothing".to_owned()));
        }
        Ok(Secret::new(key))
    }
}

/// Reads a key from an environment variable. An empty variable counts as unset.
pub fn from_environment(variable: &str) -> Option<Secret> {
    let value = std::env::var(variable).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| Secret::new(value))
}
