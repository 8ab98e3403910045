"""Tests of the check's own parts, without any program of LegoAI: python3 check_test.py."""
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import types
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import check
import check_facts
import check_gtest
import check_lego
import check_parity
import check_peaks
import check_process
import check_recipes
import check_report
import check_steps


def script(folder, name, body):
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(f"#!{sys.executable}\n" + textwrap.dedent(body))
    os.chmod(path, 0o755)
    return path


def ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"  # nobody may be there to reap it
    except OSError:
        return True


class InFolder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.addCleanup(self.temporary.cleanup)


class ProcessTest(InFolder):
    def test_what_hangs_is_killed_with_children_that_left_its_session(self):
        pids = os.path.join(self.folder, "pids")
        child = f"import os, time; os.setsid(); open({pids!r}, 'a').write(str(os.getpid()) + ' '); time.sleep(600)"
        program = script(self.folder, "hangs", f"""\
            import os, subprocess, sys, time
            for _ in range(2):
                subprocess.Popen([sys.executable, "-c", {child!r}])
            while len(open({pids!r}, 'a+').seek(0) or open({pids!r}).read().split()) < 2:
                time.sleep(0.01)
            print("begun", flush=True)
            time.sleep(600)
            """)
        heard = []
        result = check_process.run([program], 3, on_line=heard.append)
        self.assertEqual(result.killed, "did not end within 3 s")
        self.assertEqual(heard, ["begun"])
        with open(pids) as file:
            for pid in file.read().split():
                self.assertTrue(ended(int(pid)), pid)

    def test_a_child_that_holds_the_pipes_delays_nothing(self):
        program = script(self.folder, "leaves", """\
            import subprocess, sys
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            print("done")
            sys.exit(3)
            """)
        result = check_process.run([program], 60)
        self.assertEqual((result.code, result.killed, result.stdout), (3, "", "done\n"))
        self.assertLess(result.seconds, 600)  # which the child sleeps

    def test_what_has_cleared_its_environment_is_killed(self):
        result = check_process.run(["env", "-i", "sleep", "600"], 1)
        self.assertEqual(result.killed, "did not end within 1 s")
        self.assertLess(result.seconds, 600)  # which the child sleeps

    def test_what_cannot_be_killed_is_named_and_waited_for_no_longer(self):
        process = check_process.Process(["sleep", "600"])
        pid, wait = process.popen.pid, process.popen.wait
        process.popen.wait = lambda seconds: (_ for _ in ()).throw(subprocess.TimeoutExpired("sleep", seconds))
        self.assertEqual(process.kill(), [pid])
        wait(30)

    def test_all_of_a_quick_output_is_there(self):
        result = check_process.run([sys.executable, "-c", "print('x' * 99, *range(50000), sep='\\n')"], 60)
        self.assertEqual(result.stdout.splitlines()[-1], "49999")

    def test_the_middle_of_a_long_output_is_left_out(self):
        result = check_process.run([sys.executable, "-c", "print('first'); print('x' * 20000000); print('last')"], 60)
        self.assertTrue(result.stdout.startswith("first") and result.stdout.endswith("last\n"))
        self.assertLess(len(result.stdout), 5 << 20)

    def test_a_conversation(self):
        program = script(self.folder, "answers", """\
            import json, sys, time
            print("a warning that is no answer")
            print(json.dumps({"ready": True}), flush=True)
            for line in sys.stdin:
                request = json.loads(line)
                if request == "die":
                    sys.exit("why it died")
                if request == "hang":
                    time.sleep(600)
                print(json.dumps({"twice": 2 * request}), flush=True)
            """)
        child = check_process.Conversation([program])
        self.assertEqual(child.ask(None, 30), {"ready": True})
        self.assertEqual(child.ask(21, 30), {"twice": 42})
        self.assertIn("why it died", child.ask("die", 30)["error"])
        self.assertIn("why it died", child.ask(1, 30)["error"])
        child = check_process.Conversation([program])
        child.ask(None, 30)
        self.assertEqual(child.ask("hang", 1), {"error": "no answer within 1 s"})
        self.assertTrue(ended(child.process.popen.pid))


