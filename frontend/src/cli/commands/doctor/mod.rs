//! `cgleaf doctor`: tries what a session needs, and says which tier is to be had, why, and what would raise it.

mod checks;
mod systemd;

use std::io::Write;

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::output::one_line;
use super::helper::{describe, looked_json};
use crate::error::{Code, Error, Result};
use crate::ops::{Probe, probe_leaf};
use crate::records::Tier;

use checks::Check;

/// Says what cgleaf can do here. 0 with the cgroup tier, 12 without it.
pub(super) fn run(context: &Context) -> Result<u8> {
    let reach = context.reach();
    let probe = probe_leaf(&reach);
    let (mut clients, looked) = reach.helpers();
    let helper = clients.first_mut().map(describe);
    let mut checks = checks::of_the_kernel();
    checks.extend(checks::of_the_leaf(&probe));
    checks.extend(checks::of_our_places(&context.base, reach.store().err()));
    checks.extend(systemd::checks());
    checks.extend(helper.as_ref().map(checks::of_the_sandbox));
    let verdict = Verdict::of(&probe);
    let result = json!({
        "tier": verdict.tier.name(),
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
        Tier::Cgroup => 0,
        Tier::Group => Code::Unsupported.exit_status(),
    })
}

/// Which tier, and why.
struct Verdict {
    tier: Tier,
    reason: String,
    advice: Option<String>,
}

impl Verdict {
    fn of(probe: &Result<Probe>) -> Self {
        match probe {
            Ok(probe) => Self {
                tier: Tier::Cgroup,
                reason: format!("a leaf was made and removed by the helper at {}", probe.socket.display()),
                advice: (probe.kill == Some(false)).then(|| {
                    "this kernel has no cgroup.kill: ends are proven all the same, member by member; 5.14 has it"
                        .to_owned()
                }),
            },
            Err(error) => Self {
                tier: Tier::Group,
                reason: error.message().to_owned(),
                advice: Some(advice(error)),
            },
        }
    }
}

fn advice(error: &Error) -> String {
    let advice = match error.code() {
        Code::HelperUnreachable if systemd::is_init() => {
            "log in through PAM or run `loginctl enable-linger`, so that there is a user manager; then run `cgleaf doctor` \
             again"
        }
        Code::HelperUnreachable => {
            "give cgleaf a cgroup2 directory that it may write, with --scope-dir, or mount the socket of a helper outside"
        }
        Code::Unsupported => {
            "run cgleaf where a delegated cgroup can be had: under systemd's user manager, or with --scope-dir; in a \
             container, mount the node service's socket"
        }
        _ => {
            "what the kernel or the helper answered stands above; put that right and run `cgleaf doctor` again"
        }
    };
    advice.to_owned()
}

fn text(
    verdict: &Verdict,
    result: &Value,
    checks: &[Check],
    out: &mut dyn Write,
) -> std::io::Result<()> {
    writeln!(out, "tier    {}", verdict.tier.name())?;
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
