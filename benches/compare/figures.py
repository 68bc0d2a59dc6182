#!/usr/bin/env python3
"""Makes the tables and pictures of the documents from docs/figures.json, which run.py writes.

    benches/compare/figures.py            writes them
    benches/compare/figures.py --check    names what differs from them, and ends with status 1 then

In a document the generated text stands between `<!-- figures: NAME WORDS -->` and `<!-- end -->`; the functions of
`TEXTS` make it. docs/figures.json has one section for each program that measures: the machine and its fingerprint, the
date, the commit, the command, and what came out. Only Python's standard library is needed.
"""
import datetime, difflib, json, os, platform, re, subprocess, sys, textwrap

sys.dont_write_bytecode = True
PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
JSON = os.path.join(PROJECT, "docs", "figures.json")
DOCUMENTS = ["README.md", "docs/figures.md", "docs/sizing.md"]
K, M = 1 << 10, 1 << 20
ARENA, DEFAULT_ARENA = 4 * M, 128 * M

SIZES = {128: "128 bytes", 16 * K: "16 KB", M: "1 MB"}
SCENARIOS = {"enqueue": "enqueue", "dequeue": "dequeue", "peek": "peek", "rw": "in turn", "spsc": "two threads",
             "mpmc": "2 + 2 threads", "durable": "durable"}
# The rows, in their order; those that check what they read have a star.
PEERS = {
    "mmq": "**mmq**\\*", "bigqueue": "bigqueue", "disk-queue": "disk-queue", "mmap-vecdeque": "mmap-vecdeque",
    "vmpq": "vmagent's persistentqueue", "yaque": "yaque", "tidwall-wal": "tidwall/wal", "queue-file": "queue-file",
    "walrus": "walrus\\*", "fjall": "fjall\\*", "goque": "goque\\*", "diskqueue": "go-diskqueue",
    "okaywal": "okaywal\\*", "redb": "redb\\*", "persistent-queue": "persistent-queue\\*", "khata": "khata",
    "SQLite": "SQLite", "LMDB": "LMDB"}
FLOORS = {"memcpy-mmap": "floor: memcpy alone, into a warm mapping",
          "memcpy-mmap-falloc": "floor: memcpy alone, into allocated space",
          "write-prealloc": "floor: write calls into allocated space"}


def about_now(directory, command, fingerprint):
    """The head of a section: where, when and how it is measured."""
    def output(*words):
        return subprocess.run(words, cwd=PROJECT, capture_output=True, text=True).stdout.strip()

    def field(file, name):
        with open(file) as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(name))

    machine = {"processor": field("/proc/cpuinfo", "model name"), "cores": os.cpu_count(),
               "kernel": platform.system() + " " + ".".join(platform.release().split(".")[:2]),
               "file system": output("findmnt", "-no", "FSTYPE", "-T", directory),
               "memory": f"{round(int(field('/proc/meminfo', 'MemTotal').split()[0]) / M)} GiB"}
    return {"machine": machine, "fingerprint": fingerprint, "date": datetime.date.today().isoformat(),
            "commit": output("git", "rev-parse", "--short=7", "HEAD"), "command": command}


def load():
    with open(JSON) as file:
        return json.load(file)


def save(figures):
    """One line for each row, so that a change shows what it changes."""
    def text(value, depth):
        if depth == 3 or not isinstance(value, (dict, list)):
            return json.dumps(value)
        pad = "\n" + " " * (depth + 1)
        members = ([json.dumps(key) + ": " + text(inner, depth + 1) for key, inner in value.items()]
                   if isinstance(value, dict) else [text(inner, depth + 1) for inner in value])
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return opening + pad + ("," + pad).join(members) + "\n" + " " * depth + closing

    with open(JSON, "w") as file:
        file.write(text(figures, 0) + "\n")


def short(ns):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")):
        if ns >= 0.9995 * unit or unit == 1:
            value = ns / unit
            return f"{value:.3g} {name}" if value < 9.995 else f"{value:.0f} {name}"


def times(ratio):
    return f"{ratio:.2f}" if ratio < 0.995 else f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}"