FAKE_TESTS = """\
    import os, sys, time
    TESTS = {"SmokeTest": ["Good", "Bad", "Absent", "Starts"], "SmokeOps/Deep": ["Dies/0", "Hangs/1", "After/2"],
             "NcclTest": ["Ring", "DISABLED_OneRank"], "Else": ["Thing"]}
    if "--gtest_list_tests" in sys.argv:
        for suite, names in TESTS.items():
            print(suite + ".")
            for name in names:
                print("  " + name + "  # GetParam() = 7")
        sys.exit(0)
    wanted = sys.argv[1].split("=")[1].split(":")
    code = 0
    for suite, names in TESTS.items():
        for name in (f"{suite}.{name}" for name in names):
            if name not in wanted:
                continue
            print("[ RUN      ]", name, flush=True)
            if "Dies" in name:
                print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
                os.abort()
            if "Hangs" in name:
                time.sleep(600)
            if "Starts" in name:
                for rank in (0, 1):
                    print("[ RUN      ] NcclTest.DISABLED_OneRank\\n[       OK ] NcclTest.DISABLED_OneRank (3 ms)", flush=True)
            if "Bad" in name:
                print("bad.cc:7: Failure\\nit is 3", flush=True)
                print("[  FAILED  ]", name, "(12 ms)")
                code = 1
            elif "Absent" in name:
                print("skip.cc:1: Skipped\\nneeds 2 cards\\n\\n[  SKIPPED ]", name, "(0 ms)")
            else:
                print("no line's end[       OK ]", name + ", where GetParam() = (1, 2) (5 ms)" if "/" in name else name + " (5 ms)")
    print("[  PASSED  ] 1 test.")
    print("[  FAILED  ] SmokeTest.Bad" if code else "")
    sys.exit(code)
    """


def context_of(folder, seconds=60.0, programs=None, device="cuda"):
    report = check_report.Report(folder, say=lambda *_, **__: None)
    args = types.SimpleNamespace(device=device, quick=True, out=folder, seconds=seconds)
    context = check.Context(args, report, check_report.Log(folder), programs or {}, folder)
    context.part = check_report.Part("part", "Part")
    report.parts.append(context.part)
    return context


def states(part):
    return {line["name"]: line["state"] for line in part.lines}


