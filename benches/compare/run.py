#!/usr/bin/env python3
"""Runs mmq and its peers side by side and makes a table and a plot of the ratios.

    benches/compare/run.py [--peers ../shared/peers] [--set peers|matrix|all] [--rounds 5] [--quick] [--out DIR]
                           [--scenarios a,b] [--sizes 128,1024] [--only name,name]

It builds mmq's harness (`cargo build --release --example compare`), copies the peers' harnesses (Go and Rust) to a
scratch directory and builds them there; it names those that cannot be built. Every cell is run in rounds. In each round
every peer runs once, one after the other, each time from another one on, so that other work of the machine slows all.

A virtual machine may have given unused memory back to its host, and waits when that is touched again (8 us for 16 KiB,
measured). So before a run of more than 8 MiB the script touches several times as much memory, up to 1280 MiB.

Figures are medians; a ratio says how many times longer the peer takes than mmq. All runs go to OUT/runs.jsonl, the tables
to OUT/table.md, the plot to OUT/ratios.svg. With --table tables and plot are made from the runs there are.

Only Python's standard library is needed. The plot needs matplotlib, and is left out without it.
"""
import argparse, collections, json, math, os, platform, shutil, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
K, M = 1 << 10, 1 << 20

SCENARIOS = ["enqueue", "dequeue", "peek", "rw", "spsc", "mpmc", "durable", "open", "reopen"]
SIZES = [16, 128, K, 16 * K, 128 * K, M]
MMQ = ["mmq", "mmq-message", "mmq-skip", "mmq-batch"]
GO = ["bigqueue", "bigqueue-default", "diskqueue", "diskqueue-nsqd", "goque", "tidwall-wal", "vmpq", "vmpq-mem"]
RUST = ["khata", "yaque", "queue-file", "walrus", "okaywal", "fjall", "redb", "persistent-queue", "mmap-vecdeque", "disk-queue"]
FLOORS = ["memcpy-mmap", "memcpy-mmap-mutex", "memcpy-mmap-falloc", "memcpy-mmap-cold", "write-bufwriter", "write-prealloc"]
# These peers check a message when it is read. The others hand out whatever the file holds.
CHECKED = {"mmq", "mmq-message", "mmq-batch", "walrus", "fjall", "redb", "goque", "okaywal", "persistent-queue"}
# (Peers whose dequeue copies nothing would be compared with `mmq-skip`. None of these is one.)
# What mmq and bigqueue take where no option is set.
DEFAULT_ARENA = 128 * M
# bigqueue's matrix: arena, message, caps in arenas (0: none).
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


