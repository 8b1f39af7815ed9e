-------------------------------- MODULE Leaf --------------------------------
(* The cgroup tier: one session id, the leaf at its path, the record, the tombstone, a helper that may die at any  *)
(* step, and the creates, destroys and gcs that meet there.                                                        *)
EXTENDS Common, Sequences

CONSTANTS
    Creators,      \* creates of the same id
    Adopters,      \* those of them that take in a program that runs already
    IfExists,      \* the destroys that were asked with --if-exists
    HelperDeaths,  \* how many times the helper dies
    KillMisses,    \* how many times cgroup.kill misses a process that is being forked (before 6.14)
    Kills,         \* how many times a destroy writes cgroup.kill
    Strays,        \* the kinds of strays that may appear: "child" (parent is a member, no mark), "marked"
    Namesakes,     \* may somebody make a directory of that name once ours is gone?
    IdsComeBack,   \* may it have our leaf's id? (st_ino of 32 bits; kernfs ids are not reused in a boot)
    OtherRoot,     \* the destroys whose own root is another: what they find at the path is no leaf of ours
    Reboots,       \* how many reboots
    UserFreezes,   \* how many times a user freezes, and thaws
    Blocked,       \* may a member be in D state for some time?
    GiveUps,       \* may a create fail by itself, between any two steps?
    PidReuse       \* may a stranger get the number of a creator that died?

VARIABLES
    dir,           \* what is at the leaf's path
    frozen,        \* cgroup.freeze there
    flags,         \* its xattr: is it there, user, hold
    mem,           \* processes of the program in it: 0, 1, 2
    leader,        \* does the program's first process live?
    foreign,       \* is there somebody else's process in it?
    stray,         \* kinds of living strays; "child" becomes "lost" with its parent's own end, "orphan" with our kill
    outside,       \* does a process of the program live that was never in the leaf?
    stuck,         \* is a member in D state: "no", "yes", "condemned" (and has SIGKILL)
    boot,
    rec,           \* <id>.json
    tomb,          \* <id>.tomb
    helper,        \* "up", "down"
    op,            \* the helper's operation that takes two steps, between them
    conns,         \* the connections with a hold, in the helper's memory
    cr, de, gc,    \* the creates, destroys and gcs
    wish,          \* history: does the user want it frozen?
    count,         \* how many of the bounded things have happened
    hist           \* history: what the properties speak of

leafVars == <<dir, frozen, flags, mem, leader, foreign, stray, outside, stuck, boot, rec, tomb, helper, op, conns,
              cr, de, gc, wish, count, hist>>

NoDir == [on |-> FALSE, id |-> 0, nonce |-> FALSE, genuine |-> FALSE, serial |-> 0, poisoned |-> FALSE, killed |-> FALSE]
NoRec == [phase |-> "none", maker |-> "nobody", id |-> 0, serial |-> 0, boot |-> 0]
NoOp == [do |-> "nothing", who |-> "nobody", n |-> 0, user |-> FALSE, hold |-> FALSE, at |-> 0]
GcIdle == [pc |-> "idle", rec |-> NoRec]
NoFlags == [there |-> FALSE, user |-> FALSE, hold |-> FALSE]

LeafInit ==
    /\ dir = NoDir /\ frozen = FALSE /\ flags = NoFlags
    /\ mem = 0 /\ leader = FALSE /\ foreign = FALSE /\ stray = {} /\ outside = FALSE /\ stuck = "no"
    /\ boot = 0 /\ rec = NoRec /\ tomb = FALSE /\ helper = "up" /\ op = NoOp /\ conns = {}
    /\ cr = [c \in Creators |-> [at |-> 1, lives |-> TRUE, in |-> FALSE, made |-> 0]]
    /\ de = [d \in Destroyers |-> [pc |-> "idle", fd |-> 0, kills |-> 0, saw |-> FALSE, conn |-> FALSE, answer |-> "none"]]
    /\ gc = [g \in Collectors |-> GcIdle]
    /\ wish = FALSE
    /\ count = [deaths |-> 0, helper |-> 0, misses |-> 0, boots |-> 0, freezes |-> 0, thaws |-> 0, gcs |-> 0]
    /\ hist = [foreignKill |-> FALSE, unsound |-> FALSE, ranAfter |-> FALSE, forgot |-> FALSE, barred |-> {}, answered |-> FALSE,
                falseSuccess |-> FALSE, unrecorded |-> FALSE]

----------------------------------------------------------------------------
(* The program and the machine *)

Inside == {c \in Creators : cr[c].in /\ cr[c].lives}    \* creators that enrolled and have not executed the program yet
Populated == mem > 0 \/ Inside # {} \/ foreign
rest1 == <<boot, rec, tomb, helper, op, conns, cr, de, gc, wish, count, hist>>

ProgramForks ==
    /\ mem = 1 /\ ~frozen /\ stuck # "condemned" /\ mem' = 2
    /\ UNCHANGED <<dir, frozen, flags, leader, foreign, stray, outside, stuck>> /\ UNCHANGED rest1

