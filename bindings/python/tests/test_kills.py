"""P1: what `put` has answered survives SIGKILL, in order."""

import mmq
from mmq import selftest


def test_200_kills_lose_nothing(path):
    known = taken = 0
    for kill in range(200):
        known = selftest.kill_a_writer(path, known, 1 + kill * 7 % 300)
        with mmq.Queue(path) as q:
            known = max(known, q.stats().next_seq)
            if kill % 10 == 0:
                for message in q.messages(timeout=0):
                    assert int(message) == taken
                    taken += 1
    with mmq.Queue(path) as q:
        for message in q.messages(timeout=0):
            assert int(message) == taken
            taken += 1
        assert taken == known
        assert q.stats().gaps == 0


def test_the_selftest(tmp_path, capsys):
    assert selftest.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "5 writers killed by SIGKILL" in said and " 0 lost, in order" in said
    assert selftest.main([str(tmp_path)]) == 2
    assert selftest.main([]) == 2
