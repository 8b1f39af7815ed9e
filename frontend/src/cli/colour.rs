//! Colours: on a terminal, unless `NO_COLOR` is set or the terminal has none.

use std::io::IsTerminal;

/// A colour or weight of a terminal, as the parameter of its SGR sequence (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Paint(&'static str);

impl Paint {
    pub(super) const HEAD: Self = Self("1");

    /// For a session's state: green is well, yellow on its way, red needs a look.
    pub(super) fn of_state(state: &str) -> Option<Self> {
        match state {
            "running" => Some(Self("32")),
            "frozen" => Some(Self("36")),
            "starting" | "destroying" => Some(Self("33")),
            "damaged" | "unknown" => Some(Self("31")),
            "ended" | "destroyed" => Some(Self("2")),
            _ => None,
        }
    }

    /// Lays it on a text.
    pub(super) fn on(self, text: &str) -> String {
        format!("\u{1b}[{}m{text}\u{1b}[0m", self.0)
    }
}

/// Whether stdout is to be coloured.
pub(super) fn on_stdout() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    std::io::stdout().is_terminal() && !set("NO_COLOR") && !dumb
}
