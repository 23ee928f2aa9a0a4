"""What several tests need."""

from __future__ import annotations

import re
import textwrap
import time

import numpy as np

from refocal.fitting.curves import spline
from refocal.maps import focal_temperature
from refocal.maps.chain import Chain
from refocal.maps.curves import Beta, Confidence, OneVsRest, Pieces
from refocal.maps.steps import KINDS, Affine, Floor, Focal, KeepTop, Mixture, Offset, Temperature, Uniform

# Seconds after which something hangs, on however busy a machine; nothing is faster or slower for it.
PATIENCE = 600


def wait_until(condition):
    """Wait until a condition holds, and return what it gave."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "still not so"
        time.sleep(0.05)
    return found


AFTER_THE_FIRST = "<!-- The other blocks of this page are run after this one. -->"


def python_blocks(page):
    """The Python blocks of a page, those in tabs without their indent; where it says so, each behind the first."""
    text = page.read_text()
    found = re.findall(r"^( *)```python(?: title=[^\n]*)?\n(.*?)^\1```", text, re.S | re.M)
    blocks = [textwrap.dedent(block) for _, block in found]
    if AFTER_THE_FIRST in text:
        blocks[1:] = [blocks[0] + block for block in blocks[1:]]
    return blocks


def to_numpy(array):
    return np.asarray(array.detach() if hasattr(array, "detach") else array)


def focal_log_loss(logits, labels, gamma, temperature):
    """The log-loss behind a temperature and the focal map, by the maps alone."""
    log_p = focal_temperature(np.asarray(logits, np.float64), gamma, temperature)
    return -log_p[np.arange(len(labels)), labels].mean()


def draw_logits(n_rows=1000, n_classes=5, seed=0, scale=2.0, temperature=1.0):
    """Logits (n_rows, n_classes), and labels drawn from their softmax at a temperature."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(n_rows, n_classes))
    return logits, np.argmax(logits / temperature + rng.gumbel(size=logits.shape), axis=1)


def draw_biased_logits(n_rows=1000, n_classes=5, seed=0, bias=1.0):
    """Logits of a network that rates its first class too low and its last too high, and labels."""
    truth, labels = draw_logits(n_rows, n_classes, seed)
    shift = np.zeros(n_classes)
    shift[0], shift[-1] = -bias, bias
    return 1.5 * (truth + shift), labels


# The checks of scikit-learn that calibrators of logits do not pass, and why.
FEATURES = "the check feeds a feature matrix whose columns are not the classes of y; logits have one column per class"
NOT_FOR_LOGITS = {
    "check_estimators_overwrite_params": FEATURES,
    "check_estimators_fit_returns_self": FEATURES,
    "check_readonly_memmap_input": FEATURES,
    "check_classifiers_classes": FEATURES,
    "check_classifiers_train": FEATURES,
    "check_class_weight_classifiers": "the check wants class_weight to weigh rows; ours is taken out of predictions",
    "check_dtype_object": "the check wants a TypeError for a dictionary among the numbers; ours is a DataError",
}


def set_screen(driver, width, scheme, media=""):
    """What the pages of a browser are shown on; those that are open already change too."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


DARKEST = """
const luminance = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((x) => {
    x /= 255; return x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = luminance(getComputedStyle(document.body).backgroundColor);
let worst = [99, ""];
for (const node of document.querySelectorAll("h1, h2, h3, p, td, th, dt, dd, figcaption, label, button, pre, strong")) {
  if (!node.textContent.trim() || !node.offsetParent) continue;
  const ink = luminance(getComputedStyle(node).color);
  const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
  if (ratio < worst[0]) worst = [ratio, node.outerHTML.slice(0, 80)];
}
return worst;
"""


def worst_contrast(driver):
    """The lowest contrast of a text with its page, and the text."""
    return driver.execute_script(DARKEST)


SMALLEST = """
const svg = arguments[0], scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
return scale * Math.min(...[...svg.querySelectorAll("text")].map((t) => parseFloat(getComputedStyle(t).fontSize)));
"""


def smallest_letters(driver, svg):
    """The size of the smallest letters of a figure, in pixels of the page."""
    return driver.execute_script(SMALLEST, svg)


def rising_curve(rng):
    """Straight pieces through four points that rise."""
    knots, values = np.sort(2 * rng.normal(size=4)), np.sort(2 * rng.normal(size=4))
    slopes = np.diff(values) / np.diff(knots)
    return Pieces.of((knots, ([values[0], *values], [0.7, *slopes, 0.5])))


def draw_chain(rng, n_classes):
    """Some steps in an order in which calibrators have them."""
    own = {
        "floor": lambda: Floor(-5.0),
        "affine": lambda: Affine(
            str(rng.choice(KINDS)),
            float(rng.uniform(0.5, 3)),
            rng.uniform(0.5, 2, n_classes).astype(np.float32),
            rng.normal(size=n_classes).astype(np.float32),
        ),
        "offset": lambda: Offset(rng.normal(size=n_classes)),
        "temperature": lambda: Temperature(float(rng.uniform(0.3, 4))),
        "focal": lambda: Focal(float(rng.choice([-0.8, -0.3, 0.0, 0.5, 3.0, 20.0]))),
    }
    last = [
        lambda: Confidence(rising_curve(rng)),
        lambda: Offset(rng.normal(size=n_classes)),
        lambda: KeepTop((Affine("logits", 1.0, rng.normal(size=(n_classes,) * 2), np.zeros(n_classes)),)),
    ]
    if n_classes == 2:
        last.append(lambda: OneVsRest(rising_curve(rng)))
    steps = [make() for make in own.values() if rng.random() < 0.5]
    if rng.random() < 0.6:
        steps.append(rng.choice(last)())
    return Chain(tuple(steps))


def draw_mixture(rng, n_classes):
    """A mixture as one-versus-rest calibrators and ensemble temperature scaling have it."""
    temperature, n_curves = Temperature(float(rng.uniform(0.3, 4))), 1 if n_classes == 2 else n_classes
    pieces = [rising_curve(rng) for _ in range(n_curves)]
    curves = [
        Pieces(np.vstack([each.knots for each in pieces]), np.hstack([each.coefficients for each in pieces])),
        Beta(np.abs(rng.normal(size=(n_curves, 3)))),
    ]
    members = [
        (Chain((temperature, OneVsRest(curves[int(rng.integers(2))]))), Uniform()),
        (temperature, Chain(), Uniform()),
        (Chain((temperature, Focal(2.0))), Uniform()),
    ][int(rng.integers(3))]
    return Chain((Floor(-8.0),) * int(rng.integers(2)) + (Mixture(members, rng.dirichlet(np.ones(len(members)))),))


def draw_rows(rng, n_classes):
    logits = rng.normal(size=(int(rng.integers(1, 40)), n_classes)) * float(rng.choice([0.01, 1, 5, 50, 1000]))
    if rng.random() < 0.3:  # ties
        logits = np.round(logits)
    if rng.random() < 0.3:  # classes that cannot occur
        logits[:, 1:][rng.random(logits[:, 1:].shape) < 0.3] = -np.inf
    return logits


def spline_at(x, knots, theta):
    """The value of a spline, by the step that applies it."""
    _, powers = spline(knots, theta)
    return Pieces.of((knots, powers)).apply(np, x)