def loses(ratio):
    return ratio < 0.995


def cell(figures, scenario, size, arena=ARENA):
    """What each peer took: nanoseconds of one operation, and where it was kept, memory and disk."""
    for row in figures["peers"]["cells"]:
        if (row["scenario"], row["size"], row["arena"]) == (scenario, size, arena):
            return row
    return {"ns": {}}


def beside(ns, peer):
    """A peer's time with how many times as long as mmq it takes, in bold where mmq loses."""
    if peer not in ns:
        return "-"
    if peer == "mmq" or peer in FLOORS or "mmq" not in ns:
        return short(ns[peer])
    ratio = ns[peer] / ns["mmq"]
    text = f"{short(ns[peer])} ({times(ratio)})"
    return f"**{text}**" if loses(ratio) else text


def table(rows):
    line = lambda cells: "| " + " | ".join(str(cell) for cell in cells) + " |"
    head = "".join("| " + (str(cell) + " " if cell != "" else "") for cell in rows[0]) + "|"
    return [head, "|" + "---|" * len(rows[0])] + [line(row) for row in rows[1:]]


def machine(section):
    has = section["machine"]
    known = [has["processor"], f"{has['cores']} cores", has.get("kernel"), has.get("file system")]
    return ", ".join(filter(None, known))


def wrapped(text):
    """Lines of at most 100 columns; a command stays on one line."""
    text = re.sub("`.*?`", lambda code: code[0].replace(" ", "\0"), text)
    return [line.replace("\0", " ") for line in textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)]


def fingerprint(section):
    """A paragraph: what the machine's own operations take. (The section names the processor already.)"""
    taken = section.get("fingerprint", "").partition(": ")[2]
    return ["", *wrapped(f"The machine: {taken}.")] if taken else []


def about(figures, name):
    section = figures[name]
    memory = section["machine"].get("memory")
    where = machine(section) + (f", {memory} of memory" if memory else "")
    by = f", by `{section['command']}`" if "command" in section else ""
    return wrapped(f"Measured on {section['date']} at commit {section['commit']} on {where}{by}."
                   f" {section.get('note', '')}") + fingerprint(section)


def speed(figures):
    """The README's rows."""
    section = figures["peers"]
    columns = ["enqueue", "dequeue", "peek", "rw", "durable"]
    rows = [[""] + [SCENARIOS[scenario] for scenario in columns]]
    for size in (128, 16 * K):
        for peer in ("mmq", "bigqueue", "yaque"):
            rows.append([f"{peer}, {SIZES[size]}"] +
                        [beside(cell(figures, scenario, size)["ns"], peer) for scenario in columns])
    return wrapped(f"Medians of {section['date']} ({machine(section)}) beside two peers in the same run; in brackets, "
                   "how many times as long as mmq they take. mmq checks all it reads.") + [""] + table(rows)


def losses(figures, below="1"):
    """Where a peer is quicker, the worst first."""
    verbs = {"enqueue": "enqueues {}", "dequeue": "dequeues {}", "peek": "peeks {}",
             "rw": "enqueues and dequeues {} in turn", "spsc": "moves {} between two threads",
             "mpmc": "moves {} between four threads", "durable": "makes {} durable",
             "open": "opens anew", "reopen": "opens again"}
    found = {}
    for scenario, verb in verbs.items():
        for size, name in SIZES.items():
            if scenario in ("open", "reopen") and size != 128:
                continue
            ns = cell(figures, scenario, size)["ns"]
            for peer in PEERS:
                ratio = ns.get(peer, 1e99) / ns.get("mmq", 1)
                if loses(ratio) and ratio < float(below):
                    found.setdefault(peer, []).append((ratio, verb.format(name)))
    found = sorted((sorted(cases), peer) for peer, cases in found.items())
    texts = []
    for cases, peer in found:
        unchecked = "" if PEERS[peer].endswith("*") else " (unchecked)"
        cases = [f"{text} in {times(ratio)}" for ratio, text in cases]
        cases[0] += "" if texts or float(below) < 1 else " of the time of mmq"
        texts.append(f"{peer}{unchecked} {' and '.join(filter(None, [', '.join(cases[:-1]), cases[-1]]))}")
    return wrapped(("Where mmq loses" if float(below) >= 1 else f"Where a peer takes less than {below} of the time of mmq") + ": " + ("; ".join(texts) or "in none of these") + ".")


