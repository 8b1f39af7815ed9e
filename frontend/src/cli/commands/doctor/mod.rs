//! `cgleaf doctor`: tries what a session needs, and says which tier is to be had, why, and what would raise it.

mod advice;
mod cause;
mod checks;
mod guard;
mod processes;
mod systemd;
mod trial;

use std::io::Write;

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::output::one_line;
use super::helper::{describe, looked_json};
use crate::client::Client;
use crate::error::{Code, Result};
use crate::ops::{Probe, probe_leaf};
use crate::records::Tier;

use advice::Advice;
use checks::Check;

/// Says what cgleaf can do here. 0 with the cgroup tier, 12 without it.
pub(super) fn run(context: &Context) -> Result<u8> {
    let reach = context.reach();
    let probe = guard::no_call_kills().and_then(|()| probe_leaf(&reach));
    let trial = trial::run(context);
    // Whom nothing could be asked of was not looked for.
    let (mut clients, looked) = match guard::no_call_kills() {
        Ok(()) => reach.helpers(),
        Err(_) => (Vec::new(), Vec::new()),
    };
    let helper = the_one_taken(&mut clients, &probe).map(describe);
    let mut checks = checks::of_the_kernel();
    checks.extend(checks::of_the_leaf(&probe));
    checks.push(checks::of_the_service(&probe));
    checks.extend(checks::of_our_places(&context.base, reach.store().err()));
    checks.extend(systemd::checks());
    checks.extend(processes::checks());
    checks.extend(helper.as_ref().map(checks::of_the_sandbox));
    let verdict = Verdict::of(&probe, &trial, &Advice { context });
    let result = json!({
        "tier": verdict.tier.map(Tier::name),
        "reason": verdict.reason,
        "advice": verdict.advice,
        "helper": helper,
        "looked": looked_json(&looked),
        "checks": checks.iter().map(Check::to_json).collect::<Vec<_>>(),
    });
    context
        .output
        .answer(&result, |out| text(&verdict, &result, &checks, out))?;
    Ok(match verdict.tier {
        Some(Tier::Cgroup) => 0,
        Some(Tier::Group) | None => Code::Unsupported.exit_status(),
    })
}

/// The helper that made the leaf, else the first that answers.
fn the_one_taken<'a>(clients: &'a mut [Client], probe: &Result<Probe>) -> Option<&'a mut Client> {
    let made = probe.as_ref().ok().map(|probe| probe.socket.as_path());
    let found = clients
        .iter()
        .position(|client| Some(client.path()) == made);
    clients.get_mut(found.unwrap_or(0))
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
                    probe.socket.display()
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
            (Err(error), _) => Self {
                tier: None,
                reason: format!("no program is started here: {}", error.message()),
                advice: Some(advice.to_run(error)),
            },
        }
    }

    fn tier_name(&self) -> &'static str {
        self.tier.map_or("none", Tier::name)
    }
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
        writeln!(out, "helper  none")?;
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
