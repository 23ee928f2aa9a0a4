"""Timing ratios of refocal's fits within one run: `make bench-guard`.

    OMP_NUM_THREADS=1 python benchmarks/guard.py

Prints how long a fit takes in bare log-softmax passes of NumPy over the same logits and relative to scikit-learn's
temperature scaling, beside the ratios that were measured when they were last set (AVX2, one thread). Ratios vary by
some tens of per cent from run to run and by a factor of two from processor to processor, so nothing fails here; what
must not grow is counted by tests/integration/test_work.py.
"""

from __future__ import annotations

import time

from fit_speed import bare, brute_force, data, with_refocal, with_refocal_fts, with_scikit_learn

from refocal import FocalTemperatureScaling

REPEATS = 5


def least(function) -> float:
    """The shortest of several runs, in processor seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    logits, labels = data(10_000, 100)
    one_pass = least(lambda: bare(logits, labels))
    peer = least(lambda: with_scikit_learn()(logits, labels))
    print("| fit of 10,000 × 100 | bare passes | when set | relative to scikit-learn's TS | when set |")
    print("| --- | --- | --- | --- | --- |")
    for name, fit, passes, relative in (
        ("temperature scaling", with_refocal, 4.9, 0.10),
        ("focal temperature scaling by log-loss", with_refocal_fts, 15.0, 0.30),
    ):
        seconds = least(lambda fit=fit: fit(logits, labels))
        print(f"| {name} | {seconds / one_pass:.1f} | {passes} | {seconds / peer:.2f} | {relative:.2f} |")
    logits, labels = data(5000, 100)
    by_hand = brute_force(logits, labels, points=15, clock=time.process_time)
    model = FocalTemperatureScaling(objective="ece", search="grid")
    faster = by_hand / least(lambda: model.fit(logits, labels))
    print(f"\nGrid search by ECE, 5,000 × 100: {faster:.0f} times faster than point by point (170 when set).")


if __name__ == "__main__":
    main()
