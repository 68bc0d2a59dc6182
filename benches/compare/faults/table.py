"""The table of `benches/compare/faults.py`: a cell of a few words for each queue and fault."""
import os
import re

PROJECT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
FAULTS = {
    "kill": "200 kills", "power": "power cut", "bit": "flipped bit", "tail": "torn tail",
    "index": "index gone", "full": "full disk",
}


def text(name, fault, found):
    """The cell, in a few words."""
    missing = found["wanted"] - found["right"]
    words = []
    said = found.get("said", [])
    if "ended" in said:
        words.append("dies")
    if found["status"] and not found["right"]:
        words.append("does not open")
    elif not missing:
        words.append("all, after reopening" if "stuck" in said else "all")
    elif name == "vmagent" and fault in ("kill", "power", "full"):
        # It writes once a second. (Tried by hand with producers that ran for longer than that.)
        words.append("loses up to a second")
    elif missing == found["wanted"]:
        words.append("loses all")
    elif missing == 1 and not found["false"]:
        words.append("all but 1")
    elif found["right"] < missing / 9:
        words.append(f"keeps {found['right']:,}")
    elif missing > found["false"]:
        words.append(f"loses {missing - found['false']:,}")
    if found["false"]:
        words.append(f"{found['false']:,} false")
    if found["twice"]:
        words.append(f"{found['twice']:,} twice")
    if not found["in order"]:
        words.append("out of order")
    if found["status"] is None:
        words.append("hangs")
    elif found["status"] < 0:
        words.append("dies reading")
    elif missing > found["false"] and words[-1] != "does not open":
        words.append("told" if found["errors"] else "untold")
    return ", ".join(words)


def render(results):
    rows = ["| | " + " | ".join(FAULTS.values()) + " |", "|---" * (len(FAULTS) + 1) + "|"]
    for name, queue in results["queues"].items():
        cells = [queue["faults"].get(fault, {"text": "-"})["text"] for fault in FAULTS]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    for path in ("README.md", "docs/choosing.md"):
        path = os.path.join(PROJECT, path)
        with open(path) as file:
            before = file.read()
        after = re.sub(r"(?s)(<!-- faults -->\n).*?(<!-- end -->)",
                       lambda found: found[1] + "\n".join(rows) + "\n" + found[2], before)
        with open(path, "w") as file:
            file.write(after)
    print("\n".join(rows))
