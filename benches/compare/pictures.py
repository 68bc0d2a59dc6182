"""The pictures of the documents, as SVG: docs/pictures/NAME.svg. All but the model show docs/figures.json.

figures.py writes them. Colours are those of Okabe and Ito, which colour-blind people tell apart; series differ by their
marks, too. Only Python's standard library is needed.
"""
import math

import figures as made

WIDTH = 900
BLUE, ORANGE, GREEN, RED, SKY, BLACK, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#222222", "#666666"
PALE = "#DDDDDD"


def escape(text):
    return str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Svg:
    def __init__(self, height, title, source=None):
        """A white page with a title, and at its foot where the figures are from."""
        self.height, self.parts = height, []
        self.parts.append(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                          f'height="{height}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="13" role="img">')
        self.parts.append(f"<title>{escape(title)}</title>")
        self.rect(0, 0, WIDTH, height, "white")
        self.text(20, 30, title, size=17, weight="bold")
        if source:
            self.text(20, height - 14, source, size=11.5, colour=GREY)

    def text(self, x, y, text, colour=BLACK, size=13, anchor="start", weight="normal", turn=0):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        bold = f' font-weight="{weight}"' if weight != "normal" else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"'
                          f'{bold}{turned}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, colour=PALE, width=1.0, dash="", arrow=False):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-width="{width}"{dashed}/>')
        if arrow:
            angle = math.atan2(y2 - y1, x2 - x1)
            wing = lambda turn: f"{x2 - 11 * math.cos(angle + turn):.1f},{y2 - 11 * math.sin(angle + turn):.1f}"
            self.parts.append(f'<polygon points="{x2:.1f},{y2:.1f} {wing(0.42)} {wing(-0.42)}" fill="{colour}"/>')

    def rect(self, x, y, width, height, fill, stroke="none", radius=0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}" '
                          f'stroke="{stroke}" rx="{radius}"{dashed}/>')

    def mark(self, x, y, kind, colour, size=5.0):
        if kind == "circle":
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>')
            return
        corners = {"diamond": [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)], "square": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
                   "triangle": [(0, -1.25), (1.2, 1), (-1.2, 1)]}[kind]
        points = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
        self.parts.append(f'<polygon points="{points}" fill="{colour}"/>')

    def path(self, points, colour, width=2.0, dash=""):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{width}"{dashed} points="'
                          + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')

    def done(self):
        return "\n".join(self.parts) + "\n</svg>\n"


def source(section):
    return f"{made.machine(section)} · {section['date']} · {section['command']}"


def scale(low, high, start, end, log=False):
    """Where a value stands between two points of the page."""
    of = math.log10 if log else float
    return lambda value: start + (end - start) * (of(value) - of(low)) / (of(high) - of(low))


def model(_):
    svg = Svg(304, "A queue is a directory: messages go in at the tail, each consumer has a place of its own")
    svg.rect(20, 112, 860, 106, "#F7F7F7", GREY, 6)
    svg.text(34, 136, "spool/", weight="bold")
    svg.rect(34, 152, 116, 48, "white", GREY, 4, "5 4")
    svg.text(92, 172, "read by all:", GREY, 12, "middle")
    svg.text(92, 189, "given back", GREY, 12, "middle")
    mail, audit, tail = 252, 481, 754
    for at, name in ((170, "segment-00000000"), (390, "segment-00000001"), (610, "segment-00000002")):
        svg.text(at + 4, 143, name, BLACK, 12.5)
        svg.rect(at, 152, 204, 48, "white", BLACK, 4)
        for x in range(at + 3, min(at + 195, tail), 12):
            svg.rect(x, 158, 9, 36, "#E2E2E2" if x < mail else "#A5D6F2" if x < audit else BLUE)
    svg.text(824, 143, "index", BLACK, 12.5)
    svg.rect(824, 152, 46, 48, "white", BLACK, 4)
    for row in range(4):
        svg.line(831, 162 + 9 * row, 863, 162 + 9 * row, GREY, 2)
    svg.text(tail + 7, 66, "producers", GREEN, 14, "middle", "bold")
    svg.line(tail + 7, 74, tail + 7, 150, GREEN, 2.5, arrow=True)
    svg.text(tail - 4, 98, "enqueue at the tail", GREEN, 12.5, "end")
    texts = ["its place is the lowest: what lies", "before it is given back to the disk"], ["has read the pale messages, too"]
    for name, at, lines in (("mail", mail, texts[0]), ("audit", audit, texts[1])):
        svg.line(at, 200, at, 238, RED, 2.5, arrow=True)
        svg.text(at, 256, f'consumer "{name}"', RED, 14, "middle", "bold")
        for row, line in enumerate(lines):
            svg.text(at, 274 + 16 * row, line, BLACK, 12, "middle")
    svg.text(870, 240, "the index holds the places;", BLACK, 12, "end")
    svg.text(870, 256, "it is rebuilt if it is lost", BLACK, 12, "end")
    return svg.done()


