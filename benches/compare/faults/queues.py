"""SQLite and LMDB as queues for `benches/compare/faults.py`, which says what is read and written.

    queues.py QUEUE put|take DIR FIRST END
"""
import os
import sqlite3
import struct
import sys

OUT = sys.stdout.buffer


def message(number):
    """`number`, then 56 to 1016 bytes of a generator: text that no program finds by chance."""
    x, out = number, bytearray(struct.pack("<Q", number))
    for _ in range(56 + number * 7919 % 961):
        x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        out.append(x >> 56)
    return bytes(out)


class Sqlite:
    """A table by number; WAL with `synchronous = FULL`: a commit is durable."""
    def __init__(self, dir):
        self.db = sqlite3.connect(os.path.join(dir, "queue.db"), isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY, body BLOB)")

    def put(self, number, body):
        self.db.execute("INSERT INTO queue VALUES (?, ?)", (number, body))

    def get(self, number):
        row = self.db.execute("SELECT body FROM queue WHERE id = ?", (number,)).fetchone()
        return row and row[0]

    def close(self):
        self.db.close()


class Lmdb:
    """Keys in order; the default settings, with which a commit is durable."""
    def __init__(self, dir):
        import lmdb
        self.db = lmdb.open(dir, map_size=1 << 30)

    def put(self, number, body):
        with self.db.begin(write=True) as transaction:
            transaction.put(struct.pack(">Q", number), body)

    def get(self, number):
        with self.db.begin() as transaction:
            return transaction.get(struct.pack(">Q", number))

    def close(self):
        self.db.close()


def say(line):
    OUT.write(line.encode() + b"\n")
    OUT.flush()


def frame(body):
    OUT.write(struct.pack("<I", len(body)) + body)
    OUT.flush()


def put_all(queue, first, end):
    for number in range(first, end):
        while True:
            try:
                queue.put(number, message(number))
                break
            except Exception as error:
                say("!" + str(error).replace("\n", " "))
                sys.stdin.readline()
        say("+")
    say(".")
    sys.stdin.readline()


def take_all(queue, first, end):
    failed = 0
    for number in range(first, end):
        try:
            body = queue.get(number)
            if body is not None:
                frame(body)
        except Exception as error:
            OUT.write(b"\xff\xff\xff\xff")
            frame(str(error).encode())
            failed += 1
            if failed == 100:
                break


if __name__ == "__main__":
    name, what, dir = sys.argv[1:4]
    queue = {"SQLite": Sqlite, "LMDB": Lmdb}[name](dir)
    (put_all if what == "put" else take_all)(queue, int(sys.argv[4]), int(sys.argv[5]))
    queue.close()
