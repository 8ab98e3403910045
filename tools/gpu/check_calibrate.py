"""The calibration file of the card, by `lego-measure`."""
import os

LEAST_SECONDS, MOST_SECONDS = 20, 150
MOST_BYTES = 16 << 20


def part(context):
    if context.device != "cuda":
        return context.skip_part("a calibration is of a GPU (--device cuda)")
    program = context.programs.get("lego-measure")
    if program is None:
        return context.skip_part("the program lego-measure is not there", state="not run")
    if not context.cards:
        return context.skip_part("no card was found", state="not run")
    seconds = int(min(MOST_SECONDS, context.left() - 10))
    if seconds < LEAST_SECONDS:
        return context.skip_part(f"{max(0, seconds)} s are left, and it needs {LEAST_SECONDS}", state="not run")
    path = os.path.join(context.out, "calibration.txtpb")
    result = context.run("lego-measure", [program, "--device=cuda", f"--out={path}", f"--seconds={seconds}"], context.left(),
                         on_line=context.report.progress)
    size = os.path.getsize(path) if os.path.exists(path) else 0
    if result.killed or result.code != 0:
        return context.add("calibration.txtpb", "failed", result.killed or f"ended with code {result.code}: {result.last_line()}",
                           bytes=size)
    good = 0 < size < MOST_BYTES
    context.add("calibration.txtpb", "passed" if good else "failed", f"{size:,} bytes, {seconds} s asked, {result.seconds:.0f} s taken",
                bytes=size)
