//! A series of kills beneath the service manager of the user who runs this: see `cgleaf_tests::crash`.
//!
//! `crash-series scope|service frontend|helper KILLS CGLEAF` prints what it came to.

use std::path::Path;
use std::process::ExitCode;

use cgleaf_tests::crash::{Mode, Place, Victim, series};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, victim, kills, program] = words.as_slice() else {
        eprintln!("usage: crash-series scope|service frontend|helper KILLS CGLEAF");
        return ExitCode::from(2);
    };
    let mode = if mode == "scope" {
        Mode::Scope
    } else {
        Mode::Service
    };
    let victim = if victim == "frontend" {
        Victim::Frontend
    } else {
        Victim::Helper
    };
    let kills = kills.parse().expect("how many kills");
    let report = series(&Place::of_user(mode, Path::new(program)), victim, kills);
    println!("{report}");
    ExitCode::SUCCESS
}
