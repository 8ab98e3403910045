"""What the checks of the documentation need of a Markdown file: its fenced blocks with the notes to the walk in front of them, its
headings' anchors as GitHub names them, and its links."""
import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^( *)(```+|~~~+) *([\w-]*)")
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
# [text](target), also of pictures, and what HTML says the same with. A target in <> may have spaces.
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\((<[^>]*>|[^()\s]+(?:\([^()\s]*\))?)(?:\s+\"[^\"]*\")?\)")
HTML = re.compile(r"<(?:img|a)\b[^>]*?\b(?:src|href)=\"([^\"]+)\"", re.IGNORECASE)


@dataclass
class Block:
    line: int  # of the fence, from 1
    language: str
    text: str
    notes: list = field(default_factory=list)  # lines of the comments right before it that begin with "walk:", without that


def blocks(text):
    """The fenced blocks, in order."""
    found, lines, notes, i = [], text.splitlines(), [], 0
    while i < len(lines):
        opening = FENCE.match(lines[i])
        if opening:
            indent, fence, language = opening.groups()
            end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == fence), len(lines))
            body = [line.removeprefix(indent) for line in lines[i + 1:end]]
            found.append(Block(i + 1, language, "\n".join(body) + "\n", notes))
            notes, i = [], end + 1
            continue
        if lines[i].startswith("<!--"):
            comment = lines[i]
            while "-->" not in comment and i + 1 < len(lines):
                i += 1
                comment += "\n" + lines[i]
            inside = COMMENT.match(comment).group(1) if COMMENT.match(comment) else ""
            notes = notes + [line.strip()[len("walk:"):].strip() for line in inside.splitlines() if line.strip().startswith("walk:")]
        elif lines[i].strip():
            notes = []
        i += 1
    return found


def prose(text):
    """The text without fenced blocks, comments and code in the line; each line stays where it is."""
    kept, fence = [], None
    for line in text.splitlines():
        match = FENCE.match(line)
        if fence is None and match:
            fence = match.group(2)
            kept.append("")
        elif fence is not None:
            fence = None if line.strip() == fence else fence
            kept.append("")
        else:
            kept.append(line)
    whole = COMMENT.sub(lambda match: "\n" * match.group(0).count("\n"), "\n".join(kept))
    return re.sub(r"(`+)[^`]+?\1", lambda match: " " * len(match.group(0)) if "\n" not in match.group(0) else match.group(0), whole)


def anchors(text):
    """What `#…` may name: GitHub's names of the headings."""
    found, seen, fence = set(), {}, None
    for line in text.splitlines():
        match = FENCE.match(line)
        if match and fence in (None, match.group(2)):
            fence = match.group(2) if fence is None else None
            continue
        heading = re.match(r"^#{1,6}\s+(.*?)\s*#*$", line) if fence is None else None
        if not heading:
            continue
        title = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        times = seen.get(name, 0)
        seen[name] = times + 1
        found.add(f"{name}-{times}" if times else name)
    return found | set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", text))


def links(text):
    """(line, target) of every link and picture outside of code."""
    whole, found = prose(text), []
    for pattern in (LINK, HTML):
        for match in pattern.finditer(whole):
            found.append((whole.count("\n", 0, match.start()) + 1, match.group(1).strip("<>")))
    return sorted(found)