def speed(figures):
    section = figures["peers"]
    panels = [("enqueue", "enqueue"), ("dequeue", "dequeue"), ("rw", "in turn"), ("durable", "durable enqueue")]
    kinds = [(128, "circle", BLUE), (16 * made.K, "diamond", RED)]
    ratios = {}
    for scenario, _ in panels:
        for size, _, _ in kinds:
            ns = made.cell(figures, scenario, size)["ns"]
            for peer in made.PEERS:
                if peer in ns and peer != "mmq" and "mmq" in ns:
                    ratios[peer, scenario, size] = ns[peer] / ns["mmq"]
    logs = lambda peer: [math.log(ratio) for (name, *_), ratio in ratios.items() if name == peer]
    peers = sorted({peer for peer, *_ in ratios if len(logs(peer)) > 1}, key=lambda peer: sum(logs(peer)) / len(logs(peer)))
    top, row, left, wide, between = 128, 24, 200, 162, 10
    bottom = top + row * len(peers)
    svg = Svg(bottom + 72, "Other queues beside mmq: right of the line they take longer", source(section))
    for at, (size, kind, colour) in enumerate(kinds):
        svg.mark(left + 8 + 240 * at, 58, kind, colour)
        svg.text(left + 20 + 240 * at, 62.5, f"messages of {made.SIZES[size]}")
    svg.line(left + 480, 58, left + 500, 58, BLACK, 2)
    svg.text(left + 508, 62.5, "mmq")
    least, most = min(0.5, 0.9 * min(ratios.values())), 10 ** math.ceil(math.log10(max(ratios.values())))
    for at, peer in enumerate(peers):
        y = top + row * at + row / 2
        svg.text(left - 12, y + 4.5, made.PEERS[peer].replace("\\*", ""), anchor="end")
    for panel, (scenario, title) in enumerate(panels):
        x0 = left + panel * (wide + between)
        x = scale(least, most, x0 + 6, x0 + wide - 8, log=True)
        svg.rect(x0, top - 4, wide, bottom - top + 8, "none", PALE)
        svg.text(x0 + wide / 2, 92, title, anchor="middle", weight="bold", size=14)
        mine = [made.cell(figures, scenario, size)["ns"].get("mmq") for size, *_ in kinds]
        svg.text(x0 + wide / 2, 111, "mmq: " + ", ".join(made.short(ns) for ns in mine if ns), GREY, 11.5, "middle")
        for power in range(int(math.log10(most)) + 1):
            svg.line(x(10 ** power), top - 4, x(10 ** power), bottom + 4, BLACK if power == 0 else PALE, 2 if power == 0 else 1)
            svg.text(x(10 ** power), bottom + 20, f"{10 ** power:,}" if power < 4 else "10" + "⁴⁵⁶⁷⁸⁹"[power - 4], GREY, 11, "middle")
        for at, peer in enumerate(peers):
            y = top + row * at + row / 2
            if at:
                svg.line(x0, y - row / 2, x0 + wide, y - row / 2, "#F0F0F0")
            there = [(ratios[peer, scenario, size], kind, colour) for size, kind, colour in kinds if (peer, scenario, size) in ratios]
            for ratio, kind, colour in there:
                svg.mark(x(ratio), y + (3.5 if kind == "diamond" else -3.5), kind, colour, 4.4)
            if not there:
                svg.text(x0 + wide / 2, y + 4, "–", GREY, 11, "middle")
    svg.text(left + (4 * wide + 3 * between) / 2, bottom + 38, "times as long as mmq, logarithmic", anchor="middle", size=12)
    return svg.done()


