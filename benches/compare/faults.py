#!/usr/bin/env python3
"""Does six faults to nine queues, and says what comes out of each.

    benches/compare/faults.py [--only mmq,SQLite] [--faults kill,bit] [--out docs/faults.json]
    benches/compare/faults.py --render

It needs root (loop devices, ext4), Rust, Go, Java, Maven and a registry of each. The queues are
built below the target directory; all else is in a directory of its own that is removed at the end.
The results go to docs/faults.json; the table there is put between the marks of README.md and
docs/choosing.md, which is all that --render does.

Every queue has the settings with which an enqueue that returned is durable, if it has such
settings; else its defaults. (docs/choosing.md lists them.) Each fault has fresh files:

    kill    SIGKILL of the producer after 1,000 messages, ten times on the same queue; the first of
            twenty queues that loses something. (Where a kill hits is chance.)
    power   The producer stops behind message 10,000, and the disk is copied: a copy of the device
            has what the file system wrote to it, and lacks what lies in the page cache alone. (It
            is mounted so that ext4 writes by itself only every ten minutes.) The copy is read.
    bit     One bit of message 5,000 is flipped, in each copy of it that the files hold.
    tail    The file with the last message ends in the middle of that message.
    index   The file with the places is deleted. Of a store in one file the first page is zeroed.
    full    The disk becomes full, then 100 MiB become free; the producer tries again and goes on.

A program `queues QUEUE put|take DIR FIRST END` drives each queue. `put` writes `+` for a message
that is in, `!error` where that failed (a line from standard input makes it try again) and `.` at
the end; it closes the queue when it reads a line. `take` writes each message with its length before
it, in four bytes, and each error likewise behind a length of ff ff ff ff. (SQLite, LMDB and redb
are read by number, and nothing is removed: so they say as much as they can.)
"""
import argparse
import collections
import contextlib
import datetime
import functools
import glob
import json
import mmap
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(os.path.dirname(HERE))
SOURCES = os.path.join(HERE, "faults")
sys.path.insert(0, SOURCES)
sys.dont_write_bytecode = True
import queues
from table import FAULTS, render, text

N = 10_000
M = 1 << 20
message = functools.lru_cache(None)(queues.message)
LIMIT = 240  # seconds for one process
# Name: version; the file with the places (None: the first page of the data; "": none exists before
# something is taken); settings.
QUEUES = {
    "mmq": ("this commit", "index", "flush_every_ops(1)"),
    "SQLite": ("", None, "a table, WAL, synchronous = FULL"),
    "LMDB": ("", None, "defaults (every commit is synced)"),
    "redb": ("4.4.0", None, "defaults (every commit is synced)"),
    "Chronicle": ("2026.4", "metadata.cq4t", "SyncMode.SYNC, sync() after each append"),
    "bigqueue": ("0.6.0", "metadata*", "Flush() after each Enqueue"),
    "go-diskqueue": ("1.1.0", "*.meta.dat", "syncEvery = 1"),
    "vmagent": ("1.150.0", "metainfo.json", "maxInmemoryBlocks = 0; it writes and syncs once a second"),
    "yaque": ("0.6.6", "", "defaults; it never syncs; recovery::recover"),
}


