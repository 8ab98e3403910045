"""Tests of the C++ program, counted one by one. A test that hangs or dies is a failure with its name, and the rest goes on in a
new process: a first run on a new card must tell of more than its first trouble."""
import re

import check_process

RESULT = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+)(?:.*\((\d+) ms\))?")
STATE = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
TEST_SECONDS = 60  # of one test; the first that meets NCCL or compiles a kernel takes some
GROUPS = {"smoke": "Smoke", "nccl": "Nccl", "capture": "Capture", "program": "Program"}


def parse_list(text):
    """Names of --gtest_list_tests. Disabled ones are what other tests run in processes of their own."""
    names, suite = [], ""
    for line in text.splitlines():
        word = line.split("#")[0].strip()
        if not word:
            continue
        if line[0] != " ":
            suite = word if word.endswith(".") else ""
        elif suite and not word.startswith("DISABLED_") and "DISABLED_" not in suite:
            names.append(suite + word)
    return names


def group_of(name):
    """"smoke" of "Smoke.X", "SmokeOps/0.X", "Sizes/Smoke.X/3"; "other" of the rest."""
    suite = name.split(".")[0].split("/")
    return next((group for group, begin in GROUPS.items() if any(part.startswith(begin) for part in suite)), "other")


def shorten(lines):
    text = " ".join(line.strip() for line in lines if line.strip())
    return text if len(text) <= 400 else text[:200] + " ... " + text[-200:]


class Listener:
    """Hears the program's output and knows which of the tests `names` runs. One that starts this program again, for ranks of its
    own, lets it speak in between, of other tests."""

    def __init__(self, now, names, on_result):
        self.now, self.names, self.on_result = now, set(names), on_result
        self.running, self.since, self.said = None, 0.0, []

    def hear(self, line):
        found = RESULT.search(line)
        if not found or found.group(2) not in self.names:
            self.said.append(line)
            return
        kind, name, milliseconds = found.groups()
        if kind == "RUN":
            self.running, self.since, self.said = name, self.now(), []
        elif name == self.running:  # the summary at the end names failed and skipped ones again
            self.running = None
            self.on_result(name, STATE[kind], "" if kind == "OK" else shorten(self.said),
                           int(milliseconds) / 1000 if milliseconds else None)

    def overdue(self):
        if self.running and self.now() - self.since > TEST_SECONDS:
            return f"did not end within {TEST_SECONDS} s"
        return ""


def run(context, program, names):
    """Runs these tests; every one gets a line."""
    left = list(names)

    def told(name, state, text, seconds):
        if name in left:
            left.remove(name)
            context.add(name, state, text, seconds=seconds)

    while left:
        if context.left() < 2:
            break
        before, listener = len(left), Listener(context.now, left, told)
        result = context.run(f"tests {left[0]} and {len(left) - 1} more", [program, "--gtest_filter=" + ":".join(left)],
                             context.left(), on_line=listener.hear, overdue=listener.overdue)
        hung = listener.running
        if hung and result.killed:
            own = listener.overdue()
            if not own:
                break  # the part's time is up, not the test's
            told(hung, "failed", f"{own}, and was killed; before that: {shorten(listener.said[-5:])}", None)
        elif hung:
            told(hung, "failed", f"the program died with code {result.code}: {shorten(listener.said + [result.last_line()])}", None)
        elif left and len(left) == before:
            for name in list(left):
                told(name, "failed", f"the program ended with code {result.code} without running it: {result.last_line()}", None)
        elif not left and result.code not in (0, 1):
            context.add("the end of the program", "failed", f"after the tests it ended with code {result.code}: {result.last_line()}")
    for name in list(left):
        told(name, "not run", "the part's time was up", None)


def listed(context, program):
    """Names of all tests; None, and a failed line, if the program does not even say them."""
    result = context.run("the list of tests", [program, "--gtest_list_tests"], min(30, context.left()))
    if result.code != 0:
        context.add("the program of the tests", "failed", result.killed or f"ended with code {result.code}: {result.last_line()}")
        return None
    return parse_list(result.stdout)


def part(group):
    def body(context):
        if context.device != "cuda":
            return context.skip_part("these tests need a GPU (--device cuda)")
        program = context.programs.get("legoai-gpu-tests")
        if program is None:
            return context.skip_part("the program legoai-gpu-tests is not there", state="not run")
        if context.tests is None:
            context.tests = listed(context, program)
        names = [name for name in context.tests or [] if group_of(name) == group]
        if not names and context.tests is not None:
            return context.skip_part("the program has no test of this group", state="not run")
        run(context, program, names)
    return body
