//! Base URLs of providers from the environment variables that the providers' SDKs read.

use std::collections::BTreeMap;

/// The provider types that have base URL variables, with the variables in order of precedence: the
/// SDK's current name first, then the names that its older versions or other SDKs read.
const VARIABLES: &[(&str, &[&str])] = &[
    ("anthropic", &["ANTHROPIC_BASE_URL"]),
    ("openai", &["OPENAI_BASE_URL", "OPENAI_API_BASE"]),
    ("gemini", &["GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"]),
];

/// A base URL and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseUrl<'a> {
    /// The URL, as written.
    pub url: &'a str,
    /// The variable that sets it; `None` for a URL from the configuration.
    pub variable: Option<&'a str>,
}

/// The base URLs that the environment sets, by provider type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentUrls(BTreeMap<&'static str, (&'static str, String)>);

/// Returns the names of all variables that can set a base URL.
pub fn variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().flat_map(|(_, names)| names.iter().copied())
}

impl EnvironmentUrls {
    /// Reads the base URLs from these variables; an empty variable is ignored.
    pub(crate) fn of(environment: &[(String, String)]) -> EnvironmentUrls {
        let value = |name: &str| {
            let variable = environment.iter().find(|(known, _)| known == name)?;
            Some(variable.1.trim()).filter(|url| !url.is_empty()).map(str::to_owned)
        };
        let of_type = |names: &&'static [&'static str]| {
            names.iter().find_map(|name| Some((*name, value(name)?)))
        };
        let all = VARIABLES.iter().filter_map(|(kind, names)| Some((*kind, of_type(names)?)));
        EnvironmentUrls(all.collect())
    }

    /// Returns the base URL for a provider type.
    pub(crate) fn get(&self, kind: &str) -> Option<BaseUrl<'_>> {
        let (variable, url) = self.0.get(kind)?;
        Some(BaseUrl { url, variable: Some(variable) })
    }

    /// Returns every provider type with a base URL, and that URL.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, BaseUrl<'_>)> {
        self.0.keys().filter_map(|kind| Some((*kind, self.get(kind)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_variable_has_precedence_and_an_empty_one_is_ignored() {
        let of = |pairs: &[(&str, &str)]| {
            let to_pair = |(name, url): &(&str, &str)| ((*name).to_owned(), (*url).to_owned());
            let urls = EnvironmentUrls::of(&pairs.iter().map(to_pair).collect::<Vec<_>>());
            let (variable, url) = urls.0.get("openai")?;
            Some((*variable, url.clone()))
        };
        let (new, old) = (("OPENAI_BASE_URL", "http://n/v1"), ("OPENAI_API_BASE", "http://o/v1"));
        assert_eq!(of(&[old, new]), Some(("OPENAI_BASE_URL", "http://n/v1".to_owned())));
        assert_eq!(of(&[old]), Some(("OPENAI_API_BASE", "http://o/v1".to_owned())));
        assert_eq!(of(&[("OPENAI_BASE_URL", " "), old]).unwrap().0, "OPENAI_API_BASE");
        assert_eq!(of(&[("ANTHROPIC_BASE_URL", "http://n")]), None);
    }
}
