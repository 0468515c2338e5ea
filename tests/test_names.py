import doctest

import pytest

from safestitch import names
from safestitch.names import lookup, unknown
from safestitch.records import SafestitchError

TASKS = {"MiniCircle": 1, "MiniRun": 2, "StitchChain": 3}


def test_examples_in_docstrings():
    results = doctest.testmod(names)
    assert results.attempted >= 1
    assert results.failed == 0


@pytest.mark.parametrize("name", TASKS)
def test_known_name(name):
    assert lookup("task", name, TASKS) == TASKS[name]


def test_unknown_name_suggests_and_lists():
    with pytest.raises(SafestitchError) as error:
        lookup("task", "StichChain", TASKS)
    assert str(error.value) == (
        "unknown task 'StichChain': did you mean StitchChain? "
        "Known: MiniCircle, MiniRun, StitchChain"
    )


def test_the_error_is_a_value_error():
    with pytest.raises(ValueError, match="unknown algorithm 'sac'"):
        lookup("algorithm", "sac", {"gas": 1})


@pytest.mark.parametrize("typed", ["minicircle", "MINICIRCLE", "mini_circle", "MiniCirlce"])
def test_case_and_small_slips_are_recognised(typed):
    assert "did you mean MiniCircle" in unknown("task", typed, TASKS)


def test_the_nearest_comes_first_and_two_at_most():
    message = unknown("task", "minirn", TASKS)
    assert message.startswith("unknown task 'minirn': did you mean MiniRun")
    assert "StitchChain?" not in message


@pytest.mark.parametrize("typed", ["", "zzz", "é", "x" * 10_000])
def test_nothing_near(typed):
    message = unknown("task", typed, TASKS)
    assert "did you mean" not in message
    assert message.endswith("Known: MiniCircle, MiniRun, StitchChain")


def test_a_value_that_is_false_is_still_found():
    assert lookup("preset", "none", {"none": None}) is None
