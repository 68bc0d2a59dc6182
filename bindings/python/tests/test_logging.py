import logging

import pytest

import mmq
from mmq.logging import SpoolHandler, to_record


@pytest.fixture
def logger():
    logger = logging.Logger("a.logger")
    yield logger
    for handler in logger.handlers:
        handler.close()


def test_records_come_back_in_the_next_run(path, logger):
    handler = SpoolHandler(path, level=logging.INFO)
    logger.addHandler(handler)
    logger.debug("not this one")
    logger.warning("disk %s is nearly full", "sda")
    try:
        1 / 0
    except ZeroDivisionError:
        logger.exception("no quotient")
    handler.flush()
    handler.close()
    with mmq.Queue(path) as q:
        first, second = map(to_record, q.messages(timeout=0))
    assert first.getMessage() == "disk sda is nearly full"
    assert (first.name, first.levelname, first.funcName) == (
        "a.logger", "WARNING", "test_records_come_back_in_the_next_run")
    assert "ZeroDivisionError" in logging.Formatter().format(second)


def test_a_formatter_makes_the_text(path, logger):
    with mmq.Queue(path) as q:
        handler = SpoolHandler(q)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.error("100%")
        assert q.get() == b"ERROR 100%"
        handler.close()
        assert not q.closed
        with pytest.raises(TypeError, match="open already"):
            SpoolHandler(q, max_bytes=1 << 20)


def test_the_oldest_records_go_when_it_is_full(path, logger):
    handler = SpoolHandler(path, max_bytes=1 << 20)
    logger.addHandler(handler)
    for _ in range(500):
        logger.warning("x" * 10_000)
    assert handler.queue.stats().dropped > 0


def test_a_record_that_cannot_go_in_ends_no_program(path, logger, capsys):
    handler = SpoolHandler(path)
    logger.addHandler(handler)
    handler.queue.close()
    logger.warning("lost")
    assert "mmq.Closed" in capsys.readouterr().err
