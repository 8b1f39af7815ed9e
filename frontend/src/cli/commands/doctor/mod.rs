//! `cgleaf doctor`: tries what a session needs, and says which tier is to be had, why, and what would raise it.

mod advice;
mod cause;
mod checks;
mod facts;
mod guard;
mod limit;
mod named;
mod place;
mod private;
mod proc;
mod processes;
mod program;
mod restrictions;
mod service;
mod settings;
mod spawn;
mod systemd;
mod trial;
mod unit;
mod words;

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::output::Output;
use super::super::output::one_line;
use super::helper::{describe, looked_json};
use crate::client::{Deadline, Patience, refusal_of, says_nobody_answered, unanswered_at};
use crate::error::{Code, Error, Result};
use crate::launch::NEITHER_ANSWERS_NOR_ENDS;
use crate::ops::{Probe, probe_leaf};
use crate::records::Tier;

use advice::Advice;
use checks::Check;

/// How long each helper has for an answer, and all of them together. `run` waits longer; nobody asks doctor in order to wait.
const PATIENCE: Duration = Duration::from_secs(2);
const ALL_PATIENCE: Duration = Duration::from_secs(6);
/// How long one that doctor itself starts has for its first: it has more to do until then.
const PATIENCE_WITH_A_NEW_ONE: Duration = Duration::from_secs(10);

/// Says what cgleaf can do here. 0 with the cgroup tier, 12 without it.
pub(super) fn run(context: &Context) -> Result<u8> {
    Findings::of(context).tell(&context.output)
}

/// The same where not even a place for records can be told: nothing is started then.
pub(in crate::cli) fn without_a_place(output: &Output, error: &Error) -> Result<u8> {
    let mut checks = checks::of_the_kernel();
    checks.push(Check::new("base", Some(false), error.message()));
    checks.extend(systemd::checks(None));
    checks.extend(processes::checks());
    let findings = Findings {
        verdict: Verdict::none(error, advice::to_run(error)),
        helper: Value::Null,
        looked: Vec::new(),
        checks,
    };
    findings.tell(output)
}

/// All that is told.
struct Findings {
    verdict: Verdict,
    helper: Value,
    looked: Vec<Value>,
    checks: Vec<Check>,
}

impl Findings {
    fn of(context: &Context) -> Self {
        let _each = Patience::for_each(PATIENCE);
        let _all = Patience::until(Deadline::after(ALL_PATIENCE));
        let _spared = Patience::but_for_new_ones(PATIENCE_WITH_A_NEW_ONE);
        let reach = context.reach();
        let mut probe = guard::no_call_kills().and_then(|()| probe_leaf(&reach));
        let trial = tried(context, &probe);
        // Whom nothing could be asked of was not looked for.
        let (mut clients, looked) = match guard::no_call_kills() {
            Ok(()) => reach.helpers(),
            Err(_) => (Vec::new(), Vec::new()),
        };
        // The one that made the leaf, else the first that answers.
        let taken = match &mut probe {
            Ok(probe) => Some(&mut probe.client),
            Err(_) => clients.first_mut(),
        };
        let helper = taken.map(describe);
        let mut checks = checks::of_the_kernel();
        checks.extend(checks::of_the_leaf(&probe));
        checks.push(checks::of_the_service(&probe));
        checks.extend(checks::of_our_places(&context.base, reach.store().err()));
        checks.extend(systemd::checks(
            probe.as_ref().ok().map(|probe| &probe.leaf),
        ));
        checks.extend(processes::checks());
        checks.extend(helper.as_ref().map(checks::of_the_sandbox));
        let verdict = Verdict::of(&probe, &trial, &Advice { context });
        if let Ok(probe) = probe {
            private::end(context, probe.client);
        }
        Self {
            verdict,
            helper: helper.unwrap_or(Value::Null),
            looked: looked_json(&looked),
            checks,
        }
    }

    fn tell(&self, output: &Output) -> Result<u8> {
        let Self {
            verdict, checks, ..
        } = self;
        let result = json!({
            "tier": verdict.tier.map(Tier::name),
            "reason": verdict.reason,
            "advice": verdict.advice,
            "helper": self.helper,
            "looked": self.looked,
            "checks": checks.iter().map(Check::to_json).collect::<Vec<_>>(),
        });
        output.answer(&result, |out| text(verdict, &result, checks, out))?;
        Ok(match verdict.tier {
            Some(Tier::Cgroup) => 0,
            Some(Tier::Group) | None => Code::Unsupported.exit_status(),
        })
    }
}