ProgramExits ==
    /\ mem > (IF stuck = "no" THEN 0 ELSE 1) /\ ~frozen /\ mem' = mem - 1
    /\ leader' \in (IF mem = 1 THEN {FALSE} ELSE {FALSE, leader})
    /\ stray' = IF "child" \in stray THEN (stray \ {"child"}) \cup {"lost"} ELSE stray
    /\ UNCHANGED <<dir, frozen, flags, foreign, outside, stuck>> /\ UNCHANGED rest1

\* Assumed: none is moved out while the leaf is held.
BecomesStray(kind) ==
    /\ kind \in Strays /\ mem > 0 /\ ~frozen /\ stray = {} /\ stray' = {kind}
    /\ UNCHANGED <<dir, frozen, flags, mem, leader, foreign, outside, stuck>> /\ UNCHANGED rest1

Blocks ==
    /\ Blocked /\ mem > 0 /\ stuck = "no" /\ ~frozen /\ stuck' = "yes"
    /\ UNCHANGED <<dir, frozen, flags, mem, leader, foreign, stray, outside>> /\ UNCHANGED rest1

Unblocks ==
    /\ stuck # "no" /\ stuck' = "no"
    /\ mem' = IF stuck = "condemned" THEN 0 ELSE mem
    /\ leader' = (leader /\ mem' > 0)
    /\ UNCHANGED <<dir, frozen, flags, foreign, stray, outside>> /\ UNCHANGED rest1

\* systemd removes an empty cgroup whenever it likes.
EmptyVanishes ==
    /\ dir.on /\ ~Populated
    /\ dir' = [NoDir EXCEPT !.serial = dir.serial] /\ frozen' = FALSE /\ flags' = NoFlags
    /\ UNCHANGED <<mem, leader, foreign, stray, outside, stuck>> /\ UNCHANGED rest1

Namesake ==
    /\ Namesakes /\ ~dir.on /\ rec.id # 0
    /\ \E id \in {rec.id, 9}, nonce \in BOOLEAN :
         /\ id = rec.id => boot # rec.boot \/ (IdsComeBack /\ ~nonce)   \* id and nonce: a forgery by the same user
         /\ dir' = [on |-> TRUE, id |-> id, nonce |-> nonce, genuine |-> FALSE, serial |-> 8, poisoned |-> FALSE, killed |-> FALSE]
    /\ foreign' = TRUE /\ dir.serial < 8
    /\ UNCHANGED <<frozen, flags, mem, leader, stray, outside, stuck>> /\ UNCHANGED rest1

Reboot ==
    /\ count.boots < Reboots /\ count' = [count EXCEPT !.boots = @ + 1] /\ boot' = boot + 1
    /\ dir' = NoDir /\ frozen' = FALSE /\ flags' = NoFlags /\ mem' = 0 /\ leader' = FALSE /\ foreign' = FALSE
    /\ stray' = {} /\ outside' = FALSE /\ stuck' = "no" /\ helper' = "down" /\ op' = NoOp /\ conns' = {}
    /\ cr' = [c \in Creators |-> IF cr[c].at = 1 THEN cr[c] ELSE [cr[c] EXCEPT !.lives = FALSE]]
    /\ de' = [d \in Destroyers |-> IF de[d].pc = "idle" THEN de[d] ELSE [de[d] EXCEPT !.pc = "dead", !.answer = "none"]]
    /\ gc' = [g \in Collectors |-> GcIdle] /\ wish' = FALSE
    /\ hist' = [hist EXCEPT !.barred = {}, !.answered = FALSE]
    /\ UNCHANGED <<rec, tomb>>

Program ==
    \/ ProgramForks \/ ProgramExits \/ Blocks \/ Unblocks
    \/ \E kind \in {"child", "marked"} : BecomesStray(kind)

Machine == Program \/ EmptyVanishes \/ Namesake \/ Reboot

----------------------------------------------------------------------------
(* create: claim, enrol, look for the tombstone, exec *)

rest2 == <<frozen, flags, foreign, stray, stuck, boot, helper, op, conns, de, gc, wish>>

\* The order of the five steps. A guard that is taken out changes it. Who adopts takes in what runs already: it must look before.
Order(c) ==
    CASE c \in Adopters -> IF Has("look-before-adopt") THEN <<"claim", "leaf", "look", "enrol", "write">>
                           ELSE <<"claim", "leaf", "enrol", "look", "write">>
      [] ~Has("claim-before-enrol") -> <<"enrol", "look", "exec", "claim", "write">>
      [] ~Has("enrol-before-look") -> <<"claim", "look", "enrol", "write", "exec">>
      [] ~Has("enrol-before-exec") -> <<"claim", "look", "write", "exec", "enrol">>
      [] ~Has("look-for-tomb") -> <<"claim", "enrol", "write", "exec">>
      [] OTHER -> <<"claim", "enrol", "look", "write", "exec">>

Turn(c, step) == cr[c].lives /\ cr[c].at <= Len(Order(c)) /\ Order(c)[cr[c].at] = step
Onward(c) == cr' = [cr EXCEPT ![c].at = @ + 1]
Failed == 97      \* a step said no: GiveUp follows
GivenUp == 98
Fails(c) == cr' = [cr EXCEPT ![c].at = Failed]
InFlight(c) == cr[c].lives /\ cr[c].at \in 2..Len(Order(c))

