#!/usr/bin/env python3
"""Measures mmq, beside its peers and alone, and writes docs/figures.json.

    benches/compare/run.py [--set peers,matrix,latency,footprint,outage] [--publish] [--rounds 5] [--seconds 0.2] [--quick]
                           [--only name,name] [--scenarios a,b] [--sizes 128,1024] [--peers DIR] [--out DIR]

The peers: it builds mmq's harness (`cargo build --release --example compare`) and that of SQLite and LMDB (`stores/`),
copies the other peers' harnesses (Go and Rust, in the directory of --peers) to a scratch directory and builds them there;
it names those that cannot be built. Every cell is run in rounds. In each round every peer runs once, one after the
other, each time from another one on, so that other work of the machine slows all.

A virtual machine may have given unused memory back to its host, and waits when that is touched again (8 us for 16 KiB,
measured). So before a run of more than 8 MiB the script touches several times as much memory, up to 1280 MiB.

Figures are medians; a ratio says how many times longer the peer takes than mmq. All runs go to OUT/runs.jsonl, the tables
to OUT/table.md. With --table the tables are made from the runs there are.

`latency`, `footprint` and `outage` run mmq's examples of these names.

It first prints the machine's fingerprint, as every benchmark does (benches/support/fingerprint.rs).

With --publish each set that was measured takes the place of its section in docs/figures.json, and figures.py makes the
documents' tables and pictures anew. Only Python's standard library is needed.
"""
import argparse, collections, json, math, os, platform, re, shutil, statistics, subprocess, sys, tempfile, time

sys.dont_write_bytecode = True
import figures

PROJECT, K, M, ARENA, DEFAULT_ARENA = figures.PROJECT, figures.K, figures.M, figures.ARENA, figures.DEFAULT_ARENA

SCENARIOS = ["enqueue", "dequeue", "peek", "rw", "spsc", "mpmc", "durable", "open", "reopen"]
SIZES = [16, 128, K, 16 * K, 128 * K, M]
MMQ = ["mmq", "mmq-message", "mmq-skip", "mmq-batch"]
GO = ["bigqueue", "bigqueue-default", "diskqueue", "diskqueue-nsqd", "goque", "tidwall-wal", "vmpq", "vmpq-mem"]
RUST = ["khata", "yaque", "queue-file", "walrus", "okaywal", "fjall", "redb", "persistent-queue", "mmap-vecdeque", "disk-queue"]
STORES = ["SQLite", "LMDB"]
FLOORS = ["memcpy-mmap", "memcpy-mmap-mutex", "memcpy-mmap-falloc", "memcpy-mmap-cold", "write-bufwriter", "write-prealloc"]
# Of bigqueue's matrix (benches/support/cells.rs has all of it): arena, message, caps in arenas (0: none).
MATRIX = [
    (4 * K, 128, (3, 10, 0)), (4 * K, 16 * K, (10, 0)), (4 * K, M, (0,)),
    (128 * K, 128, (3, 0)), (128 * K, 4 * K, (3, 10, 0)), (128 * K, 16 * K, (3, 0)), (128 * K, M, (3, 0)),
    (4 * M, 128, (3, 0)), (4 * M, 16 * K, (3, 0)), (4 * M, 128 * K, (3, 10, 0)), (4 * M, M, (3, 0)),
    (128 * M, 128, (3, 0)), (128 * M, 16 * K, (0,)), (128 * M, M, (0,)), (128 * M, 4 * M, (3, 10, 0)),
]
MATRIX_SCENARIOS = ["enqueue", "dequeue", "peek", "parallel"]


def human(n):
    for unit, name in ((1 << 30, "GB"), (M, "MB"), (K, "KB")):
        if n >= unit:
            return f"{n / unit:g}{name}"
    return f"{n}B"


def human_mb(bytes):
    return f"{bytes / M:.0f} MB"


def example(name):
    """The program of one of mmq's examples, built."""
    made = subprocess.run(["cargo", "build", "--release", "--example", name], cwd=PROJECT, capture_output=True, text=True)
    if made.returncode:
        sys.exit(made.stderr)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target"))
    return os.path.join(target, "release", "examples", name)


