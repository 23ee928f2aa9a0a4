"""Fuzz the readers: `python tests/fuzz/fuzz.py [TARGET …] --runs N`, what `make fuzz` calls.

With atheris (pip install atheris; Linux) the mutations are guided by the coverage of refocal's own code; without it, or
with --plain, they are seeded and unguided. Every target runs in a process of its own with a limit on memory; a case
that raises anything but a typed error, takes longer than 10 seconds or ends the process is written to
tests/fuzz/corpus/TARGET and fails the run. Those files are regression tests from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
MEMORY = 6 << 30
SECONDS = 10
LAST = "last.bin"


def keep(target: str, data: bytes) -> Path:
    """Write a case into the corpus, under a name of its content."""
    place = CORPUS / target / hashlib.sha256(data).hexdigest()[:12]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    return place


class TooSlow(Exception):  # noqa: N818
    """A case took longer than it may."""


def _slow(*_: object) -> None:
    raise TooSlow(f"more than {SECONDS} seconds")


def plain(target: str, runs: int, seed: int, seconds: float) -> dict[str, object]:
    """Seeded mutations, one upon the other as long as they stay readable; stops at the first `seconds`."""
    from fuzz_mutate import mutate
    from fuzz_targets import TARGETS, folder, seeds

    rng, run, begin = random.Random(f"{target} {seed}"), TARGETS[target], time.monotonic()  # noqa: S311
    pool, read, failures, last = list(seeds(target)), 0, [], folder() / LAST
    start = len(pool)
    signal.signal(signal.SIGALRM, _slow)
    native = target in ("parquet", "safetensors", "pt")  # what can end the process is written down before
    done, kinds = 0, set()
    while done < runs and time.monotonic() - begin < seconds and len(failures) < 20:
        data = mutate(target, rng.choice(pool), rng)
        if native:
            last.write_bytes(data)
        signal.alarm(SECONDS)
        try:
            fine = run(data)
        except Exception as error:
            fine, where = False, traceback.extract_tb(error.__traceback__)[-1]
            kind = (type(error).__name__, where.filename, where.lineno)
            if kind not in kinds:  # one case of each
                kinds.add(kind)
                failures.append((str(keep(target, data)), traceback.format_exc(limit=-3)))
        finally:
            signal.alarm(0)
        done += 1
        read += fine
        if fine and rng.random() < 0.2:  # readable still: a good place to go on from
            pool.append(data) if len(pool) < 200 else pool.__setitem__(rng.randrange(start, 200), data)
    return {"target": target, "runs": done, "read": read, "failures": failures}


def guided(target: str, runs: int, seed: int, seconds: float) -> None:
    """libFuzzer through atheris; it reports and ends the process itself."""
    import atheris

    with atheris.instrument_imports(include=["refocal"]):
        from fuzz_targets import TARGETS, folder, seeds
    from fuzz_mutate import mutate

    start = folder() / "seeds"
    start.mkdir()
    known = sorted((CORPUS / target).glob("*")) if (CORPUS / target).is_dir() else []
    for i, data in enumerate([*seeds(target), *(path.read_bytes() for path in known)]):
        (start / str(i)).write_bytes(data)

    def custom(data: bytes, max_size: int, chance: int) -> bytes:
        return mutate(target, data, random.Random(chance))[:max_size]  # noqa: S311

    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    options = [f"-runs={runs}", f"-seed={seed + 1}", f"-timeout={SECONDS}", "-max_len=65536",
               f"-rss_limit_mb={MEMORY >> 20}", f"-max_total_time={int(seconds)}", "-print_final_stats=1",
               f"-artifact_prefix={CORPUS / target}/"]  # fmt: skip
    run = TARGETS[target]
    atheris.Setup([sys.argv[0], *options, str(start)], lambda data: run(data) and None, custom_mutator=custom)
    atheris.Fuzz()


def in_a_process(target: str, options: argparse.Namespace) -> dict[str, object]:
    command = [sys.executable, __file__, target, "--inside", f"--runs={options.runs}", f"--seed={options.seed}",
               f"--seconds={options.seconds}", *(["--plain"] if options.plain else [])]  # fmt: skip
    made = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if not options.plain:
        stats = dict(line.split(":")[-2:] for line in made.stderr.splitlines() if line.startswith("stat::"))
        runs = int(stats.get("number_of_executed_units", "0"))
        failures = [] if made.returncode == 0 else [(target, made.stderr[-3000:])]
        return {"target": target, "runs": runs, "read": None, "failures": failures}
    if made.returncode != 0:
        return {
            "target": target,
            "runs": 0,
            "read": 0,
            "failures": [(target, f"{made.returncode} {made.stderr[-3000:]}")],
        }
    return json.loads(made.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--runs", type=int, default=100_000, help="executions of each target")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most so long for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", default=find_spec("atheris") is None)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY * 8, MEMORY * 8) if not options.plain else (MEMORY, MEMORY))
        (target,) = options.targets
        work = plain if options.plain else guided
        found = work(target, options.runs, options.seed, options.seconds)
        print(json.dumps(found))
        return
    from fuzz_targets import TARGETS

    total, failed = 0, False
    for target in options.targets or TARGETS:
        start = time.monotonic()
        found = in_a_process(target, options)
        total, failed = total + found["runs"], failed or bool(found["failures"])
        seconds, problems = time.monotonic() - start, len(found["failures"])
        print(f"{target}: {found['runs']:,} executions in {seconds:.0f} s, {problems} failures", flush=True)
        for place, words in found["failures"]:
            print(f"  {place}\n{words}")
    print(f"{total:,} executions in all")
    sys.exit(failed)


if __name__ == "__main__":
    main()