Claim(c, ok) ==
    /\ Turn(c, "claim") /\ ok = (rec.phase = "none" \/ ~Has("claim-excl"))
    /\ IF ok THEN /\ rec' = [NoRec EXCEPT !.phase = "intent", !.maker = c, !.boot = boot] /\ Onward(c)
             ELSE rec' = rec /\ Fails(c)
    /\ hist' = [hist EXCEPT !.barred = IF hist.answered /\ tomb THEN @ \cup {c} ELSE @]
    /\ UNCHANGED <<dir, mem, leader, outside, tomb, count>> /\ UNCHANGED rest2

\* The helper makes the leaf, and whoever is to be in it moves, or is born, there. Between the two everybody else may
\* act: as two requests (run, start) they are apart, as one (exec) the helper may die in between.
Serving == helper = "up" /\ op = NoOp
Making(c) == IF c \in Adopters THEN "leaf" ELSE "enrol"

MakeLeaf(c) ==
    /\ Serving /\ Turn(c, Making(c)) /\ cr[c].made = 0 /\ ~dir.on /\ dir.serial < 2
    /\ dir' = [on |-> TRUE, id |-> dir.serial + 1, nonce |-> TRUE, genuine |-> TRUE, serial |-> dir.serial + 1, poisoned |-> FALSE, killed |-> FALSE]
    /\ cr' = [cr EXCEPT ![c].made = dir'.serial, ![c].at = IF c \in Adopters THEN @ + 1 ELSE @]
    /\ frozen' = FALSE /\ flags' = NoFlags
    /\ UNCHANGED <<mem, leader, foreign, stray, outside, stuck, boot, rec, tomb, helper, op, conns, de, gc, wish, count, hist>>

\* An id has one leaf.
LeafTaken(c) ==
    /\ Serving /\ Turn(c, Making(c)) /\ cr[c].made = 0 /\ dir.on
    /\ Fails(c)
    /\ UNCHANGED <<dir, frozen, flags, mem, leader, foreign, stray, outside, stuck, boot, rec, tomb, helper, op, conns, de, gc, wish, count, hist>>

\* An empty leaf vanished before anybody was in it: once more, or not.
LeafLost(c) ==
    /\ c \notin Adopters /\ Turn(c, "enrol") /\ cr[c].made # 0 /\ (~dir.on \/ dir.serial # cr[c].made)
    /\ \E at \in {cr[c].at, Failed} : cr' = [cr EXCEPT ![c].made = 0, ![c].at = at]
    /\ UNCHANGED <<dir, frozen, flags, mem, leader, foreign, stray, outside, stuck, boot, rec, tomb, helper, op, conns, de, gc, wish, count, hist>>

\* The number is written to cgroup.procs; whoever has it is moved, a frozen leaf takes nobody. Then: does the caller live?
EnrolItself(c, ok) ==
    /\ Serving /\ dir.on /\ dir.serial = cr[c].made /\ ~cr[c].in /\ ~frozen
    /\ cr[c].at <= Len(Order(c)) /\ Order(c)[cr[c].at] = "enrol"
    /\ ok = cr[c].lives
    /\ IF ok
       THEN /\ cr' = [cr EXCEPT ![c].in = cr[c].at < Len(Order(c)), ![c].at = @ + 1]
            /\ mem' = IF Order(c)[Len(Order(c))] = "enrol" /\ outside THEN 1 ELSE mem   \* executed before: only the leader is moved
            /\ leader' = (leader \/ mem' > 0)
            /\ UNCHANGED <<dir, foreign>>
       ELSE /\ foreign' = (foreign \/ PidReuse)
            /\ dir' = [dir EXCEPT !.poisoned = Has("alive-after-move")]
            /\ cr' = [cr EXCEPT ![c].made = 0]
            /\ UNCHANGED <<mem, leader>>
    /\ UNCHANGED <<frozen, flags, stray, outside, stuck, boot, rec, tomb, helper, op, conns, de, gc, wish, count, hist>>

\* An adoption moves a program's processes one by one; they run all the time. What was killed takes nobody in any more:
\* whoever came later would live on in a session that is over. One that ends while it is moved poisons the leaf.
Moved(c) == cr[c].at > 1 /\ cr[c].at <= Len(Order(c)) /\ Order(c)[cr[c].at - 1] = "enrol"

EnrolOthers(c, ok) ==
    /\ Serving /\ dir.on /\ dir.serial = cr[c].made /\ ~dir.poisoned /\ ~(dir.killed /\ Has("killed-takes-nobody"))
    /\ Moved(c) \/ (cr[c].at <= Len(Order(c)) /\ Order(c)[cr[c].at] = "enrol")
    /\ IF ok
       THEN /\ mem' = (IF mem = 2 THEN 2 ELSE mem + 1) /\ leader' = (leader \/ ~Moved(c))
            /\ cr' = IF Moved(c) THEN cr ELSE [cr EXCEPT ![c].at = @ + 1]
            /\ UNCHANGED <<dir, foreign>>
       ELSE /\ foreign' = (foreign \/ PidReuse)
            /\ dir' = [dir EXCEPT !.poisoned = Has("alive-after-move")]
            /\ UNCHANGED <<mem, leader, cr>>
    /\ hist' = [hist EXCEPT !.unrecorded = @ \/ (ok /\ rec.phase = "none")]
    /\ UNCHANGED <<frozen, flags, stray, outside, stuck, boot, rec, tomb, helper, op, conns, de, gc, wish, count>>

