"""Reads an event file of ours with TensorBoard itself; read_tensorboard.txt is what it printed.

python3 -m venv v && v/bin/pip install tensorboard==2.20.0 setuptools==80.9.0 && v/bin/python read_tensorboard.py FOLDER
"""
import sys

import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1])
events.Reload()
print("tensorboard", tensorboard.__version__, "file version", events.file_version)
for tag in sorted(events.Tags()["scalars"]):
    for scalar in events.Scalars(tag):
        print(tag, scalar.step, f"{scalar.wall_time:.3f}", f"{scalar.value:.6g}")
