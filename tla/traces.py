"""Trace files of the code (README.md has the format) into a TLA+ module, and TLC's output into accepted or refused."""
import collections
import concurrent.futures
import json
import pathlib
import re

# event -> its fields and what they may be
WORDS = {
    "group": {
        "Begin": {"op": ("destroy", "gc"), "boot": ("same", "other"), "proc": ("own", "foreign")},
        "Scan": {}, "Settle": {}, "Cont": {}, "EngineDies": {},
        "Judge": {"verdict": ("gone", "unknown", "owned", "unproven", "foreign"), "running": bool},
        "Recheck": {"same": bool}, "Kill": {"found": bool}, "Stop": {"found": bool}, "Probe": {"found": bool},
        "Look": {"shows": ("live", "zombies", "none")},
        "Report": {"answer": ("ended", "alive", "refused", "over", "kept")},
    },
    "cgroup": {
        "Claim": {"ok": bool}, "LookTomb": {"found": bool}, "WriteRunning": {}, "Exec": {}, "GiveUp": {},
        "LayTomb": {}, "FindLeaf": {"found": bool}, "WriteDestroying": {}, "Frozen": {}, "LookStrays": {"found": bool},
        "Ended": {}, "WriteDestroyed": {}, "UserFreeze": {}, "UserThaw": {}, "EngineDies": {},
        "Answer": {"answer": ("destroyed", "partial", "refused", "unknown", "tombstone")},
        "GcLook": {"over": bool}, "GcKeep": {}, "GcRemove": {},
        "MakeLeaf": {}, "Enrol": {"ok": bool}, "Verify": {"verdict": ("proven", "gone", "foreign", "unreadable")},
        "SetFlags": {"user": bool, "hold": bool}, "WriteFreeze": {"value": bool}, "KillLeaf": {}, "RemoveLeaf": {"gone": bool},
        "ConnEnd": {}, "HelperStart": {}, "HelperDies": {},
    },
}
OTHERS = {"group": WORDS["cgroup"].keys() - WORDS["group"].keys(), "cgroup": WORDS["group"].keys() - WORDS["cgroup"].keys()}
OPTIONAL = {"denied": bool}
# which model actor plays which actor of a trace
PARTS = {"group": {"destroy": "d", "gc": "g"},
         "cgroup": {"create": "c", "adopt": "a", "destroy": "d", "gc": "g", "helper": "h", "client": "u"}}
MOST_LINES = 400


class BadTrace(Exception):
    """A file that is no trace. Its text names the line."""