Enrol(c, ok) == IF c \in Adopters THEN EnrolOthers(c, ok) ELSE EnrolItself(c, ok)

\* Nobody could be adopted, for whatever reason.
AdoptsNobody(c) ==
    /\ c \in Adopters /\ Turn(c, "enrol") /\ Fails(c)
    /\ UNCHANGED <<dir, mem, leader, outside, rec, tomb, count, hist>> /\ UNCHANGED rest2

LookTomb(c, found) ==
    /\ Turn(c, "look") /\ found = tomb
    /\ IF found THEN Fails(c) ELSE Onward(c)
    /\ UNCHANGED <<dir, mem, leader, outside, rec, tomb, count, hist>> /\ UNCHANGED rest2

\* A whole file, renamed over whatever is there: nothing is locked, nothing is read first.
WriteRunning(c) ==
    /\ Turn(c, "write") /\ Onward(c)
    /\ rec' = [phase |-> "running", maker |-> c, boot |-> boot,
               id |-> IF cr[c].in THEN dir.id ELSE IF c \in Adopters THEN cr[c].made ELSE 0,
               serial |-> IF cr[c].in THEN dir.serial ELSE IF c \in Adopters THEN cr[c].made ELSE 0]
    /\ UNCHANGED <<dir, mem, leader, outside, tomb, count, hist>> /\ UNCHANGED rest2

Exec(c) ==
    /\ Turn(c, "exec") /\ ~frozen
    /\ cr' = [cr EXCEPT ![c].at = @ + 1, ![c].in = FALSE]
    /\ IF cr[c].in THEN mem' = mem + 1 /\ leader' = TRUE /\ outside' = outside
       ELSE mem' = mem /\ leader' = leader /\ outside' = TRUE
    /\ hist' = [hist EXCEPT !.ranAfter = @ \/ c \in hist.barred, !.unrecorded = @ \/ rec.phase = "none"]
    /\ UNCHANGED <<dir, rec, tomb, count>> /\ UNCHANGED rest2

\* Killed at any step; enrolled or not. Its request may still be with the helper.
CreatorDies(c) ==
    /\ InFlight(c) /\ count.deaths < Deaths
    /\ count' = [count EXCEPT !.deaths = @ + 1]
    /\ cr' = [cr EXCEPT ![c].lives = FALSE]
    /\ UNCHANGED <<dir, mem, leader, outside, rec, tomb, hist>> /\ UNCHANGED rest2

\* Any failure before exec. Its own claim is taken back, unless a destroy has it, or somebody was adopted: that one stays.
GiveUp(c) ==
    /\ (InFlight(c) /\ GiveUps) \/ (cr[c].lives /\ cr[c].at = Failed)
    /\ rec' = IF rec.maker = c /\ rec.phase \in {"intent", "running"} /\ ~(c \in Adopters /\ Moved(c)) THEN NoRec ELSE rec
    /\ cr' = [cr EXCEPT ![c].at = GivenUp, ![c].in = FALSE]
    /\ UNCHANGED <<dir, mem, leader, outside, tomb, count, hist>> /\ UNCHANGED rest2

Create(c) ==
    \/ \E ok \in BOOLEAN : Claim(c, ok) \/ Enrol(c, ok) \/ LookTomb(c, ok)
    \/ MakeLeaf(c) \/ LeafTaken(c) \/ LeafLost(c) \/ AdoptsNobody(c) \/ WriteRunning(c) \/ Exec(c) \/ CreatorDies(c) \/ GiveUp(c)

----------------------------------------------------------------------------
(* The helper: flags are put in force in steps, and it may die between them *)

rest3 == <<dir, mem, leader, foreign, stray, outside, stuck, boot, rec, tomb, cr, gc>>

\* The flags are written first, then cgroup.freeze; flags that are clear stay until 0 is written, and tell a helper
\* that comes later of a thaw that was not finished.
\* What it opened is what it writes to.
Apply(do, who, user, hold) == [do |-> do, who |-> who, n |-> 1, user |-> user, hold |-> hold, at |-> dir.serial]
Applying == helper = "up" /\ op.n > 0
OpenedStands == dir.on /\ dir.serial = op.at
First == IF Has("flags-before-freeze") THEN 1 ELSE 2    \* the step at which the flags are written

SetFlags(user, hold) ==
    /\ Applying /\ OpenedStands /\ op.n = First /\ user = op.user /\ hold = op.hold
    /\ flags' = [there |-> user \/ hold \/ First = 1, user |-> user, hold |-> hold]
    /\ op' = IF First = 1 THEN [op EXCEPT !.n = 2] ELSE NoOp
    /\ UNCHANGED <<frozen, wish>> /\ UNCHANGED rest3 /\ UNCHANGED <<helper, conns, de, count, hist>>

