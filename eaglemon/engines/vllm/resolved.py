"""vLLM's arguments as it resolved them, from the first lines of its log (0.32).

``/server_info`` exists in development mode only; the line that names the engine's configuration
is always there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from eaglemon.core.profiles import Profile
from eaglemon.core.redact import is_secret
from eaglemon.engines.likeness import comparable, differing

_CONFIG = re.compile(
    r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\) with config: (?P<rest>.*)"
)
_GIVEN = re.compile(r"non-default args: \{(?P<rest>.*)\}")
_NOTED = (
    re.compile(r"(?P<name>max_num_scheduled_tokens) is set to (?P<value>\d+)"),
    re.compile(r"Using (?P<value>[A-Z][A-Z0-9_]+)(?: attention)? backend"),
    re.compile(r"(?P<name>chunked_prefill_tokens|max_num_batched_tokens)=(?P<value>\d+)"),
)
_NESTED = frozenset({"compilation_config"})
"""Of these the parts are told one by one."""
_KEY = re.compile(r"['\"]?(?P<key>[A-Za-z_][A-Za-z0-9_.]*)['\"]?\s*[=:]\s*(?P<value>.*)", re.DOTALL)
_OPEN, _CLOSE = "([{<", ")]}>"


def resolved_arguments(lines: Iterable[str]) -> dict[str, str]:
    """Return the arguments by name, without secrets; empty when the log does not tell."""
    found: dict[str, str] = {}
    for line in lines:
        given = _GIVEN.search(line)
        if given is not None:
            found.update(_pairs(given["rest"]))
        config = _CONFIG.search(line)
        if config is not None:
            found["version"] = config["version"]
            for name, value in _pairs(config["rest"]):
                if name in _NESTED:
                    found.update((f"{name}.{k}", v) for k, v in _pairs(value.strip("{}")))
                else:
                    found[name] = value
        for pattern in _NOTED:
            noted = pattern.search(line)
            if noted is not None:
                found.setdefault(
                    noted.groupdict().get("name") or "attention_backend", noted["value"]
                )
    if "version" in found:
        # Told only when the engine lowers it, as it does for speculation.
        found.setdefault("max_num_scheduled_tokens", "none")
    return {name: value for name, value in found.items() if not is_secret(name)}


def unlike(profile: Profile, card: Mapping[str, object], ours: Mapping[str, str]) -> list[str]:
    """Return what a server says of its model (``card``) that is not as the run's, in words.

    ``ours`` is what the run's log tells. A vLLM server names neither its draft nor its seed.
    """
    length = ours.get("max_seq_len")
    given = profile.flags.get("max-model-len")
    if length is None and isinstance(given, int) and given > 0:
        length = str(given)
    return differing(
        (
            ("model", *comparable(profile.model, card.get("root"))),
            ("longest context", length, card.get("max_model_len")),
        )
    )


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in _parts(text):
        match = _KEY.fullmatch(part.strip())
        if match is not None:
            yield match["key"], match["value"].strip().strip("'")


def _parts(text: str) -> Iterator[str]:
    """Yield what stands between commas outside of brackets and quotes."""
    depth, quote, start = 0, "", 0
    for place, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