class GtestTest(InFolder):
    def setUp(self):
        super().setUp()
        self.before = check_gtest.TEST_SECONDS
        check_gtest.TEST_SECONDS = 2
        self.addCleanup(setattr, check_gtest, "TEST_SECONDS", self.before)
        self.program = script(self.folder, "legoai-gpu-tests", FAKE_TESTS)

    def test_each_test_is_told_and_the_rest_goes_on_after_one_that_dies_or_hangs(self):
        context = context_of(self.folder, programs={"legoai-gpu-tests": self.program})
        check_gtest.part("smoke")(context)
        self.assertEqual(states(context.part), {
            "SmokeTest.Good": "passed", "SmokeTest.Bad": "failed", "SmokeTest.Absent": "skipped", "SmokeTest.Starts": "passed",
            "SmokeOps/Deep.Dies/0": "failed", "SmokeOps/Deep.Hangs/1": "failed", "SmokeOps/Deep.After/2": "passed"})
        text = {line["name"]: line["text"] for line in context.part.lines}
        self.assertIn("it is 3", text["SmokeTest.Bad"])
        self.assertIn("needs 2 cards", text["SmokeTest.Absent"])
        self.assertIn("illegal memory access", text["SmokeOps/Deep.Dies/0"])
        self.assertIn("did not end within 2 s", text["SmokeOps/Deep.Hangs/1"])
        self.assertEqual(context.report.closing(), "3 passed, 3 failed")
        seconds = {line["name"]: line["seconds"] for line in context.part.lines}
        for name, expected in (("SmokeTest.Good", 0.005), ("SmokeTest.Bad", 0.012), ("SmokeTest.Starts", 0.005),
                               ("SmokeOps/Deep.After/2", 0.005), ("SmokeOps/Deep.Hangs/1", None)):
            self.assertEqual(seconds[name], expected, name)

    def test_what_the_parts_time_does_not_suffice_for_is_not_run(self):
        context = context_of(self.folder, programs={"legoai-gpu-tests": self.program})
        check_gtest.TEST_SECONDS = 60
        context.tests, context.part_end = ["SmokeOps/Deep.Hangs/1", "SmokeOps/Deep.After/2"], context.now() + 4
        check_gtest.part("smoke")(context)
        self.assertEqual(set(states(context.part).values()), {"not run"})
        self.assertEqual(context.report.closing(), "0 passed, 0 failed")

    def test_groups(self):
        context = context_of(self.folder, programs={"legoai-gpu-tests": self.program})
        check_gtest.part("nccl")(context)
        check_gtest.part("other")(context)
        self.assertEqual(states(context.part), {"NcclTest.Ring": "passed", "Else.Thing": "passed"})
        check_gtest.part("capture")(context)
        self.assertEqual((context.part.state, context.part.reason), ("not run", "the program has no test of this group"))

    def test_a_program_that_does_not_start_is_a_failure(self):
        broken = script(self.folder, "broken", "import sys; sys.exit('libtorch_cuda.so: cannot open shared object file')")
        context = context_of(self.folder, programs={"legoai-gpu-tests": broken})
        check_gtest.part("smoke")(context)
        self.assertEqual(context.report.closing(), "0 passed, 1 failed")
        self.assertIn("cannot open shared object file", context.part.lines[0]["text"])

    def test_without_the_program_or_a_gpu_nothing_is_counted(self):
        for device, programs, state in (("cpu", {"legoai-gpu-tests": self.program}, "skipped"), ("cuda", {}, "not run")):
            context = context_of(self.folder, programs=programs, device=device)
            check_gtest.part("smoke")(context)
            self.assertEqual((context.part.state, context.report.closing()), (state, "0 passed, 0 failed"))


class ReportTest(InFolder):
    def report(self):
        report = check_report.Report(self.folder, say=lambda *_, **__: None)
        report.parts += [check_report.Part("one", "One"), check_report.Part("two", "Two", [("name", "recipe", ""), ("ms", "ms", ".1f")]),
                         check_report.Part("three", "Three")]
        report.parts[2].reason = "it did not begin"
        report.add(report.parts[0], "a", "passed", "x | y")
        report.add(report.parts[0], "b", "failed", "why")
        report.add(report.parts[0], "c", "skipped", "one card")
        report.add(report.parts[0], "d", "not run", "no time")
        report.add(report.parts[1], "e", "passed", ms=1.25)
        return report

    def test_only_passed_and_failed_are_counted(self):
        report = self.report()
        self.assertEqual(report.closing(), "2 passed, 1 failed")
        self.assertEqual(report.not_run(), ["three: it did not begin", "one: d: no time"])
        self.assertEqual(report.skipped(), ["one: c: one card"])
        with self.assertRaises(AssertionError):
            report.add(report.parts[0], "f", "fine")

    def test_files(self):
        report = self.report()
        report.facts["card"] = "NVIDIA H100 80GB HBM3"
        report.write()
        with open(os.path.join(self.folder, "report.json")) as file:
            tree = json.load(file)
        self.assertEqual((tree["passed"], tree["failed"], tree["parts"][1]["lines"][0]["ms"]), (2, 1, 1.25))
        with open(os.path.join(self.folder, "report.md")) as file:
            text = file.read()
        for line in ("| card | NVIDIA H100 80GB HBM3 |", "| a | passed | x \\| y |", "| recipe | ms |", "| e | 1.2 |",
                     "not run: it did not begin", "- three: it did not begin"):
            self.assertIn(line + "\n", text)

    def test_the_log_is_cut(self):
        log = check_report.Log(self.folder)
        log.add("long", "begin" + "x" * 100000 + "end")
        for _ in range(400):
            log.add("many", "y" * 30000)
        with open(log.path) as file:
            text = file.read()
        self.assertLess(len(text), 9 << 20)
        self.assertIn("characters left out", text)
        self.assertEqual(text.count("the log is full"), 1)


