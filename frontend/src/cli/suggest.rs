//! "Did you mean": the living session that a mistyped id or name is nearest to.

use super::context::Context;
use crate::error::{Code, Error};

/// Below this it is another word (Jaro-Winkler, as clap does it for commands).
const NEAR: f64 = 0.8;

/// The error with a suggestion, if it is about a session that is not there.
pub(super) fn with_suggestion(context: &Context, error: Error) -> Error {
    let Some(typed) = typed(&error) else {
        return error;
    };
    let everything = context.reach().everything();
    let known = everything.sessions.iter().flat_map(|session| {
        let name = session.name().map(|name| name.as_str().to_owned());
        [Some(session.id.to_string()), name].into_iter().flatten()
    });
    match nearest(&typed, known) {
        Some(near) => error
            .followed_by(format_args!("did you mean {near}?"))
            .with("did_you_mean", near),
        None => error,
    }
}

fn typed(error: &Error) -> Option<String> {
    if error.code() != Code::SessionNotFound {
        return None;
    }
    let typed = error.details().get("session")?.as_str()?;
    Some(typed.to_owned())
}

fn nearest(typed: &str, known: impl Iterator<Item = String>) -> Option<String> {
    known
        // What is there under that very name is missing something else than its name.
        .filter(|word| word != typed)
        .map(|word| (strsim::jaro_winkler(typed, &word), word))
        .filter(|(likeness, _)| *likeness > NEAR)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_another_word_finds_none() {
        let known = || {
            ["build", "deploy", "2af683xmxjwg304h"]
                .map(str::to_owned)
                .into_iter()
        };
        assert_eq!(nearest("biuld", known()).as_deref(), Some("build"));
        assert_eq!(nearest("buil", known()).as_deref(), Some("build"));
        assert_eq!(
            nearest("2af683xmxjwg304", known()).as_deref(),
            Some("2af683xmxjwg304h")
        );
        assert_eq!(nearest("zzz", known()), None);
    }
}
