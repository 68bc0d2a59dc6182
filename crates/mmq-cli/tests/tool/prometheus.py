"""Whether Prometheus' own parser takes what `mmq stat --prometheus` prints, and whether the names are as promtool wants them.

    python3 crates/mmq-cli/tests/tool/prometheus.py target/debug/mmq      (with the package prometheus_client)
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as text_format

MMQ = os.path.abspath(sys.argv[1])
# What a consumer and a directory may be called.
ODD = 'a "quoted" \\ back\\nslash,\n} {=\t \u00e9\u4e2d\U0001f600'


def mmq(*words, given=b"", status=0):
    ended = subprocess.run([MMQ, *words], input=given, capture_output=True, check=False)
    assert ended.returncode == status, (words, ended)
    return ended.stdout.decode()


def samples(text):
    """Each sample of the text: (name, labels) and its value."""
    found = {}
    for family in text_format(text):
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"{key} comes twice"
            found[key] = sample.value
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(found) == len(lines), "every line is a sample"
    return found


def as_open_metrics(text):
    """The same in the later format: a counter's family has no _total. Its parser knows no mercy: it checks escapes, the order of
    samples, and names twice given."""
    lines = [re.sub(r"^(# (?:HELP|TYPE) \w+?)_total\b", r"\1", line) for line in text.split("\n")]
    return sum(len(family.samples) for family in open_metrics("\n".join(lines) + "# EOF\n"))


def names_are_as_promtool_wants_them(text):
    """The rules of promtool's linter (client_golang, promlint) that a text can break."""
    helps = re.findall(r"^# HELP (\S+) (.+)$", text, re.M)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    assert len(helps) == len(set(name for name, _ in helps)) == len(types), "one HELP and one TYPE each"
    assert len(types) == text.count("# TYPE ") and set(types) == {name for name, _ in helps}
    for name, kind in types.items():
        parts = name.split("_")
        assert re.fullmatch(r"mmq_[a-z_]+", name), f"{name}: lower case, no colon"
        assert (kind == "counter") == (parts[-1] == "total"), f"{name}: _total is a counter's"
        assert not {"gauge", "counter", "histogram", "summary", "count", "sum", "bucket"} & set(parts), f"{name}: says its type"
        units = {"ms", "milliseconds", "us", "ns", "minutes", "hours", "days", "kb", "kib", "mb", "mib", "kilobytes", "sec", "secs"}
        assert not units & set(parts), f"{name}: base units alone"
    if shutil.which("promtool"):
        subprocess.run(["promtool", "check", "metrics"], input=text.encode(), check=True)


def main():
    with tempfile.TemporaryDirectory() as home:
        queues = {name: os.path.join(home, name) for name in ("owned", "closed", "empty", "missing", ODD)}
        mmq("put", queues["closed"], given=b"one\ntwo\n")
        mmq("put", queues[ODD], given=b"one\n")
        mmq("consumers", queues[ODD], "add", ODD)
        mmq("consumers", queues[ODD], "add", "plain")
        mmq("put", queues["empty"], given=b"")
        with subprocess.Popen([MMQ, "put", queues["owned"], "--print-seq", "--max-bytes", "1MiB"], stdin=subprocess.PIPE) as owner:
            while not os.path.exists(os.path.join(queues["owned"], "index")) or '"owned"' not in mmq("stat", queues["owned"], "--json"):
                pass
            text = mmq("stat", "--prometheus", *queues.values(), status=5)
            owner.stdin.close()
        labels = [word for name in queues for word in ("--label", f"{name}'s")]
        for text, suffix in ((text, None), (mmq("stat", "--prometheus", *queues.values(), *labels, status=5), "'s")):
            found = samples(text)
            assert as_open_metrics(text) == len(found)
            names_are_as_promtool_wants_them(text)
            for name, path in queues.items():
                label = path if suffix is None else name + suffix
                value = lambda metric, **more: found.get((metric, tuple(sorted({"queue": label, **more}.items()))))
                assert value("mmq_up") == (0 if name == "missing" else 1), name
                assert value("mmq_owned") == {"missing": None, "owned": 1 if suffix is None else 0}.get(name, 0), name
                assert value("mmq_messages") == {"missing": None, "closed": 2, ODD: 1}.get(name, 0), name
                if name == ODD:
                    assert value("mmq_consumer_messages", consumer=ODD) == value("mmq_consumer_messages", consumer="plain") == 1
        one = mmq("stat", "--prometheus", queues["closed"])
        assert as_open_metrics(one) == len(samples(one))
        file = os.path.join(home, "mmq.prom")
        mmq("stat", "--prometheus", queues["closed"], "--output", file)
        with open(file, encoding="utf-8", newline="") as written:
            assert samples(written.read()).keys() == samples(one).keys()
    print("the parser of prometheus_client takes all of it")


main()