def build(target):
    """The command that drives each queue, by its name."""
    work = os.path.join(target, "faults")
    os.makedirs(work, exist_ok=True)

    def run(*command, **more):
        done = subprocess.run(command, capture_output=True, text=True, **more)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    manifest = os.path.join(SOURCES, "Cargo.toml")
    run("cargo", "build", "--release", "--manifest-path", manifest,
        env=dict(os.environ, CARGO_TARGET_DIR=work))
    run("go", "build", "-mod=readonly", "-o", os.path.join(work, "queues-go"), ".", cwd=SOURCES)
    jars = os.path.join(work, "jars")
    run("mvn", "-q", "-B", "-f", os.path.join(SOURCES, "pom.xml"), "dependency:copy-dependencies",
        f"-DoutputDirectory={jars}")
    run("javac", "-cp", f"{jars}/*", "-d", work, os.path.join(SOURCES, "Queues.java"))
    python = os.path.join(work, "python", "bin", "python")
    if not os.path.exists(python):
        run(sys.executable, "-m", "venv", os.path.join(work, "python"))
    run(python, "-m", "pip", "-q", "install", "lmdb==3.0.0")
    opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in (
        "java.lang", "java.lang.reflect", "java.util", "java.io", "java.nio", "sun.nio.ch")]
    exports = [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in (
        "jdk.internal.ref", "sun.nio.ch")]
    rust = [os.path.join(work, "release", "queues")]
    go = [os.path.join(work, "queues-go")]
    java = ["java", "-Xmx256m", *opens, *exports, "-Dchronicle.analytics.disable=true", "-cp",
            f"{work}:{jars}/*", "Queues"]
    script = [python, "-B", os.path.join(SOURCES, "queues.py")]
    versions = subprocess.run([python, "-c", "import lmdb, sqlite3; print(sqlite3.sqlite_version, "
                               "'.'.join(map(str, lmdb.version())))"],
                              capture_output=True, text=True, check=True).stdout.split()
    for name, version in zip(("SQLite", "LMDB"), versions):
        QUEUES[name] = (version, *QUEUES[name][1:])
    drivers = dict.fromkeys(("mmq", "yaque", "redb"), rust)
    drivers.update(dict.fromkeys(("bigqueue", "go-diskqueue", "vmagent"), go))
    drivers.update({"Chronicle": java, "SQLite": script, "LMDB": script})
    return {name: [*command, name] for name, command in drivers.items()}


