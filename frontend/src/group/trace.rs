//! The engine's events, named like the actions of tla/Group.tla. Nothing of this is in a normal build.

use super::engine::Answer;
use super::gc::Judgement;
use super::kernel::{Boot, Delivery, Place};
use super::scan::{Shows, Verdict};
use crate::trace::{Field, Role, Started};

/// Whose engine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A destroy's.
    Destroy,
    /// A gc's.
    Gc,
}

/// One action of the group tier's model. Fields as in tla/README.md.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Event {
    Begin { op: Op, place: Place },
    Scan,
    Judge(Verdict),
    Recheck { same: bool },
    Kill(Delivery),
    Stop(Delivery),
    Settle,
    Probe { found: bool },
    Look(Shows),
    Cont,
    Report(&'static str),
}

impl Event {
    /// A destroy's answer.
    #[must_use]
    pub fn answered(answer: Answer) -> Event {
        Event::Report(match answer {
            Answer::Ended => "ended",
            Answer::Alive(_) => "alive",
            Answer::Refused(_) => "refused",
        })
    }

    /// A gc's answer.
    #[must_use]
    pub fn judged(judgement: Judgement) -> Event {
        Event::Report(match judgement {
            Judgement::Over => "over",
            Judgement::Kept(_) => "kept",
        })
    }

    /// The action's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Event::Begin { .. } => "Begin",
            Event::Scan => "Scan",
            Event::Judge(_) => "Judge",
            Event::Recheck { .. } => "Recheck",
            Event::Kill(_) => "Kill",
            Event::Stop(_) => "Stop",
            Event::Settle => "Settle",
            Event::Probe { .. } => "Probe",
            Event::Look(_) => "Look",
            Event::Cont => "Cont",
            Event::Report(_) => "Report",
        }
    }

    /// Its fields.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, Field<'static>)> {
        match self {
            Event::Scan | Event::Settle | Event::Cont => Vec::new(),
            Event::Begin { op, place } => vec![
                (
                    "op",
                    Field::Word(if *op == Op::Destroy { "destroy" } else { "gc" }),
                ),
                (
                    "boot",
                    Field::Word(if place.boot == Boot::Same {
                        "same"
                    } else {
                        "other"
                    }),
                ),
                (
                    "proc",
                    Field::Word(if place.own_proc { "own" } else { "foreign" }),
                ),
            ],
            Event::Judge(verdict) => {
                let running = matches!(verdict, Verdict::Unknown { running: true });
                vec![
                    ("verdict", Field::Word(verdict_name(verdict))),
                    ("running", Field::Flag(running)),
                ]
            }
            Event::Recheck { same } => vec![("same", Field::Flag(*same))],
            Event::Kill(delivery) | Event::Stop(delivery) => vec![
                ("found", Field::Flag(*delivery != Delivery::NoGroup)),
                ("denied", Field::Flag(*delivery == Delivery::Denied)),
            ],
            Event::Probe { found } => vec![("found", Field::Flag(*found))],
            Event::Look(shows) => vec![("shows", Field::Word(shows_name(*shows)))],
            Event::Report(answer) => vec![("answer", Field::Word(answer))],
        }
    }

    /// Writes it as a line of the trace.
    pub(super) fn write(&self, role: Role, since: Started) {
        crate::trace::event(role, self.name(), since, &self.fields());
    }
}

fn verdict_name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Gone => "gone",
        Verdict::Unknown { .. } => "unknown",
        Verdict::Owned { .. } => "owned",
        Verdict::Unproven => "unproven",
        Verdict::Foreign => "foreign",
    }
}

fn shows_name(shows: Shows) -> &'static str {
    match shows {
        Shows::Live => "live",
        Shows::Zombies => "zombies",
        Shows::None => "none",
    }
}
