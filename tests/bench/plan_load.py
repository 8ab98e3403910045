"""A plan does not depend on what runs beside it: idle, and beside four busy loops."""
import json
import subprocess
import sys

from report import lego, report

BUSY = 4
PLAN = ["plan", "--model", "llama3-8b", "--cluster", "h100-sxm-80:8x1", "--global-batch", "64", "--seq", "8192", "--top", "1000",
        "--rejected", "all"]


def planned():
    code, answer, error = lego(*PLAN)
    if answer is None:
        sys.exit(f"exit code {code}: {error}")
    return answer.pop("seconds"), json.dumps(answer)


idle_seconds, idle = planned()
loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
try:
    busy_seconds, busy = planned()
finally:
    for loop in loops:
        loop.kill()
        loop.wait()
same = idle == busy
answer = json.loads(idle)
report([{"idle seconds": idle_seconds, "seconds beside four busy loops": busy_seconds, "bytes": len(idle), "captured": answer["captured"],
         "ranked": len(answer["ranked"]), "the same": same}])
sys.exit(0 if same else 1)
