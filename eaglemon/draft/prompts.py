"""Prompts to capture hidden states over."""

import json
from pathlib import Path

from eaglemon.errors import ConfigError


def read_prompts(path: Path, limit: int) -> list[str]:
    """Read prompts: JSON lines with ``text``, or plain lines; raises ``ConfigError``."""
    prompts: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip() or len(prompts) == limit:
            continue
        if not path.name.endswith((".jsonl", ".json")):
            prompts.append(line)
            continue
        try:
            entry = json.loads(line)
            prompts.append(str(entry["text"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{path}:{number}: no prompt", hint='write {"text": "..."} on each line'
            ) from error
    return prompts
