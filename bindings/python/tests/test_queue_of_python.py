"""CPython's own tests of `queue.Queue`, over ours: all but those of what ours does not have."""

import queue
import tempfile
import unittest

import pytest

from mmq import stdqueue

theirs = pytest.importorskip("test.test_queue").BaseQueueTestMixin


class TestQueue(theirs, unittest.TestCase):
    queue = queue
    for name in filter(lambda name: "shutdown" in name, dir(theirs)):
        locals()[name] = None

    def type2test(self, maxsize=0):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        return stdqueue.Queue(directory.name, maxsize)
