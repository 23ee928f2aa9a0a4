"""Tables as printed: the paper's own (Komisarenko & Kull 2024, Table 1) and that of the trainings which it follows."""

from __future__ import annotations

from typing import NamedTuple

# ResNet-50, five seeds. Data set, training, γ of focal temperature scaling (- for temperature scaling); then accuracy
# and its deviation, log-loss, its deviation and T, ECE, its deviation and T. Accuracy and ECE are percentages.
_TABLE = """
cifar100 cross-entropy     -  77.6 0.6  0.88 0.02 1.31  3.01 0.43 1.45
cifar100 cross-entropy  -0.5  77.6 0.6  0.86 0.02 1.17  2.13 0.42 1.35
cifar100 focal-1           -  77.7 0.3  0.83 0.01 1.05  1.66 0.23 1.15
cifar100 focal-1       -0.25  77.7 0.3  0.82 0.01 1.00  1.34 0.17 1.10
cifar100 focal-3           -  77.3 0.5  0.81 0.02 0.87  1.28 0.15 0.91
cifar100 focal-3        0.05  77.3 0.5  0.82 0.02 0.87  1.23 0.14 0.95
cifar100 focal-7           -  76.3 0.5  0.83 0.01 0.70  1.83 0.20 0.65
cifar100 focal-7         0.5  76.3 0.5  0.83 0.01 0.75  0.99 0.07 0.75
cifar100 flsd-53           -  77.5 0.5  0.88 0.01 1.20  1.89 0.18 1.27
cifar100 flsd-53        0.25  77.5 0.3  0.88 0.02 1.05  1.68 0.19 1.15
cifar100 adafocal          -  77.6 0.2  0.91 0.03 1.40  2.96 0.22 1.52
cifar100 adafocal       0.25  77.6 0.2  0.93 0.03 1.48  2.71 0.17 1.60
cifar10 cross-entropy      -  95.0 0.1  0.16 0.00 1.59  1.03 0.17 1.72
cifar10 cross-entropy      1  95.0 0.1  0.17 0.01 2.20  0.71 0.16 2.36
cifar10 focal-1            -  95.0 0.1  0.17 0.01 1.05  1.05 0.25 1.13
cifar10 focal-1          0.5  95.0 0.1  0.17 0.01 1.30  0.82 0.35 1.37
cifar10 focal-3            -  94.3 0.3  0.19 0.01 0.75  1.48 0.25 0.77
cifar10 focal-3            5  94.3 0.3  0.20 0.01 1.83  0.93 0.16 1.87
cifar10 focal-7            -  93.1 0.1  0.23 0.01 0.49  0.66 0.07 0.44
cifar10 focal-7         0.37  93.1 0.1  0.22 0.01 0.55  0.61 0.10 0.52
cifar10 flsd-53            -  94.6 0.1  0.18 0.01 1.40  1.30 0.13 1.40
cifar10 flsd-53            1  94.6 0.1  0.17 0.01 1.30  1.23 0.20 1.33
cifar10 adafocal           -  94.9 0.2  0.18 0.01 1.58  1.80 0.17 1.63
cifar10 adafocal           5  94.9 0.2  0.20 0.02 3.70  0.95 0.10 3.70
tinyimagenet cross-entropy     -  49.9 0.1  2.21 0.00 1.35  5.57 0.31 1.40
tinyimagenet cross-entropy  -0.5  49.9 0.1  2.19 0.00 1.30  3.66 0.18 1.40
tinyimagenet focal-1           -  50.6 0.2  2.11 0.01 1.10  3.27 0.13 1.20
tinyimagenet focal-1        -0.5  50.6 0.2  2.10 0.01 1.10  1.86 0.12 1.18
tinyimagenet focal-3           -  51.6 0.1  2.04 0.01 0.95  2.21 0.14 0.98
tinyimagenet focal-3       -0.25  51.6 0.1  2.03 0.01 0.95  1.63 0.05 0.97
tinyimagenet focal-7           -  50.9 0.3  2.01 0.02 0.85  1.01 0.02 0.85
tinyimagenet focal-7        0.05  50.9 0.3  2.01 0.02 0.85  0.96 0.00 0.85
tinyimagenet flsd-53           -  52.1 0.1  2.02 0.01 0.95  2.06 0.17 0.98
tinyimagenet flsd-53       -0.25  52.1 0.1  2.02 0.01 0.95  1.48 0.22 0.95
tinyimagenet adafocal          -  51.6 0.3  2.07 0.03 1.05  2.97 0.67 1.10
tinyimagenet adafocal       -0.5  51.6 0.3  2.07 0.03 1.05  1.89 0.24 1.09
"""


