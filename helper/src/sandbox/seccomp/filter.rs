//! From the table to BPF.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::entry::{Allowed, Argument, Value};

/// The program for this architecture, which also kills a call that comes by another one's numbers (x32, i386).
///
/// # Errors
/// A text for [`super::Item::Missing`]: an architecture that the compiler does not know, or a program that is too long.
pub(super) fn compile(table: &[Allowed], own_pid: u32) -> Result<BpfProgram, String> {
    let target = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("no filter can be made for {}", std::env::consts::ARCH))?;
    let rules = table
        .iter()
        .map(|allowed| Ok((allowed.number, rules(allowed, own_pid)?)))
        .collect::<Result<BTreeMap<_, _>, seccompiler::BackendError>>()
        .map_err(|cause| cause.to_string())?;
    SeccompFilter::new(
        rules,
        SeccompAction::KillProcess,
        SeccompAction::Allow,
        target,
    )
    .and_then(BpfProgram::try_from)
    .map_err(|cause| cause.to_string())
}

/// One rule for each alternative; no rule at all allows the call with any arguments.
fn rules(allowed: &Allowed, own_pid: u32) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    allowed
        .when
        .iter()
        .map(|alternative| {
            alternative
                .iter()
                .map(|argument| condition(argument, own_pid))
                .collect::<Result<Vec<_>, _>>()
                .and_then(SeccompRule::new)
        })
        .collect()
}

/// All arguments that are looked at are 32 bits wide in the kernel, so only that half is compared: the upper one is not
/// defined for an `int`.
fn condition(
    argument: &Argument,
    own_pid: u32,
) -> Result<SeccompCondition, seccompiler::BackendError> {
    let (operator, value) = match argument.value {
        Value::Is(value) => (SeccompCmpOp::Eq, u64::from(value)),
        Value::OwnPid => (SeccompCmpOp::Eq, u64::from(own_pid)),
        Value::Without(bits) => (SeccompCmpOp::MaskedEq(u64::from(bits)), 0),
        Value::With(bits) => (SeccompCmpOp::MaskedEq(u64::from(bits)), u64::from(bits)),
    };
    SeccompCondition::new(argument.index, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    use super::super::table::table;
    use super::*;

    #[test]
    fn the_table_compiles_for_this_architecture() {
        assert!(compile(&table(), 1).unwrap().len() > table().len());
    }
}
