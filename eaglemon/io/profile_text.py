"""Writes a profile as the TOML of a profile file."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

import tomlkit

from eaglemon.core.profiles import Profile
from eaglemon.core.redact import MASK, is_secret, mask_argv
from eaglemon.errors import ConfigError
from eaglemon.io.paths import user_config_folder


def profile_toml(profile: Profile, *, masked: bool = False) -> str:
    """Return the file of a profile: what differs from the defaults.

    ``masked`` hides secrets: for a screen, not for a file.
    """
    document = tomlkit.document()
    tables = []
    for field in fields(Profile):
        value = getattr(profile, field.name)
        if masked and field.name == "command":
            value = tuple(mask_argv(value))
        if field.name in {"name", "source"} or value in (None, "", (), {}, field.default):
            continue
        if is_dataclass(value) and not isinstance(value, type):
            plain = _changed(value)
            if plain or field.name == "speculation":
                tables.append((field.name, plain))
        elif isinstance(value, Mapping):
            tables.append((field.name, dict(value)))
        else:
            document.add(field.name, _item(value))
    for name, table in tables:
        content = tomlkit.table()
        for key, value in table.items():
            content.add(key, MASK if masked and is_secret(key) else _item(value))
        document.add(name, content)
    return tomlkit.dumps(document)


def save_profile(name: str, text: str) -> Path:
    """Write a profile file into the user's folder; raises ``ConfigError`` where one is there."""
    path = user_config_folder() / "profiles" / f"{name}.toml"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            path.chmod(0o600)
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already", hint="choose another --name") from error
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(f"{path} cannot be written: {reason}") from error
    return path


def _changed(value: object) -> dict[str, object]:
    """Return the fields of a dataclass that differ from its defaults."""
    usual = type(value)()
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)  # type: ignore[arg-type]
        if getattr(value, field.name) not in (None, getattr(usual, field.name))
    }


def _item(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        table = tomlkit.inline_table()
        for key, inner in value.items():
            table.add(key, _item(inner))
        return table
    return value
