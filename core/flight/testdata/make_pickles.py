#!/usr/bin/env python3
"""Writes testdata/pickle: dumps as torch.distributed's flight recorder pickles them (version 2.10 of its format), and pickles that
are to be refused. Python's own pickle module writes them (protocol 2, as PyTorch does); no torch is needed.

Two ranks of a job of four in which rank 1 has not entered the third all_reduce of the default group. They are also pipeline
neighbours, who exchange two messages launched as one, and rank 0 gathers two tensors at once.

    python3 core/flight/testdata/make_pickles.py
"""
import os
import pickle

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pickle")
FRAMES = [{"name": "train_step", "filename": "train.py", "line": 42}, {"name": "<module>", "filename": "train.py", "line": 99}]
START = 1724779239936775119


class Recorder:
    """Counts as c10d does: numbers of collectives and of messages by group, record ids over all."""

    def __init__(self):
        self.entries, self.collectives, self.messages, self.operations = [], {}, {}, {}

    def add(self, group, name, inputs, outputs, state="completed", p2p=False, dtype="Float", launch=True):
        counts = self.messages if p2p else self.collectives
        counts[group] = counts.get(group, 0) + (1 if launch else 0)
        self.operations[group] = self.operations.get(group, 0) + 1
        started = None if state == "scheduled" else START + 10
        self.entries.append({
            "frames": FRAMES, "record_id": len(self.entries), "pg_id": group[0], "process_group": (group[1], group[2]),
            "thread_name": "python3", "thread_id": "140000000000000",
            "collective_seq_id": self.collectives.get(group, 0), "p2p_seq_id": self.messages.get(group, 0),
            "op_id": self.operations[group], "profiling_name": "nccl:" + name, "time_created_ns": START + len(self.entries),
            "duration_ms": 0.25, "input_sizes": inputs, "input_dtypes": [dtype] * len(inputs), "output_sizes": outputs,
            "output_dtypes": [dtype] * len(outputs), "state": state, "time_discovered_started_ns": started,
            "time_discovered_completed_ns": START + 20 if state == "completed" else None,
            "retired": state == "completed", "timeout_ms": 600000, "is_p2p": p2p})


def dump(rank):
    world, pipeline = (0, "0", "default_pg"), (1, "3", "undefined")
    recorder = Recorder()
    for _ in range(2):
        recorder.add(world, "all_reduce", [[1024, 3]], [[1024, 3]])
    if rank == 0:
        recorder.add(pipeline, "send 0->1", [[4, 8]], [[4, 8]], "scheduled", p2p=True)
        recorder.add(pipeline, "recv 0<-1", [[4, 8]], [[4, 8]], "scheduled", p2p=True, launch=False)
    else:
        recorder.add(pipeline, "recv 1<-0", [[4, 8]], [[4, 8]], "scheduled", p2p=True)
        recorder.add(pipeline, "send 1->0", [[4, 8]], [[4, 8]], "scheduled", p2p=True, launch=False)
    recorder.add(pipeline, "coalesced", [], [], "completed", p2p=True, launch=False)
    recorder.add(pipeline, "all_gather", [[2], [3, 1]], [[2], [2], [3, 1], [3, 1]], dtype="BFloat16")
    if rank == 0:
        recorder.add(world, "all_reduce", [[1024, 3]], [[1024, 3]], "started")
    return {
        "version": "2.10", "comm_lib_version": "2.28.9",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                      "3": {"name": "3", "desc": "undefined", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 3, "last_started_collective": 3, "last_completed_collective": 2}},
        "entries": recorder.entries,
        "nccl_comm_state": {"0x7f": {"rank": str(rank), "nranks": "4"}},
    }


class Harmful:
    def __reduce__(self):
        return (os.getcwd, ())


def write(name, value, protocol=2):
    with open(os.path.join(FOLDER, name), "wb") as file:
        file.write(pickle.dumps(value, protocol=protocol))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for rank in range(2):
        write(f"nccl_trace_rank_{rank}", dump(rank))
    write("values.pickle", {
        "integers": [0, 1, -1, 255, 256, 65535, 65536, -2**31, 2**31, -2**63, 2**63 - 1], "floats": [0.0, -1.5, 1e300],
        "others": (True, False, None, "", "Größe", (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], {}), "many": list(range(3000))})
    write("calls_a_function.pickle", {"entries": [Harmful()]})
    write("of_protocol_4.pickle", {"version": "2.10"}, protocol=4)
    write("of_bytes.pickle", {"version": b"2.10"}, protocol=2)
    write("of_a_set.pickle", {"version": {1, 2}}, protocol=2)
    write("of_a_long_integer.pickle", {"version": 2**64})
    write("of_a_number_as_key.pickle", {1: 2})
    shared = ["x"] * 10
    for _ in range(12):
        shared = [shared] * 10
    write("of_a_trillion_values.pickle", shared)
    circle = []
    circle.append(circle)
    write("of_a_circle.pickle", circle)


main()
