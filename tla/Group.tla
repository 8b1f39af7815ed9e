------------------------------- MODULE Group -------------------------------
(* The group tier: one process group, recorded at exec, and the engines (destroys and gcs) that work on it.      *)
(*                                                                                                                *)
(* The world is a chain: a member forks a successor and exits. A scan of /proc is two steps, listing and reading, *)
(* and the chain moves in between, so one scan may show nobody of a chain that lives.                             *)
EXTENDS Common

CONSTANTS
    Leader,        \* the group's number, which is its leader's pid
    Links,         \* the other pids of the chain: two are enough, a link and its successor
    Reaping,       \* "prompt": no zombie is ever seen; "late": some time; "never": PID 1 does not reap
    Hostile,       \* how many SIGCONTs others send to the group; Unbounded is any number
    LateStops,     \* may a stop take effect later than 1 ms after it was sent?
    UserStops,     \* how many times a user stops the group
    Looks,         \* judgements of one destroy: 5
    GcLooks,       \* frozen looks of one gc: 20 in the code
    OwnProc,       \* is /proc that of our pid namespace?
    Readable,      \* can the proof (autogroup, mark) of a member be read?
    AutogroupKept, \* does the record hold the autogroup of our own setsid?
    Reuse,         \* may a stranger get the group's number once nobody holds it?
    Rebooted,      \* is the record from an earlier boot?
    Threaded,      \* may the leader's main thread end while another of its threads runs on?
    AlreadyEnded,  \* had the program ended before the first engine began?
    Hides,         \* may /proc hide members (hidepid, and a member of another uid)?
    Denied,        \* may the kernel refuse every signal to the group?
    Escapes        \* may a member leave the group by setsid?

Unbounded == 99

VARIABLES
    st,            \* pid -> "none", "run", "pend" (SIGSTOP sent, not yet taken), "stop"
    env,           \* what stays as it is: OwnProc, Readable, AutogroupKept, Rebooted, Hides
    holder,        \* whose number it is now: "ours", "stranger"
    zombies,       \* is there a zombie of the group that nobody has reaped?
    threads,       \* is the living leader a zombie with a running thread?
    userStop,      \* was the last stop of the group a user's?
    out,           \* does a member live outside the group?
    conts, stops,  \* SIGCONTs and SIGSTOPs by others so far
    deaths,
    phase,         \* the record: "running", "destroying", "over"
    foreignKill,   \* history: a SIGKILL of ours reached a stranger
    eng            \* engine -> its state

world == <<st, holder, zombies, threads, userStop, out, conts, stops>>
groupVars == <<env, st, holder, zombies, threads, userStop, out, conts, stops, deaths, phase, foreignKill, eng>>

