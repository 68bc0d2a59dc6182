"""Python answers as tests/conformance.json says, as all languages do."""

import json
import pathlib
import re

import mmq
import pytest

FILE = pathlib.Path(__file__).parents[3] / "tests" / "conformance.json"
SCENARIOS = json.loads(FILE.read_text())["scenarios"]
CAUSES = ["damaged", "unflushed", "dropped", "expired", "rejected", "reserved"]


def decoded(word):
    if "*" in word:
        count, byte = word.split("*")
        return byte.encode() * int(count)
    code = b"" if word == "%" else word.encode()
    return re.sub(rb"%(..)", lambda two: bytes([int(two[1], 16)]), code)


def encoded(message):
    if len(message) > 64 and len(set(message)) == 1:
        return f"{len(message)}*{chr(message[0])}"
    return re.sub("[^a-z]", lambda one: f"%{ord(one[0]):02x}", message.decode("latin-1")) or "%"


class Speaker:
    """The program that a scenario stands for: a method for each call."""

    def __init__(self, path):
        self.path, self.readers, self.jobs = path, {}, {}

    def answer(self, call, *words):
        try:
            answer = getattr(self, call)(*words)
            return "ok" if answer is None else answer
        except mmq.Empty:
            return "none"
        except mmq.Gap as gap:
            return f"gap {gap.first} {gap.last} {CAUSES.index(gap.cause) + 1}"
        except mmq.Error as error:
            return f"error {error.status}"

    def open(self, *options):
        options = dict(option.split("=") for option in options)
        for name, value in options.items():
            options[name] = int(value) if value.isdigit() else value
        if "create" in options:
            options["create"] = options["create"] == "true"
        self.queue = self.readers["-"] = mmq.Queue(self.path, **options)

    def close(self):
        self.queue.close()

    def damage(self, message):
        segment = self.path / "segment-00000000"
        content = bytearray(segment.read_bytes())
        content[content.index(message.encode())] ^= 1
        segment.write_bytes(content)

    def enqueue(self, message):
        return f"ok {self.queue.put(decoded(message))}"

    def enqueue_batch(self, *messages):
        return f"ok {self.queue.put_many(map(decoded, messages)).start}"

    def flush(self):
        self.queue.flush()

    def durable_seq(self):
        return f"ok {self.queue.durable_seq}"

    def wait_durable(self, seq):
        self.queue.wait_durable(int(seq))

    def stats(self):
        names = "messages next_seq enqueued dequeued consumers gaps lost_messages refused rejected"
        stats = self.queue.stats()
        return " ".join(["stats", *(str(getattr(stats, name)) for name in names.split())])

    def consumer(self, letter, name):
        self.readers[letter] = self.queue.consumer(decoded(name).decode())

    def remove_consumer(self, name):
        self.queue.remove_consumer(decoded(name).decode())

    def peek(self, letter):
        return self.message(letter, self.readers[letter].peek)

    def dequeue(self, letter):
        return self.message(letter, self.readers[letter].get_nowait)

    def message(self, letter, read):
        # What reads returns bytes alone: a look ahead says the number.
        try:
            ahead = next(self.readers[letter].look_ahead(), None)
        except mmq.Error:
            ahead = None
        message = read()
        return f"message {ahead.seq} {encoded(message)}"

    def receive(self, letter, name, wait):
        job = self.jobs[name] = self.readers[letter].receive(timeout=int(wait) / 1000)
        return f"delivery {job.seq} {job.attempts} {encoded(job.data)}"

    def ack(self, name):
        self.jobs[name].ack()

    def nack(self, name):
        self.jobs[name].nack()

    def nack_after(self, name, delay):
        self.jobs[name].nack(int(delay) / 1000)

    def extend(self, name, by):
        self.jobs[name].extend(int(by) / 1000)

    def reject(self, name):
        self.jobs[name].reject()

    def seek(self, letter, seq):
        self.readers[letter].seek(int(seq))

    def redelivery(self, letter, lease, delay, attempts):
        lease, delay, attempts = int(lease) / 1000, int(delay) / 1000, int(attempts)
        self.readers[letter].set_redelivery(
            lease=lease or None,
            backoff=(delay, delay) if delay else None,
            max_attempts=attempts or None,
        )


@pytest.mark.parametrize("name", SCENARIOS)
def test_conformance(name, tmp_path):
    speaker = Speaker(tmp_path / "queue")
    for call, wanted, *_ in SCENARIOS[name]:
        assert (call, speaker.answer(*call.split(" "))) == (call, wanted)
