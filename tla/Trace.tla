------------------------------- MODULE Trace -------------------------------
(* Is a run of the code a behaviour of the model? tla/check turns trace files into TraceData.tla; each line must be *)
(* one action, in an order that the lines' times allow, with the world and the steps that are no events in between. *)
EXTENDS Lifecycle, TraceData, TLC

VARIABLES
    trace,         \* which of Traces
    seen           \* actor -> how many of its lines have been followed

T == Traces[trace]
Actors == DOMAIN T.lines
Line(a) == T.lines[a][seen[a] + 1]
RECURSIVE Sum(_)
Sum(as) == IF as = {} THEN 0 ELSE LET a == CHOOSE b \in as : TRUE IN seen[a] + Sum(as \ {a})

\* Every line that ended before this one began has been followed.
MayFollow(a) ==
    /\ seen[a] < Len(T.lines[a])
    /\ \A b \in DOMAIN Line(a).after : seen[b] >= Line(a).after[b]

Still == UNCHANGED vars

----------------------------------------------------------------------------
(* The group tier *)

GroupStart ==
    /\ env \in [ownProc: {T.start.ownProc}, readable: {T.start.readable}, autogroup: {TRUE, T.start.ownProc},
                rebooted: {T.start.rebooted}, hides: {FALSE, T.start.mayHide}]
    /\ \E l, m \in {"none", "run", "stop"} :
         /\ st = [p \in Pids |-> IF p = Leader THEN l ELSE IF p = 2 THEN m ELSE "none"]
         /\ userStop = (l = "stop" \/ m = "stop")
    /\ holder \in {"ours", "stranger"} /\ zombies \in BOOLEAN
    /\ threads = FALSE /\ out = FALSE /\ conts = 0 /\ stops = 0 /\ deaths = 0
    /\ phase = "running" /\ foreignKill = FALSE
    /\ eng = [e \in Engines |-> NoEngine]

Denials(l) == IF "denied" \in DOMAIN l THEN {l.denied} ELSE BOOLEAN

FollowGroup(e, l) ==
    CASE l.event = "Begin" -> Begin(e, l.boot) /\ IsGc(e) = (l.op = "gc")
      [] l.event = "Scan" -> Scan(e)
      [] l.event = "Judge" -> Judge(e, l.verdict, l.running)
      [] l.event = "Recheck" -> Recheck(e, l.same)
      [] l.event = "Kill" -> \E denied \in Denials(l) : Kill(e, l.found, denied)
      [] l.event = "Stop" -> \E denied \in Denials(l) : Stop(e, l.found, denied)
      [] l.event = "Settle" -> Settle(e)
      [] l.event = "Probe" -> Probe(e, l.found)
      [] l.event = "Look" -> Look(e, l.shows)
      [] l.event = "Cont" -> Cont(e)
      [] l.event = "Report" -> Report(e, l.answer)
      [] l.event = "EngineDies" -> EngineDies(e)
      [] OTHER -> FALSE

HiddenGroup ==
    /\ UNCHANGED env
    /\ World \/ \E e \in Engines \cap Actors : ReadStats(e) \/ WaitOn(e) \/ GcYields(e)

GroupOver == \A e \in Engines \cap Actors : eng[e].pc \in {"done", "dead"}

----------------------------------------------------------------------------
(* The cgroup tier *)

\* What may be about without a line of its own: a client that holds (ps, signal), a run that ends what it started.
OtherHold ==
    /\ T.start.clients /\ Serving /\ dir.on
    /\ \E h \in BOOLEAN : op' = Apply("other", "client", flags.user, h)
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, helper, conns, de, wish, count, hist>>

Release(d) ==
    /\ Serving /\ d \in conns /\ conns' = conns \ {d}
    /\ de' = [de EXCEPT ![d].conn = FALSE]
    /\ op' = IF conns = {d} /\ dir.on THEN Apply("drop", d, flags.user, FALSE) ELSE NoOp
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, helper, wish, count, hist>>

Unknown(d) ==
    /\ AtD(d, "idle") /\ ~Known /\ GoD(d, [de[d] EXCEPT !.pc = "answer", !.answer = "unknown"])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

NoHold(d) ==   \* an ancestor is frozen, or it cannot be held
    /\ AtD(d, "hold") /\ ToD(d, "strays-held")
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

EmptyHold(d) ==   \* nobody is left to be held
    /\ AtD(d, "frozen") /\ op = NoOp /\ ~Populated /\ ToD(d, "strays-held")
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

NothingWritten(d) ==   \* the create has taken its record back
    /\ rec.phase = "none"
    /\ \/ AtD(d, "write-destroying") /\ ToD(d, "hold")
       \/ AtD(d, "write-destroyed") /\ GoD(d, [de[d] EXCEPT !.pc = "answer", !.answer = IF de[d].saw THEN "partial" ELSE "destroyed"])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

RunEnds ==     \* run writes the end of its program into the record
    /\ rec.phase = "running" /\ mem = 0 /\ T.start.creates
    /\ rec' = [rec EXCEPT !.phase = "destroyed"]
    /\ UNCHANGED <<dir, frozen, flags, mem, leader, foreign, stray, outside, stuck, boot, tomb, helper, op, conns, cr, de, gc, wish, count, hist>>

OwnerKills ==
    /\ T.start.creates /\ dir.on /\ mem' = 0 /\ leader' = FALSE
    /\ cr' = [c \in Creators |-> IF c \in Inside THEN [cr[c] EXCEPT !.lives = FALSE] ELSE cr[c]]
    /\ UNCHANGED <<dir, frozen, flags, foreign, stray, outside, stuck, boot, rec, tomb, helper, op, conns, de, gc, wish, count, hist>>

Fail(d, answer) ==    \* an answer that claims nothing may be given at any step
    /\ answer \in {"partial", "refused"} /\ de[d].pc \notin {"idle", "done", "dead"}
    /\ GoD(d, [de[d] EXCEPT !.pc = "done", !.conn = FALSE, !.answer = answer])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* There was something when it began, and by now it was taken back: the code answers `destroyed`. The model says
\* `tombstone`, and claims as much by it.
FoundNothing(d) == AtD(d, "answer") /\ de[d].answer = "tombstone"

FollowCreate(c, l) ==
    CASE l.event = "Claim" -> Claim(c, l.ok) \/ (l.ok /\ rec.maker = c /\ rec.phase = "intent" /\ Still)
      [] l.event = "LookTomb" -> LookTomb(c, l.found)
      [] l.event = "WriteRunning" -> WriteRunning(c)
      [] l.event = "Exec" -> Exec(c)
      [] l.event = "GiveUp" -> GiveUp(c) \/ (cr[c].at > Len(Order(c)) /\ Still)
      [] l.event = "EngineDies" -> CreatorDies(c)
      [] OTHER -> FALSE

FollowDestroy(d, l) ==
    CASE l.event = "LayTomb" -> LayTomb(d) \/ (tomb /\ AtD(d, "find") /\ Still)
      [] l.event = "FindLeaf" -> FindLeaf(d, l.found)
      [] l.event = "WriteDestroying" -> WriteDestroying(d)
      [] l.event = "Frozen" -> Frozen(d)
      [] l.event = "LookStrays" -> LookStrays(d, l.found) \/ (FoundNothing(d) /\ ~l.found /\ Still)
      [] l.event = "Ended" -> Ended(d)
      [] l.event = "WriteDestroyed" -> rec.phase # "none" /\ WriteDestroyed(d)    \* what is not there is not rewritten
      [] l.event = "Answer" -> \/ Answer(d, l.answer) \/ (l.answer = "destroyed" /\ FoundNothing(d) /\ Answer(d, "tombstone"))
                               \/ (l.answer = "refused" /\ Answer(d, "already")) \/ Fail(d, l.answer)
      [] l.event = "EngineDies" -> DestroyDies(d)
      [] OTHER -> FALSE

FollowGc(g, l) ==
    CASE l.event = "GcLook" ->
            \/ GcLook(g, l.over)
            \/ /\ ~l.over /\ AtG(g, "idle") /\ gc' = [gc EXCEPT ![g].pc = "keep"]    \* to keep is never wrong
               /\ UNCHANGED <<dir, frozen, flags, rec, tomb, count, hist>> /\ UNCHANGED rest5
      [] l.event = "GcKeep" ->
            \/ GcKeep(g)
            \/ /\ AtG(g, "remove") /\ gc' = [gc EXCEPT ![g] = GcIdle]
               /\ UNCHANGED <<dir, frozen, flags, rec, tomb, count, hist>> /\ UNCHANGED rest5
      [] l.event = "GcRemove" -> GcRemove(g) /\ rec' = NoRec
      [] OTHER -> FALSE

\* Before each write the leaf was opened and verified: the helper's line before says so. At its start it reads what it writes to.
Checked(a) ==
    /\ seen[a] > 0
    /\ LET before == T.lines[a][seen[a]] IN
       before.event = "HelperStart" \/ (before.event = "Verify" /\ before.verdict = "proven")

FollowHelper(a, l) ==
    /\ l.event \in {"SetFlags", "KillLeaf", "RemoveLeaf"} => Checked(a)
    /\ CASE l.event = "MakeLeaf" -> \E c \in Creators : MakeLeaf(c)
      [] l.event = "Enrol" -> \E c \in Creators : Enrol(c, l.ok)
      [] l.event = "Verify" ->
            /\ l.verdict = "proven" => dir.on /\ dir.genuine
            /\ l.verdict = "gone" => ~dir.on
            /\ Still
      [] l.event = "SetFlags" -> SetFlags(l.user, l.hold)
      [] l.event = "WriteFreeze" -> WriteFreeze(l.value)
      [] l.event = "KillLeaf" -> (\E d \in Destroyers : KillLeaf(d)) \/ OwnerKills
      [] l.event = "RemoveLeaf" ->
            \/ \E d \in Destroyers : RemoveLeaf(d, l.gone)
            \/ l.gone /\ EmptyVanishes      \* run's, gc's
            \/ (l.gone => ~dir.on) /\ Still
      [] l.event = "ConnEnd" -> (\E d \in Destroyers : ConnEnd(d)) \/ (OtherHold /\ ~op'.hold)
      [] l.event = "HelperDies" -> HelperDies
      [] l.event = "HelperStart" -> HelperStart
      [] OTHER -> FALSE

FollowClient(l) ==
    CASE l.event = "Frozen" -> frozen /\ Still
      [] l.event \in {"UserFreeze", "UserThaw"} -> Still     \* the helper's lines say what was done
      [] OTHER -> FALSE

HiddenLeaf ==
    \/ Program \/ (T.start.vanish /\ EmptyVanishes) \/ ForgetFlags \/ RunEnds \/ OtherHold
    \/ T.start.clients /\ (UserFreeze \/ UserThaw)
    \/ T.start.helpers > 1 /\ HelperDies
    \/ \E c \in Creators \cap Actors : LeafTaken(c) \/ LeafLost(c) \/ AdoptsNobody(c) \/ (c \in Adopters /\ Moved(c) /\ GiveUp(c))
    \/ \E d \in Destroyers \cap Actors :
         \/ BeginDestroy(d) \/ Unknown(d) \/ Hold(d) \/ HoldFails(d) \/ NoHold(d) \/ EmptyHold(d) \/ NothingWritten(d) \/ Release(d) \/ ConnEnd(d)
         \/ KillRefused(d) \/ KillAgain(d) \/ WaitTimesOut(d)
         \/ FindLeaf(d, FALSE) /\ rec.phase = "none"
         \/ (~Stands(d) /\ RemoveLeaf(d, TRUE))
         \/ \E v \in {"proven", "gone", "foreign", "unreadable"} : Verify(d, v)

LeafOver ==
    /\ \A c \in Creators \cap Actors : ~cr[c].lives \/ (~InFlight(c) /\ cr[c].at # Failed)
    /\ \A d \in Destroyers \cap Actors : de[d].pc \in {"done", "dead"}
    /\ \A g \in Collectors \cap Actors : AtG(g, "idle")

----------------------------------------------------------------------------

FollowLeaf(a, l) ==
    IF a \in Creators THEN FollowCreate(a, l)
    ELSE IF a \in Destroyers THEN FollowDestroy(a, l)
    ELSE IF a \in Collectors THEN FollowGc(a, l)
    ELSE IF l.by = "helper" THEN FollowHelper(a, l) ELSE FollowClient(l)

All == Sum(Actors) = T.total
AllDone == All /\ (IF InGroup THEN GroupOver ELSE LeafOver)
Accepted == TLCGet(trace) > T.total

\* How far each trace could be followed, for tla/check to read. One worker: the register is its own.
Note(now, over) ==
    LET reached == IF over THEN T.total + 1 ELSE now IN
    TLCGet(trace) < reached => TLCSet(trace, reached) /\ PrintT(<<"followed", trace, reached, seen'>>)

Follow(a) ==
    /\ MayFollow(a)
    /\ IF InGroup THEN FollowGroup(a, Line(a)) /\ UNCHANGED <<env, leafVars>>
       ELSE FollowLeaf(a, Line(a)) /\ UNCHANGED groupVars
    /\ seen' = [seen EXCEPT ![a] = @ + 1]
    /\ trace' = trace
    /\ Note(Sum(Actors) + 1, FALSE)

Hidden ==
    /\ UNCHANGED <<trace, seen>> /\ ~All
    /\ IF InGroup THEN HiddenGroup /\ UNCHANGED leafVars ELSE HiddenLeaf /\ UNCHANGED groupVars

Done == AllDone /\ UNCHANGED <<vars, trace, seen>> /\ Note(0, TRUE)

TraceInit ==
    /\ trace \in DOMAIN Traces
    /\ TLCSet(trace, 0)
    /\ seen = [a \in Actors |-> 0]
    /\ LeafInit
    /\ IF InGroup THEN GroupStart ELSE GroupInit

TraceNext == ~Accepted /\ (Done \/ Hidden \/ \E a \in Actors : Follow(a))

TraceSpec == TraceInit /\ [][TraceNext]_<<vars, trace, seen>>
=============================================================================
