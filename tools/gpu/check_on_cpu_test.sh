#!/usr/bin/env bash
# check_on_cpu_test.sh CHECK.py PROGRAM...: the check from end to end on the CPU, with the programs side by side as in the bundle.
set -euo pipefail
check=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/home"
for program in "$@"; do ln -s "$(readlink -f "$program")" "$folder/bin/"; done
code=0
HOME=$folder/home PYTHONDONTWRITEBYTECODE=1 python3 "$check" --bin "$folder/bin" --out "$folder/out" --device cpu --quick |
  tee "$folder/printed" || code=$?
python3 - "$folder" "$code" <<'EOF'
import json, os, re, sys

folder, code = sys.argv[1], int(sys.argv[2])
last = open(os.path.join(folder, "printed")).read().splitlines()[-1]
report = json.load(open(os.path.join(folder, "out", "report.json")))
parts = {part["name"]: part for part in report["parts"]}
states = {part: {line["name"]: line["state"] for line in parts[part]["lines"]} for part in parts}
assert code == 0, f"exit code {code}"
assert re.fullmatch(rf"{report['passed']} passed, 0 failed", last), last
for part in ("smoke", "nccl", "capture", "program", "other", "calibration"):
    assert parts[part]["state"] == "skipped" and "--device cuda" in parts[part]["reason"], parts[part]
    assert any(line.startswith(part + ": ") for line in report["skipped"]), report["skipped"]
for family in ("llama", "gpt2 with dropout"):
    for what in ("fp32 on cpu beside the CPU", "bf16 beside fp32 of the CPU", "flight record", "full checkpointing beside none",
                 "as a program beside eager", "traced step beside the predicted one", "resumed at step 3"):
        assert states["parity"][f"{family}: {what}"] == "passed", (family, what)
peaks = {line["name"]: line for line in parts["peaks"]["lines"]}
assert len(peaks) == 17
for name, line in peaks.items():
    assert line["predicted_bytes"] > 1e6 and line["measured_bytes"] > 1e6, line
    assert line["state"] == "passed" or "bf16" in name or "fp16" in name, line
    assert "fp32" not in name or line["error_percent"] == 0, line  # to the byte, on every CPU
# Without Python's torch there is nothing to compare with; with it every recipe has both times.
steps = parts["steps"]
assert steps["reason"].startswith("no Python torch") or all(line["rounds"] == 2 for line in steps["lines"] if "rounds" in line), steps
assert [line["state"] for line in parts["traces"]["lines"]] == 4 * ["passed"], parts["traces"]["lines"]
traces = open(os.path.join(folder, "out", "traces.txt")).read()
assert traces.count("=== tiny ") == 4 and "optimizer" in traces, traces
for file in ("report.md", "log.txt"):
    assert 0 < os.path.getsize(os.path.join(folder, "out", file)) < 16 << 20, file
assert "| tiny gpt2 fp32 | passed |" in open(os.path.join(folder, "out", "report.md")).read()
print("the report is as it must be")
EOF
