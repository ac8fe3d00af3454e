from pathlib import Path

import pytest

from eaglemon.core.hosts import HostSpec
from eaglemon.errors import ConfigError, UsageError
from eaglemon.io.host_config import LOCAL, host_named, load_hosts
from eaglemon.io.resources import data_folder


def load(tmp_path: Path, text: str, name: str = "user/hosts.toml") -> tuple[HostSpec, ...]:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return load_hosts(user=tmp_path / "user", project=tmp_path / "project")


def test_without_files_there_is_the_local_host(tmp_path: Path) -> None:
    assert load_hosts(user=tmp_path, project=tmp_path) == (LOCAL,)


def test_hosts_are_read_in_order(tmp_path: Path) -> None:
    text = (
        '[hosts.b]\naddress = "10.0.0.1"\nuser = "ml"\nport = 2222\nenv = {A = "1"}\n'
        'identity = "key"\n[hosts.a]\nssh_config = ""\n'
    )
    b, a, local = load(tmp_path, text)
    assert (b.name, b.address, b.user, b.port, b.env) == ("b", "10.0.0.1", "ml", 2222, {"A": "1"})
    assert b.identity == str(tmp_path / "user" / "key")
    assert b.source.endswith("hosts.toml")
    assert (a.name, a.ssh_config, a.transport) == ("a", "", "ssh")
    assert local == LOCAL


def test_the_project_wins_over_the_user(tmp_path: Path) -> None:
    load(tmp_path, '[hosts.a]\naddress = "one"\n')
    hosts = load(tmp_path, '[hosts.a]\naddress = "two"\n', "project/eaglemon.toml")
    assert [host.address for host in hosts] == ["two", ""]


def test_local_may_be_configured(tmp_path: Path) -> None:
    (local,) = load(tmp_path, '[hosts.local]\ntransport = "local"\npython = "/opt/python3"\n')
    assert local.python == "/opt/python3"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[host.a]\n", ("hosts.toml:1: host", "'hosts'")),
        ('[hosts.a]\n\nadress = "x"\n', ("hosts.toml:3: hosts.a.adress", "'address'")),
        ('[hosts.a]\nport = "22"\n', ("hosts.toml:2: hosts.a.port", "whole number")),
        ("[hosts.a]\nport = 0\n", ("hosts.toml:2: hosts.a.port", "65535")),
        ('[hosts.a]\ntransport = "shh"\n', ("hosts.toml:2: hosts.a.transport", "'ssh'")),
        ("[hosts]\na = 3\n", ("hosts.toml:2: hosts.a", "table")),
        ("hosts = 3\n", ("hosts.toml:1: hosts", "table")),
        ("[hosts.a\n", ("hosts.toml:1", "not valid TOML")),
        ("[hosts.a]\nenv = {A = 1}\n", ("hosts.toml:2: hosts.a.env.A", "a text in quotes")),
    ],
)
def test_broken_hosts_name_line_key_and_fix(
    tmp_path: Path, text: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    for part in parts:
        assert part in str(caught.value)


def test_the_shipped_example_is_valid(tmp_path: Path) -> None:
    text = (data_folder("configs") / "hosts.example.toml").read_text(encoding="utf-8")
    assert [host.name for host in load(tmp_path, text)] == ["gpu-a", "gpu-b", "gpu-c", "local"]


def test_known_names_give_their_host() -> None:
    known = HostSpec(name="a", address="10.0.0.1")
    assert host_named("a", (known, LOCAL)) is known


@pytest.mark.parametrize(
    ("name", "address", "user", "port"),
    [
        ("gpu7", "gpu7", None, None),
        ("ml@gpu7", "gpu7", "ml", None),
        ("ml@gpu7:2222", "gpu7", "ml", 2222),
        ("fe80::1", "fe80::1", None, None),
    ],
)
def test_unknown_names_are_ssh_names(
    name: str, address: str, user: str | None, port: int | None
) -> None:
    host = host_named(name, (LOCAL,))
    assert (host.name, host.address, host.user, host.port) == (name, address, user, port)
    assert host.transport == "ssh"
    assert host.source == "command line"


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a b", "@gpu", "gpu:", "gpu:x", "a/b"])
def test_names_that_cannot_be_hosts_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        host_named(name, (LOCAL,))