def peers(figures, size):
    size = int(size)
    rows = [[SIZES[size]] + [name if name != "in turn" else "enqueue and dequeue in turn" for name in SCENARIOS.values()]]
    for peer, name in {**PEERS, **FLOORS}.items():
        row = [beside(cell(figures, scenario, size)["ns"], peer) for scenario in SCENARIOS]
        if set(row) != {"-"}:
            rows.append([name] + row)
    return table(rows)


def opening(figures):
    rows = [["", "new", "filled, 128 bytes", "filled, 16 KB"]]
    for peer, name in PEERS.items():
        row = [beside(cell(figures, *which)["ns"], peer) for which in (("open", 128), ("reopen", 128), ("reopen", 16 * K))]
        if set(row) != {"-"}:
            rows.append([name] + row)
    return table(rows)


def default(figures):
    rows = [["", "128 bytes: time, resident, disk", "16 KB"]]
    for peer, name in PEERS.items():
        row = [name]
        for size in (128, 16 * K):
            one = cell(figures, "rw", size, DEFAULT_ARENA)
            row.append(f"{beside(one['ns'], peer)}, {one['resident'][peer] / M:.0f} MB, {one['disk'][peer] / M:.0f} MB"
                       if peer in one["ns"] else "-")
        if set(row[1:]) != {"-"}:
            rows.append(row)
    return table(rows)


def latency(figures):
    rows = figures["latency"]["rows"]
    return table([["us"] + list(next(iter(rows.values())))] +
                 [[name] + [f"{us:.3g}" if us < 99.5 else f"{us:.0f}" for us in values.values()] for name, values in rows.items()])


def mib(kib):
    return f"{kib} KiB" if kib < K else f"{kib / K:.2g} MiB" if kib < 100 * K else f"{kib / K:.0f} MiB"


def drained(figures):
    rows = [["arena", "mapped, at most", "resident: full", "most ever", "a second after it was drained"]]
    for row in figures["footprint"]["rows"]:
        if "full" in row:
            rows.append([row["name"]] + [mib(row[key]) for key in ("mapped", "full", "most", "drained")])
    return table(rows)


def idle(figures):
    rows = [["arena", "disk after one message", "after 200,000 messages", "resident after 200,000 messages"]]
    for row in figures["footprint"]["rows"]:
        if "idle disk" in row:
            rows.append([row["name"]] + [mib(row[key]) for key in ("first disk", "idle disk", "idle resident")])
    return table(rows)


def rows(figures, name):
    return table(figures[name]["rows"])


TEXTS = {text.__name__: text for text in (about, speed, losses, peers, opening, default, latency, drained, idle, rows)}


def document(figures, text):
    def made(found):
        name, *words = found[2].split()
        return "\n".join([found[1], *TEXTS[name](figures, *words), found[3]])

    return re.sub(r"(<!-- figures: (.*?) -->)\n.*?(<!-- end -->)", made, text, flags=re.DOTALL)


def main():
    import pictures
    figures, wrong = load(), []
    made = {}
    for name in DOCUMENTS:
        with open(os.path.join(PROJECT, name)) as file:
            made[name] = document(figures, file.read())
    for name, draw in pictures.PICTURES.items():
        made[f"docs/pictures/{name}.svg"] = draw(figures)
    for name, text in made.items():
        path = os.path.join(PROJECT, name)
        before = open(path).read() if os.path.exists(path) else ""
        if text != before:
            wrong.append(name)
            if "--check" in sys.argv:
                print("\n".join(difflib.unified_diff(before.splitlines(), text.splitlines(), name, "docs/figures.json", lineterm="", n=0)))
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write(text)
    if "--check" in sys.argv and wrong:
        sys.exit(f"{', '.join(wrong)}: not what docs/figures.json says; run benches/compare/figures.py")


if __name__ == "__main__":
    main()
