"""Puts and gets messages of 128 bytes in mmq and in other queues for Python, 100 of them in turn.

    pip install persist-queue litequeue queuelib diskcache
    python benches/compare.py [DIRECTORY] [--c PREFIX]

`--c` compares with the C library that `mmq-install --prefix PREFIX` put there (it needs gcc).
A row says what its put has survived when it returns: "kill", the death of the process; "power", a
power cut as well. Each figure is the median of the rounds, of which all queues take each in turn.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from datetime import date

import mmq

MESSAGE = b"x" * 128
ROUNDS = 5

C = r"""
#include <mmq.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}
int main(int count, char **given) {
  int n = atoi(given[2]);
  char message[128] = {0}, buffer[256];
  mmq_queue *queue;
  size_t len;
  if (count != 3 || mmq_open(given[1], NULL, &queue) != MMQ_OK) return 1;
  double puts = 0, gets = 0;
  for (int turn = 0; turn < n / 100; turn++) {
    double began = now();
    for (int i = 0; i < 100; i++)
      if (mmq_enqueue(queue, message, 128, NULL) != MMQ_OK) return 1;
    double put = now();
    for (int i = 0; i < 100; i++)
      if (mmq_dequeue_into(queue, buffer, sizeof buffer, &len, NULL) != MMQ_OK) return 1;
    puts += put - began;
    gets += now() - put;
  }
  printf("%f %f\n", puts / n, gets / n);
  return mmq_close(queue) != MMQ_OK;
}
"""


def timed(n, put, get):
    """Nanoseconds that a put takes, and a get."""
    puts = gets = 0
    for _ in range(n // 100):
        began = time.perf_counter_ns()
        for _ in range(100):
            put(MESSAGE)
        between = time.perf_counter_ns()
        for _ in range(100):
            get()
        puts += between - began
        gets += time.perf_counter_ns() - between
    return puts / n, gets / n


def of_mmq(n, path, **options):
    with mmq.Queue(path, **options) as q:
        return timed(n, q.put, q.get_nowait)


def of_acknowledged(n, path):
    with mmq.Queue(path) as q:
        def work():
            with q.receive(timeout=0) as job:
                return job.data

        return timed(n, q.put, work)


def of_file(n, path):
    import persistqueue

    q = persistqueue.Queue(path, tempdir=path)
    return timed(n, q.put, q.get_nowait)


def of_sqlite(n, path):
    import persistqueue

    q = persistqueue.FIFOSQLiteQueue(path, auto_commit=True)
    outcome = timed(n, q.put, lambda: q.get(block=False))
    q.close()
    return outcome


def of_litequeue(n, path):
    import litequeue

    os.makedirs(path)
    q = litequeue.LiteQueue(os.path.join(path, "queue.sqlite3"))

    def get():
        message = q.pop()
        q.done(message.message_id)
        return message.data

    outcome = timed(n, q.put, get)
    q.close()
    return outcome


def of_queuelib(n, path):
    from queuelib import FifoDiskQueue

    q = FifoDiskQueue(path)
    outcome = timed(n, q.push, q.pop)
    q.close()
    return outcome


def of_diskcache(n, path):
    import diskcache

    q = diskcache.Deque(directory=path)
    outcome = timed(n, q.append, q.popleft)
    q.cache.close()
    return outcome


#: Name, what a put survives, messages a round, and the function.
QUEUES = [
    ("mmq", "kill", 50_000, of_mmq),
    ("mmq, `with q.receive() as job`", "kill", 20_000, of_acknowledged),
    ("persist-queue, file", "kill", 1_000, of_file),
    ("litequeue", "kill", 2_000, of_litequeue),
    ("diskcache.Deque", "kill", 1_000, of_diskcache),
    ("queuelib", "nothing (its index is written at the close)", 20_000, of_queuelib),
    ("mmq, `flush_every_ops=1`", "power", 500, lambda n, p: of_mmq(n, p, flush_every_ops=1)),
    ("persist-queue, SQLite", "power", 500, of_sqlite),
]


def of_c(prefix, work):
    """Returns the function that runs the loop in C."""
    source, program = os.path.join(work, "loop.c"), os.path.join(work, "loop")
    with open(source, "w") as file:
        file.write(C)
    lib = os.path.join(prefix, "lib")
    subprocess.check_call(
        ["gcc", "-O2", source, "-o", program, "-I", os.path.join(prefix, "include"), "-L", lib,
         "-lmmq", f"-Wl,-rpath,{os.path.abspath(lib)}"]
    )

    def run(n, path):
        put, got = subprocess.check_output([program, path, str(n)]).split()
        return float(put), float(got)

    return run


def fingerprint(directory):
    """Returns the line that tells the figures of two machines apart, and those of two days."""
    project = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    return subprocess.check_output(
        ["cargo", "run", "--release", "--quiet", "--example", "compare", "--",
         "--peer", "fingerprint", "--dir", os.path.abspath(directory)],
        cwd=project, text=True
    ).strip()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--c", metavar="PREFIX")
    given = parser.parse_args()
    work = tempfile.mkdtemp(dir=given.directory)
    queues = list(QUEUES)
    if given.c:
        queues.insert(0, ("mmq in C", "kill", 50_000, of_c(given.c, work)))
    taken = {name: [] for name, *_ in queues}
    try:
        print(fingerprint(work))
        for turn in range(ROUNDS):
            for at, (name, _, n, run) in enumerate(queues):
                path = os.path.join(work, f"{turn}-{at}")
                taken[name].append(run(n, path))
                shutil.rmtree(path, ignore_errors=True)
    finally:
        shutil.rmtree(work)
    print(f"{date.today()}, Python {platform.python_version()}, {os.cpu_count()} processors, "
          f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f}, {ROUNDS} rounds\n")
    print("| queue | a put survives | put, us | get, us |\n|---|---|---|---|")
    for name, survives, *_ in queues:
        put, got = (statistics.median(times) / 1000 for times in zip(*taken[name]))
        print(f"| {name} | {survives} | {put:.3g} | {got:.3g} |")


if __name__ == "__main__":
    main()