def build(options, scratch):
    """The program of each peer, by name."""
    programs = {}
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    made = subprocess.run(["cargo", "build", "--release", "--example", "compare"], cwd=PROJECT, **quiet)
    if made.returncode:
        sys.exit(made.stderr)
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target"))
    for name in MMQ:
        programs[name] = os.path.join(target, "release", "examples", "compare")
    if not os.path.isdir(options.peers):
        print(f"no peers in {options.peers}: mmq alone", file=sys.stderr)
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
    rust = copied("rust")
    environment = dict(os.environ, CARGO_TARGET_DIR=os.path.join(scratch, "rust-target"))
    made = subprocess.run(["cargo", "build", "--release", "--locked"], cwd=rust, env=environment, **quiet)
    if made.returncode:
        print(f"the Rust peers are left out: {made.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    else:
        for name in RUST + FLOORS:
            programs[name] = os.path.join(scratch, "rust-target", "release", "peerbench-rust")
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
    if options.set in ("peers", "all"):
        for scenario in scenarios or SCENARIOS:
            for size in sizes or SIZES:
                if (scenario == "open" and size != 128) or (scenario == "reopen" and size not in (128, 16 * K)):
                    continue
                floors = FLOORS if scenario in ("enqueue", "dequeue", "peek", "rw", "durable") else []
                cells.append(((scenario, size, 4 * M, 0, "2,2"), wanted(MMQ[:2] + GO + RUST + floors)))
                if scenario == "rw" and size <= 16 * K:
                    # As a user has it who sets no option.
                    cells.append(((scenario, size, DEFAULT_ARENA, 0, "2,2"), wanted(MMQ[:2] + GO + RUST)))
    if options.set in ("matrix", "all"):
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


def short(ns):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            return f"{ns / unit:.3g} {name}"
    return f"{ns:.3g} ns"


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
        say("In brackets: how many times longer than mmq, wall / processor time (below 1: mmq is slower). * checks what it reads.")
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
                        values.append(short(other) + space)
                    else:
                        by = cpu.get((cell, peer), math.nan) / (cpu.get((cell, "mmq")) or math.nan)
                        values.append(f"{short(other)} ({other / mine:.3g} / {by:.3g}){space}")
                if any(value != "-" for value in values):
                    say(f"| {peer}{'*' if peer in CHECKED else ''} | " + " | ".join(values) + " |")
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
                say(f"| {cell[0]} | {human(cell[2])} | {human(cell[1])} | {human(cell[3]) if cell[3] else 'none'} | {short(mine)} | "
                    f"{short(other)} | {other / mine:.3g} | "
                    f"{cpu.get((cell, 'bigqueue'), math.nan) / (cpu.get((cell, 'mmq')) or math.nan):.3g} | "
                    f"{f'{other / skip:.3g}' if skip else ''} | {f'{min(floors) / mine:.3g}' if floors else ''} |")
    return wall, rest, peers


def plot(wall, cells, peers, picture):
    """Ratios of every peer, by scenario and size, as a map of colours."""
    rows = [peer for peer in peers if peer not in MMQ and peer not in FLOORS]
    ratio = lambda cell, peer: wall[cell, peer] / wall[cell, "mmq"] if (cell, peer) in wall and (cell, "mmq") in wall else math.nan
    values = [[ratio(cell, peer) for cell in cells] for peer in rows]
    names = [f"{cell[0]} {human(cell[1])}{' default' if cell[2] == DEFAULT_ARENA else ''}" for cell in cells]
    if not rows or not cells:
        return
    try:
        import matplotlib
        matplotlib.use("svg")
        import matplotlib.pyplot as pyplot
        from matplotlib.colors import TwoSlopeNorm
    except ImportError:
        return plot_by_hand(rows, names, values, picture)
    figure, axes = pyplot.subplots(figsize=(2 + 0.42 * len(names), 2 + 0.34 * len(rows)))
    logs = [[math.log10(value) if value == value else math.nan for value in row] for row in values]
    image = axes.imshow(logs, cmap="RdYlGn", norm=TwoSlopeNorm(0, -1, 3), aspect="auto")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value == value:
                axes.text(x, y, f"{value:.2g}" if value < 100 else f"{value:.0f}", ha="center", va="center", fontsize=5)
    figure.colorbar(image, label="times longer than mmq, power of ten")
    figure.tight_layout()
    figure.savefig(picture)


def plot_by_hand(rows, names, values, picture):
    left, top, wide, high = 130, 120, 34, 18
    colour = lambda v: "#eee" if v != v else f"hsl({max(0, min(120, 60 + 40 * math.log10(v))):.0f} 60% 70%)"
    with open(picture, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + wide * len(names) + 10}" '
                   f'height="{top + high * len(rows) + 10}" font-family="sans-serif" font-size="9">\n'
                   '<rect width="100%" height="100%" fill="white"/>\n')
        for x, name in enumerate(names):
            at = left + wide * x + wide / 2
            file.write(f'<text x="{at}" y="{top - 6}" transform="rotate(-60 {at} {top - 6})">{name}</text>\n')
        for y, (row, line) in enumerate(zip(rows, values)):
            file.write(f'<text x="{left - 6}" y="{top + high * y + 13}" text-anchor="end">{row}</text>\n')
            for x, value in enumerate(line):
                file.write(f'<rect x="{left + wide * x}" y="{top + high * y}" width="{wide}" height="{high}" fill="{colour(value)}"/>')
                if value == value:
                    file.write(f'<text x="{left + wide * x + wide / 2}" y="{top + high * y + 12}" text-anchor="middle">{value:.2g}</text>\n')
        file.write("</svg>\n")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--peers", default=os.path.join(PROJECT, "..", "shared", "peers"))
    options.add_argument("--scratch", default=os.path.join(tempfile.gettempdir(), "mmq-compare"))
    options.add_argument("--out", default=None)
    options.add_argument("--set", default="all", choices=["peers", "matrix", "all"])
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
    options.out = options.out or os.path.join(options.scratch, "out")
    os.makedirs(options.out, exist_ok=True)
    runs = os.path.join(options.out, "runs.jsonl")
    if not options.table:
        measure(options, build(options, options.scratch), plan(options), runs)
    wall, cells, peers = tables(runs, os.path.join(options.out, "table.md"))
    plot(wall, cells, peers, os.path.join(options.out, "ratios.svg"))
    print(os.path.join(options.out, "table.md"))


if __name__ == "__main__":
    main()
