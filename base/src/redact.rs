//! Removes the secrets of the environment from text.

use crate::sandbox::environment::is_secret;
use crate::sandbox::home::has_user_in_address;

/// The replacement for a secret.
const PLACEHOLDER: &str = "[secret]";
/// The minimum length of a secret: shorter values occur in too many words.
const MIN_SECRET_LEN: usize = 8;

/// The secrets to replace.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// Collects the values of this process's variables whose names mark a secret.
    pub fn from_env() -> Redactor {
        let texts = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Redactor::of(texts)
    }

    /// Like [`Redactor::from_env`], for these variables.
    fn of(variables: impl IntoIterator<Item = (String, String)>) -> Redactor {
        let mut secrets: Vec<String> = variables
            .into_iter()
            .filter(|(name, value)| {
                let secret = is_secret(name) || has_user_in_address(value);
                secret && value.len() >= MIN_SECRET_LEN
            })
            .map(|(_, value)| value)
            .collect();
        // A secret that contains another one goes first, or its rest would remain.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Redactor { secrets }
    }

    /// Returns the text without the secrets.
    pub fn clean(&self, text: &str) -> String {
        let replace = |text: String, secret: &String| text.replace(secret, PLACEHOLDER);
        self.secrets.iter().fold(text.to_owned(), replace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_contains_another_is_replaced_whole() {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let redactor = Redactor::of([
            variable("MY_TOKEN", "plum-tree"),
            variable("OTHER_KEY", "plum-tree-in-bloom"),
            variable("SHORT_KEY", "pear"),
            variable("PATH", "/usr/local/bin"),
        ]);
        let text = "plum-tree-in-bloom, plum-tree, pear, /usr/local/bin";
        assert_eq!(redactor.clean(text), "[secret], [secret], pear, /usr/local/bin");
    }
}
