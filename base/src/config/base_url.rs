//! Base URLs of providers from the environment, by the variables that the providers' SDKs read.

use std::collections::BTreeMap;

/// The types of provider whose base URL a variable can give, with their variables in order: the
/// SDK's present name first, then the names that its older versions or other SDKs read.
const VARIABLES: &[(&str, &[&str])] = &[
    ("anthropic", &["ANTHROPIC_BASE_URL"]),
    ("openai", &["OPENAI_BASE_URL", "OPENAI_API_BASE"]),
    ("gemini", &["GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"]),
];

/// A base URL and where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseUrl<'a> {
    /// The URL as written.
    pub url: &'a str,
    /// The variable that gives it; `None` for one of the configuration.
    pub variable: Option<&'a str>,
}

/// The base URLs that the environment gives, by type of provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentUrls(BTreeMap<&'static str, (&'static str, String)>);

/// Returns the name of every variable that can give a base URL.
pub fn variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().flat_map(|(_, names)| names.iter().copied())
}

impl EnvironmentUrls {
    /// Returns those of these variables; an empty variable gives none.
    pub(crate) fn of(environment: &[(String, String)]) -> EnvironmentUrls {
        let value = |name: &str| {
            let found = environment.iter().find(|(known, _)| known == name)?;
            Some(found.1.trim()).filter(|url| !url.is_empty()).map(str::to_owned)
        };
        let of_type = |names: &&'static [&'static str]| {
            names.iter().find_map(|name| Some((*name, value(name)?)))
        };
        let all = VARIABLES.iter().filter_map(|(kind, names)| Some((*kind, of_type(names)?)));
        EnvironmentUrls(all.collect())
    }

    /// Returns the base URL for a type of provider.
    pub(crate) fn get(&self, kind: &str) -> Option<BaseUrl<'_>> {
        let (variable, url) = self.0.get(kind)?;
        Some(BaseUrl { url, variable: Some(variable) })
    }

    /// Returns every type with a base URL.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, BaseUrl<'_>)> {
        self.0.keys().filter_map(|kind| Some((*kind, self.get(kind)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_name_comes_before_the_older_one_and_an_empty_variable_gives_none() {
        let of = |pairs: &[(&str, &str)]| {
            let own = |(name, url): &(&str, &str)| ((*name).to_owned(), (*url).to_owned());
            let urls = EnvironmentUrls::of(&pairs.iter().map(own).collect::<Vec<_>>());
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
