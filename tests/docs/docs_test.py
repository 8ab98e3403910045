"""Tests of what checks the documentation: blocks and notes, anchors and links, the walk, the picture of a terminal."""
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree
from contextlib import redirect_stdout

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import markdown  # noqa: E402


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, os.path.join(HERE, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


check_links, walk, draw = script("check_links"), script("walk"), script("draw_terminal")

PAGE = """# One `page`

<!-- walk: replace two => 2 -->
<!-- a remark
walk: exit 3 -->

```sh
echo two
```

words take the notes away

```text
[not](a-link.md)
```

## Twice
## Twice

[one](#one-page), [other](other.md#there "title"), `[code](no.md)`, ![picture](a.png), <img src="b.png">, [out](https://x.example/y)
"""


class MarkdownTest(unittest.TestCase):
    def test_blocks_have_the_notes_right_before_them(self):
        first, second = markdown.blocks(PAGE)
        self.assertEqual((first.line, first.language, first.text), (7, "sh", "echo two\n"))
        self.assertEqual(first.notes, ["replace two => 2", "exit 3"])
        self.assertEqual((second.language, second.notes), ("text", []))

    def test_anchors_are_githubs(self):
        self.assertEqual(markdown.anchors(PAGE), {"one-page", "twice", "twice-1"})
        self.assertEqual(markdown.anchors("# What's `a_b`, and (C++)?\n```sh\n# no heading\n```\n"), {"whats-a_b-and-c"})
        self.assertEqual(markdown.anchors("## Predicted: [a](b.md) - c\n"), {"predicted-a---c"})

    def test_links_outside_of_code(self):
        self.assertEqual(markdown.links(PAGE),
                         [(20, "#one-page"), (20, "a.png"), (20, "b.png"), (20, "https://x.example/y"), (20, "other.md#there")])


class LinksTest(unittest.TestCase):
    def faults(self, text, files=("docs/page.md", "docs/other.md", "tools/setup")):
        pages = {"docs/page.md": text, "docs/other.md": "# There\n"}
        return [fault.split(" ", 1)[1] for fault in check_links.faults_of("docs/page.md", set(files), pages.get)]

    def test_what_leads_somewhere(self):
        self.assertEqual(self.faults("[a](other.md) [b](other.md#there) [c](../tools) [d](../tools/setup) [e](https://gone.example)"), [])

    def test_what_does_not_is_named(self):
        self.assertEqual(self.faults("[a](gone.md)"), ["gone.md: there is no docs/gone.md"])
        self.assertEqual(self.faults("[a](other.md#here)"), ["other.md#here: docs/other.md has no heading of that name"])
        self.assertEqual(self.faults("# Up\n[a](#down)"), ["#down: docs/page.md has no heading of that name"])
        self.assertEqual(self.faults("[a](/tools/setup)"), ["/tools/setup begins with /: write it relative to the file"])


class WalkTest(unittest.TestCase):
    def walked(self, text):
        """(commands, failures, skipped, what was printed) of a page, with no programs of ours."""
        programs, walk.PROGRAMS = walk.PROGRAMS, {}
        examples, walk.EXAMPLES = walk.EXAMPLES, None
        try:
            with redirect_stdout(io.StringIO()) as out:
                return (*walk.walk("page", text, False), out.getvalue())
        finally:
            walk.PROGRAMS, walk.EXAMPLES = programs, examples

    def test_blocks_run_in_one_folder_as_the_notes_say(self):
        ran, failed, skipped, _ = self.walked("```sh\necho 1 > a\n```\n<!-- walk: replace 7 => 1 -->\n```sh\ngrep 7 \\\n  a\n```\n"
                                              "<!-- walk: exit 1 -->\n```sh\ngrep 2 a\n```\n")
        self.assertEqual((ran, failed, skipped), (3, 0, []))

    def test_a_text_in_a_script_is_no_command(self):
        self.assertEqual(walk.commands_in("# why\ncat > a <<'END'\nfalse\nEND\nls \\\n  -l\n"), ["cat > a <<'END'", "ls    -l"])

    def test_a_command_that_fails_is_a_failure_and_ends_the_page(self):
        ran, failed, _, out = self.walked("```sh\ntrue\nfalse\ntrue\n```\n```sh\ntouch b\n```\n")
        self.assertEqual((ran, failed), (3, 1))
        self.assertIn("FAILED: page:1 ended with 1", out)

    def test_what_is_not_run_is_told_with_its_reason(self):
        ran, failed, skipped, _ = self.walked("<!-- walk: skip takes a day -->\n```sh\nfalse\n```\n")
        self.assertEqual((ran, failed, skipped), (0, 0, [("page:2", ["false"], "takes a day")]))

    def test_notes_that_say_nothing_are_faults(self):
        for page in ("<!-- walk: replace gone => there -->\n```sh\ntrue\n```\n", "<!-- walk: skip -->\n```sh\ntrue\n```\n",
                     "<!-- walk: later -->\n```sh\ntrue\n```\n", "```\ntrue\n```\n"):
            with self.assertRaises(walk.Fault):
                self.walked(page)

    def test_the_user_has_nothing_of_ours(self):
        os.environ["LEGOAI_HOST_DEVICE"] = "/somewhere"
        try:
            ran, failed, _, out = self.walked('```sh\ntest -z "${LEGOAI_HOST_DEVICE:-}"\ntest -z "$(ls -A "$HOME")"\n```\n')
        finally:
            del os.environ["LEGOAI_HOST_DEVICE"]
        self.assertEqual((ran, failed), (2, 0), out)

    def test_what_a_page_leaves_behind_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "pid")
            _, failed, _, out = self.walked(f"```sh\nsetsid sleep 600 >/dev/null 2>&1 & echo $! > {mark}\nsleep 0.2\n```\n")
            with open(mark) as file:
                left = int(file.read())
        self.assertEqual(failed, 0, out)
        while walk.state_of(left) not in (None, "Z"):  # a signal takes its time; what was not killed goes on for minutes
            time.sleep(0.01)

    def test_the_pages_are_well_formed(self):
        for page in walk.PAGES:
            path = os.path.join(HERE, "../..", page)
            if os.path.exists(path):  # not in Bazel's sandbox; tests/docs/walk reads them anyway
                with open(path, encoding="utf-8") as file:
                    for block in markdown.blocks(file.read()):
                        walk.plan_of(block)


class TerminalTest(unittest.TestCase):
    def test_long_lines_go_on_set_in_and_long_texts_end_with_a_word(self):
        self.assertEqual(draw.wrapped("one two three\n\nfour", 9, 9), ["one two", "    three", "", "four"])
        self.assertEqual(draw.wrapped("1\n2\n3\n4", 8, 3), ["1", "2", "... 2 more lines"])
        self.assertEqual(draw.wrapped("\x1b[1mbold\x1b[0m", 8, 3), ["bold"])

    def test_the_picture_has_the_text(self):
        tree = xml.etree.ElementTree.fromstring(draw.svg("lego plan <x>", ["a & b", "  c"], 20))
        texts = [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual(texts, ["$ lego plan <x>", "a & b", "c"])


if __name__ == "__main__":
    unittest.main()