class Trace:
    """One file: its lines in order, with what each must wait for."""

    def __init__(self, name, text):
        self.name = name
        self.lines = []       # (line number, actor, fields)
        self.kind = None
        parts = {}
        for number, raw in enumerate(text.splitlines(), 1):
            if raw.strip():
                self.read(number, raw, parts)
        if self.kind is None:
            raise BadTrace("line 1: no header")
        if not self.lines:
            raise BadTrace("line 2: no event")
        if len(self.lines) > MOST_LINES:
            raise BadTrace(f"{len(self.lines)} lines: more than {MOST_LINES} are not looked at")
        sessions = {fields["session"] for _, _, fields in self.lines if "session" in fields}
        if len(sessions) > 1:
            raise BadTrace(f"{len(sessions)} sessions: a trace is of one")
        self.actors = {}
        for index, (_, actor, _) in enumerate(self.lines):
            self.actors.setdefault(actor, []).append(index)
        self.order()

    def read(self, number, raw, parts):
        try:
            fields = json.loads(raw)
        except ValueError as error:
            raise BadTrace(f"line {number}: no JSON: {error}") from None
        if not isinstance(fields, dict):
            raise BadTrace(f"line {number}: no object")
        if "cgleaf" in fields:     # two processes may both have found the file empty
            if fields.get("format") != 1 or fields.get("kind") not in WORDS or self.kind not in (None, fields["kind"]):
                raise BadTrace(f"line {number}: a header of another format or kind")
            self.kind = fields["kind"]
            self.vanish = fields.get("vanish") is True
            return
        if self.kind is None:
            raise BadTrace(f"line {number}: no header before it")
        actor, event = str(fields.get("actor", "")), fields.get("event")
        role = actor.split("-")[0]
        if role == "world":
            return
        if event in OTHERS[self.kind]:      # a command speaks of both tiers
            return
        if role not in PARTS[self.kind]:
            raise BadTrace(f"line {number}: no actor {actor!r} in a {self.kind} trace")
        if event not in WORDS[self.kind]:
            raise BadTrace(f"line {number}: no event {event!r} in a {self.kind} trace")
        for field, kinds in {**WORDS[self.kind][event], **{o: k for o, k in OPTIONAL.items() if o in fields}}.items():
            value = fields.get(field)
            if kinds is bool:
                value = bool(value) if value in (0, 1) else value
                good = isinstance(value, bool)
            else:
                good = value in kinds
            if not good:
                raise BadTrace(f"line {number}: {event} with {field} {value!r}")
            fields[field] = value
        if actor not in parts:
            letter = PARTS[self.kind][role]
            parts[actor] = f"{letter}{sum(p[0] == letter for p in parts.values()) + 1}"
        self.lines.append((number, parts[actor], fields))

    def order(self):
        """after[i]: how many lines of each other actor are over before line i begins."""
        begins, ends = self.times()
        self.after = []
        for i, (_, actor, _) in enumerate(self.lines):
            before = {}
            for other, indexes in self.actors.items():
                if other != actor:
                    count = sum(1 for j in indexes if (ends[j] < begins[i] if begins[i] is not None and ends[j] is not None else j < i))
                    if count:
                        before[other] = count
            self.after.append(before)

    def times(self):
        """When each line's operation began and ended. A line with an end alone began after its actor's line before."""
        ends = [fields.get("t1") for _, _, fields in self.lines]
        begins = [fields.get("t0") for _, _, fields in self.lines]
        for indexes in self.actors.values():
            last = 0
            for i in indexes:
                if begins[i] is None and ends[i] is not None:
                    begins[i] = last
                last = ends[i] or last
        return begins, ends

    def start(self):
        """What is known of the world before the first line."""
        events = [(fields["event"], fields) for _, _, fields in self.lines]
        if self.kind == "group":
            begin = next((f for e, f in events if e == "Begin"), {"boot": "same", "proc": "own"})
            unread = any(e == "Judge" and f["verdict"] == "unknown" and not f["running"] for e, f in events)
            return {"ownProc": begin["proc"] == "own", "rebooted": begin["boot"] == "other", "readable": not unread,
                    "mayHide": any(e == "Look" and f["shows"] == "none" for e, f in events)}
        letters = [actor[0] for actor in self.actors]
        return {"clients": "u" in letters, "creates": "c" in letters or "a" in letters, "vanish": self.vanish, "helpers": letters.count("h")}

    def tla(self):
        actors = [f"{actor} |-> <<{', '.join(self.line_tla(i) for i in indexes)}>>" for actor, indexes in self.actors.items()]
        return f"[start |-> {record(self.start())}, total |-> {len(self.lines)},\n   lines |-> [{(',' + chr(10) + '     ').join(actors)}]]"

    def line_tla(self, index):
        _, actor, fields = self.lines[index]
        kept = {"event": fields["event"], "by": {"h": "helper", "u": "client"}.get(actor[0], "frontend")}
        for field in list(WORDS[self.kind][fields["event"]]) + [o for o in OPTIONAL if o in fields]:
            kept[field] = fields[field]
        after = "<<>>" if not self.after[index] else "[" + ", ".join(f"{a} |-> {n}" for a, n in self.after[index].items()) + "]"
        return record(kept)[:-1] + f", after |-> {after}]"

    def refusal(self, seen):
        """The lines that could come next and did not, given how many of each actor's were followed."""
        nexts = []
        for actor, indexes in self.actors.items():
            done = seen.get(actor, 0)
            if done < len(indexes):
                nexts.append(self.lines[indexes[done]])
        nexts.sort(key=lambda line: line[0])
        if not nexts:
            return f"refused at line {self.lines[-1][0]}: it ends too early, somebody is not done"
        number, _, fields = nexts[0]
        shown = ", ".join(f"{k} {v}" for k, v in fields.items() if k in WORDS[self.kind][fields["event"]])
        others = f" (or line {', '.join(str(n) for n, _, _ in nexts[1:])})" if len(nexts) > 1 else ""
        return f"refused at line {number}: {fields['event']}{' with ' + shown if shown else ''}{others}"


def record(fields):
    return "[" + ", ".join(f"{name} |-> {value(v)}" for name, v in fields.items()) + "]"