/// Which tier a program was given. Where somebody listens and does not answer, `run` would wait for him, and fail.
fn tried(context: &Context, probe: &Result<Probe>) -> Result<Tier> {
    match probe {
        Err(error) if unanswered_at(error).is_some() => Err(as_run_would(error, PATIENCE)),
        Err(error) if error.message().contains(NEITHER_ANSWERS_NOR_ENDS) => {
            Err(as_run_would(error, PATIENCE_WITH_A_NEW_ONE))
        }
        // A private helper is made of this very process's sandbox: one does for both.
        Ok(probe) if private::is_one(context, &probe.client) => {
            trial::run(context, Some(probe.client.path()), true)
        }
        Err(error) => {
            let is_served = refusal_of(error).is_some();
            trial::run(context, context.socket.as_deref(), is_served)
        }
        Ok(_) => trial::run(context, context.socket.as_deref(), true),
    }
}

/// Where nobody answers, and doctor has waited so long for it.
fn as_run_would(error: &Error, waited: Duration) -> Error {
    error.clone().followed_by(format!(
        "doctor has waited {} s for it; `cgleaf run` does so for {} s, and starts nothing then",
        waited.as_secs(),
        Deadline::REQUEST.as_secs()
    ))
}

/// Which tier, and why.
struct Verdict {
    /// The one that `run` uses; `None` where it starts nothing.
    tier: Option<Tier>,
    reason: String,
    advice: Option<String>,
}

impl Verdict {
    fn of(probe: &Result<Probe>, trial: &Result<Tier>, advice: &Advice<'_>) -> Self {
        match (trial, probe) {
            (Ok(Tier::Cgroup), Ok(probe)) => Self {
                tier: Some(Tier::Cgroup),
                reason: format!(
                    "a leaf was made and removed by the helper at {}, and a program ran in another",
                    probe.client.path().display()
                ),
                advice: (probe.kill == Some(false)).then(|| {
                    "this kernel has no cgroup.kill: ends are proven all the same, member by member; 5.14 has it"
                        .to_owned()
                }),
            },
            (Ok(Tier::Cgroup), Err(error)) => Self {
                tier: Some(Tier::Cgroup),
                reason: format!("a program ran in a leaf; an empty one could not be tried: {}", error.message()),
                advice: None,
            },
            (Ok(Tier::Group), Err(error)) => Self {
                tier: Some(Tier::Group),
                reason: error.message().to_owned(),
                advice: Some(advice.to_have_leaves(error.message())),
            },
            (Ok(Tier::Group), Ok(_)) => Self {
                tier: Some(Tier::Group),
                reason: "an empty leaf could be had, and yet a program did not get one".to_owned(),
                advice: Some(advice.to_have_leaves("")),
            },
            (Err(error), _) => Self::none(error, advice.to_run(error)),
        }
    }

    /// Nothing is started.
    fn none(error: &Error, advice: String) -> Self {
        Self {
            tier: None,
            reason: format!("no program is started here: {}", error.message()),
            advice: Some(advice),
        }
    }

    fn tier_name(&self) -> &'static str {
        self.tier.map_or("none", Tier::name)
    }
}

/// Why no helper is told of: there is none, or there is one that says nothing.
fn no_helper(result: &Value) -> String {
    let looked = result["looked"].as_array().into_iter().flatten();
    let mute = looked
        .filter(|one| one["why_not"].as_str().is_some_and(says_nobody_answered))
        .filter_map(|one| one["socket"].as_str())
        .next();
    mute.map_or_else(
        || "none".to_owned(),
        |socket| format!("at {}, which does not answer", one_line(socket)),
    )
}

fn text(
    verdict: &Verdict,
    result: &Value,
    checks: &[Check],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    writeln!(out, "tier    {}", verdict.tier_name())?;
    writeln!(out, "reason  {}", one_line(&verdict.reason))?;
    if let Some(advice) = &verdict.advice {
        writeln!(out, "advice  {}", one_line(advice))?;
    }
    let helper = &result["helper"];
    if helper.is_null() {
        writeln!(out, "helper  {}", no_helper(result))?;
    } else {
        let told = |name: &str| helper[name].to_string().trim_matches('"').to_owned();
        writeln!(
            out,
            "helper  pid {}, mode {}, version {}, at {}",
            told("pid"),
            told("mode"),
            told("version"),
            one_line(&told("socket"))
        )?;
    }
    for one in result["looked"].as_array().into_iter().flatten() {
        let told = |name: &str| one[name].as_str().unwrap_or("").to_owned();
        let why = told("why_not");
        let how = if why.is_empty() {
            "answers".to_owned()
        } else {
            why
        };
        writeln!(
            out,
            "looked  {} ({}): {}",
            one_line(&told("socket")),
            told("named_by"),
            one_line(&how)
        )?;
    }
    for check in checks {
        writeln!(out, "{}", one_line(&check.to_string()))?;
    }
    Ok(())
}
