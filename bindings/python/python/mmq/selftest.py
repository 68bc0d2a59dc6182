"""`python -m mmq.selftest DIR`: puts messages in, kills the process that does, takes them out."""

import os
import signal
import subprocess
import sys
from typing import List, Optional

import mmq

#: Puts numbers in, from the argument on, and says each one whose `put` has returned.
WRITER = """
import sys, mmq
with mmq.Queue(sys.argv[1]) as q:
    number = int(sys.argv[2])
    while True:
        q.put(b"%d" % number)
        sys.stdout.write("%d\\n" % number)
        sys.stdout.flush()
        number += 1
"""


def kill_a_writer(path: str, first: int, answered: int) -> int:
    """Kills a child by SIGKILL once it has put in `answered` messages, from number `first` on.
    Returns the number behind the last one that it is known to have put in."""
    command = [sys.executable, "-c", WRITER, path, str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(answered):
            if not child.stdout.readline():
                break
        os.kill(child.pid, signal.SIGKILL)
        lines = child.stdout.read().split(b"\n")[:-1]
    return max([first + answered] + [int(line) + 1 for line in lines if line])


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the test. Returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print("usage: python -m mmq.selftest DIR", file=sys.stderr)
        return 2
    path = os.path.join(given[0], "selftest")
    if os.path.exists(path):
        print(f"{path} is there already: name another directory", file=sys.stderr)
        return 2
    kills, known = 5, 0
    for _ in range(kills):
        known = kill_a_writer(path, known, 1000)
        with mmq.Queue(path) as q:
            # What was put in and not yet said counts, too: the next writer goes on behind it.
            known = max(known, q.stats().next_seq)
    gaps: List[mmq.Gap] = []
    with mmq.Queue(path, on_gap=gaps.append) as q:
        taken = [int(message) for message in q.messages(timeout=0)]
    in_order = taken == list(range(len(taken)))
    lost = known - len(taken)
    print(f"{kills} writers killed by SIGKILL, {known} messages put in")
    print(f"{len(taken)} taken, {lost} lost, {'in order' if in_order else 'NOT in order'}")
    for gap in gaps:
        print(gap)
    print(f"the queue is in {path}: remove it when you like")
    return 0 if in_order and lost == 0 and not gaps else 1


if __name__ == "__main__":
    sys.exit(main())
