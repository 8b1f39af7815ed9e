----------------------------- MODULE Lifecycle -----------------------------
(* Both tiers, and what must hold in each. Group.tla has the group tier, Leaf.tla the cgroup tier. A configuration *)
(* chooses one; the other's variables stand still.                                                                *)
EXTENDS Group, Leaf

InGroup == Tier = "group"

Init == GroupInit /\ LeafInit

Next ==
    IF InGroup THEN GroupNext /\ UNCHANGED leafVars
    ELSE LeafNext /\ UNCHANGED groupVars

vars == <<groupVars, leafVars>>

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ LeafFairness

\* `destroyed` with success: no member lives.
DestroyedProgramStopped == IF InGroup THEN GroupDestroyedProgramStopped ELSE LeafDestroyedProgramStopped

\* No SIGKILL and no cgroup.kill reaches a process of another session or of none.
KillsOnlyOwn == IF InGroup THEN GroupKillsOnlyOwn ELSE LeafKillsOnlyOwn

\* When all operations are over, nothing is stopped or frozen that no user stopped or froze.
NotLeftFrozen == IF InGroup THEN GroupNotLeftFrozen ELSE LeafNotLeftFrozen

\* gc forgets no session with a live member.
GcKeepsRunning == IF InGroup THEN GroupGcKeepsRunning ELSE LeafGcKeepsRunning

\* Every destroy of a killable program ends with success.
DestroyEnds == LeafDestroyEnds

\* NothingRunsAfterDestroyed and AttestationSound are Leaf's; ProvesGroupOwnership, FreezesUnseenGroup and
\* GcProbesUnseenGroup are Group's.
=============================================================================
