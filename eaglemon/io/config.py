"""Profiles as configured: packaged, then the user's, then the project's; the nearest wins.

A profile file is a list of keys (``profiles/NAME.toml``) or a table ``[profiles.NAME]`` of
``eaglemon.toml``. Hosts are read by ``host_config``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from eaglemon.core.problems import Problem, did_you_mean
from eaglemon.core.profiles import Profile
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io import profile_values
from eaglemon.io.config_layers import layers_over_packaged, unknown_tables
from eaglemon.io.resources import data_folder
from eaglemon.io.tomlfile import TomlFile, line_of, read_toml

_SUFFIX = ".toml"


@dataclass(frozen=True, slots=True)
class _Definition:
    """One profile as one file defines it."""

    name: str
    raw: Mapping[str, object]
    file: TomlFile
    path: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def problem(self, key: str, message: str, *, hint: str = "") -> Problem:
        return self.file.problem((*self.path, key), message, hint=hint)


class ProfileStore:
    """All profiles that could be read, and what is wrong with those that could not."""

    def __init__(self, definitions: Sequence[_Definition], problems: Sequence[Problem]) -> None:
        self._layers: dict[str, list[_Definition]] = {}
        for definition in definitions:
            self._layers.setdefault(definition.name, []).append(definition)
        self._profiles: dict[str, Profile] = {}
        self._broken: dict[str, tuple[Problem, ...]] = {}
        for name in sorted(self._layers):
            built = self._build(name)
            if isinstance(built, Profile):
                self._profiles[name] = built
            else:
                self._broken[name] = tuple(built)
        # Published pairs are many: what a person made or changed comes before them.
        order = sorted(self._profiles.values(), key=lambda one: (bool(one.reference), one.name))
        self._profiles = {profile.name: profile for profile in order}
        unique = dict.fromkeys([*problems, *(p for ps in self._broken.values() for p in ps)])
        self.problems: tuple[Problem, ...] = tuple(unique)
        """What is wrong, file by file; profiles of other files are not affected."""

    @classmethod
    def load(
        cls,
        *,
        config: Path | None = None,
        project: Path | None = None,
        user: Path | None = None,
    ) -> "ProfileStore":
        """Read all profiles; never raises for a broken file, see ``problems``.

        ``project`` is the folder of ``eaglemon.toml`` (default: the current one), ``user`` the
        user's configuration folder, ``config`` a file or folder that is laid over both; raises
        ``ConfigError`` when ``config`` does not exist.
        """
        definitions: list[_Definition] = []
        problems: list[Problem] = []
        for found in _read_profiles(
            layers_over_packaged(config=config, project=project, user=user)
        ):
            if isinstance(found, Problem):
                problems.append(found)
            else:
                definitions.append(found)
        return cls(definitions, problems)

    @property
    def broken(self) -> Mapping[str, tuple[Problem, ...]]:
        """What is wrong with each profile that could not be read."""
        return self._broken

    def take(self, other: "ProfileStore") -> None:
        """Become what ``other`` is: the files were read again."""
        vars(self).update(vars(other))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the profiles that could be read, sorted, published pairs last."""
        return tuple(self._profiles)

    def all(self) -> tuple[Profile, ...]:
        """Return the profiles that could be read, by name, published pairs last."""
        return tuple(self._profiles.values())

    def get(self, name: str, overrides: Mapping[str, str] | None = None) -> Profile:
        """Return a profile with ``--set`` values applied.

        Raises ``ConfigError`` for a profile whose file is broken and ``UsageError`` for an unknown
        name or a value that does not fit.
        """
        if name in self._broken:
            raise ConfigError("; ".join(str(problem) for problem in self._broken[name]))
        if name not in self._profiles:
            raise UsageError(f"unknown profile {name!r}", hint=did_you_mean(name, self._profiles))
        return profile_values.override(self._profiles[name], overrides or {})

    def origins(self, name: str) -> dict[str, str]:
        """Return where each value of a profile that could be read was set.

        Keys are dotted (``flags.tp-size``), places are ``FILE:LINE``; what is not there is a
        default. The nearest file that sets a key is told, as it is the one that counts.
        """
        chain = self._chain(name)
        merged: dict[str, object] = {}
        places: dict[str, str] = {}
        for link in reversed([one for one in chain if isinstance(one, _Definition)]):
            merged = profile_values.merge(merged, link.raw)
            for path in profile_values.leaf_paths(link.raw):
                line = line_of(link.file.text, (*link.path, *path))
                place = link.file.label if line is None else f"{link.file.label}:{line}"
                places[".".join(path)] = place
        left = {".".join(path) for path in profile_values.leaf_paths(merged)}
        return {key: place for key, place in places.items() if key in left and key != "extends"}

    def _build(self, name: str) -> Profile | Sequence[Problem]:
        chain = self._chain(name)
        links = [link for link in chain if isinstance(link, _Definition)]
        if len(links) < len(chain):
            return [link for link in chain if isinstance(link, Problem)]
        merged: dict[str, object] = {}
        for definition in reversed(links):
            merged = profile_values.merge(merged, definition.raw)
        return profile_values.build(name, merged, links[0].file, links[0].path)

    def _chain(self, name: str) -> list[_Definition] | list[Problem]:
        """Return what a profile is made of, itself first, or what is wrong with it."""
        chain: list[_Definition] = []
        seen: set[int] = set()
        current = self._layers[name][-1]
        while True:
            if current.problems:
                if not chain:
                    return list(current.problems)
                hint = "; ".join(str(problem) for problem in current.problems)
                return [chain[-1].problem("extends", f"{current.name!r} is broken", hint=hint)]
            chain.append(current)
            seen.add(id(current))
            parent_name = current.raw.get("extends")
            if parent_name is None:
                break
            parent = self._parent(current, str(parent_name))
            if parent is None:
                known = [other for other in self._layers if other != name]
                hint = did_you_mean(str(parent_name), known)
                return [current.problem("extends", f"unknown profile {parent_name!r}", hint=hint)]
            if id(parent) in seen:
                story = " -> ".join([*(link.name for link in chain), parent.name])
                return [chain[0].problem("extends", f"goes round in a circle: {story}")]
            current = parent
        return chain

    def _parent(self, child: _Definition, name: str) -> _Definition | None:
        layers = self._layers.get(name, [])
        if name != child.name:
            return layers[-1] if layers else None
        # A profile that extends its own name builds on the one of that name a layer below.
        index = next(i for i, layer in enumerate(layers) if layer is child)
        return layers[index - 1] if index > 0 else child