class Printed(NamedTuple):
    """A row of the paper's table: mean, standard deviation and chosen T; γ is None for temperature scaling."""

    gamma: float | None
    accuracy: float
    accuracy_sd: float
    log_loss: float
    log_loss_sd: float
    log_loss_temperature: float
    ece: float
    ece_sd: float
    ece_temperature: float


def _parse(text: str) -> dict[tuple[str, str, str], Printed]:
    rows = {}
    for line in text.split("\n")[1:-1]:
        dataset, loss, gamma, *numbers = line.split()
        method = "TS" if gamma == "-" else "FTS"
        rows[dataset, loss, method] = Printed(None if method == "TS" else float(gamma), *map(float, numbers))
    return rows


# (data set, training, "TS" or "FTS") → row. The paper prints none for focal loss with γ = 2 and 5.
PRINTED = _parse(_TABLE)


class Reported(NamedTuple):
    """A row of Mukhoti et al. (2020), whose recipe the paper takes over: accuracy, ECE before and after TS, T; in %.

    ECE has 15 bins of equal width there, and T is chosen by it in steps of 0.1.
    """

    accuracy: float
    ece: float
    ece_scaled: float
    temperature: float


# As Ghosh et al. (2022), Tables 1 and 2, print them; those of AdaFocal are their own. ResNet-50.
REPORTED = {
    ("cifar10", "cross-entropy"): Reported(95.05, 4.35, 1.35, 2.5),
    ("cifar10", "brier"): Reported(95.0, 1.82, 1.08, 1.1),
    ("cifar10", "mmce"): Reported(95.01, 4.56, 1.19, 2.6),
    ("cifar10", "label-smoothing"): Reported(94.71, 2.96, 1.67, 0.9),
    ("cifar10", "flsd-53"): Reported(95.02, 1.55, 0.95, 1.1),
    ("cifar10", "adafocal"): Reported(94.7, 0.8, 0.65, 1.08),
    ("cifar100", "cross-entropy"): Reported(76.7, 17.52, 3.42, 2.1),
    ("cifar100", "brier"): Reported(76.61, 6.52, 3.64, 1.1),
    ("cifar100", "mmce"): Reported(76.8, 15.32, 2.38, 1.8),
    ("cifar100", "label-smoothing"): Reported(76.57, 7.81, 4.01, 1.1),
    ("cifar100", "flsd-53"): Reported(76.78, 4.5, 2.0, 1.1),
    ("cifar100", "adafocal"): Reported(77.4, 1.3, 1.3, 1.0),
    ("tinyimagenet", "cross-entropy"): Reported(50.19, 15.32, 5.48, 1.4),
    ("tinyimagenet", "brier"): Reported(46.8, 4.44, 4.13, 0.9),
    ("tinyimagenet", "mmce"): Reported(48.69, 13.01, 5.55, 1.3),
    ("tinyimagenet", "label-smoothing"): Reported(52.88, 15.23, 6.51, 0.7),
    ("tinyimagenet", "flsd-53"): Reported(50.94, 1.76, 1.76, 1.0),
    ("tinyimagenet", "adafocal"): Reported(51.74, 2.41, 2.25, 0.96),
}
