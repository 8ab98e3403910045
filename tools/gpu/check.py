#!/usr/bin/env python3
"""Checks LegoAI on a machine with a GPU: in at most nine minutes, without a network, the most important first.

  gpu_check --out DIR [--bin DIR] [--seconds N] [--only PART,...] [--device cuda|cpu] [--quick]

Writes report.json, report.md, log.txt and calibration.txtpb into --out, after every part: what was done when the time is up, or a
signal comes, is there. Prints what it finds, and last "N passed, N failed"; exit code 1 if something failed. What did not run is
named with its reason and counts as neither.

Parts, in order: facts; smoke, nccl, capture, program, other (tests of legoai-gpu-tests); parity (losses beside the CPU's, bf16,
checkpointing, as a program, resume, flight record, several cards); peaks (memory of recipes beside the prediction); steps (their
times beside PyTorch eager and the prediction); traces (single operators beside the prediction); calibration (lego-measure).

The programs lie side by side in --bin, or where a build left them (bazel-bin); LEGOAI_BIN names that folder, too."""
import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # as a module of a package, too

import check_calibrate
import check_facts
import check_gtest
import check_lego
import check_parity
import check_peaks
import check_process
import check_report
import check_steps
import check_traces

MOST_SECONDS = 540
MARGIN_SECONDS = 8  # to kill and write
# Program -> its places in a build tree or a wheel, from --bin.
PROGRAMS = {"lego": ["server/cli"], "lego-sim": ["simulator/estimate"], "lego-measure": ["simulator/measure"],
            "legoai-trainer": ["worker/train"], "legoai-gpu-tests": ["tests/gpu", "../tests"]}
OTHER_NAMES = {"legoai-gpu-tests": ["gpu_tests"]}
TEXT_BYTES = 1_000_000


def find_programs(folder):
    """Paths by name, of those that are there."""
    found = {}
    for name, places in PROGRAMS.items():
        for place in ["", *places]:
            for file in [name, *OTHER_NAMES.get(name, [])]:
                path = os.path.abspath(os.path.join(folder, place, file))
                if os.access(path, os.X_OK) and os.path.isfile(path):
                    found.setdefault(name, path)
    return found


class Plan:
    """A part with its time: it takes `limit` seconds at the most, and those before it leave it `reserve`."""

    def __init__(self, name, title, body, limit, reserve, columns=None):
        self.name, self.title, self.body, self.limit, self.reserve = name, title, body, limit, reserve
        self.columns = columns


def facts_part(context):
    context.report.facts.update({"LegoAI": context.build_version(), **check_facts.collect(context.device, context.gpus())})
    context.learn()
    if context.device == "cuda":
        card = context.report.facts.get("card", "")
        context.add("a card", "passed" if card else "failed", card or "neither nvidia-smi nor Python's torch sees one")
    for name, value in context.report.facts.items():
        context.report.progress(f"facts: {name}: {value}")
    missing = [name for name in PROGRAMS if name not in context.programs]
    context.note("Programs: " + ", ".join(context.programs) + (f"; not there: {', '.join(missing)}" if missing else "") + ".")


def plans():
    """In the order of what must be known first. The reserves add up to less than nine minutes."""
    return [
        Plan("facts", "The machine", facts_part, 60, 10),
        Plan("smoke", "Smoke: plugin, streams, events, allocator, operators", check_gtest.part("smoke"), 90, 30),
        Plan("nccl", "NCCL", check_gtest.part("nccl"), 90, 20),
        Plan("capture", "The capture beside a recording", check_gtest.part("capture"), 60, 20),
        Plan("program", "Graph mode: the captured step as a program", check_gtest.part("program"), 90, 30),
        Plan("other", "Other tests of the program", check_gtest.part("other"), 60, 10),
        Plan("parity", "Training beside the CPU's", check_parity.part, 150, 70),
        Plan("peaks", "Peak memory, measured and predicted", check_peaks.part, 160, 100, check_peaks.COLUMNS),
        Plan("steps", "Step times: ours, PyTorch eager, predicted", check_steps.part, 220, 90, check_steps.COLUMNS),
        Plan("traces", "Traced steps beside predicted ones", check_traces.part, 90, 40),
        Plan("calibration", "Calibration", check_calibrate.part, 165, 100),
    ]


class Context:
    """What parts see: programs, the time that is left to them, and where their lines go."""

    def __init__(self, args, report, log, programs, folder, now=time.monotonic):
        self.device, self.quick, self.out = args.device, args.quick, args.out
        self.report, self.log, self.programs, self.now = report, log, programs, now
        self.end = now() + args.seconds - MARGIN_SECONDS
        self.part, self.part_end = None, self.end
        self.tests, self.cards, self.estimates, self.costs = None, 0, {}, {}
        self.cluster, self.cluster_assumed, self.has_torch = "cpu:1x1", False, check_facts.has_torch()
        self.folder, self._lego = folder, None

    def build_version(self):
        if "lego" not in self.programs:
            return "lego is not there"
        result = check_process.run([self.programs["lego"], "--version"], 15)
        return (result.stdout.strip() or result.last_line()).splitlines()[0] if result.code == 0 else "unknown"

    def gpus(self):
        """What `lego hardware` says of this machine's cards."""
        if self.device == "cpu" or "lego" not in self.programs:
            return []
        result = self.run("lego hardware", [self.programs["lego"], "hardware", "-o", "json"], 30)
        try:
            return json.loads(result.stdout).get("gpus") or []
        except ValueError:
            return []

    def learn(self):
        """What follows from the facts."""
        facts = self.report.facts
        if self.device == "cpu":
            self.cards = len(os.sched_getaffinity(0))
            return
        self.cards = facts.get("cards", 0)
        kind = facts.get("type in the catalog", "none")
        self.cluster_assumed = kind == "none"
        self.cluster = f"{'h100-sxm-80' if self.cluster_assumed else kind}:1x1"

    @property
    def lego(self):
        if self._lego is None:
            self._lego = check_lego.Lego(self, self.folder, TEXT_BYTES if not self.quick else 200_000)
        return self._lego

    def left(self):
        return max(0.0, self.part_end - self.now())

    def cost(self, name, otherwise):
        """Seconds that a training took before."""
        return self.costs.get(name, otherwise)

    def run(self, title, command, limit, env=None, **options):
        """check_process.run, in the log."""
        programs = {f"LEGOAI_{short}": self.programs[name] for short, name in
                    (("SIM", "lego-sim"), ("TRAINER", "legoai-trainer"), ("MEASURE", "lego-measure")) if name in self.programs}
        environment = {**programs, **(env or {})}
        result = check_process.run(command, limit, env=environment, **options)
        self.log.add(f"{title} ({' '.join(command)[:300]}): code {result.code}, {result.seconds:.1f} s"
                     f"{', killed: ' + result.killed if result.killed else ''}", result.stdout, result.stderr)
        return result

    def add(self, name, state, text="", **figures):
        self.report.add(self.part, name, state, text, **figures)

    def note(self, text):
        self.part.notes.append(text)

    def skip_part(self, reason, state="skipped"):
        self.part.state, self.part.reason = state, reason
        self.report.progress(f"{self.part.name}: {state}: {reason}")