def latency(figures):
    section = figures["latency"]
    rows = section["rows"]
    styles = {"delivered, from when due": (RED, "triangle", ""), "enqueued, from when due": (BLUE, "circle", ""),
              "enqueue call": (GREEN, "diamond", ""), "witness: copied, from when due": (BLACK, "square", "6 4")}
    names = list(rows["enqueue call"])
    left, right, top, bottom = 90, 870, 122, 400
    svg = Svg(474, "Latency at 100,000 messages of 140 bytes a second, put in and taken out by two threads", source(section))
    most = max(max(row.values()) for row in rows.values())
    y = scale(0.01, 10 ** math.ceil(math.log10(most)), bottom, top, log=True)
    x = scale(0, len(names) - 1, left + 20, right - 20)
    for power in range(-2, math.ceil(math.log10(most)) + 1):
        svg.line(left, y(10.0 ** power), right, y(10.0 ** power))
        label = f"{10 ** (power + 3)} ns" if power < 0 else f"{10 ** power} us" if power < 3 else f"{10 ** (power - 3)} ms" if power < 6 else f"{10 ** (power - 6)} s"
        svg.text(left - 8, y(10.0 ** power) + 4.5, label, GREY, 12, "end")
    for at, name in enumerate(names):
        svg.text(x(at), bottom + 22, name, BLACK, 12.5, "middle")
    svg.text((left + right) / 2, bottom + 42, "part of the messages that took at most so long", size=12, anchor="middle")
    for at, (name, (colour, kind, dash)) in enumerate(styles.items()):
        if name not in rows:
            continue
        points = [(x(place), y(rows[name][part])) for place, part in enumerate(names)]
        svg.path(points, colour, 2, dash)
        for place in points:
            svg.mark(*place, kind, colour, 4.5)
        legend = left + 320 * (at % 2), 60 + 24 * (at // 2)
        svg.line(*legend, legend[0] + 34, legend[1], colour, 2, dash)
        svg.mark(legend[0] + 17, legend[1], kind, colour, 4.5)
        text = f"mmq: {name}" if "witness" not in name else "witness without mmq: copied in memory, from when due"
        svg.text(legend[0] + 44, legend[1] + 4.5, text)
    return svg.done()


def outage(figures):
    section = figures["outage"]
    rows = section["rows"]
    seconds = len(rows["in order"]["waiting"])
    svg = Svg(600, "A link is down for a minute: what waits for it, and how old its newest news is",
              f"20 readings a second; the link sends 60 · computed, the same on every machine · {section['date']} · {section['command']}")
    left, right = 70, 870
    x = scale(0, seconds, left, right)

    def panel(top, bottom, title, most, step):
        svg.rect(x(10), top, x(70) - x(10), bottom - top, "#F3F0E6")
        svg.text((x(10) + x(70)) / 2, top + 18, "the link is down", GREY, 12, "middle")
        y = scale(0, most, bottom, top)
        for value in range(0, most + 1, step):
            svg.line(left, y(value), right, y(value))
            svg.text(left - 8, y(value) + 4.5, f"{value:,}", GREY, 12, "end")
        svg.text(left, top - 12, title, weight="bold", size=13.5)
        return y

    def curve(y, name, key, colour, dash, row, *lines):
        points = [(x(second + 1), y(value)) for second, value in enumerate(rows[name][key])]
        svg.path(points, colour, 2.5, dash)
        svg.line(x(87), row, x(87) + 34, row, colour, 2.5, dash)
        for at, line in enumerate(lines):
            svg.text(x(87) + 44, row + 4.5 + 17 * at, line, size=12.5)

    y = panel(78, 278, "Messages that wait for the link", 1400, 200)
    curve(y, "in lanes", "waiting", BLUE, "", 106, "no limit, in order or in lanes")
    curve(y, "in lanes, limited", "waiting", RED, "7 4", 134, "max_bytes of 512 KiB, DropOldest:",
          f"{rows['in lanes, limited']['dropped']:,} old ones are dropped, and reported")
    y = panel(330, 530, "Age of the newest reading that was sent, in seconds", 70, 10)
    curve(y, "in order", "age", BLACK, "2 4", 358, "in order: old readings first")
    curve(y, "in order, limited", "age", RED, "7 4", 386, "in order, with that limit")
    curve(y, "in lanes", "age", BLUE, "", 414, "in lanes: new readings at once,", "the backlog beside them")
    for second in range(0, seconds + 1, 10):
        svg.text(x(second), 548, second, GREY, 12, "middle")
    svg.text((left + right) / 2, 566, "seconds", size=12, anchor="middle")
    return svg.done()


def footprint(figures):
    section = figures["footprint"]
    rows = section["rows"]
    svg = Svg(430, "Disk and memory of a queue that is nearly empty, by the size of its arenas", source(section))
    left, right, top, bottom = 80, 870, 130, 340
    series = [("idle disk", "disk, after 200,000 messages went through", BLUE, "circle", ""),
              ("first disk", "disk, after one message", SKY, "square", "6 4"),
              ("idle resident", "resident memory with the program (3 MiB), after 200,000", RED, "diamond", ""),
              ("drained", "the same, a second after 64 MiB were drained", GREEN, "triangle", "6 4")]
    most = 5 * math.ceil(max(max(row[key] for row in rows) for key, *_ in series) / made.K / 5)
    y, x = scale(0, most, bottom, top), scale(0, len(rows) - 1, left + 40, right - 50)
    for value in range(0, most + 1, 5):
        svg.line(left, y(value), right, y(value))
        svg.text(left - 8, y(value) + 4.5, f"{value} MiB", GREY, 12, "end")
    for at, row in enumerate(rows):
        svg.text(x(at), bottom + 22, row["name"], BLACK, 12.5, "middle")
    svg.text((left + right) / 2, bottom + 44, "arena_size", anchor="middle", size=12)
    for at, (key, name, colour, kind, dash) in enumerate(series):
        points = [(x(place), y(row[key] / made.K)) for place, row in enumerate(rows)]
        svg.path(points, colour, 2, dash)
        for place in points:
            svg.mark(*place, kind, colour, 4.8)
        legend = left + 370 * (at // 2), 60 + 24 * (at % 2)
        svg.line(*legend, legend[0] + 34, legend[1], colour, 2, dash)
        svg.mark(legend[0] + 17, legend[1], kind, colour, 4.8)
        svg.text(legend[0] + 44, legend[1] + 4.5, name, size=12.5)
    return svg.done()


PICTURES = {"model": model, "speed": speed, "latency": latency, "outage": outage, "footprint": footprint}