class Producer:
    """A process that puts messages FIRST to END."""
    living = []

    def __init__(self, command, dir, first, end):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, "put", dir, str(first), str(end)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True)
        self.living.append(self.process)
        self.acked, self.ends = 0, time.time() + LIMIT
        os.set_blocking(self.process.stdout.fileno(), False)
        self.rest = b""

    def line(self):
        """The next line, or none if the process ended or its time did."""
        while b"\n" not in self.rest:
            try:
                more = os.read(self.process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                if time.time() > self.ends:
                    return None
                time.sleep(0.001)
                continue
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        self.acked += line == b"+"
        return line.decode(errors="replace")

    def put(self, wanted):
        """Waits until `wanted` more messages are in. Returns the line at which that ended early."""
        wanted += self.acked
        while self.acked < wanted:
            line = self.line()
            if line != "+":
                return line or "ended"
        return None

    def stop(self):
        """Stops all threads, and waits until each has stopped."""
        self.process.send_signal(signal.SIGSTOP)
        pattern = f"/proc/{self.process.pid}/task/*/stat"
        while any(open(stat).read().rsplit(")", 1)[1].split()[0] not in "TtZ"
                  for stat in glob.glob(pattern)):
            time.sleep(0.01)

    def again(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self):
        """Kills it. What it wrote before counts."""
        self.process.kill()
        self.end()
        while self.line():
            pass

    @classmethod
    def kill_all(cls):
        for process in cls.living:
            process.kill()
            process.wait()
        cls.living.clear()

    def end(self):
        """Waits for the end; what was left unread of standard error."""
        try:
            self.process.wait(max(1, self.ends - time.time()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


@contextlib.contextmanager
def disk(image, mebibytes=None):
    """An ext4 on a file, mounted; made first where its size is given."""
    where = image + ".mounted"
    if mebibytes:
        subprocess.run(["truncate", "-s", f"{mebibytes}M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    os.makedirs(where, exist_ok=True)
    subprocess.run(["mount", "-o", "loop,commit=600", image, where], check=True)
    try:
        yield where
    finally:
        Producer.kill_all()
        subprocess.run(["umount", where], check=True)


WORDS = re.compile(r"error|corrupt|panic|fatal|bad|cannot|warn|malformed|skipping", re.I)


def plain(text):
    """One line of an error: the one that says most, without the paths of this machine."""
    lines = text.strip().splitlines() or [""]
    line = next((line for line in lines if WORDS.search(line)), lines[-1])
    return re.sub(r"/[^\s:\"]*/", "", line)[:200]


def take(command, dir, wanted, end):
    """What comes out: how many are right, missing, false, twice; and whether it was told."""
    if not wanted:
        sys.exit(f"{command}: nothing was put")
    try:
        done = subprocess.run([*command, "take", dir, "0", str(end)], capture_output=True,
                              timeout=LIMIT)
        data, errors, status = done.stdout, done.stderr.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as late:
        data, errors, status = late.stdout or b"", "", None
    came, wrong, told, place = collections.Counter(), 0, [], 0
    is_in_order, last = True, -1
    while place + 4 <= len(data):
        length, = struct.unpack_from("<I", data, place)
        is_error = length == 0xFFFFFFFF
        if is_error:
            place += 4
            length, = struct.unpack_from("<I", data, place)
        body = data[place + 4:place + 4 + length]
        place += 4 + length
        number = struct.unpack_from("<Q", body)[0] if len(body) >= 8 else end
        if is_error:
            told.append(plain(body.decode(errors="replace")))
        elif number < end and body == message(number):
            came[number] += 1
            is_in_order &= number >= last
            last = number
        else:
            wrong += 1
    if WORDS.search(errors) or status != 0:
        told.append(plain(errors) or f"status {status}")
    right = sum(number in came for number in wanted)
    return {
        "wanted": len(wanted), "right": right, "false": wrong, "in order": is_in_order,
        "twice": sum(count > 1 for count in came.values()), "told": told[:3],
        "errors": len(told), "status": status,
    }


def kill(command, room, _):
    for dir in (os.path.join(room, f"queue-{turn}") for turn in range(20)):
        os.mkdir(dir)
        wanted = set()
        for first in range(0, 40_000, 4_000):
            producer = Producer(command, dir, first, first + 4_000)
            producer.put(1_000)
            producer.kill()
            wanted.update(range(first, first + producer.acked))
        found = take(command, dir, wanted, 40_000)
        shutil.rmtree(dir)
        if found["right"] < found["wanted"]:
            break
    return found


def power(command, room, _):
    image = os.path.join(room, "image")
    with disk(image, 256) as mounted:
        dir = os.path.join(mounted, "queue")
        os.mkdir(dir)
        os.sync()
        producer = Producer(command, dir, 0, 2 * N)
        producer.put(N)
        producer.stop()
        subprocess.run(["cp", "--sparse=always", image, image + ".cut"], check=True)
        producer.kill()
    with disk(image + ".cut") as mounted:
        dir = os.path.join(mounted, "queue")
        return take(command, dir, range(producer.acked), 2 * N)


def filled(command, room):
    """A queue with N messages, closed."""
    dir = os.path.join(room, "queue")
    os.mkdir(dir)
    producer = Producer(command, dir, 0, N)
    if producer.put(N) is None and producer.line() == ".":
        producer.again()
        producer.end()
    if producer.process.returncode != 0:
        sys.exit(f"{command}: not filled: {producer.end()}")
    return dir


def places(dir, body):
    """Where the files hold these bytes: file and offset, the last one last."""
    found = []
    for folder, _, names in os.walk(dir):
        for path in sorted(os.path.join(folder, name) for name in names):
            if not os.path.getsize(path):
                continue
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as all:
                at = all.find(body)
                while at >= 0:
                    found.append((path, at))
                    at = all.find(body, at + 1)
    if not found:
        sys.exit(f"{dir}: the message is nowhere")
    return found


def bit(command, room, _):
    dir, body = filled(command, room), message(N // 2)
    found = places(dir, body)
    for path, at in found:
        with open(path, "r+b") as file:
            file.seek(at + len(body) // 2)
            byte = file.read(1)[0]
            file.seek(at + len(body) // 2)
            file.write(bytes([byte ^ 16]))
    return dict(take(command, dir, range(N), N), copies=len(found))


def tail(command, room, _):
    dir, body = filled(command, room), message(N - 1)
    path, at = places(dir, body)[-1]
    os.truncate(path, at + len(body) // 2)
    return dict(take(command, dir, range(N), N), file=os.path.basename(path))


def index(command, room, name):
    dir = filled(command, room)
    gone = QUEUES[name][1]
    if gone is None:
        [path] = [path for path in glob.glob(f"{dir}/*") if os.path.getsize(path) > M]
        with open(path, "r+b") as file:
            file.write(bytes(4096))
        return dict(take(command, dir, range(N), N), file=os.path.basename(path))
    files = glob.glob(f"{dir}/**/{gone}", recursive=True)
    if not files:
        sys.exit(f"{name}: no {gone} in {os.listdir(dir)}")
    for path in files:
        os.unlink(path)
    return dict(take(command, dir, range(N), N), file=", ".join(map(os.path.basename, files)))


def full(command, room, _):
    end = 3 * N
    with disk(os.path.join(room, "image"), 128) as mounted:
        ballast, dir = os.path.join(mounted, "ballast"), os.path.join(mounted, "queue")
        os.mkdir(dir)
        room_left = os.statvfs(mounted)
        size = room_left.f_bavail * room_left.f_frsize - 12 * M
        subprocess.run(["fallocate", "-l", str(size), ballast], check=True)
        producer, first, wanted, said = Producer(command, dir, 0, end), 0, set(), []
        said.append(producer.put(end))
        os.unlink(ballast)
        for _ in range(4):
            wanted.update(range(first, first + producer.acked))
            if not said[-1] or said[-1] == "ended":
                break
            producer.again()
            said.append(producer.put(end - first - producer.acked))
        else:
            producer.kill()
            said.append("stuck")
        wanted.update(range(first, first + producer.acked))
        if not said[-1] and producer.line() == ".":
            producer.again()
        errors = producer.end()
        if said[-1]:
            # It died, or goes on refusing: a new process continues behind the message that failed.
            said.append(plain(errors))
            first += producer.acked + 1
            producer = Producer(command, dir, first, end)
            said.append(producer.put(end - first))
            wanted.update(range(first, first + producer.acked))
            if not said[-1] and producer.line() == ".":
                producer.again()
            producer.end()
        said = [line and plain(line) for line in said]
        return dict(take(command, dir, wanted, end), said=said)


def finish(results, out):
    done = results["queues"]
    results["queues"] = {name: done[name] for name in QUEUES if name in done}
    for name, queue in results["queues"].items():
        for fault, found in queue["faults"].items():
            found["text"] = text(name, fault, found)
    with open(out, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    render(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(QUEUES))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--out", default=os.path.join(PROJECT, "docs", "faults.json"))
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    results = {"queues": {}}
    if os.path.exists(options.out):
        with open(options.out) as file:
            results = json.load(file)
    if options.render:
        return finish(results, options.out)
    commands = build(os.environ.get("CARGO_TARGET_DIR", os.path.join(PROJECT, "target")))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=PROJECT, text=True,
                            capture_output=True).stdout.strip()
    results.update(date=datetime.date.today().isoformat(), commit=commit, messages=N,
                   machine=f"{platform.system()} {platform.release()}, ext4")
    scratch = tempfile.mkdtemp(prefix="mmq-faults-")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4G", "mmq-faults", scratch], check=True)
        for name in options.only.split(","):
            queue = results["queues"].setdefault(name, {"faults": {}})
            queue.update(version=QUEUES[name][0], settings=QUEUES[name][2])
            for fault in options.faults.split(","):
                if fault == "index" and QUEUES[name][1] == "":
                    continue
                room = tempfile.mkdtemp(dir=scratch)
                found = globals()[fault](commands[name], room, name)
                shutil.rmtree(room)
                queue["faults"][fault] = {"text": text(name, fault, found), **found}
                print(name, fault, queue["faults"][fault]["text"], file=sys.stderr)
    finally:
        Producer.kill_all()
        subprocess.run(["umount", scratch])
        os.rmdir(scratch)
    finish(results, options.out)


if __name__ == "__main__":
    main()