def build(options, scratch):
    """The program of each peer, by name."""
    programs = {}
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    programs.update(dict.fromkeys(MMQ, example("compare")))

    def cargo(where, target, names, program):
        environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(scratch, target))
        made = subprocess.run(["cargo", "build", "--release", "--locked"], cwd=where, env=environment, **quiet)
        if made.returncode:
            print(f"{program} left out: {made.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        else:
            programs.update(dict.fromkeys(names, os.path.join(scratch, target, "release", program)))

    cargo(os.path.join(PROJECT, "benches", "compare", "stores"), "stores-target", STORES, "stores")
    if not os.path.isdir(options.peers):
        print(f"no other peers in {options.peers}", file=sys.stderr)
        return programs

    def copied(name):
        to = os.path.join(scratch, name)
        if not os.path.isdir(to):
            shutil.copytree(os.path.join(options.peers, name), to)
            subprocess.run(["chmod", "-R", "u+w", to], check=True)
        return to

    go = copied("go")
    for where, output in ((go, "peerbench-go"), (os.path.join(go, "vmpq"), "peerbench-go-vmpq")):
        made = subprocess.run(["go", "build", "-o", os.path.join(scratch, output), "."], cwd=where, **quiet)
        if made.returncode:
            print(f"{output} left out: {made.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            continue
        for name in GO:
            if name.startswith("vmpq") == output.endswith("vmpq"):
                programs[name] = os.path.join(scratch, "peerbench-go")
    cargo(copied("rust"), "rust-target", RUST + FLOORS, "peerbench-rust")
    return programs


def touch_memory(data, wanted):
    """Fills a file and removes it. Afterwards the kernel has free pages with the host's memory behind them."""
    name = os.path.join(data, "touched")
    with open(name, "wb", buffering=0) as file:
        for _ in range(wanted // M + 1):
            file.write(bytes(M))
    os.unlink(name)


def run(program, peer, cell, n, data):
    scenario, size, arena, cap, threads = cell
    command = [program, "--peer", peer, "--scenario", scenario, "--size", str(size), "--n", str(n), "--dir", data,
               "--arena", str(arena), "--cap", str(cap), "--threads", threads]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        result = {"ns_per_op": None, "note": f"failed: {type(error).__name__}"}
    result.update(peer=peer, scenario=scenario, size=size, n=n, arena=arena, cap=cap, threads_arg=threads,
                  load=os.getloadavg()[0])
    return result


def key(result):
    return result["scenario"], result["size"], result["arena"], result["cap"], result["threads_arg"]


def count(cell, program, peer, data, seconds):
    """How many operations take about `seconds`, at most 256 MiB of messages; and a first run, if it failed."""
    scenario, size = cell[0], cell[1]
    if scenario == "open":
        return 20, None
    most = max(16, (256 * M) // (size + 64))
    if scenario == "reopen":
        return max(16, min(most // 4, 20000)), None
    if scenario == "peek":
        most = 1000000
    first = 20 if scenario == "durable" else max(20, min(20000, (4 * M) // size))
    result = run(program, peer, cell, min(first, 20), data)
    if result["ns_per_op"] is None:
        return 0, result
    # The time includes that of opening, shared by 20.
    if first > 20 and result["ns_per_op"] < 2e7:
        result = run(program, peer, cell, first, data)
        if result["ns_per_op"] is None:
            return 0, result
    wanted = int(seconds * 1e9 / max(result["ns_per_op"], 1))
    n = max(20, min(wanted, most, 1500000))
    if scenario in ("spsc", "mpmc", "parallel"):
        # Longer than the start of the threads takes, however quick the first operations were.
        n = max(n, min(20000, (16 * M) // size))
    return n, None


def measure(options, programs, cells, out):
    data = os.path.join(options.scratch, "data")
    os.makedirs(data, exist_ok=True)
    with open(out, "a") as file:
        def keep(result):
            file.write(json.dumps(result) + "\n")
            file.flush()

        for cell, peers in cells:
            began = time.time()
            sized = []
            for peer in peers:
                if peer not in programs:
                    continue
                n, refused = count(cell, programs[peer], peer, data, options.seconds)
                keep(refused) if refused else sized.append((peer, n))
            size, arena = cell[1], cell[2]
            for turn in range(options.rounds):
                first = turn % len(sized)
                for peer, n in sized[first:] + sized[:first]:
                    if n * size >= 8 * M:
                        touch_memory(data, min(max(4 * (n * size + 2 * arena), 256 * M), 1280 * M))
                    keep(run(programs[peer], peer, cell, n, data))
            print(f"{cell} {len(sized)} peers {time.time() - began:.0f} s", file=sys.stderr)


def plan(options):
    cells = []
    only = options.only.split(",") if options.only else None

    def wanted(names):
        return [name for name in names if not only or name in only or name == "mmq"]

    scenarios = options.scenarios.split(",") if options.scenarios else None
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else None
    if "peers" in options.set:
        for scenario in scenarios or SCENARIOS:
            for size in sizes or SIZES:
                if (scenario == "open" and size != 128) or (scenario == "reopen" and size not in (128, 16 * K)):
                    continue
                floors = FLOORS if scenario in ("enqueue", "dequeue", "peek", "rw", "durable") else []
                cells.append(((scenario, size, ARENA, 0, "2,2"), wanted(MMQ[:2] + STORES + GO + RUST + floors)))
                if scenario == "rw" and size <= 16 * K:
                    # As a user has it who sets no option.
                    cells.append(((scenario, size, DEFAULT_ARENA, 0, "2,2"), wanted(MMQ[:2] + STORES + GO + RUST)))
    if "matrix" in options.set:
        for arena, size, caps in MATRIX:
            for cap in caps:
                for scenario in scenarios or MATRIX_SCENARIOS:
                    names = ["mmq", "bigqueue"] + (["mmq-skip"] if scenario == "dequeue" else [])
                    if scenario == "enqueue":
                        names += ["memcpy-mmap-falloc", "write-bufwriter", "write-prealloc"]
                    cells.append(((scenario, size, arena, cap * arena, "1,1"), wanted(names)))
    return cells


def medians(out, field):
    groups = collections.defaultdict(list)
    for line in open(out):
        result = json.loads(line)
        if result.get(field) is not None:
            groups[key(result), result["peer"]].append(result[field])
    return {cell: statistics.median(values) for cell, values in groups.items()}


def tables(out, text):
    wall, cpu = medians(out, "ns_per_op"), medians(out, "cpu_ns_per_op")
    memory, disk = medians(out, "peak_rss_kb"), medians(out, "disk_bytes")
    cells = list(dict.fromkeys(cell for cell, _ in wall))
    peers = list(dict.fromkeys(peer for _, peer in wall))
    matrix = [cell for cell in cells if cell[4] == "1,1"]
    rest = [cell for cell in cells if cell[4] != "1,1"]
    with open(text, "w") as file:
        say = lambda line="": print(line, file=file)
        say(f"Medians. {platform.platform()}, {os.cpu_count()} processors. `benches/compare/run.py`")
        say("In brackets: how many times longer than mmq, wall / processor time (below 1: mmq is slower).")
        for scenario, arena in dict.fromkeys((cell[0], cell[2]) for cell in rest):
            columns = [cell for cell in rest if (cell[0], cell[2]) == (scenario, arena)]
            is_default = arena == DEFAULT_ARENA
            say(f"\n**{scenario}{', default arenas: time, resident memory, disk' if is_default else ''}**\n")
            say("| | " + " | ".join(human(cell[1]) for cell in columns) + " |")
            say("|---|" + "---|" * len(columns))
            for peer in peers:
                values = []
                for cell in columns:
                    mine, other = wall.get((cell, "mmq")), wall.get((cell, peer))
                    space = (f", {human_mb(memory[cell, peer] * K)}, {human_mb(disk[cell, peer])}"
                             if is_default and (cell, peer) in memory and (cell, peer) in disk else "")
                    if other is None:
                        values.append("-")
                    elif peer == "mmq" or mine is None:
                        values.append(figures.short(other) + space)
                    else:
                        by = cpu.get((cell, peer), math.nan) / (cpu.get((cell, "mmq")) or math.nan)
                        values.append(f"{figures.short(other)} ({other / mine:.3g} / {by:.3g}){space}")
                if any(value != "-" for value in values):
                    say(f"| {peer} | " + " | ".join(values) + " |")
        if matrix:
            say("\n**bigqueue's matrix: bigqueue / mmq, wall and processor time; floor / mmq the cheapest way into fresh space**\n")
            say("| scenario | arena | message | cap | mmq | bigqueue | ratio | by processor time | skip ratio | floor / mmq |")
            say("|---|---|---|---|---|---|---|---|---|---|")
            for cell in sorted(matrix, key=lambda cell: MATRIX_SCENARIOS.index(cell[0])):
                mine, other = wall.get((cell, "mmq")), wall.get((cell, "bigqueue"))
                if mine is None or other is None:
                    continue
                skip = wall.get((cell, "mmq-skip"))
                floors = [value for (at, peer), value in wall.items() if at == cell and peer in FLOORS]
                say(f"| {cell[0]} | {human(cell[2])} | {human(cell[1])} | {human(cell[3]) if cell[3] else 'none'} | {figures.short(mine)} | "
                    f"{figures.short(other)} | {other / mine:.3g} | "
                    f"{cpu.get((cell, 'bigqueue'), math.nan) / (cpu.get((cell, 'mmq')) or math.nan):.3g} | "
                    f"{f'{other / skip:.3g}' if skip else ''} | {f'{min(floors) / mine:.3g}' if floors else ''} |")


def peers_section(out):
    """The median of each cell, and what a queue with default options takes of memory and disk."""
    wall, memory, disk = (medians(out, field) for field in ("ns_per_op", "peak_rss_kb", "disk_bytes"))
    cells = []
    for at in dict.fromkeys(at for at, _ in wall if at[4] == "2,2"):
        of = lambda values: {peer: round(value, 1) for (cell, peer), value in values.items() if cell == at}
        cells.append({"scenario": at[0], "size": at[1], "arena": at[2], "ns": of(wall)})
        if at[2] == DEFAULT_ARENA:
            cells[-1].update(resident={peer: kib * K for peer, kib in of(memory).items()}, disk=of(disk))
    return {"cells": cells} if cells else {}


def matrix_section(out):
    """How many times longer bigqueue takes, in short."""
    wall = medians(out, "ns_per_op")
    cells = [at for at, peer in wall if at[4] == "1,1" and peer == "bigqueue" and (at, "mmq") in wall]
    groups = [("4 KB and 128 KB arenas", lambda arena: arena < ARENA), ("4 MB and 128 MB arenas", lambda arena: arena >= ARENA)]
    rows = [[""]]
    for name, holds in groups:
        count = len({at[1:] for at in cells if holds(at[2])})
        rows[0].append(f"{name} ({count} cells)")
    for scenario in MATRIX_SCENARIOS:
        rows.append(["its Parallel test" if scenario == "parallel" else scenario])
        for _, holds in groups:
            ratios = sorted(wall[at, "bigqueue"] / wall[at, "mmq"] for at in cells if at[0] == scenario and holds(at[2]))
            below = [(sum(ratio < most for ratio in ratios), word) for most, word in ((10, "ten"), (3, "three"))]
            text = "".join(f", {count if count < len(ratios) else 'all'} below {word}" for count, word in below if count)
            rows[-1].append(f"{figures.times(ratios[0])} to {figures.times(ratios[-1])} times{text}" if ratios else "-")
    return {"rows": rows} if cells else {}


def output(name, *words):
    return subprocess.run([example(name), *map(str, words)], check=True, capture_output=True, text=True).stdout


def latency_section(options):
    words = ["--seconds", 5 if options.quick else 60, "--dir", options.scratch]
    lines = [line.strip("| ").split(" | ") for line in output("latency", *words).splitlines() if line.startswith("| ")]
    rows = {name: dict(zip(lines[0][1:], map(float, values))) for name, *values in lines[1:]}
    # A minute has 6 million messages: one in a million says little.
    return {"rows": {name: {at: us for at, us in row.items() if at != "p99.9999"} for name, row in rows.items()}}


def footprint_section(options):
    directory, rows = os.path.join(options.scratch, "footprint"), []

    def runs(*words):
        shutil.rmtree(directory, ignore_errors=True)
        text = output("footprint", words[0], directory, *words[1:])
        shutil.rmtree(directory)
        found = re.findall(r"^(.*): resident (\d+) KiB .*most ever (\d+).* mapped (\d+) KiB, disk (\d+) KiB", text, re.MULTILINE)
        return [dict(zip(("resident", "most", "mapped", "disk"), map(int, line[1:]))) for line in found]

    for arena in ("64K", "256K", "1M", "4M", "16M", "128M"):
        once = runs("idle", f"arena={arena}", "count=1")[0]
        # How many spare segments there are at a moment is chance: the most of nine.
        idle = [runs("idle", f"arena={arena}", "count=200000")[0] for _ in range(9)]
        idle = {key: max(one[key] for one in idle) for key in ("disk", "resident")}
        full, drained, later = runs("drain", f"arena={arena}", "backlog=64M")
        name = arena[:-1] + (" KiB" if arena[-1] == "K" else " MiB") + (" (default)" if arena == "128M" else "")
        rows.append({"name": name, "arena": int(arena[:-1]) * (1 if arena[-1] == "K" else K), "mapped": full["mapped"],
                     "full": full["resident"], "most": max(full["most"], later["most"]), "drained": later["resident"],
                     "first disk": once["disk"], "idle disk": idle["disk"], "idle resident": idle["resident"]})
    return {"rows": rows}


def outage_section(options):
    rows = collections.defaultdict(lambda: {"waiting": [], "age": []})
    for name, values in (line.split(": ") for line in output("outage").splitlines()):
        if values.endswith(" dropped"):
            rows[name]["dropped"] = int(values.split()[0])
        else:
            rows[name]["waiting"].append(int(values.split()[1]))
            rows[name]["age"].append(round(float(values.split()[2]), 2))
    return {"rows": rows}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peers", default=os.environ.get("MMQ_PEERS", "none"), help="the sources of the peers' harnesses")
    options.add_argument("--scratch", default=os.path.join(tempfile.gettempdir(), "mmq-compare"))
    options.add_argument("--out", default=None)
    options.add_argument("--set", default="peers,matrix")
    options.add_argument("--publish", action="store_true")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0.2)
    options.add_argument("--scenarios", default="")
    options.add_argument("--sizes", default="")
    options.add_argument("--only", default="")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--table", action="store_true")
    options = options.parse_args()
    if options.quick:
        options.rounds, options.seconds = min(options.rounds, 3), min(options.seconds, 0.05)
    options.set = options.set.split(",")
    options.out = options.out or os.path.join(options.scratch, "out")
    os.makedirs(options.out, exist_ok=True)
    runs = os.path.join(options.out, "runs.jsonl")
    os.makedirs(options.scratch, exist_ok=True)
    fingerprint = output("compare", "--peer", "fingerprint", "--dir", options.scratch).strip()
    print(fingerprint)
    sections = {}
    if {"peers", "matrix"} & set(options.set):
        if not options.table:
            measure(options, build(options, options.scratch), plan(options), runs)
        tables(runs, os.path.join(options.out, "table.md"))
        print(os.path.join(options.out, "table.md"))
    for name in options.set:
        section = {"peers": lambda: peers_section(runs), "matrix": lambda: matrix_section(runs), "latency": lambda: latency_section(options),
                   "footprint": lambda: footprint_section(options), "outage": lambda: outage_section(options)}[name]()
        if section:
            sections[name] = {**figures.about_now(options.scratch, shown(), fingerprint), **section}
    if options.publish:
        # A section is replaced as a whole: its cells are of one machine and one day.
        figures.save({**figures.load(), **sections})
        figures.main()
    else:
        print(json.dumps({name: section for name, section in sections.items() if "cells" not in section}, indent=1))


def shown():
    """The command without what says where to keep things."""
    words = " ".join(word for word in sys.argv[1:] if word not in ("--publish", "--table"))
    return re.sub(r" +--(out|scratch|peers) \S+", "", f"benches/compare/run.py {words}")


if __name__ == "__main__":
    main()