def needs(plan, context):
    """Why a part cannot run, or nothing."""
    if plan.name in ("parity", "peaks", "steps", "traces"):
        missing = [name for name in ("lego", "legoai-trainer", "lego-sim") if name not in context.programs]
        return f"programs are not there: {', '.join(missing)}" if missing else ""
    return ""


def run_part(plan, part, context, later):
    """Runs one part within its time. `later`: seconds that those after it are to have."""
    begun = context.now()
    context.part, context.part_end = part, min(begun + plan.limit, context.end - later)
    if context.left() < 3:
        return context.skip_part("the time was up", state="not run")
    why = needs(plan, context)
    if why:
        return context.skip_part(why, state="not run")
    context.report.progress(f"{plan.name}: begins, {context.left():.0f} s at the most")
    part.state, part.reason = "done", ""
    sampler = check_facts.Sampler(context.device if plan.name in ("peaks", "steps") else "", context.report.facts.get("uuid"))
    try:
        plan.body(context)
    except Exception as error:  # the parts after it can run all the same
        context.log.add(f"{plan.name}: the check itself failed", traceback.format_exc())
        context.add("the check itself", "failed", f"{type(error).__name__}: {error}")
    finally:
        sampled = sampler.end()
        if sampled:
            context.note(f"Meanwhile: {sampled}.")
        part.seconds = context.now() - begun
        context.report.write()


def check(args, context, chosen):
    """All parts; ended early by a signal, what is left is named."""
    report = context.report
    # Their places are in the report from the beginning: what never began is named.
    parts = [check_report.Part(plan.name, plan.title, plan.columns) for plan in chosen]
    report.parts += parts
    for part in parts:
        part.reason = "it did not begin"
    try:
        for i, plan in enumerate(chosen):
            run_part(plan, parts[i], context, sum(one.reserve for one in chosen[i + 1:]) * min(1.0, args.seconds / MOST_SECONDS))
    except check_process.Interrupted as signal_name:
        report.ended = str(signal_name)
        report.progress(f"ended by {signal_name}")
        if context.part in parts and context.part.state == "done":
            context.part.state, context.part.reason = "stopped", f"ended by {signal_name}"
        for part in parts:
            if part.reason == "it did not begin":
                part.reason = f"ended by {signal_name}"


def parse(argv):
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="a folder; it is made")
    parser.add_argument("--bin", default=os.environ.get("LEGOAI_BIN"), help="where the programs lie")
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help=f"in all (at most {MOST_SECONDS})")
    parser.add_argument("--only", default="", help="parts, between commas")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the check itself")
    parser.add_argument("--quick", action="store_true", help="tiny models")
    args = parser.parse_args(argv)
    names = [plan.name for plan in plans()]
    args.only = [word for word in args.only.split(",") if word]
    unknown = [word for word in args.only if word not in names]
    if unknown:
        parser.error(f"--only: {', '.join(unknown)}: parts are {', '.join(names)}")
    if not args.bin:
        parser.error("--bin or LEGOAI_BIN must say where the programs lie")
    if not 10 <= args.seconds <= MOST_SECONDS:
        parser.error(f"--seconds: from 10 to {MOST_SECONDS}")
    args.out = os.path.abspath(args.out)
    return args


def heed_signals():
    def heed(number, _):
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, signal.SIG_IGN)  # what is left to do is short
        raise check_process.Interrupted(signal.Signals(number).name)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, heed)


def main(argv=None):
    args = parse(argv)
    os.makedirs(args.out, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="legoai-gpu-check-")
    report = check_report.Report(args.out)
    context = Context(args, report, check_report.Log(args.out), find_programs(args.bin), folder)
    # What is left out has been asked for, and is not named; the facts are always there.
    chosen = [plan for plan in plans() if not args.only or plan.name in args.only or plan.name == "facts"]
    heed_signals()
    try:
        check(args, context, chosen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        report.write()
    for title, lines in (("not run", report.not_run()), ("skipped", report.skipped())):
        for line in lines:
            report.progress(f"{title}: {line}")
    report.progress(f"written: {', '.join(sorted(os.listdir(args.out)))} in {args.out}")
    print(report.closing(), flush=True)
    return 1 if report.count("failed") or report.ended else 0


if __name__ == "__main__":
    sys.exit(main())