Engines == Destroyers \cup Collectors
Pids == {Leader} \cup Links
Live == {p \in Pids : st[p] # "none"}
Moving == {p \in Live : st[p] = "run"}
Held == {p \in Live : st[p] \in {"pend", "stop"}}
OurLive == IF holder = "ours" THEN Live ELSE {}

NoEngine ==
    [pc |-> "idle", look |-> 0, verdict |-> "none", running |-> FALSE,
     listed |-> {},         \* the listed pids that are still the processes that were listed
     read |-> {},           \* the pids whose stat was read as a live member's; it may have ended since
     zlisted |-> FALSE,     \* does the listing show something that is a zombie by now?
     wit |-> Leader, same |-> FALSE, again |-> FALSE,   \* the witness; is it that process still; was it read again
     stopped |-> FALSE, killed |-> FALSE,
     owes |-> "nothing",    \* history: what FreezesUnseenGroup still asks for: "freeze", "look", "nothing"
     froze |-> FALSE,       \* history: has it frozen and looked?
     reading |-> "none",    \* what the wait came to: "ended", "alive"
     intrudes |-> FALSE,    \* history: did a gc stop a group whose destroy had begun?
     truth |-> FALSE,       \* history: did a member live at that look?
     answer |-> "none"]

GroupInit ==
    /\ env = [ownProc |-> OwnProc, readable |-> Readable, autogroup |-> AutogroupKept, rebooted |-> Rebooted, hides |-> Hides]
    /\ st = [p \in Pids |-> IF p = Leader /\ ~AlreadyEnded THEN "run" ELSE "none"]
    /\ holder = IF Rebooted THEN "stranger" ELSE "ours"
    /\ zombies = (AlreadyEnded /\ Reaping # "prompt")
    /\ threads = FALSE /\ userStop = FALSE /\ out = FALSE
    /\ conts = 0 /\ stops = 0 /\ deaths = 0
    /\ phase = "running" /\ foreignKill = FALSE
    /\ eng = [e \in Engines |-> NoEngine]

----------------------------------------------------------------------------
(* The world *)

\* What every engine has listed, or taken as its witness, ends with the process.
Forget(gone, left) ==
    eng' = [e \in Engines |->
        [eng[e] EXCEPT !.listed = @ \ gone,
                       !.zlisted = left /\ (@ \/ eng[e].listed \cap gone # {}),
                       !.same = @ /\ eng[e].wit \notin gone]]

\* A member with a pending SIGSTOP cannot begin a fork: the kernel restarts it, and delivers to the child of one under way.
Fork(p, q) ==
    /\ st[p] = "run" /\ holder = "ours" /\ q \in Links /\ st[q] = "none"
    /\ Cardinality(Live) < 2
    /\ st' = [st EXCEPT ![q] = "run"]
    /\ UNCHANGED <<holder, zombies, threads, userStop, out, conts, stops, deaths, phase, foreignKill, eng>>

\* It can complete an exit.
Exit(p) ==
    /\ st[p] \in {"run", "pend"}
    /\ st' = [st EXCEPT ![p] = "none"]
    /\ zombies' = (zombies \/ Reaping # "prompt")
    /\ threads' = (threads /\ p # Leader)
    /\ Forget({p}, zombies')
    /\ UNCHANGED <<holder, userStop, out, conts, stops, deaths, phase, foreignKill>>

MainThreadExits ==
    /\ Threaded /\ ~threads /\ holder = "ours" /\ st[Leader] = "run"
    /\ threads' = TRUE
    /\ UNCHANGED <<st, holder, zombies, userStop, out, conts, stops, deaths, phase, foreignKill, eng>>

Setsid(p) ==
    /\ Escapes /\ ~out /\ p # Leader /\ st[p] = "run"
    /\ st' = [st EXCEPT ![p] = "none"] /\ out' = TRUE
    /\ Forget({p}, zombies)
    /\ UNCHANGED <<holder, zombies, threads, userStop, conts, stops, deaths, phase, foreignKill>>

Reap ==
    /\ Reaping = "late" /\ zombies
    /\ zombies' = FALSE /\ Forget({}, FALSE)
    /\ UNCHANGED <<st, holder, threads, userStop, out, conts, stops, deaths, phase, foreignKill>>

\* The number comes back only when no member holds it, not even a zombie; and, assumed, not between
\* the second reading of the witness and the SIGKILL that follows it at once.
NumberReused ==
    /\ Reuse /\ holder = "ours" /\ Live = {} /\ ~zombies
    /\ \A e \in Engines : eng[e].pc # "kill"
    /\ holder' = "stranger" /\ st' = [st EXCEPT ![Leader] = "run"]
    /\ UNCHANGED <<zombies, threads, userStop, out, conts, stops, deaths, phase, foreignKill, eng>>

StopTakesEffect(p) ==
    /\ st[p] = "pend" /\ st' = [st EXCEPT ![p] = "stop"]
    /\ UNCHANGED <<holder, zombies, threads, userStop, out, conts, stops, deaths, phase, foreignKill, eng>>

Continued == [p \in Pids |-> IF p \in Held THEN "run" ELSE st[p]]
Stopped == [p \in Pids |-> IF p \in Moving THEN "pend" ELSE st[p]]

HostileCont ==
    /\ Held # {} /\ (Hostile = Unbounded \/ conts < Hostile)
    /\ conts' = IF Hostile = Unbounded THEN 0 ELSE conts + 1
    /\ st' = Continued /\ userStop' = FALSE
    /\ UNCHANGED <<holder, zombies, threads, out, stops, deaths, phase, foreignKill, eng>>

UserStop ==
    /\ Moving # {} /\ (UserStops = Unbounded \/ stops < UserStops)
    /\ stops' = IF UserStops = Unbounded THEN 0 ELSE stops + 1
    /\ st' = Stopped /\ userStop' = TRUE
    /\ UNCHANGED <<holder, zombies, threads, out, conts, deaths, phase, foreignKill, eng>>

World ==
    \/ \E p \in Pids : (\E q \in Links : Fork(p, q)) \/ Exit(p) \/ Setsid(p) \/ StopTakesEffect(p)
    \/ MainThreadExits \/ Reap \/ NumberReused \/ HostileCont \/ UserStop

----------------------------------------------------------------------------
(* The engine: one action for each trace event *)

At(e, pc) == eng[e].pc = pc
Go(e, change) == eng' = [eng EXCEPT ![e] = change]
IsGc(e) == e \in Collectors
Same == UNCHANGED <<st, holder, zombies, threads, userStop, out, conts, stops, deaths, foreignKill>>

\* Where an engine goes that sends no (more) signal but the SIGCONT it may owe.
Leave(E, e, answer) ==
    [E EXCEPT !.answer = answer,
              !.pc = IF E.stopped /\ ~E.killed /\ Has(IF IsGc(e) THEN "gc-conts" ELSE "cont-on-way-out")
                     THEN "cont" ELSE "report"]

Begin(e, boot) ==
    /\ At(e, "idle") /\ phase # "over"
    /\ boot = IF env.rebooted THEN "other" ELSE "same"
    /\ phase' = IF IsGc(e) THEN phase ELSE "destroying"
    /\ Go(e, IF boot = "other" /\ Has("boot-id")
             THEN [eng[e] EXCEPT !.pc = "report", !.answer = IF IsGc(e) THEN "over" ELSE "refused"]
             ELSE IF IsGc(e) /\ phase = "destroying" /\ Has("gc-leaves-destroying")
             THEN [eng[e] EXCEPT !.pc = "report", !.answer = "kept"]
             ELSE [eng[e] EXCEPT !.pc = "scan", !.look = IF IsGc(e) THEN 0 ELSE 1])
    /\ Same

\* The listing, of a judgement or of the wait.
Scan(e) ==
    /\ eng[e].pc \in {"scan", "wscan"}
    /\ Go(e, [eng[e] EXCEPT !.listed = Live, !.zlisted = zombies,
                            !.pc = IF At(e, "scan") THEN "stats" ELSE "look"])
    /\ UNCHANGED phase /\ Same

\* Who of the listed is seen to live: where /proc hides, only the leader is. A zombie is dead unless one of its threads runs.
Seen(e) == {p \in eng[e].listed : st[p] # "none" /\ ~(env.hides /\ p \in Links) /\ ~(p = Leader /\ threads /\ ~Has("zombie-threads"))}
SeenRunning(e) == \E p \in Seen(e) : st[p] # "stop"

\* Judging reads in two steps, without events: each member's stat, then its proof.
ReadStats(e) ==
    /\ At(e, "stats")
    /\ Go(e, [eng[e] EXCEPT !.read = Seen(e), !.running = SeenRunning(e), !.pc = "judge"])
    /\ UNCHANGED phase /\ Same

\* After a reboot autogroup numbers begin anew: a stranger's may be the recorded one.
LooksOurs == holder = "ours" \/ env.rebooted

\* The members whose proof can be read: those that are still there.
Proven(e) == IF env.readable THEN eng[e].read \cap eng[e].listed ELSE {}

Verdict(e) ==
    IF ~env.ownProc /\ Has("own-proc") THEN "foreign"
    ELSE IF ~env.ownProc THEN "owned"   \* the numbers of other processes, and a mark that this session handed on
    ELSE IF eng[e].read = {} THEN "gone"
    ELSE IF Proven(e) # {} THEN IF LooksOurs THEN "owned" ELSE "unproven"
    ELSE "unknown"

AfterFreeze(E, e) ==
    IF IsGc(e) \/ E.look < Looks THEN [E EXCEPT !.pc = "scan", !.look = IF IsGc(e) THEN @ ELSE @ + 1]
    ELSE [E EXCEPT !.pc = "probe"]

\* A judgement that gets no kill and settles nothing: freeze and look again.
FreezeAndLook(E, e, guard) ==
    LET owing == [E EXCEPT !.owes = "freeze"] IN
    IF ~Has(guard) THEN AfterFreeze(owing, e)
    ELSE IF ~Has("last-look-frozen") /\ E.look = Looks
    THEN [owing EXCEPT !.pc = IF E.stopped THEN "earlycont" ELSE "probe"]
    ELSE [owing EXCEPT !.pc = "stop"]

JudgedByDestroy(E, e) ==
    CASE E.verdict = "owned" -> [E EXCEPT !.pc = IF Has("witness-again") THEN "recheck" ELSE "kill"]
      [] E.verdict = "gone" -> FreezeAndLook(E, e, "freeze-after-gone")
      [] E.verdict = "unknown" /\ E.running -> FreezeAndLook(E, e, "freeze-after-unknown")
      [] E.verdict = "unknown" /\ ~E.running ->
            IF Has("all-stopped-no-signal") THEN Leave(E, e, "alive") ELSE [E EXCEPT !.pc = "kill"]
      [] E.verdict = "unproven" ->
            IF Has("unproven-no-signal") THEN Leave(E, e, "refused") ELSE [E EXCEPT !.pc = "kill"]
      [] E.verdict = "foreign" -> [E EXCEPT !.pc = "probe"]

\* gc kills nobody: whoever is seen is kept.
JudgedByGc(E, e) ==
    IF E.verdict # "gone" THEN Leave(E, e, "kept")
    ELSE IF ~Has("gc-freezes") THEN [E EXCEPT !.pc = "probe"]
    ELSE IF E.look < GcLooks THEN [E EXCEPT !.pc = IF E.stopped /\ Has("gc-conts") THEN "cont" ELSE "stop"]
    ELSE [E EXCEPT !.pc = "probe"]

Judge(e, verdict, running) ==
    /\ At(e, "judge") /\ verdict = Verdict(e) /\ running = (eng[e].running /\ verdict = "unknown")
    /\ \E w \in IF verdict = "owned" /\ env.ownProc THEN Proven(e) ELSE {Leader} :
         LET E == [eng[e] EXCEPT !.verdict = verdict, !.running = running, !.wit = w, !.same = TRUE,
                                 !.again = FALSE, !.listed = {}, !.read = {}, !.zlisted = FALSE,
                                 !.froze = @ \/ eng[e].stopped, !.truth = Live # {},
                                 !.owes = IF @ = "look" THEN "nothing" ELSE @]
         IN Go(e, IF IsGc(e) THEN JudgedByGc(E, e) ELSE JudgedByDestroy(E, e))
    /\ UNCHANGED phase /\ Same

Recheck(e, same) ==
    /\ At(e, "recheck")
    /\ same = (~env.ownProc \/ (st[eng[e].wit] # "none" /\ (eng[e].same \/ ~Has("witness-ticks"))))
    /\ Go(e, IF same THEN [eng[e] EXCEPT !.again = TRUE, !.pc = "kill"]
             ELSE FreezeAndLook(eng[e], e, "freeze-after-lost-witness"))
    /\ UNCHANGED phase /\ Same

\* EPERM for every member, or our own group: no signal is sent, and the end cannot be proven.
Refused(e) ==
    Go(e, Leave([eng[e] EXCEPT !.owes = "nothing", !.truth = TRUE], e, IF IsGc(e) THEN "kept" ELSE "alive"))

Kill(e, found, denied) ==
    /\ At(e, "kill") /\ found = (Live # {} \/ zombies)
    /\ denied => Denied /\ found
    /\ IF denied THEN Refused(e) /\ UNCHANGED <<st, zombies, foreignKill, threads>>
       ELSE
       /\ st' = [p \in Pids |-> "none"]
       /\ zombies' = (zombies \/ (Live # {} /\ Reaping # "prompt"))
       /\ foreignKill' = (foreignKill \/ (Live # {} /\ holder = "stranger"))
       /\ threads' = FALSE
       /\ eng' = [f \in Engines |->
            IF f = e THEN [eng[e] EXCEPT !.killed = TRUE, !.pc = "probe", !.owes = "nothing"]
            ELSE [eng[f] EXCEPT !.listed = {}, !.same = FALSE, !.zlisted = zombies' /\ (@ \/ eng[f].listed # {})]]
    /\ UNCHANGED <<holder, userStop, out, conts, stops, deaths, phase>>

\* gc reads the record again before each freeze, and leaves it to a destroy that began.
MustYield(e) == IsGc(e) /\ phase # "running" /\ Has("gc-leaves-destroying")

Stop(e, found, denied) ==
    /\ At(e, "stop")
    /\ ~MustYield(e)
    /\ found = (Live # {} \/ zombies)
    /\ denied => Denied /\ found
    /\ IF denied THEN Refused(e) /\ UNCHANGED <<st, userStop>>
       ELSE
       /\ st' = Stopped
       /\ userStop' = (userStop /\ Moving = {})
       /\ LET E == [eng[e] EXCEPT !.stopped = @ \/ found, !.look = IF IsGc(e) THEN @ + 1 ELSE @,
                                  !.froze = @ \/ ~found, !.owes = "look",
                                  !.intrudes = @ \/ (IsGc(e) /\ phase # "running")]
          IN Go(e, IF found THEN [E EXCEPT !.pc = "settle"]
                   ELSE IF IsGc(e) THEN Leave(E, e, "over") ELSE [E EXCEPT !.pc = "probe", !.owes = "nothing"])
    /\ UNCHANGED <<holder, zombies, threads, out, conts, stops, deaths, phase, foreignKill>>

\* 1 ms, after which a stop has taken effect, or not (LateStops).
Settle(e) ==
    /\ At(e, "settle") /\ (LateStops \/ \A p \in Live : st[p] # "pend")
    /\ Go(e, AfterFreeze(eng[e], e)) /\ UNCHANGED phase /\ Same

Probe(e, found) ==
    /\ At(e, "probe") /\ found = (Live # {} \/ zombies)
    /\ Go(e, IF found THEN [eng[e] EXCEPT !.pc = "wscan"]
             ELSE Leave([eng[e] EXCEPT !.reading = "ended", !.owes = "nothing"], e, IF IsGc(e) THEN "over" ELSE "ended"))
    /\ UNCHANGED phase /\ Same

Shows(e) ==
    IF ~env.ownProc /\ ~env.autogroup THEN "none"
    ELSE IF Seen(e) # {} THEN "live"
    ELSE IF env.hides /\ Has("hidden-is-alive") THEN "none"
    ELSE IF eng[e].zlisted \/ (threads /\ Leader \in eng[e].listed) THEN "zombies" ELSE "none"

Look(e, shows) ==
    /\ At(e, "look") /\ shows = Shows(e)
    /\ LET over == shows = "zombies" \/ (shows = "none" /\ ~Has("none-is-alive"))
           E == [eng[e] EXCEPT !.reading = IF over THEN "ended" ELSE "alive", !.truth = Live # {},
                               !.listed = {}, !.zlisted = FALSE,
                               !.owes = IF @ = "look" THEN "nothing" ELSE @]
       IN Go(e, IF over THEN Leave(E, e, IF IsGc(e) THEN "over" ELSE "ended")
                ELSE IF E.killed THEN [E EXCEPT !.pc = "again"]
                ELSE Leave(E, e, IF IsGc(e) THEN "kept" ELSE "alive"))
    /\ UNCHANGED phase /\ Same

\* After a SIGKILL the wait goes on until the end or the deadline. Neither is an event.
WaitOn(e) ==
    /\ At(e, "again")
    /\ \/ Go(e, [eng[e] EXCEPT !.pc = "probe"])
       \/ Go(e, [eng[e] EXCEPT !.pc = "report", !.answer = "alive"])
    /\ UNCHANGED phase /\ Same

GcYields(e) ==   \* no event of its own
    /\ At(e, "stop") /\ MustYield(e)
    /\ Go(e, Leave(eng[e], e, "kept"))
    /\ UNCHANGED phase /\ Same

Cont(e) ==
    /\ eng[e].pc \in {"cont", "earlycont"}
    /\ st' = Continued /\ userStop' = FALSE
    /\ Go(e, [eng[e] EXCEPT !.stopped = FALSE,
                            !.pc = IF At(e, "earlycont") THEN "probe" ELSE IF @ = "cont" /\ eng[e].answer = "none" THEN "stop" ELSE "report"])
    /\ UNCHANGED <<holder, zombies, threads, out, conts, stops, deaths, phase, foreignKill>>

Report(e, answer) ==
    /\ At(e, "report") /\ answer = eng[e].answer
    /\ Go(e, [eng[e] EXCEPT !.pc = "done"])
    /\ phase' = IF answer \in {"ended", "over"} THEN "over" ELSE phase
    /\ Same

\* kill -9 of the frontend.
EngineDies(e) ==
    /\ deaths < Deaths /\ eng[e].pc \notin {"idle", "done", "dead"}
    /\ deaths' = deaths + 1
    /\ Go(e, [eng[e] EXCEPT !.pc = "dead"])
    /\ UNCHANGED <<st, holder, zombies, threads, userStop, out, conts, stops, phase, foreignKill>>

Engine(e) ==
    \/ \E b \in {"same", "other"} : Begin(e, b)
    \/ Scan(e) \/ ReadStats(e) \/ Settle(e) \/ WaitOn(e) \/ GcYields(e) \/ Cont(e)
    \/ \E v \in {"gone", "unknown", "owned", "unproven", "foreign"}, r \in BOOLEAN : Judge(e, v, r)
    \/ \E b \in BOOLEAN : Recheck(e, b) \/ Probe(e, b) \/ \E n \in BOOLEAN : Kill(e, b, n) \/ Stop(e, b, n)
    \/ \E s \in {"live", "zombies", "none"} : Look(e, s)
    \/ \E a \in {"ended", "alive", "refused", "over", "kept"} : Report(e, a)

GroupNext == UNCHANGED env /\ (World \/ \E e \in Engines : Engine(e) \/ EngineDies(e))

----------------------------------------------------------------------------
(* What must hold *)

Answered(e, answer) == At(e, "done") /\ eng[e].answer = answer

GroupDestroyedProgramStopped == \A e \in Destroyers : Answered(e, "ended") => OurLive = {}
GroupKillsOnlyOwn == ~foreignKill
ProvesGroupOwnership ==
    \A e \in Engines : At(e, "kill") => env.ownProc /\ eng[e].verdict = "owned" /\ eng[e].again
FreezesUnseenGroup ==
    \A e \in Destroyers : At(e, "done") /\ eng[e].answer \in {"ended", "alive"} => eng[e].owes = "nothing"
GroupNotLeftFrozen ==
    (\A e \in Engines : eng[e].pc \in {"idle", "done"}) => (Held = {} \/ userStop)
GroupGcKeepsRunning == \A e \in Collectors : Answered(e, "over") => OurLive = {}
GcProbesUnseenGroup == \A e \in Collectors : Answered(e, "over") => eng[e].froze \/ env.rebooted
GcLeavesDestroys == \A e \in Collectors : ~eng[e].intrudes
\* Gap 2, and what a setsid is in this tier: stated limits, each with a configuration that must find it.
NoFalseTimeout == \A e \in Destroyers : Answered(e, "alive") => eng[e].truth
EscapedStopped == \A e \in Destroyers : Answered(e, "ended") => ~out

=============================================================================
