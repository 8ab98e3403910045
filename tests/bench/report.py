"""What the benchmarks in Python share: calling lego, and printing rows as a table or as JSON."""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def lego(*arguments):
    """Runs lego with -o json; gives (exit code, the parsed answer or None, the last line of standard error)."""
    run = subprocess.run([os.path.join(ROOT, "lego"), *arguments, "-o", "json"], capture_output=True, text=True, cwd=ROOT)
    answer = json.loads(run.stdout) if run.stdout.strip() else None
    return run.returncode, answer, (run.stderr.strip().splitlines() or [""])[-1]


def text(value):
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def report(rows, notes=()):
    """Prints the rows: a table, or {"rows": [...]} with --json."""
    if "--json" in sys.argv:
        print(json.dumps({"rows": rows, "notes": list(notes)}, indent=1))
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[text(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in [columns, *cells]) for i in range(len(columns))]
    for line in [columns, *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    for note in notes:
        print(note)
