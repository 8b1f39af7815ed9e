//! Explores one environment and says what came of it.

use std::collections::HashSet;
use std::time::Instant;

use cgleaf::group::guards::{AllGuards, Guards};

use super::explore::{Answered, Exploration, explore};
use super::kernel::Property;
use super::world::Config;

/// Explores a configuration and prints a line about it.
pub fn run<G: Guards>(config: &Config) -> Exploration {
    let began = Instant::now();
    let result = explore::<G>(config, &[]);
    println!(
        "{:<34} {:>9} states {:>10} steps  depth {:>3}  {:>6.2} s  {}",
        format!("{} ({:?})", config.name, config.reaping),
        result.states,
        result.transitions,
        result.depth,
        began.elapsed().as_secs_f64(),
        result.broken.as_ref().map_or_else(
            || "holds".to_owned(),
            |(property, _)| format!("breaks {property:?}")
        ),
    );
    result
}

/// Explores it with every guard in its place; the answers that it may give.
///
/// # Panics
/// With the whole story, if a property breaks.
pub fn holds(config: &Config) -> HashSet<Answered> {
    let result = run::<AllGuards>(config);
    if let Some((property, path)) = result.broken {
        let story: Vec<String> = path
            .iter()
            .map(|happening| format!("{happening:?}"))
            .collect();
        panic!(
            "{} breaks {property:?}:\n  {}",
            config.name,
            story.join("\n  ")
        );
    }
    result.answers
}

/// Is this property broken in some interleaving, whatever else is?
#[must_use]
pub fn finds<G: Guards>(guard: &str, config: &Config, expected: Property) -> bool {
    let others: Vec<Property> = ALL_PROPERTIES
        .into_iter()
        .filter(|property| *property != expected)
        .collect();
    let result = explore::<G>(config, &others);
    if let Some((property, path)) = &result.broken {
        println!(
            "without {guard:<26} {property:?} breaks after {} steps",
            path.len()
        );
    }
    result.broken.is_some()
}

const ALL_PROPERTIES: [Property; 10] = [
    Property::DestroyedProgramStopped,
    Property::KillsOnlyOwn,
    Property::ProvesGroupOwnership,
    Property::FreezesUnseenGroup,
    Property::NotLeftFrozen,
    Property::GcKeepsRunning,
    Property::GcProbesUnseenGroup,
    Property::RefusesOnlyForeign,
    Property::DestroyEnds,
    Property::EveryRunEnds,
];
