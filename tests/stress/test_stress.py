"""refocal on every case of the stress suite but the huge ones; `make stress` runs those too, beside the peers."""

from __future__ import annotations

import numpy as np
import pytest
from stress_cases import CASES
from stress_packages import answer
from stress_tasks import Inputs, best_log_loss, exact_ece, judge

from refocal.errors import InputError

QUICK = [case for case in CASES if not case.huge]


@pytest.mark.slow
@pytest.mark.parametrize("case", QUICK, ids=[case.name for case in QUICK])
def test_refocal(case):
    inputs = case.make()
    if case.task.startswith("refuse"):
        with pytest.raises(InputError):
            answer("refocal", case, inputs)
        return
    verdict = judge(case, inputs, answer("refocal", case, inputs))
    assert verdict.passed, verdict.words


def test_the_suite_is_whole():
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.right.endswith(".") for case in CASES)


def test_the_judges_can_say_no():
    """A judge that lets everything pass proves nothing."""
    fit = next(case for case in CASES if case.name == "logits × 30")
    inputs = fit.make()
    best = best_log_loss(inputs.logits, inputs.labels)
    for slope, passes in ((1 / 54, True), (1.0, False), (1 / 60, False), (1e8, False)):
        shifted = slope * (inputs.logits - inputs.logits.max(axis=1, keepdims=True))
        p = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
        assert judge(fit, inputs, (p, 1 / slope)).passed is passes
    assert 0.0 < best < np.log(10)
    assert not judge(fit, inputs, (np.full_like(inputs.logits, np.nan), 1.0)).passed
    assert not judge(fit, inputs, (0.9 * p, 1.0)).passed
    ece = next(case for case in CASES if case.name == "ECE, 0.95 wrong beside 1 right")
    assert exact_ece(ece.make().labels, ece.make().logits) == pytest.approx(0.475)
    assert not judge(ece, ece.make(), 0.4).passed
    refuse = next(case for case in CASES if case.task == "refuse ece")
    assert not judge(refuse, Inputs(None, None), 0.1).passed