def value(v):
    if isinstance(v, bool):
        return str(v).upper()
    return str(v) if isinstance(v, int) else f'"{v}"'


def module(traces):
    rows = ",\n  ".join(trace.tla() for trace in traces)
    return f"---- MODULE TraceData ----\n\\* Made by tla/check.\nTraces == <<\n  {rows}\n>>\n====\n"


def configuration(kind, traces, base):
    """The constants of a world in which anything may happen, with as many actors as the traces need."""
    constants = dict(base("group" if kind == "group" else "leaf"))
    actors = {actor for trace in traces for actor in trace.actors}
    for name, letters in (("Creators", "ca"), ("Adopters", "a"), ("Destroyers", "d"), ("Collectors", "g")):
        constants[name] = "{" + ", ".join(f'"{a}"' for a in sorted(actors) if a[0] in letters) + "}"
    if kind == "group":
        constants.update(Creators="{}", Adopters="{}", Hostile="99", LateStops="TRUE", GcLooks="20", Reuse="TRUE", Denied="TRUE", Deaths="99")
    else:
        constants.update(IfExists=constants["Destroyers"], HelperDeaths="99", KillMisses="99", Kills="99", Deaths="99",
                         Strays='{"child", "marked"}', Blocked="TRUE", GiveUps="TRUE", UserFreezes="99")
    return "SPECIFICATION TraceSpec\nCONSTANTS\n" + "".join(f"    {name} = {v}\n" for name, v in constants.items())


def verdicts(kind, traces, run):
    """For each trace: None if TLC accepts it, else where it is refused. `run` gives TLC's output for traces of a kind."""
    output = run(kind, traces)
    if "Model checking completed. No error has been found" not in output:
        raise RuntimeError(output)
    reached, seen = {}, {}
    for match in re.finditer(r'<<\s*"followed",\s*(\d+),\s*(\d+),\s*(\[[^\]]*\]|<<>>)\s*>>', output):
        index, count = int(match[1]) - 1, int(match[2])
        if count > reached.get(index, -1):
            reached[index] = count
            seen[index] = {m[1]: int(m[2]) for m in re.finditer(r"(\w+) \|-> (\d+)", match[3])}
    return [None if reached.get(i, 0) > len(trace.lines) else trace.refusal(seen.get(i, {})) for i, trace in enumerate(traces)]


def tampered(trace_text):
    """Every trace that one small change makes of this one: (what was done, lines), or (why it is no lie, None)."""
    raw = trace_text.splitlines()
    rows = [json.loads(line) for line in raw]
    for i in range(1, len(rows)):
        if "event" not in rows[i] or str(rows[i].get("actor", "")).startswith("world"):
            continue
        later = [j for j in range(i + 1, len(rows)) if rows[j].get("actor") == rows[i]["actor"]]
        after = rows[later[0]] if later else {}
        before = next((rows[j] for j in range(i - 1, 0, -1) if rows[j].get("actor") == rows[i]["actor"]), {})
        excuse = no_lie_to_drop(rows[i], before, after)
        if excuse:
            yield f"{rows[i]['event']} dropped: {excuse}", None
        else:
            yield f"line {i + 1} dropped", raw[:i] + raw[i + 1:]
            if after and what(after) != what(rows[i]) and not no_lie_to_drop(after, rows[i], {}):
                lie = raw[:]
                lie[i], lie[later[0]] = (json.dumps({**{k: v for k, v in rows[i].items() if k in ("t0", "t1")}, **what(after)}),
                                         json.dumps({**{k: v for k, v in after.items() if k in ("t0", "t1")}, **what(rows[i])}))
                yield f"lines {i + 1} and {later[0] + 1} swapped", lie
        for name, other in LIES.get(rows[i]["event"], {}).items():
            if rows[i].get(name) not in other:
                continue
            excuse = no_lie_to_change(rows[i], after)
            if excuse:
                yield f"{rows[i]['event']} changed: {excuse}", None
            else:
                lie = json.dumps({**rows[i], name: other[rows[i][name]]})
                yield f"line {i + 1}: {name} {rows[i][name]} made {other[rows[i][name]]}", raw[:i] + [lie] + raw[i + 1:]


def what(row):
    return {k: v for k, v in row.items() if k not in ("t0", "t1")}