class FactsTest(unittest.TestCase):
    def test_cards(self):
        self.assertEqual(check_facts.device_type("NVIDIA H100 80GB HBM3"), "h100-sxm-80")
        self.assertEqual(check_facts.device_type("NVIDIA H200"), "h200")
        for other in ("NVIDIA GH200 480GB", "NVIDIA GB200", "Tesla T4", ""):
            self.assertIsNone(check_facts.device_type(other), other)

    def test_smi(self):
        text = "NVIDIA H100 80GB HBM3, GPU-1, 81559 MiB\nNVIDIA H100 80GB HBM3, GPU-22, 81559 MiB\nNo devices\n"
        rows = check_facts.parse_smi(text, ["name", "uuid", "memory.total"])
        self.assertEqual([row["uuid"] for row in rows], ["GPU-1", "GPU-22"])
        seen = lambda variable: [row["uuid"] for row in check_facts.visible(rows, variable)]
        self.assertEqual(seen(None), ["GPU-1", "GPU-22"])
        self.assertEqual(seen("1,0"), ["GPU-22", "GPU-1"])
        self.assertEqual(seen("GPU-22"), ["GPU-22"])
        for nothing in ("", "-1", "7", "GPU-", "0,7,1"):
            self.assertEqual(seen(nothing), ["GPU-1"] if nothing == "0,7,1" else [], nothing)

    def test_what_lego_knows_wins(self):
        gpus = [{"index": 1, "uuid": "GPU-7", "name": "NVIDIA H200", "type": "h200", "memory_bytes": 150754820096}] * 2
        facts = check_facts.collect("cuda", gpus)
        self.assertEqual((facts["card"], facts["cards"], facts["type in the catalog"], facts["memory"]),
                         ("NVIDIA H200", 2, "h200", "143771 MiB"))
        self.assertEqual(check_facts.from_lego([{**gpus[0], "type": None}])["type in the catalog"], "none")
        self.assertEqual(check_facts.from_lego([]), {})

    def test_clocks(self):
        rows = [dict(zip(check_facts.Sampler.NAMES, values)) for values in (("1980", "650.5", "60"), ("1755", "[N/A]", "62"))]
        self.assertEqual(check_facts.Sampler.tell(rows),
                         "SM clock 1755 to 1980 MHz, median 1868; power 650 to 650 W, median 650; temperature 60 to 62 C, median 61")
        self.assertEqual(check_facts.Sampler.tell([]), "")


def metrics(losses, norms=None):
    return [{"step": i + 1, "attempt": 1, "loss": loss, "grad_norm": (norms or losses)[i]} for i, loss in enumerate(losses)]