WriteFreeze(value) ==
    /\ Applying /\ OpenedStands /\ op.n = 3 - First /\ value = (op.user \/ op.hold)
    /\ frozen' = value
    /\ op' = IF First = 2 THEN [op EXCEPT !.n = 2] ELSE IF value THEN NoOp ELSE [op EXCEPT !.n = 3]
    /\ wish' = (wish /\ op.do # "thaw")
    /\ UNCHANGED flags /\ UNCHANGED rest3 /\ UNCHANGED <<helper, conns, de, count, hist>>

\* Neither is an event: clear flags are taken off; the leaf was removed meanwhile.
ForgetFlags ==
    /\ Applying /\ (op.n = 3 \/ ~OpenedStands)
    /\ flags' = IF OpenedStands THEN NoFlags ELSE flags
    /\ op' = NoOp
    /\ UNCHANGED <<frozen, wish>> /\ UNCHANGED rest3 /\ UNCHANGED <<helper, conns, de, count, hist>>

UserFreeze ==
    /\ Serving /\ dir.on /\ dir.genuine /\ count.freezes < UserFreezes /\ count' = [count EXCEPT !.freezes = @ + 1]
    /\ wish' = TRUE /\ op' = Apply("freeze", "user", TRUE, flags.hold)
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, helper, conns, de, hist>>

UserThaw ==
    /\ Serving /\ dir.on /\ flags.there /\ count.thaws < UserFreezes /\ count' = [count EXCEPT !.thaws = @ + 1]
    /\ op' = Apply("thaw", "user", FALSE, flags.hold)
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, helper, conns, de, wish, hist>>

\* With the last connection that holds it the hold ends.
ConnEnd(d) ==
    /\ Serving /\ Has("hold-ends") /\ d \in conns /\ ~de[d].conn
    /\ conns' = conns \ {d}
    /\ op' = IF conns = {d} /\ dir.on /\ flags.hold THEN Apply("drop", d, flags.user, FALSE) ELSE NoOp
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, helper, de, wish, count, hist>>

\* Every connection ends with it.
HelperDies ==
    /\ helper = "up" /\ count.helper < HelperDeaths /\ count' = [count EXCEPT !.helper = @ + 1]
    /\ helper' = "down" /\ op' = NoOp /\ conns' = {}
    /\ de' = [d \in Destroyers |-> [de[d] EXCEPT !.conn = FALSE]]
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, wish, hist>>

\* A new one reads the tree: it drops a hold that it finds, and finishes a thaw.
HelperStart ==
    /\ helper = "down" /\ helper' = "up"
    /\ op' = IF dir.on /\ flags.there /\ (IF flags.hold THEN Has("holds-dropped") ELSE ~flags.user /\ Has("thaw-finished"))
             THEN Apply("drop", "start", flags.user, FALSE) ELSE NoOp
    /\ UNCHANGED rest3 /\ UNCHANGED <<frozen, flags, conns, de, wish, count, hist>>

Helper ==
    \/ \E u, h \in BOOLEAN : SetFlags(u, h)
    \/ \E v \in BOOLEAN : WriteFreeze(v)
    \/ ForgetFlags \/ UserFreeze \/ UserThaw \/ HelperDies \/ HelperStart
    \/ \E d \in Destroyers : ConnEnd(d)

----------------------------------------------------------------------------
(* destroy *)

rest4 == <<outside, boot, helper, cr, gc, wish, count>>
AtD(d, pc) == de[d].pc = pc
GoD(d, change) == de' = [de EXCEPT ![d] = change]
ToD(d, pc) == GoD(d, [de[d] EXCEPT !.pc = pc])
Known == rec.phase # "none" \/ dir.on
still == <<dir, frozen, flags, mem, leader, foreign, stray, stuck, op, conns>>

BeginDestroy(d) ==
    /\ AtD(d, "idle")
    /\ GoD(d, IF rec.phase # "none" /\ rec.boot # boot /\ Has("boot")
              THEN [de[d] EXCEPT !.pc = "answer", !.answer = "refused"]
              ELSE IF rec.phase = "destroyed" /\ (~dir.on \/ ~Populated)
              THEN [de[d] EXCEPT !.pc = "answer", !.answer = IF d \in IfExists THEN "destroyed" ELSE "already"]
              ELSE IF ~Known /\ d \notin IfExists
              THEN [de[d] EXCEPT !.pc = "answer", !.answer = "unknown"]
              ELSE [de[d] EXCEPT !.pc = IF Has("tomb-before-find") THEN "tomb" ELSE "find"])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

LayTomb(d) ==
    /\ AtD(d, "tomb") /\ tomb' = TRUE
    /\ ToD(d, IF Has("tomb-before-find") THEN "find" ELSE "strays-after")
    /\ UNCHANGED <<rec, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* The record's leaf, else the helper's list.
FindLeaf(d, found) ==
    /\ AtD(d, "find")
    /\ rec.id = 0 => Serving /\ found = dir.on
    /\ GoD(d, IF found \/ rec.id # 0 THEN [de[d] EXCEPT !.pc = "verify"]
              ELSE IF ~Has("tomb-before-find") /\ ~tomb THEN [de[d] EXCEPT !.pc = "tomb"]
              ELSE IF rec.phase = "none" THEN [de[d] EXCEPT !.pc = "answer", !.answer = "tombstone"]
              ELSE [de[d] EXCEPT !.pc = "strays-after"])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* The five guards, in their order, on what the path opens beneath the verifier's own root. In another root it opens
