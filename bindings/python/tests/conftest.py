import pytest


@pytest.fixture
def path(tmp_path):
    """A directory for a queue, that is not there yet."""
    return str(tmp_path / "queue")
