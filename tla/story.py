"""TLC's counterexample as a numbered story."""
import re

MEMBER = {"1": "the leader", "2": "link 2", "3": "link 3"}
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


def states(output):
    """Each state as name -> value's text, in order."""
    found = []
    for chunk in re.split(r"^State \d+: .*$", output, flags=re.M)[1:]:
        pairs = re.findall(r"^/\\ (\w+) = (.*(?:\n(?!/\\|\n|State|\d).*)*)", chunk, re.M)
        found.append({name: re.sub(r"\s+", " ", value) for name, value in pairs})
    return found


def parse(text):
    """A TLA+ value as TLC prints it."""
    position = 0

    def skip():
        nonlocal position
        while position < len(text) and text[position] == " ":
            position += 1

    def items(end):
        nonlocal position
        found = []
        skip()
        while not text.startswith(end, position):
            found.append(one())
            skip()
            if text.startswith(",", position):
                position += 1
            skip()
        position += len(end)
        return found

    def pairs(arrow, separator, end):
        nonlocal position
        found = {}
        skip()
        while not text.startswith(end, position):
            key = one()
            skip()
            position += len(arrow)
            found[key] = one()
            skip()
            if text.startswith(separator, position):
                position += len(separator)
            skip()
        position += len(end)
        return found

    def one():
        nonlocal position
        skip()
        for opening, read in (("<<", lambda: {i + 1: v for i, v in enumerate(items(">>"))}), ("{", lambda: set(items("}"))),
                              ("[", lambda: pairs("|->", ",", "]")), ("(", lambda: pairs(":>", "@@", ")"))):
            if text.startswith(opening, position):
                position += len(opening)
                return read()
        token = re.compile(r'"[^"]*"|-?\w+').match(text, position)[0]
        position += len(token)
        return {"TRUE": True, "FALSE": False}.get(token, token.strip('"') if token[0] == '"' else int(token) if token.isdigit() else token)

    return one()


def alive(state):
    return [str(p) for p, how in sorted(parse(state["st"]).items()) if how != "none"]


def group_step(before, after):
    """What happened between two states of the group tier."""
    engines, now = parse(before["eng"]), parse(after["eng"])
    for name, was in engines.items():
        e = now[name]
        if was["pc"] != e["pc"]:
            return f"{name}: {engine_step(was, e, before, after)}"
    if before["conts"] != after["conts"]:
        return f"somebody sends SIGCONT to the group ({after['conts']}): what was stopped runs on"
    if before["holder"] != after["holder"]:
        return "nobody has the group's number any more, and a stranger's group gets it"
    if before["userStop"] != after["userStop"] and after["userStop"] == "TRUE":
        return "a user stops the group"
    was, is_ = parse(before["st"]), parse(after["st"])
    for p in was:
        who = MEMBER.get(str(p), str(p)) if after["holder"] == '"ours"' else "the stranger"
        if was[p] != is_[p]:
            if was[p] == "none":
                return f"chain: {who} is born, forked by {' and '.join(MEMBER[q] for q in alive(before))}"
            if is_[p] == "none":
                zombie = ", and stays a zombie" if after["zombies"] == "TRUE" else ""
                return f"chain: {who} exits{zombie}" if before["out"] == after["out"] else f"chain: {who} leaves the group (setsid)"
            if is_[p] == "stop":
                return f"{who} stands still: the SIGSTOP has taken effect"
    if before["zombies"] != after["zombies"]:
        return "PID 1 reaps the zombies"
    if before["threads"] != after["threads"]:
        return "the leader's main thread ends; another of its threads runs on"
    return "something else happens"


def engine_step(was, e, before, after):
    living = alive(after)
    truth = f"({NUMBERS[len(living)]} member{'s' * (len(living) != 1)} alive: {', '.join(MEMBER[p] for p in living)})" if living else "(nobody lives)"
    pc, to = was["pc"], e["pc"]
    if pc == "idle":
        return "begins"
    if pc in ("scan", "wscan"):
        return f"takes the listing of /proc {truth}"
    if pc == "stats":
        if not parse(after["env"])["ownProc"]:
            return "reads what is listed, under the numbers of another pid namespace"
        return f"reads each listed process: {'live: ' + ', '.join(MEMBER[str(p)] for p in sorted(e['read'])) if e['read'] else 'no live member among them'}"
    if pc == "judge":
        frozen = "frozen " if was["stopped"] else ""
        look = f"judgement {was['look']}" if was["look"] else "first look"
        verdict = f"{e['verdict']}{', a member runs' if e['verdict'] == 'unknown' and e['running'] else ''}"
        return f"{frozen}{look}: {verdict} {truth}"
    if pc == "recheck":
        return "the witness, read again, " + ("is the same process" if to == "kill" else "has ended")
    if pc == "kill":
        return "SIGKILL to the group"
    if pc == "stop":
        return "SIGSTOP to the group" if to != "report" else "leaves the group to the destroy"
    if pc == "settle":
        return "has waited 1 ms"
    if pc == "probe":
        return f"the wait: signal 0 {'finds the group' if to == 'wscan' else 'finds nobody'}"
    if pc == "look":
        return f"the wait's scan: {'only zombies, so it has ended' if e['reading'] == 'ended' else 'alive'} {truth}"
    if pc == "again":
        return "waits on" if to == "probe" else "the deadline has passed"
    if pc in ("cont", "earlycont"):
        return "SIGCONT to the group"
    if pc == "report":
        return f"answers: {e['answer']} {truth}"
    return f"{pc} → {to}"


def leaf_step(before, after):
    changed = [f"{name}: {difference(before[name], after[name])}" for name in sorted(after) if before.get(name) != after[name] and name not in ("hist", "count")]
    return "; ".join(changed) or "(only what the properties remember)"


def difference(was, now):
    """Of two records only what differs."""
    was, now = parse(was), parse(now)
    while isinstance(was, dict) and isinstance(now, dict):
        keys = [k for k in now if was.get(k) != now[k]]
        if len(keys) != 1:
            return ", ".join(f"{k} {now[k]}" for k in keys)
        if not isinstance(now[keys[0]], dict):
            return f"{keys[0]} {was.get(keys[0])} → {now[keys[0]]}"
        was, now = was[keys[0]], now[keys[0]]
    return f"{was} → {now}"


def tell(configuration, result):
    print(f"{configuration.name}: {configuration.question}")
    print(f"TLC {result.outcome}.")
    found = states(result.output)
    step = group_step if configuration.tier == "group" else leaf_step
    for number, (before, after) in enumerate(zip(found, found[1:]), 1):
        print(f"{number:3}. {step(before, after)}")
    if result.outcome.startswith("finds"):
        print(f"     That breaks {result.outcome.split()[1]}.")
