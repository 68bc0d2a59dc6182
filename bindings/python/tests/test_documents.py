"""Every example runs."""

import doctest
import importlib
import pathlib

import pytest

import mmq

README = pathlib.Path(__file__).parent.parent / "README.md"


def examples():
    finder = doctest.DocTestFinder()
    for name in ("mmq", "mmq.stdqueue", "mmq.logging"):
        yield from (test for test in finder.find(importlib.import_module(name)) if test.examples)
    for value in vars(mmq).values():
        if isinstance(value, type) and value.__module__ == "mmq":
            yield from (test for test in finder.find(value, module=mmq) if test.examples)
    yield doctest.DocTestParser().get_doctest(
        README.read_text(), {}, "README.md", str(README), 0
    )


@pytest.mark.parametrize("test", {test.name: test for test in examples()}.values(), ids=str)
def test_an_example(test, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test.globs.update(mmq=mmq, path=path)
    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert outcome.attempted > 0 and outcome.failed == 0


def test_the_examples_are_found():
    names = {test.name for test in examples()}
    assert {"mmq.Queue.put", "mmq.Reader.get", "mmq.Delivery", "mmq.Handle"} <= names


def test_everything_public_is_described():
    for name in mmq.__all__:
        value = getattr(mmq, name)
        assert getattr(value, "__doc__", None), name
        for inner, member in vars(value).items() if isinstance(value, type) else ():
            if not inner.startswith("_"):
                assert getattr(member, "__doc__", None) or name == "Error", f"{name}.{inner}"


def test_the_example_of_the_projects_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (README.parents[2] / "README.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0])
    assert capsys.readouterr().out == "b'hello'\n"
