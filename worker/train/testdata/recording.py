"""What the scripts beside this file that record optimizers of torch.optim share. Of torch 2.11.0; run them again only when a case
is added:

    python3 -m venv VENV && VENV/bin/pip install torch==2.11.0
    VENV/bin/python record_optimizers.py

Lines that all records have: of each parameter "shape ROWS COLUMNS" and "gradient STEP PARAMETER NUMBER ..."; then of each case
"case NAME" and "value STEP PARAMETER NUMBER ..." (step 0: before the first).
"""
import pathlib

import torch

assert torch.__version__.startswith("2.11.0"), torch.__version__


def numbers(tensor):
    return " ".join(f"{x:.9g}" for x in tensor.detach().flatten().tolist())


class Record:
    """Parameters and gradients of normal numbers, and the lines of a file about them."""

    def __init__(self, seed, shapes, steps):
        torch.manual_seed(seed)
        self.start = [torch.randn(s) for s in shapes]
        self.gradients = [[torch.randn(s) for s in shapes] for _ in range(steps)]  # by step from 1, less 1, and parameter
        self.lines = [f"shape {rows} {columns}" for rows, columns in shapes]
        for step, of in enumerate(self.gradients):
            self.tensors("gradient", step + 1, of)

    def line(self, *words):
        self.lines.append(" ".join(str(word) for word in words))

    def tensors(self, kind, step, tensors):
        for i, tensor in enumerate(tensors):
            self.line(kind, step, i, numbers(tensor))

    def case(self, name, parameters):
        self.line("case", name)
        self.tensors("value", 0, parameters)

    def write(self, script):
        """NAME.txt beside record_NAME.py."""
        path = pathlib.Path(script)
        path.with_name(path.stem.removeprefix("record_") + ".txt").write_text("\n".join(self.lines) + "\n")