def no_lie_to_change(row, after):
    """Why what follows fits another verdict too; nothing, where it does not."""
    if row["event"] != "Judge":
        return ""
    if after.get("event") == "EngineDies":
        return "who is killed next may have seen either"
    if str(row["actor"]).startswith("gc") and after.get("event") in ("Cont", "Report"):
        return "a gc that yields to a destroy keeps the record like one that saw somebody"
    return ""


def no_lie_to_drop(row, before, after):
    """Why a trace without this line is a run that there may be too; nothing, where there is none."""
    event = row["event"]
    if after.get("event") == "EngineDies":
        return "who is killed next may have died before it"
    if event == "Verify" and (after.get("event") not in ("SetFlags", "KillLeaf", "RemoveLeaf") or before.get("event") == "Verify"):
        return "who only reads may look or not, and who writes must have looked once"
    if event == "LookTomb" and row["found"]:
        return "who finds it gives up, and one may give up for any reason"
    if event == "Exec" and not after:
        return "a create may be killed in its leaf before it"
    if event in ("Frozen", "UserFreeze", "UserThaw"):
        return "a client's word for what the helper's lines tell"
    if event == "ConnEnd":
        return "it may be the end of a connection that held nothing"
    if event == "HelperDies":
        return "the next helper's start tells of it"
    return ""


LIES = {
    "Judge": {"verdict": {"owned": "gone", "gone": "owned", "unproven": "owned", "unknown": "owned"}},
    "Recheck": {"same": {True: False, False: True}},
    "Probe": {"found": {True: False, False: True}},
    "Look": {"shows": {"live": "zombies", "none": "zombies", "zombies": "live"}},
    "Report": {"answer": {"ended": "alive", "alive": "ended", "refused": "ended", "over": "kept", "kept": "over"}},
    "LookTomb": {"found": {True: False, False: True}},
    "Claim": {"ok": {True: False, False: True}},
    "Answer": {"answer": {"partial": "destroyed", "refused": "destroyed", "unknown": "destroyed"}},
    "WriteFreeze": {"value": {0: 1, 1: 0, True: False, False: True}},
    "Verify": {"verdict": {"gone": "proven"}},
}


BATCH = 60      # traces for one run of TLC


def judge_all(traces, run, jobs):
    """Verdicts in order: None for accepted. A trace that could not be read brings its own."""
    good = [t for t in traces if isinstance(t, Trace)]
    batches = []
    for kind in WORDS:
        same = [t for t in good if t.kind == kind]
        batches += [(kind, same[i:i + BATCH]) for i in range(0, len(same), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        answers = list(pool.map(lambda batch: verdicts(batch[0], batch[1], run), batches))
    known = {id(t): v for (_, batch), found in zip(batches, answers) for t, v in zip(batch, found)}
    return [known[id(t)] if isinstance(t, Trace) else t for t in traces]


def parse(name, text):
    """A trace, or why it is refused."""
    try:
        return Trace(name, text)
    except BadTrace as error:
        return f"refused at {error}"


def read(path, fail):
    try:
        return pathlib.Path(path).read_text()
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror}")


def check_files(paths, run, jobs, fail):
    """Each file accepted? Prints a line each; how many were refused."""
    found = judge_all([parse(str(p), read(p, fail)) for p in paths], run, jobs)
    for path, verdict in zip(paths, found):
        print(f"{path}: {verdict or 'accepted'}")
    refused = sum(v is not None for v in found)
    print(f"{len(paths) - refused} accepted, {refused} refused")
    return refused


def check_tampered(paths, run, jobs, fail):
    """Every lie about every file refused? Prints those that are accepted, and what was no lie; how many were accepted."""
    changes = [(path, what, lines) for path in paths for what, lines in tampered(read(path, fail))]
    lies = [(path, what, "\n".join(lines)) for path, what, lines in changes if lines is not None]
    found = judge_all([parse(f"{path} {what}", text) for path, what, text in lies], run, jobs)
    accepted = [(path, what) for (path, what, _), verdict in zip(lies, found) if verdict is None]
    for path, what in accepted:
        print(f"{path}, {what}: accepted")
    excuses = collections.Counter(what for _, what, lines in changes if lines is None)
    if excuses:
        print(f"not tried, for what they make is a run that there may be too: {sum(excuses.values())} changes")
        for excuse, count in excuses.most_common():
            print(f"  {count:>4}  {excuse}")
    print(f"{len(lies)} tampered traces: {len(lies) - len(accepted)} refused, {len(accepted)} accepted")
    return len(accepted)