\* something with the same id and nonce: the worst that it can be.
Opened(d) == IF d \in OtherRoot THEN [on |-> TRUE, id |-> rec.id, nonce |-> TRUE] ELSE dir

VerdictOf(d) ==
    IF Has("boot") /\ rec.boot # boot THEN "foreign"
    ELSE IF Has("root") /\ d \in OtherRoot THEN "unreadable"
    ELSE IF ~Opened(d).on THEN "gone"
    ELSE IF rec.id = 0 THEN IF dir.genuine THEN "proven" ELSE "foreign"   \* attested anew, from the helper's list
    ELSE IF Has("id") /\ Opened(d).id # rec.id THEN "gone"
    ELSE IF Has("nonce") /\ ~Opened(d).nonce THEN "foreign"
    ELSE "proven"

Sound(d) == d \notin OtherRoot /\ dir.genuine /\ (rec.id # 0 => dir.serial = rec.serial /\ rec.boot = boot)

Verify(d, verdict) ==
    /\ AtD(d, "verify") /\ verdict = VerdictOf(d)
    /\ hist' = [hist EXCEPT !.unsound = @ \/ (verdict = "proven" /\ ~Sound(d))]
    /\ GoD(d, CASE verdict = "proven" -> [de[d] EXCEPT !.pc = "write-destroying", !.fd = dir.serial]
                [] verdict = "gone" \/ (verdict \in {"foreign", "unreadable"} /\ ~Has("only-gone-ends")) ->
                      [de[d] EXCEPT !.pc = "strays-after"]
                [] OTHER -> [de[d] EXCEPT !.pc = "answer", !.answer = "refused"])
    /\ UNCHANGED <<rec, tomb>> /\ UNCHANGED still /\ UNCHANGED rest4

WriteDestroying(d) ==
    /\ AtD(d, "write-destroying") /\ rec' = [rec EXCEPT !.phase = "destroying"] /\ ToD(d, "hold")
    /\ UNCHANGED <<tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* The helper opens the path and verifies before each write; what was opened is what is written to.
Stands(d) == dir.on /\ dir.serial = de[d].fd
Reached(d) == dir.on /\ (Stands(d) \/ ~Has("same-descriptor"))

Hold(d) ==
    /\ AtD(d, "hold") /\ Serving
    /\ IF Stands(d)
       THEN /\ op' = Apply("hold", d, flags.user, TRUE) /\ conns' = conns \cup {d}
            /\ GoD(d, [de[d] EXCEPT !.pc = "frozen", !.conn = TRUE])
       ELSE op' = NoOp /\ conns' = conns /\ ToD(d, "strays-held")
    /\ UNCHANGED <<rec, tomb, hist, dir, frozen, flags, mem, leader, foreign, stray, stuck>> /\ UNCHANGED rest4

Frozen(d) ==
    /\ AtD(d, "frozen") /\ frozen /\ stuck = "no" /\ ToD(d, "strays-held")
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* Without a hold: a member in D state, a helper that died, a leaf that went.
HoldFails(d) ==
    /\ AtD(d, "frozen") /\ (op.do # "hold" \/ op.who # d) /\ (stuck # "no" \/ ~de[d].conn \/ ~Stands(d)) /\ ToD(d, "strays-held")
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

LookStrays(d, found) ==
    \/ /\ AtD(d, "strays-held") /\ found = ("child" \in stray /\ Has("strays-held"))
       /\ GoD(d, [de[d] EXCEPT !.saw = @ \/ found, !.pc = "kill"])
       /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4
    \/ /\ AtD(d, "strays-after") /\ found = (de[d].saw \/ ("marked" \in stray /\ Has("strays-after")))   \* and those seen before
       /\ GoD(d, [de[d] EXCEPT !.saw = @ \/ found, !.pc = "remove"])
       /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* cgroup.kill. A process in D state keeps the signal; before 6.14 one that is being forked may be missed.
KillLeaf(d) ==
    /\ AtD(d, "kill") /\ Serving /\ Reached(d) /\ ~dir.poisoned
    /\ \E miss \in IF mem > 0 /\ ~frozen /\ count.misses < KillMisses THEN BOOLEAN ELSE {FALSE} :
         /\ count' = [count EXCEPT !.misses = IF miss THEN @ + 1 ELSE @]
         /\ mem' = IF miss \/ (stuck # "no" /\ mem > 0) THEN 1 ELSE 0
         /\ stuck' = IF stuck # "no" /\ mem > 0 THEN "condemned" ELSE stuck
    /\ leader' = (leader /\ stuck' = "condemned")
    /\ cr' = [c \in Creators |-> IF c \in Inside THEN [cr[c] EXCEPT !.lives = FALSE] ELSE cr[c]]
    /\ foreign' = FALSE /\ dir' = [dir EXCEPT !.killed = Adopters # {}]    \* it matters to those alone
    /\ stray' = IF "child" \in stray THEN (stray \ {"child"}) \cup {"orphan"} ELSE stray
    /\ hist' = [hist EXCEPT !.foreignKill = @ \/ foreign]
    /\ GoD(d, [de[d] EXCEPT !.pc = "wait", !.kills = @ + 1])
    /\ UNCHANGED <<rec, tomb, frozen, flags, op, conns, outside, boot, helper, gc, wish>>

\* ENOENT, ENODEV: it went by itself. Poisoned: nobody is killed.
KillRefused(d) ==
    /\ AtD(d, "kill") /\ Serving
    /\ IF ~Reached(d) THEN ToD(d, "wait")
       ELSE dir.poisoned /\ GoD(d, [de[d] EXCEPT !.pc = "answer", !.answer = "refused"])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

Ended(d) ==
    /\ AtD(d, "wait") /\ (~Stands(d) \/ ~Populated \/ ~Has("populated-0"))
    /\ ToD(d, "strays-after")
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

KillAgain(d) ==
    /\ AtD(d, "wait") /\ Stands(d) /\ Populated /\ Has("kill-again") /\ de[d].kills < Kills
    /\ ToD(d, "kill")
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* The deadline. Time enough is given to whatever can die.
WaitTimesOut(d) ==
    /\ AtD(d, "wait") /\ Stands(d) /\ Populated /\ (de[d].kills = Kills \/ ~Has("kill-again"))
    /\ GoD(d, [de[d] EXCEPT !.pc = "answer", !.answer = "partial"])
    /\ UNCHANGED <<rec, tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* One pass; again while something cannot be removed yet, or it is left over.
RemoveLeaf(d, gone) ==
    /\ AtD(d, "remove") /\ Serving
    /\ gone => ~Stands(d) \/ ~Populated
    /\ IF Stands(d) /\ gone THEN dir' = [NoDir EXCEPT !.serial = dir.serial] /\ frozen' = FALSE /\ flags' = NoFlags
       ELSE UNCHANGED <<dir, frozen, flags>>
    /\ \E next \in {"write-destroyed"} \cup (IF gone THEN {} ELSE {"remove"}) : ToD(d, next)
    /\ UNCHANGED <<rec, tomb, hist, mem, leader, foreign, stray, stuck, op, conns>> /\ UNCHANGED rest4

WriteDestroyed(d) ==
    /\ AtD(d, "write-destroyed")
    /\ rec' = [rec EXCEPT !.phase = "destroyed", !.boot = IF rec.phase = "none" THEN boot ELSE @]
    /\ GoD(d, [de[d] EXCEPT !.pc = "answer", !.answer = IF de[d].saw THEN "partial" ELSE "destroyed"])
    /\ UNCHANGED <<tomb, hist>> /\ UNCHANGED still /\ UNCHANGED rest4

\* Strays with neither a living parent in the leaf nor the mark are nobody's to find ("lost"): a stated limit.
SomebodyLives == mem > 0 \/ outside \/ stray \cap {"child", "orphan", "marked"} # {}

\* The answer, and the end of the connection. Whoever is on its way by now must not arrive.
Answer(d, answer) ==
    /\ AtD(d, "answer") /\ answer = de[d].answer
    /\ GoD(d, [de[d] EXCEPT !.pc = "done", !.conn = FALSE])
    /\ hist' = IF answer \in {"destroyed", "tombstone"}
               THEN [hist EXCEPT !.answered = TRUE, !.barred = @ \cup {c \in Creators : InFlight(c)},
                                 !.falseSuccess = @ \/ (answer = "destroyed" /\ SomebodyLives)]
               ELSE hist
    /\ UNCHANGED <<rec, tomb>> /\ UNCHANGED still /\ UNCHANGED rest4

DestroyDies(d) ==
    /\ de[d].pc \notin {"idle", "done", "dead"} /\ count.deaths < Deaths
    /\ count' = [count EXCEPT !.deaths = @ + 1]
    /\ GoD(d, [de[d] EXCEPT !.pc = "dead", !.conn = FALSE])
    /\ UNCHANGED <<rec, tomb, hist, outside, boot, helper, cr, gc, wish>> /\ UNCHANGED still

DestroySteps(d) ==
    \/ LayTomb(d) \/ WriteDestroying(d) \/ Hold(d) \/ Frozen(d) \/ HoldFails(d)
    \/ KillLeaf(d) \/ KillRefused(d) \/ Ended(d) \/ KillAgain(d) \/ WaitTimesOut(d) \/ WriteDestroyed(d)
    \/ \E b \in BOOLEAN : FindLeaf(d, b) \/ LookStrays(d, b) \/ RemoveLeaf(d, b)
    \/ \E v \in {"proven", "gone", "foreign", "unreadable"} : Verify(d, v)
    \/ \E a \in {"destroyed", "partial", "refused", "already", "unknown", "tombstone"} : Answer(d, a)

Destroy(d) == BeginDestroy(d) \/ DestroySteps(d) \/ DestroyDies(d)

----------------------------------------------------------------------------
(* gc *)

rest5 == <<mem, leader, foreign, stray, outside, stuck, boot, helper, op, conns, cr, de, wish>>
AtG(g, pc) == gc[g].pc = pc

\* Does somebody still work on a claim that never came to a leaf? Its phase may be `destroyed` by now.
MakerLives == rec.id = 0 /\ rec.boot = boot /\ rec.maker \in Creators /\ InFlight(rec.maker)

\* Proven over? Nobody makes it, and its leaf is gone or empty.
Over ==
    /\ rec.phase \in {"intent", "running", "destroyed"} \/ (rec.phase = "destroying" /\ ~Has("gc-leaves-destroying"))
    /\ ~MakerLives \/ ~Has("gc-intent-alive")
    /\ IF Has("gc-leaf-listed") THEN ~dir.on \/ ~Populated \/ (rec.id # 0 /\ dir.serial # rec.serial) \/ rec.boot # boot
       ELSE ~leader

GcLook(g, over) ==
    /\ AtG(g, "idle") /\ rec.phase # "none" /\ Serving /\ count.gcs < 2
    /\ over = Over
    /\ count' = [count EXCEPT !.gcs = @ + 1]
    /\ gc' = [gc EXCEPT ![g] = [pc |-> IF over THEN "remove" ELSE "keep", rec |-> IF over THEN rec ELSE NoRec]]
    /\ UNCHANGED <<dir, frozen, flags, rec, tomb, hist>> /\ UNCHANGED rest5

\* The record goes only with its leaf: one that somebody has come to since is not removed, and keeps it.
Stays(g) ==
    /\ dir.on /\ Populated /\ boot = gc[g].rec.boot /\ (gc[g].rec.id = 0 \/ dir.serial = gc[g].rec.serial)
    /\ Has("gc-leaf-listed") /\ Has("gc-leaf-first")

GcKeep(g) ==
    /\ AtG(g, "keep") \/ (AtG(g, "remove") /\ Stays(g))
    /\ gc' = [gc EXCEPT ![g] = GcIdle]
    /\ UNCHANGED <<dir, frozen, flags, rec, tomb, count, hist>> /\ UNCHANGED rest5

\* An empty leaf goes, then the record: the one that was looked at, not one that another create has claimed since.
GcRemove(g) ==
    /\ AtG(g, "remove") /\ ~Stays(g) /\ Serving /\ gc' = [gc EXCEPT ![g] = GcIdle]
    /\ LET same == rec = gc[g].rec \/ ~Has("gc-same-record") IN
       /\ IF same /\ dir.on /\ dir.genuine /\ ~Populated
          THEN dir' = [NoDir EXCEPT !.serial = dir.serial] /\ frozen' = FALSE /\ flags' = NoFlags
          ELSE UNCHANGED <<dir, frozen, flags>>
       /\ rec' = IF same THEN NoRec ELSE rec
       /\ hist' = [hist EXCEPT !.forgot = @ \/ (same /\ boot = rec.boot /\ (mem > 0 \/ Inside # {} \/ MakerLives))]
    /\ UNCHANGED <<tomb, count>> /\ UNCHANGED rest5

\* Ten minutes later. A tombstone that a claim still looks for stays; without one the id is unknown again.
GcTomb(g) ==
    /\ AtG(g, "idle") /\ tomb /\ (rec.phase = "none" \/ ~Has("gc-tomb-unclaimed"))
    /\ \A d \in Destroyers : de[d].pc \in {"idle", "done", "dead"}
    /\ tomb' = FALSE
    /\ hist' = [hist EXCEPT !.answered = FALSE]
    /\ UNCHANGED <<dir, frozen, flags, rec, gc, count>> /\ UNCHANGED rest5

Gc(g) == GcKeep(g) \/ GcRemove(g) \/ GcTomb(g) \/ \E over \in BOOLEAN : GcLook(g, over)

LeafNext ==
    \/ Machine \/ Helper
    \/ \E c \in Creators : Create(c)
    \/ \E d \in Destroyers : Destroy(d)
    \/ \E g \in Collectors : Gc(g)

----------------------------------------------------------------------------
(* What must hold *)

LeafDestroyedProgramStopped == ~hist.falseSuccess
NothingRunsAfterDestroyed == ~hist.ranAfter
LeafKillsOnlyOwn == ~hist.foreignKill
LeafNotLeftFrozen ==
    (/\ helper = "up" /\ op = NoOp
     /\ \A d \in Destroyers : de[d].pc \in {"idle", "done", "dead"}
     /\ conns = {} \/ ~Has("hold-ends"))
    => (frozen => wish)
LeafGcKeepsRunning == ~hist.forgot
AttestationSound == ~hist.unsound
\* No program runs without a record: a frontend that dies leaves nothing that nobody knows of.
RunsRecorded == ~hist.unrecorded

LeafFairness ==
    /\ WF_leafVars(ForgetFlags \/ (\E u, h \in BOOLEAN : SetFlags(u, h) \/ WriteFreeze(u)))
    /\ WF_leafVars(HelperStart) /\ WF_leafVars(Unblocks)
    /\ \A d \in Destroyers : WF_leafVars(ConnEnd(d)) /\ WF_leafVars(DestroySteps(d))
    /\ \A g \in Collectors : WF_leafVars(GcKeep(g) \/ GcRemove(g))

\* Every destroy that began, and was not killed itself, ends with success.
LeafDestroyEnds ==
    \A d \in Destroyers :
        de[d].pc \notin {"idle", "dead"} ~> (AtD(d, "dead") \/ (AtD(d, "done") /\ de[d].answer \in {"destroyed", "already", "unknown", "tombstone"}))
=============================================================================