class FiguresTest(InFolder):
    def test_parity(self):
        expected = metrics([5.0, 4.0, 3.0])
        verdict = lambda actual, first=1: check_parity.compare(expected, actual, (1e-4, 1e-3), first)[0]
        self.assertEqual(verdict(metrics([5.0004, 4.0, 3.0])), "passed")
        self.assertEqual(verdict(metrics([5.0006, 4.0, 3.0])), "failed")
        self.assertEqual(verdict(metrics([5.0, 4.0, 3.0], [5.0, 4.0, 3.004])), "failed")
        self.assertEqual(verdict(metrics([5.0, 4.0])), "failed")
        self.assertEqual(verdict(metrics([5.0, float("nan"), 3.0])), "failed")
        self.assertEqual(verdict(metrics([9.0, 4.0, 3.0]), first=2), "passed")
        self.assertEqual(verdict(metrics([5.0, 4.0, 3.0]), first=4), "failed")  # nothing was compared
        _, text, figures = check_parity.compare(expected, metrics([5.0, 4.0, 3.03]), (1e-4, 1e-3))
        self.assertIn("1.0e-02 apart (step 3", text)
        self.assertAlmostEqual(figures["loss_deviation"], 0.01)

    def test_peaks(self):
        self.assertEqual(check_peaks.judge(1000, 1009)[0], "passed")
        self.assertEqual(check_peaks.judge(1000, 1011)[0], "failed")
        self.assertEqual(check_peaks.judge(1000, 989)[0], "failed")
        self.assertEqual(check_peaks.judge(0, 989)[0], "failed")
        self.assertAlmostEqual(check_peaks.judge(2**30, 2**30 - 2**20)[2]["difference_mib"], -1)
        self.assertEqual((check_peaks.median([3, 1, 2]), check_peaks.median([4, 1, 2, 3]), check_peaks.median([])), (2, 2.5, None))

    def test_steps(self):
        times = {"ours": [[0.2, 0.3, 0.2], [0.2, 0.2, 9.0]], "program": [[0.1, 0.1, 0.1]], "theirs": [[0.4, 0.4, 0.4]]}
        figures = check_steps.summary(times, 0.1)
        self.assertEqual(figures["rounds"], 1)
        for name, value in (("ours_ms", 200), ("program_ms", 100), ("theirs_ms", 400), ("ratio", 0.5), ("predicted_ms", 100),
                            ("predicted_ratio", 0.5)):
            self.assertAlmostEqual(figures[name], value, msg=name)
        self.assertNotIn("predicted_ms", check_steps.summary(times, None))
        self.assertEqual(check_steps.summary({"ours": [], "program": [], "theirs": []}, 0.1)["rounds"], 0)

    def test_metrics_of_a_step_that_was_done_twice(self):
        path = os.path.join(self.folder, "metrics.jsonl")
        with open(path, "w") as file:
            for attempt, step, loss in ((1, 1, 5), (1, 2, 4), (1, 3, 9), (2, 3, 3)):
                file.write(json.dumps({"attempt": attempt, "step": step, "loss": loss}) + "\n")
            file.write('{"attempt": 2, "st')
        self.assertEqual([entry["loss"] for entry in check_lego.read_metrics(path)], [5, 4, 3])

    def test_hosts_do_not_meet_at_a_port_that_is_taken(self):
        free = check_lego.free_port()
        self.assertTrue(20000 <= free < 32000, free)
        with socket.socket() as taken, unittest.mock.patch.object(check_lego.random, "SystemRandom") as draw:
            taken.bind(("127.0.0.1", 0))
            draw.return_value.randint.side_effect = [taken.getsockname()[1], free]
            self.assertEqual(check_lego.free_port(), free)

    def test_recipes(self):
        import tomllib
        every = check_recipes.RECIPES + check_recipes.MORE_RECIPES
        self.assertEqual(len({check_recipes.file_name(recipe) for recipe in every}), 17)
        for recipe in every + [check_recipes.tiny(recipe) for recipe in every]:
            sections = check_lego.merged(recipe.sections("/a \"b\"", 3), {"training": {"seed": 1}})
            read = tomllib.loads(check_lego.toml(sections))
            self.assertEqual(read, sections)
            self.assertEqual((read["training"]["seq_len"], read["training"]["seed"]), (recipe.seq, 1))


