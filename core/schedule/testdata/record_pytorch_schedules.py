"""Records the orders of PyTorch's schedules in a V, which schedule_csv_test compares with.

    python3 core/schedule/testdata/record_pytorch_schedules.py .../torch/distributed/pipelining/schedules.py    # of torch 2.11.0

Writes NAME_RANKS_MICROBATCHES.csv beside this script as _dump_csv does, "compute_only"; DualPipeV's overlapped pairs are written one
after the other. Runs the two methods of that file that make the orders, and what they are made of, without the rest of torch.
"""

import ast
import pathlib
import re
import sys
import types
from enum import Enum
from typing import NamedTuple

FILES = [("ZBVZeroBubble", 4, 10), ("ZBVZeroBubble", 3, 2), ("DualPipeV", 2, 6), ("DualPipeV", 4, 10)]


def load(path):
    space = {"Enum": Enum, "NamedTuple": NamedTuple, "re": re, "__name__": "schedules"}
    space["generate_rank_to_stage_mapping"] = lambda ranks, stages, style: {r: [r, stages - 1 - r] for r in range(ranks)}
    methods = {}
    future = ast.parse("from __future__ import annotations").body
    for node in ast.parse(path.read_text()).body:
        is_order = isinstance(node, ast.ClassDef) and node.name in {"Schedule" + name for name, _, _ in FILES}
        if is_order:
            [method] = [part for part in node.body if getattr(part, "name", "") == "_calculate_single_rank_operations"]
            exec(compile(ast.Module(future + [method], []), path, "exec"), space)
            methods[node.name] = space.pop(method.name)
        elif getattr(node, "name", "") in ("_ComputationType", "_Action") or isinstance(node, ast.Assign):
            if isinstance(node, ast.Assign) and not re.fullmatch(r"[A-Z_]+", getattr(node.targets[0], "id", "")):
                continue
            exec(compile(ast.Module(future + [node], []), path, "exec"), space)
    return methods


def parts(action):
    return action.sub_actions or (action,)


def main():
    methods = load(pathlib.Path(sys.argv[1]))
    for name, ranks, microbatches in FILES:
        stages = 2 * ranks
        owner = types.SimpleNamespace(pp_group_size=ranks, num_stages=stages, _num_stages=stages, _n_microbatches=microbatches)
        lines = []
        for rank in range(ranks):
            order = methods["Schedule" + name](owner, rank)
            lines.append(",".join(str(part) for action in order if action for part in parts(action)))
        path = pathlib.Path(__file__).parent / f"{name}_{ranks}_{microbatches}.csv"
        path.write_text("\n".join(lines) + "\n")


main()