def _definition(name: str, raw: object, file: TomlFile, path: tuple[str, ...]) -> _Definition:
    wrong = profile_values.name_problem(name)
    if wrong is not None:
        return _Definition(name, {}, file, path, (file.problem(path, f"{name!r} {wrong}"),))
    if not isinstance(raw, Mapping):
        return _Definition(name, {}, file, path, (file.problem(path, "must be a table"),))
    problems = profile_values.check_layer(raw, file, path)
    return _Definition(name, raw, file, path, tuple(problems))


def _read_profiles(layers: Sequence[Path]) -> Iterator[_Definition | Problem]:
    packaged = data_folder("configs") / "profiles"
    for entry in sorted(packaged.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(_SUFFIX):
            yield _file_definition(entry, f"packaged profiles/{entry.name}")
    for layer in layers:
        if layer.is_dir():
            for path in sorted((layer / "profiles").glob(f"*{_SUFFIX}")):
                yield _file_definition(path, None)
            continue
        found = read_toml(layer)
        if isinstance(found, Problem):
            yield found
            continue
        yield from unknown_tables(found, ("hosts", "profiles"))
        tables = found.values.get("profiles", {})
        if not isinstance(tables, Mapping):
            yield found.problem(("profiles",), "must be a table")
            continue
        for name, raw in tables.items():
            yield _definition(name, raw, found, ("profiles", name))


def _file_definition(source: Path | Traversable, label: str | None) -> _Definition:
    name = source.name.removesuffix(_SUFFIX)
    found = read_toml(source, label=label)
    if isinstance(found, Problem):
        # The name stays taken: another layer's profile of this name must not be launched instead.
        return _Definition(name, {}, TomlFile(label=found.where), (), (found,))
    return _definition(name, found.values, found, ())