class PlanTest(InFolder):
    def test_the_reserves_fit(self):
        plans = check.plans()
        self.assertLess(sum(plan.reserve for plan in plans), check.MOST_SECONDS - check.MARGIN_SECONDS)
        self.assertTrue(all(plan.reserve <= plan.limit for plan in plans))

    def test_a_part_leaves_the_later_ones_their_time(self):
        context, seen = context_of(self.folder, seconds=200), []
        for limit, later in ((1000, 50), (20, 50), (1000, 500)):
            part = check_report.Part("p", "P")
            check.run_part(check.Plan("p", "P", lambda c: seen.append(c.left()), limit, 1), part, context, later)
        self.assertEqual([round(x) for x in seen], [200 - check.MARGIN_SECONDS - 50, 20])
        self.assertEqual((part.state, part.reason), ("not run", "the time was up"))

    def test_an_error_of_the_check_is_a_failure_and_no_end(self):
        context, part = context_of(self.folder), check_report.Part("p", "P")
        context.report.parts.append(part)
        check.run_part(check.Plan("p", "P", lambda _: {}["x"], 50, 1), part, context, 0)
        self.assertEqual(context.report.closing(), "0 passed, 1 failed")

    def test_arguments(self):
        sys.stderr, stderr = io.StringIO(), sys.stderr
        self.addCleanup(setattr, sys, "stderr", stderr)
        for words in (["--out", "x"], ["--out", "x", "--bin", "y", "--only", "nothing"], ["--out", "x", "--bin", "y", "--seconds", "541"]):
            with self.assertRaises(SystemExit):
                check.parse(words)


class WholeTest(InFolder):
    """The program with programs that are none."""

    def call(self, *arguments, act=None):
        out = os.path.join(self.folder, "out")
        process = subprocess.Popen([sys.executable, os.path.join(HERE, "check.py"), "--bin", self.folder, "--out", out, *arguments],
                                   stdout=subprocess.PIPE, text=True)
        if act:
            act(process)
        self.addCleanup(process.kill)
        output = process.communicate(timeout=500)[0]
        with open(os.path.join(out, "report.json")) as file:
            return process.returncode, output.splitlines(), json.load(file)

    def test_without_programs_everything_is_named_and_nothing_is_counted(self):
        code, lines, tree = self.call("--device", "cpu", "--quick")
        self.assertEqual((code, lines[-1]), (0, "0 passed, 0 failed"))
        self.assertIn("peaks: programs are not there: lego, legoai-trainer, lego-sim", tree["not_run"])
        self.assertEqual(len(tree["parts"]), len(check.plans()))
        self.assertTrue(all(part["reason"] for part in tree["parts"][1:]))

    def hang_in_training(self):
        pids = os.path.join(self.folder, "pids")
        for name in ("legoai-trainer", "lego-sim"):
            script(self.folder, name, "pass")
        script(self.folder, "lego", f"""\
            import os, sys, time
            if "--version" in sys.argv:
                sys.exit(print("lego 1.2.3"))
            open({pids!r}, "a").write(str(os.getpid()) + " ")
            time.sleep(600)
            """)
        return pids

    def pids(self, path):
        with open(path) as file:
            return [int(word) for word in file.read().split()]

    def test_what_hangs_is_killed_when_the_time_is_up(self):
        pids = self.hang_in_training()
        code, lines, tree = self.call("--device", "cpu", "--quick", "--seconds", "20", "--only", "parity")
        self.assertEqual((code, lines[-1], tree["facts"]["LegoAI"]), (0, "0 passed, 0 failed", "lego 1.2.3"))
        self.assertTrue(any("parity: llama: fp32" in line for line in tree["not_run"]), tree["not_run"])
        self.assertTrue(self.pids(pids) and all(ended(pid) for pid in self.pids(pids)))

    def test_a_signal_ends_it_with_a_report(self):
        pids = self.hang_in_training()

        def act(process):
            while not os.path.exists(pids) or not self.pids(pids):
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        code, lines, tree = self.call("--device", "cpu", "--quick", act=act)
        self.assertEqual((code, lines[-1], tree["ended"]), (1, "0 passed, 0 failed", "SIGTERM"))
        self.assertIn("peaks: ended by SIGTERM", tree["not_run"])
        self.assertTrue(all(ended(pid) for pid in self.pids(pids)))


if __name__ == "__main__":
    unittest.main()
