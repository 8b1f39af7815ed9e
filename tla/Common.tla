------------------------------- MODULE Common -------------------------------
(* What both tiers speak of. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Tier,          \* "group", "cgroup"
    Destroyers,    \* destroys
    Collectors,    \* gcs
    Deaths,        \* how many frontends may be killed, at any step
    Without        \* the guards that are taken out

Has(guard) == guard \notin Without
=============================================================================
