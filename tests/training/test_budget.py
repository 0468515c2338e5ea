import dataclasses
import math
from typing import Any

import pytest

from safestitch.algos import get_algorithm
from safestitch.envs import get_task
from safestitch.records import SafestitchError
from safestitch.training import budget

TASK = get_task("StitchChain")
GAS = get_algorithm("gas")
TINY: dict[str, Any] = {"batch": 16, "hidden": 8, "embedding": 4, "layers": 2, "budget_batch": 8}


def test_iterations_that_fit(monkeypatch):
    monkeypatch.setattr(budget, "PROBE_SECONDS", 0.01)
    config = dataclasses.replace(GAS.presets["fast"], iterations=1_000_000, **TINY)
    data = TASK.make_data(0)

    def within(minutes: float) -> int:
        return budget.within_minutes(GAS, config, TASK.spec, data, [0, 1], minutes).iterations

    assert within(1e-12) == 1
    assert 10 < within(0.05) < 1_000_000
    assert within(1e9) == 1_000_000  # never more than the settings say
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SafestitchError, match=f"--minutes {wrong}: expected a time above 0"):
            within(wrong)
