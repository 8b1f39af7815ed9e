//! `bench-destroy SESSION QUIET-MS [ignore]`: how long one destroy takes in a process that is there already, as an embedding host calls it; prints
//! microseconds. For tests/bench/run.

use std::time::{Duration, Instant};

use cgleaf::base::{Base, Surroundings};
use cgleaf::ops::{DestroyOptions, Reach, StrayPolicy, destroy};

fn main() -> anyhow::Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(session), Some(quiet)) = (words.next(), words.next()) else {
        anyhow::bail!("usage: bench-destroy SESSION QUIET-MS [ignore]");
    };
    let mut options = DestroyOptions::default();
    if words.next().as_deref() == Some("ignore") {
        options.strays = StrayPolicy::Ignore;
    }
    let base = Base::find(&Surroundings::of_process())?;
    let reach = Reach::new(&base, None);
    std::thread::sleep(Duration::from_millis(quiet.parse()?));
    let start = Instant::now();
    destroy(&reach, &session, &options)?;
    println!("{:.1}", start.elapsed().as_secs_f64() * 1e6);
    Ok(())
}
