//! Text without the secrets of the environment.

use super::environment::is_secret;
use super::home::has_user_in_address;

/// What stands in the place of a secret.
const GONE: &str = "[secret]";
/// Shorter values stand in too many words to be taken out of them.
const SHORTEST: usize = 8;

/// Knows the values that are taken out.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// Takes out what the variables of this process hold whose names say that it is a secret.
    pub fn from_env() -> Redactor {
        let texts = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Redactor::of(texts)
    }

    /// As [`Redactor::from_env`], of these variables.
    fn of(variables: impl IntoIterator<Item = (String, String)>) -> Redactor {
        let mut secrets: Vec<String> = variables
            .into_iter()
            .filter(|(name, value)| {
                let secret = is_secret(name) || has_user_in_address(value);
                secret && value.len() >= SHORTEST
            })
            .map(|(_, value)| value)
            .collect();
        // One that holds another goes first, or its rest would stay.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Redactor { secrets }
    }

    /// Returns the text without them.
    pub fn clean(&self, text: &str) -> String {
        let take_out = |text: String, secret: &String| text.replace(secret, GONE);
        self.secrets.iter().fold(text.to_owned(), take_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_holds_another_is_taken_out_whole() {
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
